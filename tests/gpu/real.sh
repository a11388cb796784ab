#!/usr/bin/env bash
# Records and replays programs of the CUDA runtime and of Python frameworks on a machine with a GPU;
# prints a table.
#   tests/gpu/real.sh PACKAGE RESULTS [NAME...]
# PACKAGE is the output of `cargo xtask package`. What is not installed (nvcc, a Python package) is
# skipped and named. REPEATS=20 replays each trace 20 times; the reports must be equal.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "real.sh: python3: not found" >&2; exit 2; }
exec python3 "$(dirname "$0")/real.py" "$@"
