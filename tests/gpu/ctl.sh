#!/usr/bin/env bash
# Stops and starts the recording of a training in PyTorch and of a program with 8 threads, thousands
# of times: the same losses as never recorded, the time of a step between recordings, a replay and a
# check of the trace. Prints a table.
#   tests/gpu/ctl.sh PACKAGE RESULTS [CYCLES]
# PACKAGE is the output of `cargo xtask package`; CYCLES is 10000 if not given. Without PyTorch, its
# row is left out and named.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "ctl.sh: python3: not found" >&2; exit 2; }
exec python3 "$(dirname "$0")/ctl.py" "$@"
