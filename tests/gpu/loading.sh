#!/usr/bin/env bash
# Every way to libcuda under every back end of `record`, and Python frameworks under two of them, with the machine's driver.
#   tests/gpu/loading.sh PACKAGE RESULTS [NAME...]
# PACKAGE is what `cargo xtask package` has made; RESULTS gets table.txt and traces; NAME picks frameworks. A table is printed.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,4s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "loading.sh: python3 is needed" >&2; exit 2; }
exec python3 "$(dirname "$0")/loading.py" "$@"
