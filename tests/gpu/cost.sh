#!/usr/bin/env bash
# What recording adds to a step of a PyTorch training, on a machine with a GPU: an unrecorded process
# and one for each kind of recording take turns, and a table has the ratios of steps.
#   tests/gpu/cost.sh PACKAGE RESULTS [NAME...]
# PACKAGE is the output of `cargo xtask package`. A NAME chooses the rows that contain it: `ordinary`
# (a transformer that keeps the GPU busy), `calls` (one that makes calls as fast as it can), or words of
# what is recorded. ROUNDS=20 sets how often. CUTAPE_BEFORE=PACKAGE measures an older package as well.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "cost.sh: python3: not found" >&2; exit 2; }
exec python3 "$(dirname "$0")/cost.py" "$@"
