#!/usr/bin/env bash
# Shows on a machine with two GPUs that `cutape profile FOLDER` finds which rank is slow, and how long
# the other one waits for it. Needs PyTorch with NCCL.
#   tests/gpu/rank_profiles.sh PACKAGE RESULTS
# PACKAGE is the output of `cargo xtask package`. RESULTS gets the traces and the profile.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "rank_profiles.sh: python3: not found" >&2; exit 2; }
exec python3 "$(dirname "$0")/rank_profiles.py" "$@"
