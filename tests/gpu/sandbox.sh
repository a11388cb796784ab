#!/usr/bin/env bash
# Whether replays on a machine with a GPU do the same in the sandbox as without; prints a table.
#   tests/gpu/sandbox.sh PACKAGE RESULTS [NAME...]
# PACKAGE is the output of `cargo xtask package`. DRIVER=null uses the null driver.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
exec python3 "$(dirname "$0")/sandbox.py" "$@"
