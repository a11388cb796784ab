#!/usr/bin/env bash
# Records programs, cuts a late step out of each trace (--state recorded and replay, each with --images
# whole and used), replays and checks the parts. Prints a table: sizes, divergences, whether check finds the same.
#   tests/gpu/trim.sh PACKAGE RESULTS [NAME|TRACE...]
# PACKAGE is the output of `cargo xtask package`. What is not installed (nvcc, a Python package) is
# skipped and named. A NAME chooses the programs that contain it; traces are taken as they are.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "trim.sh: python3: not found" >&2; exit 2; }
exec python3 "$(dirname "$0")/trim.py" "$@"
