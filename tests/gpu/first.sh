#!/usr/bin/env bash
# Whether `first --nan` names the launch that wrote the first NaN of a training, on a machine with a
# GPU and PyTorch, and what it costs beside a replay; prints a table.
#   tests/gpu/first.sh PACKAGE RESULTS [WAY...]
# PACKAGE is the output of `cargo xtask package`. A way is eager or graph.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "first.sh: python3: not found" >&2; exit 2; }
exec python3 "$(dirname "$0")/first.py" "$@"
