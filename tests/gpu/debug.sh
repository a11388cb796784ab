#!/usr/bin/env bash
# Whether `debug` and `inspect` show what memory held in programs that print it: values on the way
# forward and back, with and without checkpoints, the call at which a watchpoint stops, statistics.
# And what going back costs. Prints a table.
#   tests/gpu/debug.sh PACKAGE RESULTS [PROGRAM...]
# PACKAGE is the output of `cargo xtask package`. A program is driver, which needs a C compiler, or
# torch, which needs PyTorch. DRIVER=null is for machines without a GPU; ROUNDS=300 makes the first
# one shorter.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "debug.sh: python3: not found" >&2; exit 2; }
source "$(dirname "$0")/own_program.sh"
compile debugged
shift 2
exec python3 "$tests/gpu/debug.py" "$package" "$results" "$@"
