#!/usr/bin/env bash
# Records programs twice and compares the traces: there must be no difference. Then compares a program
# with changed versions of itself: the first line must name each change. Prints a table.
#   tests/gpu/diff.sh PACKAGE RESULTS [NAME...]
# PACKAGE is the output of `cargo xtask package`. What is not installed (nvcc, a Python package) is
# skipped and named. A NAME chooses the programs that contain it: of the package, of tests/gpu/programs,
# or of the changes (tests/programs/diff).
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "diff.sh: python3: not found" >&2; exit 2; }
exec python3 "$(dirname "$0")/diff.py" "$@"
