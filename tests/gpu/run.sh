#!/usr/bin/env bash
# Runs the test programs on a machine with a GPU: bare, recorded, checked, checked live, replayed;
# prints a table.
#   tests/gpu/run.sh PACKAGE RESULTS [NAME...]
# PACKAGE is the output of `cargo xtask package`. RESULTS gets table.txt, the traces and every log.
# NAME is a program. REPEATS=10 records and checks each violation ten times; with ONLY_CHECKED=1 it
# does only that. RECORD_OPTIONS=--breadcrumbs=1 records with more options.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "run.sh: python3: not found" >&2; exit 2; }
exec python3 "$(dirname "$0")/run.py" "$@"
