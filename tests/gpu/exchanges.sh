#!/usr/bin/env bash
# Records programs of several ranks with `--outputs-of-exchanges`, compares what is kept with what
# the programs read back, and measures the cost on a step of training. Prints a table last.
#   tests/gpu/exchanges.sh PACKAGE RESULTS [NAME...]
# PACKAGE is the output of `cargo xtask package`. One GPU suffices for `exchanges` and `sharing`;
# the others need two. What is not installed is skipped and named. ROUNDS=N measures N times in
# turn, STEPS=N that many steps each, WIDTH=N sets the size of the model (a trace grows by its
# gradients in each step: 25 MB with 1024); SIZE=1G is the memory for copies. DRIVER=null uses the
# null driver, for a try without a GPU.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "exchanges.sh: python3: not found" >&2; exit 2; }
. "$(dirname "$0")/own_program.sh"
compile_ranks exchanges
compile_ranks sharing
export DRIVER="${DRIVER:-}"
exec python3 "$(dirname "$0")/exchanges.py" "$package" "$results" "${@:3}"
