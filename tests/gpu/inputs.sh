#!/usr/bin/env bash
# Records functions with one input, replays them with another, and compares the saved outputs with
# what the programs write for that input. Prints a table.
#   tests/gpu/inputs.sh PACKAGE RESULTS [NAME...]
# PACKAGE is the output of `cargo xtask package`. A NAME chooses the programs that contain it.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "inputs.sh: python3: not found" >&2; exit 2; }
exec python3 "$(dirname "$0")/inputs.py" "$@"
