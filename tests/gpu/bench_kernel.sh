#!/usr/bin/env bash
# Shows on a machine with a GPU and nvcc that `cutape bench` reports a slower kernel and no other
# one: ten runs of each.
#   tests/gpu/bench_kernel.sh PACKAGE RESULTS
# PACKAGE is the output of `cargo xtask package`. RESULTS gets table.txt, the trace and every
# output.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
for tool in python3 nvcc; do
    command -v $tool >/dev/null || { echo "bench_kernel.sh: skipped: $tool is not installed" >&2; exit 2; }
done
exec python3 "$(dirname "$0")/bench_kernel.py" "$@"
