#!/usr/bin/env bash
# Whether `hang PID`, from outside, names stream, kernel and line of work that hangs or has failed on a
# machine with a GPU, and what breadcrumbs cost; prints a table.
#   tests/gpu/hang.sh PACKAGE RESULTS [NAME...]
# PACKAGE is the output of `cargo xtask package`. The programs are tests/programs/hang/hangs.c, in
# PACKAGE, and programs/hang_spin.py. DRIVER=null tries the script without a GPU: streams then wait for
# values, and nothing faults.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "hang.sh: python3: not found" >&2; exit 2; }
exec python3 "$(dirname "$0")/hang.py" "$@"
