#!/usr/bin/env bash
# The back end `gum` on a machine with a GPU, with the gum of Frida's package for Python; prints a table. Takes about two minutes.
#   CUTAPE_FRIDA_WHEEL=FILE tests/gpu/gum.sh PACKAGE RESULTS
# PACKAGE is what `cargo xtask package FOLDER --gum` has made; RESULTS gets gum.txt, gum.jsonl (each process) and traces. FILE is
# frida-17.9.5-cp37-abi3-manylinux*_x86_64.whl; not needed where this Python has it. Without, all is skipped. CUTAPE_DRIVER
# names another driver than the machine's.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,6s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "gum.sh: python3 is needed" >&2; exit 2; }
exec python3 "$(dirname "$0")/gum.py" "$@"
