#!/usr/bin/env bash
# Runs programs that use two GPUs, in one process and in two: bare, recorded, checked, replayed,
# replayed with the devices exchanged, and replayed with one device hidden. Prints a table last.
#   tests/gpu/multi.sh PACKAGE RESULTS [NAME...]
# PACKAGE is the output of `cargo xtask package`. What is not installed (nvcc, a Python package) is
# skipped and named.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "multi.sh: python3: not found" >&2; exit 2; }
exec python3 "$(dirname "$0")/multi.py" "$@"
