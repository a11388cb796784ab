#!/usr/bin/env bash
# Whether `diff --execute` and `first --differs` name the one changed kernel of 5,000 launches, and an
# upload that differs, on a machine with a GPU and nvcc: ten changed kernels. Prints a table.
#   tests/gpu/execute.sh PACKAGE RESULTS
# PACKAGE is the output of `cargo xtask package`. RESULTS gets table.txt, the traces and every
# output.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
for tool in python3 nvcc; do
    command -v $tool >/dev/null || { echo "execute.sh: skipped: $tool is not installed" >&2; exit 2; }
done
exec python3 "$(dirname "$0")/execute.py" "$@"
