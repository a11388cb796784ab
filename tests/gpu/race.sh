#!/usr/bin/env bash
# Whether `race` proves a missing event, says nothing where it is there, and `check --proven` makes
# it an error, for programs that load code lazily and eagerly, on a machine with a GPU and nvcc;
# prints a table, and for each kind of loading how many were proven.
#   tests/gpu/race.sh PACKAGE RESULTS [NAME...]
# PACKAGE is the output of `cargo xtask package`. The programs are those of programs/planted/race.cu.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v nvcc >/dev/null || { echo "race.sh: nvcc: not found" >&2; exit 2; }
exec python3 "$(dirname "$0")/race.py" "$@"
