#!/usr/bin/env bash
# Minimises recordings: to the divergence that a replaced kernel causes, and to the call in which the
# driver crashes. Each result is replayed. Prints a table.
#   tests/gpu/minimize.sh PACKAGE RESULTS [NAME...]
# PACKAGE is the output of `cargo xtask package`. What is not installed (CuPy) is skipped and named. A
# NAME chooses the programs that contain it.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "minimize.sh: python3: not found" >&2; exit 2; }
exec python3 "$(dirname "$0")/minimize.py" "$@"
