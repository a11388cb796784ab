#!/usr/bin/env bash
# Threads that create, use and destroy objects of every kind as fast as they can, under the flight
# recorder: whether memory, descriptors, threads and the trace stay as they are, and whether what is
# left replays and checks. Prints a table.
#   tests/gpu/soak.sh PACKAGE RESULTS [SECONDS [OPTION...]]
# PACKAGE is the output of `cargo xtask package`; SECONDS is 60 and the options of `record` are
# `--keep-last 64MiB` if not given. THREADS=8 and ROUNDS=1000 set how many threads there are, and after
# how many rounds each ends and another begins; STEPS=20 how many copies, launches and events a round
# has beside the objects. DRIVER=null uses the null driver. CALLS=N makes N launches instead, by a
# driver that does nothing, so that days of calls take minutes; the samples are those of SECONDS.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "soak.sh: python3: not found" >&2; exit 2; }
exec python3 "$(dirname "$0")/soak.py" "$@"
