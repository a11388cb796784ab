#!/usr/bin/env bash
# Measures time and memory of reading a few calls in the middle of a large trace.
#   tests/gpu/large.sh PACKAGE RESULTS [MEBIBYTES]
# PACKAGE is the output of `cargo xtask package`. RESULTS gets table.txt and, during the run, the
# trace: by default 10240 MiB, for a moment twice as much. DRIVER=null is for machines without a
# GPU. Needs a C compiler and Python.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
source "$(dirname "$0")/own_program.sh"
mebibytes=${3:-10240}
compile large_trace
trace=$results/large.cutape
rm -f "$trace"
trap 'rm -f "$trace"' EXIT

# The wall time and the most memory of a command, whose output goes to a file.
cat >"$results/measure.py" <<'PYTHON'
import resource, subprocess, sys, time
name, output, *command = sys.argv[1:]
began = time.monotonic()
with open(output, "w") as file:
    status = subprocess.run(command, stdout=file).returncode
seconds = time.monotonic() - began
kilobytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(f"{name:40} {seconds:8.3f} s {kilobytes / 1024:8.1f} MiB{'' if status == 0 else f'  status {status}'}")
sys.exit(status)
PYTHON
measure() { python3 "$results/measure.py" "$1" "$results/$2.txt" "${@:3}"; }

{
    measure "record, raw" record "$package/cutape" record "${driver[@]}" --no-pack -o "$trace" -- "$results/large_trace" "$mebibytes"
    calls=$((mebibytes / 32 * 10001))
    middle=$((calls / 2))
    for _ in 1 2 3; do
        measure "raw: ten calls in the middle" raw "$package/cutape" dump --calls "$middle..$((middle + 9))" "$trace"
    done
    measure "pack" pack "$package/cutape" pack "$trace"
    for at in 5 "$middle" "$((calls - 20))"; do
        for _ in 1 2 3; do
            measure "packed: ten calls from call $at on" packed "$package/cutape" dump --calls "$at..$((at + 9))" "$trace"
        done
    done
    measure "packed: check of all" check "$package/cutape" check "$trace"
    measure "packed: info" info "$package/cutape" info "$trace"
    echo "$(stat -c %s "$trace") bytes, about $calls calls"
} | tee "$results/table.txt"
