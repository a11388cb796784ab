#!/usr/bin/env bash
# Tests the backend `gum` on a machine with a GPU, with Frida's Python package; prints a table.
# Takes about two minutes.
#   CUTAPE_FRIDA_WHEEL=FILE tests/gpu/gum.sh PACKAGE RESULTS
# PACKAGE is the output of `cargo xtask package FOLDER --gum`. RESULTS gets gum.txt, gum.jsonl (each
# process) and traces. FILE is frida-17.9.5-cp37-abi3-manylinux*_x86_64.whl; it is not needed where
# this Python has Frida. Without Frida everything is skipped. CUTAPE_DRIVER names another driver
# than the machine's.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
command -v python3 >/dev/null || { echo "gum.sh: python3: not found" >&2; exit 2; }
exec python3 "$(dirname "$0")/gum.py" "$@"
