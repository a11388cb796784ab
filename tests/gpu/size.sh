#!/usr/bin/env bash
# Records programs that copy 2 GB of weights to the GPU from a safetensors file, mapped or through memory
# of their own, replays the traces, also with a changed file, and prints a table with the sizes of the
# traces.
#   tests/gpu/size.sh PACKAGE RESULTS [NAME...]
# PACKAGE is the output of `cargo xtask package`. A NAME chooses the programs that contain it. In the
# environment: MEBIBYTES, of the file (2048), and DRIVER (`null`).
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "size.sh: python3: not found" >&2; exit 2; }
exec python3 "$(dirname "$0")/size.py" "$@"
