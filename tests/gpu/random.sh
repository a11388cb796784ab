#!/usr/bin/env bash
# Runs random programs bare, recorded, checked and replayed, with all cores busy, and compares what
# they print with what they must compute. Prints a table of failures.
#   tests/gpu/random.sh PACKAGE RESULTS COUNT [FIRST [SECONDS]]
# PACKAGE is the output of `cargo xtask package`, COUNT how many programs, FIRST the number of the
# first one, from 0; after SECONDS no others are begun. RESULTS gets the failing programs and their
# traces. AT_ONCE: processes of programs, by default half as many as cores. LOAD: busy loops beside
# them, by default one for each core. NULL_DRIVER=1: on the package's null driver, under its schedules.
# PROGRAMS: other programs than the package's (`cargo xtask random --write`).
set -eu
if [ $# -lt 3 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "random.sh: python3: not found" >&2; exit 2; }
exec python3 "$(dirname "$0")/random_programs.py" "$@"
