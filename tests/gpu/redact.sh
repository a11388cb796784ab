#!/usr/bin/env bash
# Records programs, redacts each trace with each kind of contents, and checks and replays the results.
# Prints a table: sizes, whether check finds the same, whether the replay ends as that of the source.
#   tests/gpu/redact.sh PACKAGE RESULTS [NAME...]
# PACKAGE is the output of `cargo xtask package`. A NAME chooses the programs that contain it.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "redact.sh: python3: not found" >&2; exit 2; }
exec python3 "$(dirname "$0")/redact.py" "$@"
