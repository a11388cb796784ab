//! Order between streams: races.

use super::Row;

/// A context, a module with kernels, two non-blocking streams and a blocking one, two events,
/// memory of 4096 bytes that was written, page-locked memory.
pub(super) const STREAMS: &str = "
    cuCtxCreate_v2 pctx:=0xc1 dev=0
    cuModuleLoadData module:=0x100 image@0x5000:PTX
    cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"
    cuModuleGetFunction hfunc:=0x201 hmod=0x100 name=\"_Z5scalePf\"
    cuStreamCreate phStream:=0x301 Flags=1
    cuStreamCreate phStream:=0x302 Flags=1
    cuStreamCreate phStream:=0x303 Flags=0
    cuStreamCreate phStream:=0x304 Flags=0
    cuEventCreate phEvent:=0x401 Flags=2
    cuEventCreate phEvent:=0x402 Flags=2
    cuMemAlloc_v2 dptr:=0x1000000 bytesize=4096
    cuMemAllocHost_v2 pp:=0x7000000 bytesize=4096
    cuMemsetD8_v2 dstDevice=0x1000000 N=4096
    cuCtxSynchronize
";

/// The same, and a graph of a memset at the start of the memory and a kernel that gets byte 0x400.
const GRAPH: &str = "
    cuCtxCreate_v2 pctx:=0xc1 dev=0
    cuModuleLoadData module:=0x100 image@0x5000:PTX
    cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"
    cuStreamCreate phStream:=0x301 Flags=1
    cuStreamCreate phStream:=0x302 Flags=1
    cuEventCreate phEvent:=0x401 Flags=2
    cuMemAlloc_v2 dptr:=0x1000000 bytesize=4096
    cuMemAllocHost_v2 pp:=0x7000000 bytesize=4096
    cuStreamBeginCapture_v2 hStream=0x301
    cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301
    cuLaunchKernel f=0x200 hStream=0x301 layout=8 params=0x1000400
    cuStreamEndCapture hStream=0x301 phGraph:=0x800
    cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800
";

/// Graphs that copy to rows 1 to 4 of 64 bytes: of a captured call, and of nodes that were added.
const ROWS: &str = "
    cuCtxCreate_v2 pctx:=0xc1 dev=0
    cuStreamCreate phStream:=0x301 Flags=1
    cuStreamCreate phStream:=0x302 Flags=1
    cuMemAlloc_v2 dptr:=0x1000000 bytesize=4096
    cuMemAllocHost_v2 pp:=0x7000000 bytesize=4096
    cuStreamBeginCapture_v2 hStream=0x301
    cuMemcpy2DAsync_v2 pCopy=[0,0,1,0x7000000,0,0,64,0,1,2,0,0x1000000,0,64,64,4] hStream=0x301
    cuStreamEndCapture hStream=0x301 phGraph:=0x800
    cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800
    cuGraphCreate phGraph:=0x801
    cuGraphAddMemcpyNode phGraphNode:=0x901 hGraph=0x801 copyParams=[0*4,1,0x7000000,0*3,64,4,0,1,0,0,2,0,0x1000000,0,0,64,4,64,4,1]
    cuGraphInstantiateWithFlags phGraphExec:=0xa01 hGraph=0x801
    cuGraphCreate phGraph:=0x802
    cuGraphAddNode_v2 phGraphNode:=0x902 hGraph=0x802 nodeParams=[1,0,0,0,0*4,1,0x7000000,0*3,64,4,0,1,0,0,2,0,0x1000000,0,0,64,4,64,4,1,0,0]
    cuGraphInstantiateWithFlags phGraphExec:=0xa02 hGraph=0x802
";

/// Graphs that read memory: at once, and after a wait for an event, for a value, for an external
/// semaphore, and for a function of the program.
const WAITING: &str = "
    cuCtxCreate_v2 pctx:=0xc1 dev=0
    cuStreamCreate phStream:=0x301 Flags=1
    cuStreamCreate phStream:=0x302 Flags=1
    cuEventCreate phEvent:=0x401 Flags=2
    cuMemAlloc_v2 dptr:=0x1000000 bytesize=4096
    cuMemAllocHost_v2 pp:=0x7000000 bytesize=4096
    cuGraphCreate phGraph:=0x800
    cuGraphAddMemcpyNode phGraphNode:=0x900 hGraph=0x800 copyParams=[0*4,2,0,0x1000000,0,0,64,1,0*4,1,0x7000000,0,0,0,64,1,64,1,1]
    cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800
    cuGraphCreate phGraph:=0x801
    cuGraphAddEventWaitNode phGraphNode:=0x901 hGraph=0x801 event=0x401
    cuGraphAddMemcpyNode phGraphNode:=0x911 hGraph=0x801 dependencies=[0x901] numDependencies=1 copyParams=[0*4,2,0,0x1000000,0,0,64,1,0*4,1,0x7000000,0,0,0,64,1,64,1,1]
    cuGraphInstantiateWithFlags phGraphExec:=0xa01 hGraph=0x801
    cuGraphCreate phGraph:=0x802
    cuGraphAddBatchMemOpNode phGraphNode:=0x902 hGraph=0x802 nodeParams=[0xc1,1,0x5000,0]
    cuGraphAddMemcpyNode phGraphNode:=0x912 hGraph=0x802 dependencies=[0x902] numDependencies=1 copyParams=[0*4,2,0,0x1000000,0,0,64,1,0*4,1,0x7000000,0,0,0,64,1,64,1,1]
    cuGraphInstantiateWithFlags phGraphExec:=0xa02 hGraph=0x802
    cuStreamBeginCapture_v2 hStream=0x302
    cuWaitExternalSemaphoresAsync stream=0x302
    cuMemcpyDtoHAsync_v2 dstHost=0x7000000 srcDevice=0x1000000 ByteCount=64 hStream=0x302
    cuStreamEndCapture hStream=0x302 phGraph:=0x803
    cuGraphInstantiateWithFlags phGraphExec:=0xa03 hGraph=0x803
    cuGraphCreate phGraph:=0x804
    cuGraphAddHostNode phGraphNode:=0x904 hGraph=0x804 nodeParams=[0x99,0]
    cuGraphAddMemcpyNode phGraphNode:=0x914 hGraph=0x804 dependencies=[0x904] numDependencies=1 copyParams=[0*4,2,0,0x1000000,0,0,64,1,0*4,1,0x7000000,0,0,0,64,1,64,1,1]
    cuGraphInstantiateWithFlags phGraphExec:=0xa04 hGraph=0x804
";

/// A single stream, and memory that is mapped at two addresses.
pub(super) const MAPPED: &str = "
    cuCtxCreate_v2 pctx:=0xc1 dev=0
    cuModuleLoadData module:=0x100 image@0x5000:PTX
    cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"
    cuStreamCreate phStream:=0x301 Flags=1
    cuEventCreate phEvent:=0x401 Flags=2
    cuMemAddressReserve ptr:=0x40000000 size=0x600000
    cuMemCreate handle:=0x900 size=0x200000
    cuMemMap ptr=0x40000000 size=0x200000 handle=0x900
    cuMemMap ptr=0x40200000 size=0x200000 handle=0x900
    cuMemSetAccess ptr=0x40000000 size=0x400000 desc=[1,3] count=1
";

pub(crate) const ORDER: &[Row] = &[
    (
        "memory-race-cross-stream",
        STREAMS,
        "cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n\
         cuMemcpyDtoHAsync_v2 dstHost=0x7000000 srcDevice=0x1000020 ByteCount=64 hStream=0x302",
        &[
            // Disjoint bytes of one allocation; two that only read.
            "cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n\
             cuMemcpyDtoHAsync_v2 dstHost=0x7000000 srcDevice=0x1000040 ByteCount=64 \
             hStream=0x302",
            "cuMemcpyDtoHAsync_v2 dstHost=0x7000000 srcDevice=0x1000000 ByteCount=64 \
             hStream=0x301\n\
             cuMemcpyDtoHAsync_v2 dstHost=0x7000040 srcDevice=0x1000000 ByteCount=64 \
             hStream=0x302",
            // The same stream; an event; the host; an event that the host asks about.
            "cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n\
             cuMemcpyDtoHAsync_v2 dstHost=0x7000000 srcDevice=0x1000000 ByteCount=64 \
             hStream=0x301",
            "cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n\
             cuEventRecord hEvent=0x401 hStream=0x301\n\
             cuStreamWaitEvent hStream=0x302 hEvent=0x401\n\
             cuMemcpyDtoHAsync_v2 dstHost=0x7000000 srcDevice=0x1000000 ByteCount=64 \
             hStream=0x302",
            "cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n\
             cuStreamQuery hStream=0x301\n\
             cuMemcpyDtoHAsync_v2 dstHost=0x7000000 srcDevice=0x1000000 ByteCount=64 \
             hStream=0x302",
            "cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n\
             cuEventRecord hEvent=0x401 hStream=0x301\n t1 cuEventQuery hEvent=0x401\n\
             cuMemcpyDtoHAsync_v2 dstHost=0x7000000 srcDevice=0x1000000 ByteCount=64 \
             hStream=0x302",
            // Through a third stream, and through the legacy default stream.
            "cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n\
             cuEventRecord hEvent=0x401 hStream=0x301\n\
             cuStreamWaitEvent hStream=0x303 hEvent=0x401\n\
             cuEventRecord hEvent=0x402 hStream=0x303\n\
             cuStreamWaitEvent hStream=0x302 hEvent=0x402\n\
             cuMemcpyDtoHAsync_v2 dstHost=0x7000000 srcDevice=0x1000000 ByteCount=64 \
             hStream=0x302",
            "cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x303\n\
             cuMemcpyDtoH_v2 dstHost=0x7000000 srcDevice=0x1000000 ByteCount=64",
            "cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x303\n\
             cuMemsetD8Async dstDevice=0x1000100 N=64 hStream=0\n\
             cuMemcpyDtoHAsync_v2 dstHost=0x7000000 srcDevice=0x1000000 ByteCount=64 \
             hStream=0x304",
            // A callback may have told the program that the memset is complete.
            "cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n\
             cuLaunchHostFunc hStream=0x301 fn=0x99 userData=0\n\
             cuMemcpyDtoHAsync_v2 dstHost=0x7000000 srcDevice=0x1000000 ByteCount=64 \
             hStream=0x302",
            // A value in memory, an event of another process, one of a whole context.
            "cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n\
             cuStreamWaitValue32_v2 stream=0x302 addr=0x1000800 value=1 flags=1\n\
             cuMemcpyDtoHAsync_v2 dstHost=0x7000000 srcDevice=0x1000000 ByteCount=64 \
             hStream=0x302",
            "cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n\
             cuStreamWaitEvent hStream=0x302 hEvent=0x499\n\
             cuMemcpyDtoHAsync_v2 dstHost=0x7000000 srcDevice=0x1000000 ByteCount=64 \
             hStream=0x302",
            "cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n\
             cuCtxRecordEvent hCtx=0xc1 hEvent=0x401\n\
             cuStreamWaitEvent hStream=0x302 hEvent=0x401\n\
             cuMemcpyDtoHAsync_v2 dstHost=0x7000000 srcDevice=0x1000000 ByteCount=64 \
             hStream=0x302",
            // What is captured does not run now.
            "cuStreamBeginCapture_v2 hStream=0x301 mode=2\n\
             cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n\
             cuMemcpyDtoHAsync_v2 dstHost=0x7000000 srcDevice=0x1000000 ByteCount=64 \
             hStream=0x302\n cuStreamEndCapture hStream=0x301 phGraph:=0x900",
            // A stream whose creation was not seen.
            "cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n\
             cuMemcpyDtoHAsync_v2 dstHost=0x7000000 srcDevice=0x1000000 ByteCount=64 \
             hStream=0x3ff",
            // The context was synchronised by another thread.
            "cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n\
             t1 cuCtxSetCurrent ctx=0xc1\n t1 cuCtxSynchronize\n\
             cuMemcpyDtoHAsync_v2 dstHost=0x7000000 srcDevice=0x1000000 ByteCount=64 \
             hStream=0x302",
        ],
    ),
    // A synchronous copy does not wait for a non-blocking stream.
    (
        "memory-race-cross-stream",
        STREAMS,
        "cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n\
         cuMemcpyDtoH_v2 dstHost=0x99000000 srcDevice=0x1000000 ByteCount=64",
        &[],
    ),
    // A synchronous memset may still run when it returns.
    (
        "memory-race-cross-stream",
        STREAMS,
        "cuMemsetD32_v2 dstDevice=0x1000000 N=64\n\
         cuMemcpyDtoHAsync_v2 dstHost=0x7000000 srcDevice=0x1000000 ByteCount=64 hStream=0x302",
        &[],
    ),
    // Two blocking streams are not ordered with each other.
    (
        "memory-race-cross-stream",
        STREAMS,
        "cuMemcpyHtoDAsync_v2 dstDevice=0x1000000 srcHost=0x7000000 ByteCount=64 hStream=0x303\n\
         cuMemsetD8Async dstDevice=0x1000010 N=64 hStream=0x304",
        &[],
    ),
    // A copy to pageable memory is complete when its call returns.
    (
        "memory-race-cross-stream",
        STREAMS,
        "cuMemcpyDtoHAsync_v2 dstHost=0x7000000 srcDevice=0x1000000 ByteCount=8 hStream=0x301\n\
         cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x302",
        &[
            "cuMemcpyDtoHAsync_v2 dstHost@0x99000000:=5 srcDevice=0x1000000 ByteCount=8 \
             hStream=0x301\n\
             cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x302",
            // The trace lacks its bytes.
            "cuMemcpyDtoHAsync_v2 dstHost=0x99000000 srcDevice=0x1000000 ByteCount=8 \
             hStream=0x301\n\
             cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x302",
            "cuMemcpyAsync dst=0x99000000 src=0x1000000 ByteCount=8 hStream=0x301\n\
             cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x302",
            "cuMemcpy2DAsync_v2 pCopy=[0,0,2,0,0x1000000,0,64,0,0,1,0x99000000,0,0,64,64,8] \
             hStream=0x301\n\
             cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x302",
        ],
    ),
    // A value that the CPU may have seen: all work before it is complete.
    (
        "memory-race-cross-stream",
        STREAMS,
        "cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n\
         cuStreamWriteValue32_v2 stream=0x301 addr=0x1000800 value=1 flags=0\n\
         cuMemcpyDtoHAsync_v2 dstHost=0x7000100 srcDevice=0x1000000 ByteCount=64 hStream=0x302",
        &[
            "cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n\
             cuStreamWriteValue32_v2 stream=0x301 addr=0x7000000 value=1 flags=0\n\
             cuMemcpyDtoHAsync_v2 dstHost=0x7000100 srcDevice=0x1000000 ByteCount=64 \
             hStream=0x302",
            "cuMemcpyDtoHAsync_v2 dstHost=0x7000100 srcDevice=0x1000000 ByteCount=64 \
             hStream=0x301\n\
             cuStreamWriteValue32_v2 stream=0x301 addr=0x7000000 value=1 flags=0\n\
             cuMemFreeHost p=0x7000000",
            // At the device's address of registered memory.
            "cuMemHostRegister_v2 p=0x8000000 bytesize=4096 Flags=2\n\
             cuMemHostGetDevicePointer_v2 pdptr:=0x9000000 p=0x8000000\n\
             cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n\
             cuStreamWriteValue32_v2 stream=0x301 addr=0x9000000 value=1 flags=0\n\
             cuMemcpyDtoHAsync_v2 dstHost=0x7000100 srcDevice=0x1000000 ByteCount=64 \
             hStream=0x302",
        ],
    ),
    // Values that a batch of operations writes (2); one that waits (1) may be ordered.
    (
        "memory-race-cross-stream",
        STREAMS,
        "cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n\
         cuStreamBatchMemOp_v2 stream=0x302 count=1 paramArray=[2,0x1000000,5,0,0,0]",
        &[
            "cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n\
             cuEventRecord hEvent=0x401 hStream=0x301\n\
             cuStreamWaitEvent hStream=0x302 hEvent=0x401\n\
             cuStreamBatchMemOp_v2 stream=0x302 count=1 paramArray=[2,0x1000000,5,0,0,0]",
            "cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n\
             cuStreamWriteValue32_v2 stream=0x301 addr=0x1000800 value=1 flags=0\n\
             cuStreamBatchMemOp_v2 stream=0x302 count=2 \
             paramArray=[1,0x1000800,1,0,0,0,2,0x1000000,5,0,0,0]",
            // The bytes behind the value.
            "cuMemsetD8Async dstDevice=0x1000004 N=60 hStream=0x301\n\
             cuStreamBatchMemOp_v2 stream=0x302 count=1 paramArray=[2,0x1000000,5,0,0,0]",
            // The list was not recorded.
            "cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n\
             cuStreamBatchMemOp_v2 stream=0x302 count=1",
            // A value that the CPU may have seen.
            "cuStreamBatchMemOp_v2 stream=0x302 count=2 \
             paramArray=[2,0x1000000,5,0,0,0,2,0x7000000,5,0,0,0]\n\
             cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301",
        ],
    ),
    // Page-locked memory.
    (
        "memory-race-cross-stream",
        STREAMS,
        "cuMemcpyDtoHAsync_v2 dstHost=0x7000000 srcDevice=0x1000000 ByteCount=64 hStream=0x301\n\
         cuMemcpyHtoDAsync_v2 dstDevice=0x1000800 srcHost=0x7000000 ByteCount=64 hStream=0x302",
        &[
            // Pageable memory has its bytes when the first copy returns.
            "cuMemcpyDtoHAsync_v2 dstHost=0x99000000 srcDevice=0x1000000 ByteCount=64 \
             hStream=0x301\n\
             cuMemcpyHtoDAsync_v2 dstDevice=0x1000800 srcHost=0x99000000 ByteCount=64 \
             hStream=0x302",
        ],
    ),
    // Copies in batches, of lines and of boxes.
    (
        "memory-race-cross-stream",
        STREAMS,
        "cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n\
         cuMemcpyBatchAsync_v2 dsts=[0x7000100] srcs=[0x1000000] sizes=[64] count=1 \
         attrs=[4:1,0*5] attrsIdxs=[0] numAttrs=1 hStream=0x302",
        &[
            "cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n\
             cuEventRecord hEvent=0x401 hStream=0x301\n\
             cuStreamWaitEvent hStream=0x302 hEvent=0x401\n\
             cuMemcpyBatchAsync_v2 dsts=[0x7000100] srcs=[0x1000000] sizes=[64] count=1 \
             attrs=[4:1,0*5] attrsIdxs=[0] numAttrs=1 hStream=0x302",
            // The source was read before the call returned.
            "cuMemcpyBatchAsync_v2 dsts=[0x7000100] srcs=[0x1000000] sizes=[64] count=1 \
             attrs=[4:2,0*5] attrsIdxs=[0] numAttrs=1 hStream=0x302\n\
             cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301",
        ],
    ),
    (
        "memory-race-cross-stream",
        STREAMS,
        "cuMemcpy3DBatchAsync_v2 numOps=1 \
         opList=[1,0x7000000,32,4,0,1,0x1000000,32,4,0,16,4,1,1] hStream=0x302\n\
         cuMemsetD8Async dstDevice=0x1000020 N=8 hStream=0x301",
        &[
            // Between two rows.
            "cuMemcpy3DBatchAsync_v2 numOps=1 \
             opList=[1,0x7000000,32,4,0,1,0x1000000,32,4,0,16,4,1,1] hStream=0x302\n\
             cuMemsetD8Async dstDevice=0x1000010 N=16 hStream=0x301",
        ],
    ),
    // An event that was recorded too early.
    (
        "memory-race-cross-stream",
        STREAMS,
        "cuEventRecord hEvent=0x401 hStream=0x301\n\
         cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n\
         cuStreamWaitEvent hStream=0x302 hEvent=0x401\n\
         cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x302",
        &[],
    ),
    // A kernel's parameter.
    (
        "memory-race-cross-stream",
        STREAMS,
        "cuLaunchKernel f=0x200 hStream=0x301 layout=8,8 params=0x1000000,5\n\
         cuMemcpyDtoHAsync_v2 dstHost=0x7000000 srcDevice=0x1000000 ByteCount=64 hStream=0x302",
        &[
            // Elsewhere in the allocation; two kernels that may both read.
            "cuLaunchKernel f=0x200 hStream=0x301 layout=8,8 params=0x1000800,5\n\
             cuMemcpyDtoHAsync_v2 dstHost=0x7000000 srcDevice=0x1000000 ByteCount=64 \
             hStream=0x302",
            "cuLaunchKernel f=0x200 hStream=0x301 layout=8,8 params=0x1000000,0x1000400\n\
             cuLaunchKernel f=0x200 hStream=0x302 layout=8,8 params=0x1000000,0x1000800",
        ],
    ),
    // Kernels whose names tell nothing: one that gets a single address writes there.
    (
        "memory-race-cross-stream",
        STREAMS,
        "cuLaunchKernel f=0x200 hStream=0x301 layout=8,8 params=0x1000000,5\n\
         cuLaunchKernel f=0x200 hStream=0x302 layout=8,8 params=0x1000000,0x1000800",
        &[
            "cuLaunchKernel f=0x200 hStream=0x301 layout=8,8 params=0x1000000,5\n\
             cuEventRecord hEvent=0x401 hStream=0x301\n\
             cuStreamWaitEvent hStream=0x302 hEvent=0x401\n\
             cuLaunchKernel f=0x200 hStream=0x302 layout=8,8 params=0x1000000,0x1000800",
            "cuLaunchKernel f=0x200 hStream=0x301 layout=8,8 params=0x1000000,5\n\
             cuLaunchKernel f=0x200 hStream=0x302 layout=8,8 params=0x1000400,0x1000800",
        ],
    ),
    // What a graph does, against a copy and against a kernel.
    (
        "memory-race-cross-stream",
        GRAPH,
        "cuGraphLaunch hGraph=0xa00 hStream=0x301\n\
         cuMemcpyDtoHAsync_v2 dstHost=0x7000000 srcDevice=0x1000000 ByteCount=64 hStream=0x302",
        &[
            "cuGraphLaunch hGraph=0xa00 hStream=0x301\n\
             cuEventRecord hEvent=0x401 hStream=0x301\n\
             cuStreamWaitEvent hStream=0x302 hEvent=0x401\n\
             cuMemcpyDtoHAsync_v2 dstHost=0x7000000 srcDevice=0x1000000 ByteCount=64 \
             hStream=0x302",
            "cuGraphLaunch hGraph=0xa00 hStream=0x301\n\
             cuMemcpyDtoHAsync_v2 dstHost=0x7000000 srcDevice=0x1000800 ByteCount=64 \
             hStream=0x302",
            // The next launch of a graph waits for the last one.
            "cuGraphLaunch hGraph=0xa00 hStream=0x301\n cuGraphLaunch hGraph=0xa00 hStream=0x302",
        ],
    ),
    (
        "memory-race-cross-stream",
        GRAPH,
        "cuMemsetD8Async dstDevice=0x1000400 N=64 hStream=0x302\n\
         cuGraphLaunch hGraph=0xa00 hStream=0x301",
        &[],
    ),
    // A node that copies to the rows after the first, captured and added.
    (
        "memory-race-cross-stream",
        ROWS,
        "cuGraphLaunch hGraph=0xa00 hStream=0x301\n\
         cuMemsetD8Async dstDevice=0x1000040 N=64 hStream=0x302",
        &[
            "cuGraphLaunch hGraph=0xa00 hStream=0x301\n\
             cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x302",
            "cuGraphLaunch hGraph=0xa00 hStream=0x301\n\
             cuMemsetD8Async dstDevice=0x1000140 N=64 hStream=0x302",
            "cuGraphLaunch hGraph=0xa01 hStream=0x301\n\
             cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x302",
            "cuGraphLaunch hGraph=0xa02 hStream=0x301\n\
             cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x302",
        ],
    ),
    (
        "memory-race-cross-stream",
        ROWS,
        "cuGraphLaunch hGraph=0xa01 hStream=0x301\n\
         cuMemsetD8Async dstDevice=0x1000100 N=64 hStream=0x302",
        &[],
    ),
    (
        "memory-race-cross-stream",
        ROWS,
        "cuGraphLaunch hGraph=0xa02 hStream=0x301\n\
         cuMemsetD8Async dstDevice=0x1000040 N=64 hStream=0x302",
        &[],
    ),
    // Other memory is at the address in the second launch; the node has another address.
    (
        "memory-race-cross-stream",
        ROWS,
        "cuGraphLaunch hGraph=0xa01 hStream=0x301\n cuCtxSynchronize\n\
         cuMemFree_v2 dptr=0x1000000\n cuMemAlloc_v2 dptr:=0x1000000 bytesize=4096\n\
         cuGraphLaunch hGraph=0xa01 hStream=0x301\n\
         cuMemsetD8Async dstDevice=0x1000040 N=64 hStream=0x302",
        &[
            "cuGraphLaunch hGraph=0xa01 hStream=0x301\n cuCtxSynchronize\n\
             cuGraphExecMemcpyNodeSetParams hGraphExec=0xa01 hNode=0x901 copyParams=[0*4,1,0x7000000,0*3,64,4,0,0,0,0,2,0,0x1000800,0,0,64,4,64,4,1]\n\
             cuGraphLaunch hGraph=0xa01 hStream=0x301\n\
             cuMemsetD8Async dstDevice=0x1000040 N=64 hStream=0x302",
        ],
    ),
    // A graph may wait for the other stream itself.
    (
        "memory-race-cross-stream",
        WAITING,
        "cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n\
         cuEventRecord hEvent=0x401 hStream=0x301\n cuGraphLaunch hGraph=0xa00 hStream=0x302",
        &[
            "cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n\
             cuEventRecord hEvent=0x401 hStream=0x301\n cuGraphLaunch hGraph=0xa01 hStream=0x302",
            "cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n\
             cuStreamWriteValue32_v2 stream=0x301 addr=0x1000800 value=1\n\
             cuGraphLaunch hGraph=0xa02 hStream=0x302",
            "cuGraphLaunch hGraph=0xa02 hStream=0x302\n\
             cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n\
             cuStreamWriteValue32_v2 stream=0x301 addr=0x1000800 value=1",
            "cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n\
             cuGraphLaunch hGraph=0xa03 hStream=0x302",
            "cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n\
             cuGraphLaunch hGraph=0xa04 hStream=0x302",
        ],
    ),
    // A copy after an event wait: what is enqueued later is not waited for.
    (
        "memory-race-cross-stream",
        WAITING,
        "cuGraphLaunch hGraph=0xa01 hStream=0x302\n\
         cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301",
        &[],
    ),
    // Two readers, the output of one of which is in a struct or in memory that is not known.
    (
        "memory-race-cross-stream",
        STREAMS,
        "cuLaunchKernel f=0x200 hStream=0x301 layout=8 params=0x1000000\n\
         cuLaunchKernel f=0x200 hStream=0x302 layout=8 params=0x1000000",
        &[
            "cuLaunchKernel f=0x200 hStream=0x301 layout=8,8 params=0x1000000,0x66000000\n\
             cuLaunchKernel f=0x200 hStream=0x302 layout=8,8 params=0x1000000,0x67000000",
            "cuLaunchKernel f=0x200 hStream=0x301 layout=8,72 params=0x1000000,0*9\n\
             cuLaunchKernel f=0x200 hStream=0x302 layout=8,72 params=0x1000000,0*9",
        ],
    ),
    (
        "memory-race-cross-stream",
        STREAMS,
        "cuLaunchKernel f=0x201 hStream=0x301 layout=8 params=0x1000000\n\
         cuLaunchKernel f=0x201 hStream=0x302 layout=8 params=0x1000000",
        &[],
    ),
];
