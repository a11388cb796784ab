#!/usr/bin/env bash
# Measures programs, and the replay of their calls: medians and ratios.
#   tests/gpu/replay_speed.sh PACKAGE RESULTS
# PACKAGE is the output of `cargo xtask package`. RESULTS gets table.txt, the traces and the
# reports. Needs a C compiler. DRIVER=null tests the script on a machine without a GPU. OPTIONS are
# further options of `replay`, for finding out what takes time. The exit status is 1 if a ratio is
# above its bound or a replay diverges.
set -eu
if [ $# -ne 2 ]; then
    sed -n '2,/^set/s/^# //p' "$0" >&2
    exit 2
fi
source "$(dirname "$0")/own_program.sh"
cutape=$package/cutape
rounds=${ROUNDS:-5}
read -ra options <<<"${OPTIONS:-}"
compile replay_speed

median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

failed=0
# measure NAME COUNT BOUND COMMAND...: COMMAND prints the nanoseconds of its loop of COUNT rounds.
measure() {
    local name=$1 count=$2 bound=$3 trace=$results/$1.cutape native=() here=() inside=() calls round
    shift 3
    rm -f "$trace"
    "$cutape" record "${driver[@]}" -o "$trace" -- "$@" >"$results/$name.recorded"
    # The calls between the two marks; `dump` gives each call a line that begins with its number.
    calls=$("$cutape" dump --calls cuCtxGetApiVersion "$trace" | awk '$1 ~ /^[0-9]+$/ { v[++n] = $1 } END { if (n > 1) print v[n - 1] + 1 ".." v[n] }')
    if [ -z "$calls" ]; then
        echo "$name: its recording has no marks" >&2
        failed=1
        return
    fi
    for round in $(seq "$rounds"); do
        native+=("$("$@")")
        # Single calls are timed by a replay of their own, since reading the clock around each takes
        # time, too.
        for what in calls span; do
            if ! "$cutape" replay "${driver[@]}" "${options[@]}" "--timing=$what" --calls "$calls" --report "$results/$name.$what.json" "$trace" >"$results/$name.$what.txt"; then
                echo "$name: its replay differs, see $results/$name.$what.txt" >&2
                failed=1
                return
            fi
        done
        here+=("$(sed -n '/"span"/,/}/s/.*"nanoseconds": \([0-9]*\).*/\1/p' "$results/$name.span.json")")
        inside+=("$(sed -n '/"span"/,/}/s/.*"driver_nanoseconds": \([0-9]*\).*/\1/p' "$results/$name.calls.json")")
    done
    native=$(printf '%s\n' "${native[@]}" | median)
    here=$(printf '%s\n' "${here[@]}" | median)
    inside=$(printf '%s\n' "${inside[@]}" | median)
    awk -v name="$name" -v count="$count" -v native="$native" -v here="$here" -v inside="$inside" -v bound="$bound" 'BEGIN {
        ratio = here / native
        printf "%-8s %9d %14.3f %14.3f %14.3f %8.3f %8.2f  %s\n", name, count, native / count / 1000, here / count / 1000, \
            inside / count / 1000, ratio, bound, ratio <= bound ? "ok" : "above"
        exit ratio > bound }' >>"$results/table.txt" || failed=1
}

{
    echo "medians of $rounds rounds, in microseconds a round of the loop; replay / program is to be at most the bound"
    printf '%-8s %9s %14s %14s %14s %8s %8s\n' loop count program replay "in the driver" ratio bound
} >"$results/table.txt"
measure host 200000 1.05 "$results/replay_speed" host 200000
# Not replayed: it shows whether launches with `extra` take the driver longer.
for round in $(seq "$rounds"); do "$results/replay_speed" packed 200000; done | median |
    awk '{ printf "%-8s %9d %14.3f\n", "packed", 200000, $1 / 200000 / 1000 }' >>"$results/table.txt"
measure gpu 2000 1.01 "$results/replay_speed" gpu 2000
if [ ${#driver[@]} -eq 0 ] && python3 -c 'import torch; torch.zeros(1).cuda()' 2>/dev/null; then
    measure torch 500 0.50 python3 "$tests/gpu/replay_speed_torch.py" 500
else
    echo "torch    skipped: no PyTorch with CUDA here" >>"$results/table.txt"
fi
cat "$results/table.txt"
exit "$failed"
