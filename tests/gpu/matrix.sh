#!/usr/bin/env bash
# Shows on a machine with a GPU and nvcc that `cutape matrix` finds a kernel that is 5 % slower and accuses
# nothing that is unchanged: 20 comparisons of each with a kernel, and 20 of an unchanged corpus.
#   tests/gpu/matrix.sh PACKAGE RESULTS [CORPUS]
# PACKAGE is the output of `cargo xtask package`, CORPUS a folder of traces (traces/perf). RESULTS gets
# table.txt and every output. KERNEL=0 leaves out the kernel (96 s on an H200), CORPUS_ROUNDS=0 the corpus
# (about 10 s for each of 10 rounds, with traces/perf).
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
for tool in python3 nvcc; do
    command -v $tool >/dev/null || { echo "matrix.sh: skipped: $tool is not installed" >&2; exit 2; }
done
exec python3 "$(dirname "$0")/matrix.py" "$@"
