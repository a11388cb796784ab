#!/usr/bin/env bash
# Whether findings name the line of a program's source on a machine with a GPU, and what recording
# call stacks costs; prints a table.
#   tests/gpu/stacks.sh PACKAGE RESULTS [NAME...]
# PACKAGE is the output of `cargo xtask package`. The programs are those of programs/stacks; the
# line of their misuse ends with "misuse".
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "stacks.sh: python3: not found" >&2; exit 2; }
exec python3 "$(dirname "$0")/stacks.py" "$@"
