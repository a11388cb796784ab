#!/usr/bin/env bash
# Records small programs of frameworks whose kernels take long enough to be measured, cuts a step out of
# each with the images that it uses, replays, checks and measures that; prints a table. The results may go
# into traces/perf/, and the entries in RESULTS/manifest.toml into traces/manifest.toml.
#   tests/gpu/perf_corpus.sh PACKAGE RESULTS [NAME...]
# PACKAGE is the output of `cargo xtask package`. What is not installed is skipped and named. The programs
# are copied to /opt/cutape, which the traces then name. LARGEST is the size in KiB from which a trace is
# marked: 700, because a step of PyTorch has kernels of ten modules.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "perf_corpus.sh: python3: not found" >&2; exit 2; }
exec python3 "$(dirname "$0")/perf_corpus.py" "$@"
