#!/usr/bin/env bash
# A training under the flight recorder (`record --keep-last`), on a machine with a GPU and PyTorch:
# whether what is kept replays and checks, without contents of memory and with them (`--memory all`),
# and how much of the disk it takes; and whether recordings that stop and start compute the same
# (exact, without PyTorch). Prints tables.
#   tests/gpu/flight.sh PACKAGE RESULTS [exact] [kept]
# PACKAGE is the output of `cargo xtask package`.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "flight.sh: python3: not found" >&2; exit 2; }
exec python3 "$(dirname "$0")/flight.py" "$@"
