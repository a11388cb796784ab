#!/usr/bin/env bash
# Records tests of PyTorch and CuPy on a machine with a GPU, runs them on their recordings, and
# prints a table.
#   tests/gpu/play_tests.sh PACKAGE RESULTS
# PACKAGE is the output of `cargo xtask package`. Python needs pytest, and pytest-xdist for one row.
# In the environment: DRIVER (`null`).
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
python3 -c 'import pytest' || { echo "play_tests.sh: python3 has no pytest" >&2; exit 2; }
exec python3 "$(dirname "$0")/play_tests.py" "$@"
