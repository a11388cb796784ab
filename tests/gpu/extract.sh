#!/usr/bin/env bash
# Records programs, extracts launches of each, runs every launch in a process of its own and compares
# what it writes with what the replay wrote. Prints a table.
#   tests/gpu/extract.sh PACKAGE RESULTS [NAME|TRACE...]
# PACKAGE is the output of `cargo xtask package`. What is not installed (nvcc, a Python package) is
# skipped and named. Programs are those of tests/gpu/programs; a name chooses those that contain it.
# Traces are taken as they are. SAMPLE is how many launches of a program are extracted (60).
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "extract.sh: python3: not found" >&2; exit 2; }
exec python3 "$(dirname "$0")/extract.py" "$@"
