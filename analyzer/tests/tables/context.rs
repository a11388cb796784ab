//! The driver's lifetime, contexts, and memory of several devices.

use super::{Row, START};

/// A context on each of two devices, memory on the second, a kernel on the first.
const TWO: &str = "
    cuInit Flags=0
    cuCtxCreate_v2 pctx:=0xc2 dev=1
    cuMemAlloc_v2 dptr:=0x20000 bytesize=64
    cuCtxCreate_v2 pctx:=0xc1 dev=0
    cuMemAlloc_v2 dptr:=0x10000 bytesize=64
    cuModuleLoadData module:=0x100 image@0x5000:PTX
    cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"
";

const GREEN: &str = "
    cuDevicePrimaryCtxRetain pctx:=0xc0 dev=0
    cuCtxSetCurrent ctx=0xc0
    cuGreenCtxCreate phCtx:=0xe0 dev=0 flags=1
";

pub(crate) const CONTEXTS: &[Row] = &[
    (
        "init-call-outside-driver-lifetime",
        "",
        // The second failure has the same cause.
        "cuDevicePrimaryCtxRetain dev=0 -> 3\n cuMemAlloc_v2 bytesize=64 -> 3",
        &[],
    ),
    (
        "init-call-outside-driver-lifetime",
        "",
        "cuDeviceGetCount count:=0 -> 3",
        &[
            "cuInit Flags=0\n cuDeviceGetCount count:=1",
            // Whether anyone uses the driver.
            "cuCtxGetCurrent pctx:=0 -> 3\n cuDriverGetVersion driverVersion:=13000",
        ],
    ),
    (
        "init-fork-child-use",
        "meta fork.after-init 1",
        "cuDeviceGet device:=0 -> 3\n cuDevicePrimaryCtxRetain dev=0 -> 3",
        &[""],
    ),
    // One cause, and one finding.
    (
        "init-fork-child-use",
        "meta fork.after-init 1",
        "cuMemAlloc_v2 bytesize=4 -> 201\n cuCtxSynchronize -> 201\n cuStreamCreate -> 201\n\
         cuLibraryUnload library=0x700 -> 3",
        &[],
    ),
    (
        "init-fork-child-use",
        "meta fork.after-init 1",
        "cuCtxSynchronize -> !",
        &["cuDriverGetVersion driverVersion:=13000"],
    ),
    (
        "init-proc-address-unusable",
        START,
        "cuGetProcAddress_v2 symbol=\"cuMemAlloc_v2\" pfn:=0 cudaVersion=13000 flags=0",
        &[
            "cuGetProcAddress_v2 symbol=\"cuMemAlloc\" pfn:=0x7000 cudaVersion=13000 flags=0",
            // A function that this driver lacks.
            "cuGetProcAddress_v2 symbol=\"cuNoSuchCall\" pfn:=0 cudaVersion=13000 flags=0",
            "cuGetProcAddress_v2 symbol=\"cuLibraryLoadData\" pfn:=0 cudaVersion=11000 flags=0",
        ],
    ),
    (
        "init-proc-address-unusable",
        START,
        "cuGetProcAddress_v2 symbol=\"cuMemAlloc\" cudaVersion=13000 flags=3 -> 1",
        &[],
    ),
    (
        "context-primary-reset-shared",
        "cuDevicePrimaryCtxRetain pctx:=0xc0 dev=0\n cuDevicePrimaryCtxRetain pctx:=0xc0 dev=0\n\
         cuCtxSetCurrent ctx=0xc0\n cuStreamCreate phStream:=0x300",
        "cuDevicePrimaryCtxReset_v2 dev=0",
        &[
            "cuStreamDestroy_v2 hStream=0x300\n cuDevicePrimaryCtxReset_v2 dev=0",
            "cuDevicePrimaryCtxRelease_v2 dev=0\n cuDevicePrimaryCtxReset_v2 dev=0",
        ],
    ),
    // Threads of one runtime, which has retained the context once (NVIDIA/numba-cuda#644).
    (
        "context-primary-reset-shared",
        "cuDevicePrimaryCtxRetain pctx:=0xc0 dev=0\n cuCtxSetCurrent ctx=0xc0\n\
         t1 cuCtxSetCurrent ctx=0xc0\n t1 cuMemAlloc_v2 dptr:=0x10000 bytesize=64",
        "cuDevicePrimaryCtxReset_v2 dev=0\n t1 cuMemsetD8_v2 dstDevice=0x10000 N=64 -> 709\n\
         t1 cuMemFree_v2 dptr=0x10000 -> 1",
        &[
            // The runtime retains it again.
            "cuDevicePrimaryCtxReset_v2 dev=0\n t1 cuDevicePrimaryCtxRetain pctx:=0xc0 dev=0\n\
             t1 cuMemAlloc_v2 dptr:=0x10000 bytesize=64\n\
             t1 cuMemsetD8_v2 dstDevice=0x10000 N=64",
        ],
    ),
    (
        "context-primary-reset-shared",
        "cuDevicePrimaryCtxRetain pctx:=0xc0 dev=0\n cuCtxSetCurrent ctx=0xc0\n\
         t1 cuCtxSetCurrent ctx=0xc0",
        "cuDevicePrimaryCtxReset_v2 dev=0\n t1 cuMemAlloc_v2 bytesize=64 -> 709\n\
         t1 cuMemAlloc_v2 bytesize=64 -> 709",
        &[],
    ),
    (
        "context-use-after-destroy",
        "cuDevicePrimaryCtxRetain pctx:=0xc0 dev=0\n cuCtxSetCurrent ctx=0xc0",
        "cuDevicePrimaryCtxReset_v2 dev=0\n cuMemAlloc_v2 bytesize=64 -> 709",
        &[
            "cuDevicePrimaryCtxReset_v2 dev=0\n cuDevicePrimaryCtxRetain pctx:=0xc0 dev=0\n\
           cuMemAlloc_v2 dptr:=0x10000 bytesize=64",
        ],
    ),
    (
        "context-limit-order",
        START,
        "cuLaunchKernel f=0x200\n cuCtxSetLimit limit=1 value=16777216 -> 1",
        &[
            "cuCtxSetLimit limit=1 value=16777216\n cuLaunchKernel f=0x200\n \
           cuCtxSetLimit limit=0 value=4096",
        ],
    ),
    (
        "context-limit-order",
        START,
        "cuCtxSetLimit limit=3 value=4 -> 215",
        &[],
    ),
    (
        "context-objects-left-behind",
        START,
        "loop 100 cuEventCreate phEvent:=0x$00000 Flags=2; cuEventRecord hEvent=0x$00000 hStream=0x300; \
         cuEventSynchronize hEvent=0x$00000\n cuCtxDestroy_v2 ctx=0xc1",
        &[
            // A fixed number of events that live as long as the program, and are used in turn.
            "loop 100 cuEventCreate phEvent:=0x$00000 Flags=2\n\
             loop 100 cuEventRecord hEvent=0x$00000 hStream=0x300; \
             cuEventSynchronize hEvent=0x$00000\n cuCtxDestroy_v2 ctx=0xc1",
            "loop 100 cuEventCreate phEvent:=0x$00000 Flags=2; \
             cuEventRecord hEvent=0x$00000 hStream=0x300; \
             cuEventSynchronize hEvent=0x$00000; cuEventDestroy_v2 hEvent=0x$00000",
            // Streams that are created together and kept for later.
            "loop 100 cuStreamCreate phStream:=0x$00000 Flags=1\n\
             cuStreamSynchronize hStream=0x100000\n cuCtxDestroy_v2 ctx=0xc1",
        ],
    ),
    (
        "context-green-misuse",
        GREEN,
        "cuGreenCtxStreamCreate greenCtx=0xe0 flags=0 -> 1",
        &[
            "cuGreenCtxStreamCreate phStream:=0x300 greenCtx=0xe0 flags=1\n\
           cuStreamDestroy_v2 hStream=0x300\n cuGreenCtxDestroy hCtx=0xe0",
        ],
    ),
    (
        "context-green-misuse",
        GREEN,
        "cuGreenCtxCreate dev=0 flags=0 -> 1",
        &[],
    ),
    (
        "context-green-misuse",
        GREEN,
        "cuCtxSetCurrent ctx=0xe0 -> 201",
        &["cuCtxFromGreenCtx pContext:=0xe1 hCtx=0xe0\n cuCtxSetCurrent ctx=0xe1"],
    ),
    (
        "context-green-misuse",
        GREEN,
        "cuGreenCtxStreamCreate phStream:=0x300 greenCtx=0xe0 flags=1\n\
         cuGreenCtxDestroy hCtx=0xe0\n cuStreamDestroy_v2 hStream=0x300 -> 709",
        // Newer drivers let the stream be destroyed.
        &[
            "cuGreenCtxStreamCreate phStream:=0x300 greenCtx=0xe0 flags=1\n\
           cuGreenCtxDestroy hCtx=0xe0\n cuStreamDestroy_v2 hStream=0x300",
        ],
    ),
    (
        "context-checkpoint-state",
        "cuInit Flags=0",
        "cuCheckpointProcessCheckpoint pid=77 -> 401",
        &[
            "cuCheckpointProcessLock pid=77\n cuCheckpointProcessCheckpoint pid=77\n\
             cuCheckpointProcessRestore pid=77\n cuCheckpointProcessUnlock pid=77",
            // The lock timed out and is tried again.
            "cuCheckpointProcessLock pid=77 -> 600\n cuCheckpointProcessLock pid=77",
        ],
    ),
    (
        "peer-access-missing",
        TWO,
        "cuLaunchKernel f=0x200 layout=8 params=0x20000",
        &[
            "cuCtxEnablePeerAccess peerContext=0xc2\n\
             cuLaunchKernel f=0x200 layout=8 params=0x20000",
            "cuLaunchKernel f=0x200 layout=8 params=0x10000",
            "cuMemcpyPeer dstDevice=0x10000 dstContext=0xc1 srcDevice=0x20000 srcContext=0xc2 \
             ByteCount=64",
            // Managed memory is accessible everywhere.
            "cuCtxSetCurrent ctx=0xc2\n cuMemAllocManaged dptr:=0x30000 bytesize=64 flags=1\n\
             cuCtxSetCurrent ctx=0xc1\n cuLaunchKernel f=0x200 layout=8 params=0x30000",
        ],
    ),
    (
        "peer-access-missing",
        TWO,
        // The other direction.
        "cuCtxSetCurrent ctx=0xc2\n cuCtxEnablePeerAccess peerContext=0xc1\n\
         cuCtxSetCurrent ctx=0xc1\n cuLaunchKernel f=0x200 layout=8 params=0x20000",
        &[],
    ),
    (
        "peer-enable-state",
        TWO,
        "cuCtxDisablePeerAccess peerContext=0xc2 -> 705",
        &["cuCtxEnablePeerAccess peerContext=0xc2\n cuCtxDisablePeerAccess peerContext=0xc2"],
    ),
    (
        "peer-enable-state",
        TWO,
        "cuCtxEnablePeerAccess peerContext=0xc2\n cuCtxEnablePeerAccess peerContext=0xc2 -> 704",
        &[],
    ),
    (
        "peer-enable-state",
        TWO,
        "cuCtxCreate_v2 pctx:=0xc3 dev=0\n cuCtxEnablePeerAccess peerContext=0xc1 -> 217",
        &[],
    ),
    (
        "peer-copy-context-mismatch",
        TWO,
        "cuMemcpyPeer dstDevice=0x10000 dstContext=0xc2 srcDevice=0x20000 srcContext=0xc2 \
         ByteCount=64",
        &[
            "cuMemcpyPeer dstDevice=0x10000 dstContext=0xc1 srcDevice=0x20000 srcContext=0xc2 \
           ByteCount=64",
        ],
    ),
];
