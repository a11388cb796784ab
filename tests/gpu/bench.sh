#!/usr/bin/env bash
# Measures the cost of recording on a machine with a GPU, and of other tools; prints a table. Takes
# three to six minutes.
#   tests/gpu/bench.sh PACKAGE RESULTS [PART...]
# PACKAGE is the output of `cargo xtask package`. RESULTS gets bench.txt, and every figure in
# bench.json. PART is one of calls, cold, threads, tail, upload, torch. CUTAPE_BEFORE=PACKAGE
# measures an older package as well. What is not installed (CUPTI, Compute Sanitizer, PyTorch) is
# skipped and named.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "bench.sh: python3: not found" >&2; exit 2; }
exec python3 "$(dirname "$0")/bench.py" "$@"
