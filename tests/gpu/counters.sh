#!/usr/bin/env bash
# Shows on a machine with a GPU, nvcc and ncu that `cutape profile --counters` agrees with arithmetic,
# and what its passes cost.
#   tests/gpu/counters.sh PACKAGE RESULTS
# PACKAGE is the output of `cargo xtask package`. RESULTS gets the traces and profiles.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
for tool in python3 nvcc; do
    command -v $tool >/dev/null || { echo "counters.sh: skipped: $tool is not installed" >&2; exit 2; }
done
exec python3 "$(dirname "$0")/counters.py" "$@"
