#!/usr/bin/env bash
# Programs that use two GPUs, in one process and in two: bare, recorded, checked, replayed; replayed with the devices
# exchanged, and where one of them is hidden. Prints a table last.
#   tests/gpu/multi.sh PACKAGE RESULTS [NAME...]
# PACKAGE is what `cargo xtask package` has made; what the machine lacks (nvcc, a Python package) is skipped by name.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,5s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "multi.sh: python3 is needed" >&2; exit 2; }
exec python3 "$(dirname "$0")/multi.py" "$@"
