#!/usr/bin/env bash
# Whether programs on a machine with a GPU go on, and lose no call, when they are killed, when system
# calls of the recorder fail, with jemalloc, and when they start after the end of `record`. Prints a
# table.
#   tests/gpu/faults.sh PACKAGE RESULTS [KILLS]
# PACKAGE is the output of `cargo xtask package`; KILLS is 100 if not given. DRIVER=null uses the null
# driver.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "faults.sh: python3: not found" >&2; exit 2; }
exec python3 "$(dirname "$0")/faults.py" "$@"
