#!/usr/bin/env bash
# Whether graphs leave the same bytes node by node as whole, on a machine with a GPU; prints a table.
#   tests/gpu/graphs.sh PACKAGE RESULTS [NAME...]
# PACKAGE is the output of `cargo xtask package`. Programs with graphs are recorded with digests of what
# launches write; `cutape first` replays graphs node by node, and says if its replay differs.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
exec python3 "$(dirname "$0")/graphs.py" "$@"
