#!/usr/bin/env bash
# Records and replays programs beside a load on all cores of a machine with a GPU; prints how often
# the driver placed all memory at its recorded addresses.
#   tests/gpu/placement.sh PACKAGE RESULTS [NAME...]
# PACKAGE is the output of `cargo xtask package`. N=4 recordings of each program, R=2 replays of
# each. LIMIT=480: seconds after which nothing more is started; the table is printed also then.
# LOAD=0: busy loops beside it; default: one for each core. AT_ONCE=1 recordings of a program at a
# time, each with its replays. SLOWED=0: so many recordings of each program are also replayed once
# while the process is stopped and continued at random, ten times as slow; the reports must be the
# same. What did not go right at the first attempt is in RESULTS/misplaced.jsonl.gz, with the address
# spaces that the traces have.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "placement.sh: python3: not found" >&2; exit 2; }
exec python3 -u "$(dirname "$0")/placement.py" "$@"
