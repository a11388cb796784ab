#!/usr/bin/env bash
# Runs programs that load libcuda in different ways with every backend of `record`, and Python
# frameworks with two of them, on the machine's driver; prints a table.
#   tests/gpu/loading.sh PACKAGE RESULTS [NAME...]
# PACKAGE is the output of `cargo xtask package`. RESULTS gets table.txt and traces. NAME is a
# framework.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "loading.sh: python3: not found" >&2; exit 2; }
exec python3 "$(dirname "$0")/loading.py" "$@"
