#!/usr/bin/env bash
# Records programs with digests of device memory, replays them and compares; then replays with a
# kernel that does slightly other things, which must be named at its first launch. Prints a table.
#   tests/gpu/digests.sh PACKAGE RESULTS [NAME...]
# PACKAGE is the output of `cargo xtask package`. What is not installed (nvcc, a Python package) is
# skipped and named. Programs are those of tests/gpu/programs; a name chooses those that contain it.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "digests.sh: python3: not found" >&2; exit 2; }
exec python3 "$(dirname "$0")/digests.py" "$@"
