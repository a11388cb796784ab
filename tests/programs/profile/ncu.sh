#!/bin/sh
# In the place of NVIDIA's ncu, for the tests of counters: runs the program with the tool
# CUTAPE_TESTS_NVTX (nvtx_tool.c), and prints a row for each range that names a call, as ncu prints
# one for each kernel. CUTAPE_TESTS_NCU says what it does otherwise:
#     forbidden  it may not read counters
#     silent     it prints no kernel
#     detached   ranges have no tool
#     once       only the first call has a row
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
# The files of one run.
ranges=$log.ranges
: >"$ranges"
[ -z "${CUTAPE_TESTS_NCU_OPTIONS:-}" ] || echo "$options" >"$CUTAPE_TESTS_NCU_OPTIONS"
# As under ncu, a replay sees that a tool is loaded.
export CUDA_INJECTION64_PATH=/no/tool CUTAPE_TESTS_NVTX_RANGES="$ranges"
[ "$plan" = detached ] || export NVTX_INJECTION64_PATH="$CUTAPE_TESTS_NVTX"
status=0
"$@" || status=$?
{
    echo "==PROF== Connected to process $$ ($1)"
    if [ "$plan" = forbidden ]; then
        echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access counters'
        exit "$status"
    fi
    [ "$plan" != silent ] || : >"$ranges"
    [ "$plan" != once ] || sed -i 1q "$ranges"
    printf '"ID","Process ID","thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg",'
    printf '"Kernel Name","Block Size","Grid Size","Device","CC","device__attribute_warp_size",'
    printf '"dram__bytes.sum.peak_sustained","dram__bytes.sum.per_second",'
    printf '"dram__cycles_elapsed.avg.per_second","gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",'
    printf '"gpu__time_duration.sum","l1tex__t_sector_hit_rate.pct","profiler__replayer_passes",'
    printf '"sm__cycles_elapsed.avg.per_second",'
    printf '"sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained",'
    printf '"smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",'
    printf '"smsp__average_warps_issue_stalled_wait_per_issue_active.ratio",'
    printf '"smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed"\n'
    printf '"","","","","","","","","","byte/cycle","byte/s","hz","%%","ns","%%","pass","hz","","","",""\n'
    id=0
    while read -r process call; do
        printf '"%d","%d","7  ""<default domain>:cutape:none:none:none:none:none:none"" ' $id "$process"
        printf '""<default domain>:cutape.call.%d:none:none:none:none:none:none"" ",' "$call"
        printf '"kernel<%d>(int *)","(256, 1, 1)","(32, 1, 1)","0","9.0","32",' "$call"
        printf '"1,000","1,000,000,000,000","2,000,000,000","50.5","1,500","n/a","7",'
        printf '"1,000,000,000","16,384","3","1","8,192"\n'
        id=$((id + 1))
    done <"$ranges"
    echo "==PROF== Disconnected from process $$"
} >>"$log"
exit "$status"
