#!/usr/bin/env bash
# Records small programs of frameworks on a machine with a GPU, cuts the end out of each trace with the
# images that it uses, and replays that; prints a table. The results may go into traces/frameworks/.
#   tests/gpu/frameworks.sh PACKAGE RESULTS [NAME...]
# PACKAGE is the output of `cargo xtask package`. The programs are copied to /opt/cutape, which the traces
# then name.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
package=$(realpath "$1") results=$(realpath -m "$2") programs=$(realpath "$(dirname "$0")")/programs
shift 2
[ $# -gt 0 ] || set -- cupy_raw numba_add triton_add torch_streams jax_grad
mkdir -p "$results" /opt/cutape/programs
cd /opt/cutape
printf '%-16s %8s %6s %9s %9s  %s\n' program calls kept bytes replay check
for name; do
    cp "$programs/$name.py" programs/
    whole=$results/$name.whole.cutape part=$results/$name.cutape
    rm -f "$whole" "$part"
    if ! "$package/cutape" record -o "$whole" -- python3 "programs/$name.py" > "$results/$name.log" 2>&1; then
        printf '%-16s failed: %s\n' "$name" "$(tail -1 "$results/$name.log")"
        continue
    fi
    "$package/cutape" trim "$whole" --last 60 --images used -o "$part" > "$results/$name.trim" 2>&1 || {
        printf '%-16s trim failed: %s\n' "$name" "$(tail -1 "$results/$name.trim")"
        continue
    }
    calls() { "$package/cutape" dump --format json "$1" | grep -c '^{"call"'; }
    replayed=no
    "$package/cutape" replay "$part" > "$results/$name.replay" 2>&1 && replayed=yes
    found=$("$package/cutape" check --format json "$part" 2>/dev/null | grep -o '"rule": *"[^"]*"' | sort -u | cut -d'"' -f4 | tr '\n' ' ')
    printf '%-16s %8s %6s %9s %9s  %s\n' "$name" "$(calls "$whole")" "$(calls "$part")" "$(stat -c %s "$part")" "$replayed" "$found"
done
