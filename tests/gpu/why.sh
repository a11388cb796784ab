#!/usr/bin/env bash
# Whether `why` names the launch and the line that wrote a planted wrong byte, on a machine with a
# GPU, and what it costs beside a replay; prints a table.
#   tests/gpu/why.sh PACKAGE RESULTS [NAME...]
# PACKAGE is the output of `cargo xtask package`. The programs are those of programs/planted.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "why.sh: python3: not found" >&2; exit 2; }
exec python3 "$(dirname "$0")/why.py" "$@"
