#!/usr/bin/env bash
# Records programs of several ranks that share memory (IPC, descriptors, pools; NCCL), replays all
# ranks together ten times, each trace alone, and each rank of a recording with the outputs of
# exchanges alone on one device; measures the first of these ranks, and extracts launches of it.
# Prints a table last. In names that end with `_files`, NCCL exchanges through files in /dev/shm.
#   tests/gpu/ranks.sh PACKAGE RESULTS [NAME...]
# PACKAGE is the output of `cargo xtask package`. One GPU suffices for `sharing`; the others need
# two. What is not installed is skipped and named. REPLAYS=N replays N times; DRIVER=null uses the
# null driver, for a try without a GPU.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "ranks.sh: python3: not found" >&2; exit 2; }
. "$(dirname "$0")/own_program.sh"
compile_ranks sharing
export DRIVER="${DRIVER:-}"
exec python3 "$(dirname "$0")/ranks.py" "$package" "$results" "${@:3}"
