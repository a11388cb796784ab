#!/usr/bin/env bash
# Records and replays programs of the CUDA runtime and of Python frameworks on a machine with a GPU; prints a table.
#   tests/gpu/real.sh PACKAGE RESULTS [NAME...]
# PACKAGE is what `cargo xtask package` has made; what the machine lacks (nvcc, a Python package) is skipped by name.
# With REPEATS=20 in the environment each trace is replayed that often, and must give one report.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,5s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "real.sh: python3 is needed" >&2; exit 2; }
exec python3 "$(dirname "$0")/real.py" "$@"
