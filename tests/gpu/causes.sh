#!/usr/bin/env bash
# What `replay` says about the cause of a divergence, an asynchronous error or a hang on a machine with
# a GPU, and what profilers and sanitizers show of a replay; prints a table.
#   tests/gpu/causes.sh PACKAGE RESULTS [NAME...]
# PACKAGE is the output of `cargo xtask package`. The programs are those of programs/causes; their
# first line says what is expected. REPEATS=20 judges each trace 20 times.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
for tool in python3 nvcc; do
    command -v $tool >/dev/null || { echo "causes.sh: $tool: not found" >&2; exit 2; }
done
exec python3 "$(dirname "$0")/causes.py" "$@"
