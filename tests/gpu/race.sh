#!/usr/bin/env bash
# Whether `race` proves a missing event, and says nothing where it is there, on a machine with a GPU
# and nvcc; prints a table.
#   tests/gpu/race.sh PACKAGE RESULTS [NAME...]
# PACKAGE is the output of `cargo xtask package`. The programs are those of programs/planted/race.cu.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v nvcc >/dev/null || { echo "race.sh: nvcc: not found" >&2; exit 2; }
exec python3 "$(dirname "$0")/race.py" "$@"
