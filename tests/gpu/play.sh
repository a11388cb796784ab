#!/usr/bin/env bash
# Records programs on a machine with a GPU, runs them again on the null driver with the recorded
# answers, and prints a table.
#   tests/gpu/play.sh PACKAGE RESULTS [NAME...]
# PACKAGE is the output of `cargo xtask package`. A NAME chooses the programs that contain it. In the
# environment: DRIVER (`null`).
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "play.sh: python3: not found" >&2; exit 2; }
exec python3 "$(dirname "$0")/play.py" "$@"
