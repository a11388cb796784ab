#!/usr/bin/env bash
# Measures what recording costs on a machine with a GPU, beside other tools; prints a table. Takes three to six minutes.
#   tests/gpu/bench.sh PACKAGE RESULTS [PART...]
# PACKAGE is what `cargo xtask package` has made; RESULTS gets bench.txt and every figure in bench.json; PART picks among calls, cold,
# threads, tail, upload, torch. CUTAPE_BEFORE=PACKAGE measures an older package beside it. What the machine lacks (CUPTI, Compute Sanitizer, PyTorch) is skipped by name.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,5s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "bench.sh: python3 is needed" >&2; exit 2; }
exec python3 "$(dirname "$0")/bench.py" "$@"
