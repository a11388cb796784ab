#!/bin/sh
# In the place of NVIDIA's ncu, for the tests of counters: runs the program, and prints a row for each
# call that the replay had measured, as ncu prints one for each kernel. CUTAPE_TESTS_NCU_SHAPES has
# the shapes of calls, as CALL:GRID:BLOCK with a blank between two. CUTAPE_TESTS_NCU says what it does
# otherwise:
#     forbidden  it may not read counters
#     silent     it prints no kernel
#     short      the last kernel is missing
#     failed     the program is not run
set -eu
if [ "$1" = --version ]; then
    echo 'NVIDIA (R) Nsight Compute Command Line Profiler'
    echo 'Version 2025.3.1.0 (build 36398880) (public-release)'
    exit
fi
options=
while [ "$1" != --log-file ]; do
    options="$options $1"
    shift
done
log=$2
shift 2
plan=${CUTAPE_TESTS_NCU:-}
[ -z "${CUTAPE_TESTS_NCU_OPTIONS:-}" ] || echo "$options" >"$CUTAPE_TESTS_NCU_OPTIONS"
result=
previous=
for word; do
    [ "$previous" != --child-result ] || result=$word
    previous=$word
done
if [ "$plan" = failed ]; then
    echo 'cutape: the replay hung in call 7' >&2
    exit 9
fi
# As under ncu, a replay sees that a tool is loaded.
status=0
CUDA_INJECTION64_PATH=/no/tool "$@" || status=$?
{
    echo "==PROF== Connected to process $$ ($1)"
    if [ "$plan" = forbidden ]; then
        echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access counters'
        exit "$status"
    fi
    # The process and the calls, a word each.
    measured=$(sed -n 's/[^0-9]*\([0-9][0-9]*\).*/\1/p' "$result")
    # shellcheck disable=SC2086
    set -- $measured
    process=$1
    shift
    [ "$plan" != silent ] || set --
    printf '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream",'
    printf '"Block Size","Grid Size","Device","CC","device__attribute_warp_size",'
    printf '"dram__bytes.sum.peak_sustained","dram__bytes.sum.per_second",'
    printf '"dram__cycles_elapsed.avg.per_second","gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",'
    printf '"gpu__time_duration.sum","l1tex__t_sector_hit_rate.pct","profiler__replayer_passes",'
    printf '"sm__cycles_elapsed.avg.per_second",'
    printf '"sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained",'
    printf '"smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",'
    printf '"smsp__average_warps_issue_stalled_wait_per_issue_active.ratio",'
    printf '"smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed"\n'
    printf '"","","","","","","","","","","","","byte/cycle","byte/s","hz","%%","ns","%%","pass","hz","","","",""\n'
    id=0
    for call; do
        [ "$plan" != short ] || [ $id -lt $(($# - 1)) ] || break
        shape='(9, 9, 9):(9, 9, 9)'
        for known in ${CUTAPE_TESTS_NCU_SHAPES:-}; do
            [ "${known%%:*}" != "$call" ] || shape=${known#*:}
        done
        printf '"%d","%d","cutape","127.0.0.1","kernel<%d>(int *)",' $id "$process" "$call"
        printf '"1","7","%s","%s","0","9.0","32",' "${shape#*:}" "${shape%:*}"
        printf '"1,000","1,000,000,000,000","2,000,000,000","50.5","1,500","n/a","7",'
        printf '"1,000,000,000","16,384","3","1","8,192"\n'
        id=$((id + 1))
    done
    echo '==WARNING== Note: Running with unmodified GPU clocks.'
    echo "==PROF== Disconnected from process $$"
} >>"$log"
exit "$status"
