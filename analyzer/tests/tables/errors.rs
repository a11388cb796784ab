//! Errors of asynchronous work, results that are ignored, threads that overlap.

use super::Row;

/// A context, a module with a kernel, two non-blocking streams, memory that was written.
const KERNELS: &str = "
    cuCtxCreate_v2 pctx:=0xc1 dev=0
    cuModuleLoadData module:=0x100 image@0x5000:PTX
    cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"
    cuStreamCreate phStream:=0x301 Flags=1
    cuStreamCreate phStream:=0x302 Flags=1
    cuMemAlloc_v2 dptr:=0x1000000 bytesize=4096
    cuMemsetD8_v2 dstDevice=0x1000000 N=4096
    cuCtxSynchronize
";

pub(crate) const ERRORS: &[Row] = &[
    (
        "errors-async-misattributed",
        KERNELS,
        "cuLaunchKernel f=0x200 hStream=0x301\n\
         cuModuleLoadData module:=0x101 image@0x5000:PTX -> 700",
        &[
            // An error that does not stay.
            "cuLaunchKernel f=0x200 hStream=0x301\n cuMemAlloc_v2 bytesize=9 -> 2\n\
             cuCtxSynchronize",
        ],
    ),
    (
        "errors-async-misattributed",
        KERNELS,
        "cuLaunchKernel f=0x200 hStream=0x301\n cuLaunchKernel f=0x200 hStream=0x302\n\
         cuCtxSynchronize -> 719",
        &[],
    ),
    // The wait right after a lone launch, and what fails for the same reason.
    (
        "errors-async-misattributed",
        KERNELS,
        "cuLaunchKernel f=0x200 hStream=0x301\n cuStreamSynchronize hStream=0x301 -> 700\n\
         cuMemcpyDtoH_v2 dstHost=0x99000000 srcDevice=0x1000000 ByteCount=4 -> 700\n\
         cuMemFree_v2 dptr=0x1000000 -> 700\n cuModuleUnload hmod=0x100 -> 700\n\
         meta exit.status 1",
        &[
            "cuLaunchKernel f=0x200 hStream=0x301\n cuStreamSynchronize hStream=0x301\n\
           cuMemcpyDtoH_v2 dstHost=0x99000000 srcDevice=0x1000000 ByteCount=4",
        ],
    ),
    (
        "errors-async-misattributed",
        KERNELS,
        "cuLaunchKernel f=0x200 hStream=0x301\n cuStreamSynchronize hStream=0x301 -> 719\n\
         meta exit.signal 6",
        &[],
    ),
    // A wait in a thread without a context of its own.
    (
        "errors-async-misattributed",
        KERNELS,
        "cuEventCreate phEvent:=0x400\n\
         cuLaunchKernel f=0x200 hStream=0x301\n cuEventRecord hEvent=0x400 hStream=0x301\n\
         t1 cuEventSynchronize hEvent=0x400 -> 700\n cuMemFree_v2 dptr=0x1000000 -> 700\n\
         meta exit.status 0",
        &[],
    ),
    (
        "errors-sticky-continue",
        KERNELS,
        "cuLaunchKernel f=0x200 hStream=0x301\n cuStreamSynchronize hStream=0x301 -> 700\n\
         cuMemAlloc_v2 bytesize=64 -> 700\n cuLaunchKernel f=0x200 hStream=0x301 -> 700",
        // Only clean-up.
        &[
            "cuLaunchKernel f=0x200 hStream=0x301\n cuStreamSynchronize hStream=0x301 -> 700\n\
             cuMemFree_v2 dptr=0x1000000 -> 700\n cuModuleUnload hmod=0x100 -> 700",
        ],
    ),
    // Of an external device (CUDA_ERROR_EXTERNAL_DEVICE); one of the call's context does not stay.
    (
        "errors-sticky-continue",
        KERNELS,
        "cuLaunchKernel f=0x200 hStream=0x301\n cuStreamSynchronize hStream=0x301 -> 911\n\
         cuMemAlloc_v2 bytesize=64 -> 911\n cuLaunchKernel f=0x200 hStream=0x301 -> 911",
        &[
            "cuLaunchKernel f=0x200 hStream=0x301\n cuStreamSynchronize hStream=0x301 -> 709\n\
             cuMemAlloc_v2 bytesize=64 -> 709\n cuLaunchKernel f=0x200 hStream=0x301 -> 709",
        ],
    ),
    (
        "errors-async-never-observed",
        KERNELS,
        "cuLaunchKernel f=0x200 hStream=0x301\n meta exit.status 0",
        &[
            "cuLaunchKernel f=0x200 hStream=0x301\n cuCtxSynchronize\n meta exit.status 0",
            "cuLaunchKernel f=0x200 hStream=0\n\
             cuMemcpyDtoH_v2 dstHost=0x99000000 srcDevice=0x1000000 ByteCount=4\n meta exit.status 0",
            // The context's end waits.
            "cuLaunchKernel f=0x200 hStream=0x301\n cuCtxDestroy_v2 ctx=0xc1\n meta exit.status 0",
            // The trace was cut.
            "cuLaunchKernel f=0x200 hStream=0x301",
        ],
    ),
    (
        "errors-host-function-skipped",
        KERNELS,
        "cuLaunchKernel f=0x200 hStream=0x301\n cuLaunchHostFunc hStream=0x301 fn=0x99\n\
         cuStreamSynchronize hStream=0x301 -> 700",
        &[
            "cuLaunchHostFunc hStream=0x301 fn=0x99\n cuLaunchKernel f=0x200 hStream=0x301\n\
             cuStreamSynchronize hStream=0x301 -> 700",
            "cuLaunchKernel f=0x200 hStream=0x301\n\
             cuStreamAddCallback hStream=0x301 callback=0x99 -> 801\n\
             cuStreamSynchronize hStream=0x301 -> 700",
        ],
    ),
    (
        "errors-result-ignored",
        KERNELS,
        "cuMemAlloc_v2 bytesize=999999999999 -> 2\n cuMemsetD8_v2 dstDevice=0xdead0000 N=16 -> 1",
        &[
            // Tried again with success.
            "cuMemAlloc_v2 bytesize=999999999999 -> 2\n cuMemAlloc_v2 dptr:=0x2000000 bytesize=9\n\
             cuMemsetD8_v2 dstDevice=0xdead0000 N=16 -> 1",
            "cuMemsetD8_v2 dstDevice=0xdead0000 N=16 -> 1",
        ],
    ),
    // A kernel with the address that an allocation did not return.
    (
        "errors-result-ignored",
        KERNELS,
        "cuMemAlloc_v2 bytesize=999999999999 -> 2\n\
         cuLaunchKernel f=0x200 hStream=0x301 params=0 layout=8\n\
         cuStreamSynchronize hStream=0x301 -> 700\n\
         cuMemcpyDtoH_v2 dstHost=0x99000000 srcDevice=0 ByteCount=4 -> 700",
        &["cuMemAlloc_v2 bytesize=999999999999 -> 2\n\
             cuLaunchKernel f=0x200 hStream=0x301 params=0 layout=8\n cuCtxSynchronize"],
    ),
    (
        "errors-result-ignored",
        KERNELS,
        "cuEventCreate Flags=0 -> 2\n cuEventRecord hEvent=0x499 hStream=0x301 -> 400",
        &["cuEventCreate Flags=0 -> 2"],
    ),
    (
        "errors-reserved-argument-nonzero",
        KERNELS,
        "cuGraphCreate flags=1 -> 1",
        &[
            "cuGraphCreate phGraph:=0x900 flags=0",
            "cuMemAddressReserve flags=0 size=1 -> 1",
        ],
    ),
    (
        "errors-reserved-argument-nonzero",
        KERNELS,
        "cuStreamCreate Flags=0x40 -> 1",
        &["cuStreamCreate Flags=1 -> 1"],
    ),
    (
        "errors-reserved-argument-nonzero",
        KERNELS,
        "cuCtxCreate_v2 flags=3 dev=0 -> 1",
        &["cuCtxCreate_v2 pctx:=0xc2 flags=9 dev=0"],
    ),
    (
        "errors-deprecated-api",
        KERNELS,
        "cuStreamAddCallback hStream=0x301 callback=0x99",
        &["cuLaunchHostFunc hStream=0x301 fn=0x99"],
    ),
    (
        "threading-host-function-calls-cuda",
        KERNELS,
        "cuLaunchHostFunc hStream=0x301 fn=0x99\n t5 cuMemAlloc_v2 bytesize=4 -> 800\n\
         cuStreamSynchronize hStream=0x301",
        &[
            "cuLaunchHostFunc hStream=0x301 fn=0x99\n t5 cuCtxSetCurrent ctx=0xc1\n\
             t5 cuCtxEnablePeerAccess peerContext=0xc2 -> 800",
            "t5 cuMemAlloc_v2 bytesize=4 -> 800",
            // A worker thread that asks whether fabric handles are permitted, as NCCL and PyTorch
            // do before they fall back to a file descriptor.
            "cuLaunchHostFunc hStream=0x301 fn=0x99\n t5 cuDeviceGetAttribute pi:=1 attrib=128 dev=0\n\
             t5 cuMemCreate handle:=0 size=0x200000 -> 800\n\
             t5 cuMemCreate handle:=0x900 size=0x200000\n t5 cuMemRelease handle=0x900",
            "cuLaunchHostFunc hStream=0x301 fn=0x99\n\
             t5 cuMulticastCreate mcHandle:=0 -> 800",
            "cuLaunchHostFunc hStream=0x301 fn=0x99\n\
             t5 cuCheckpointProcessLock pid=77 -> 800",
            "cuLaunchHostFunc hStream=0x301 fn=0x99\n\
             t5 cuMemPoolCreate pool:=0 -> 800",
            // A node of another type.
            "cuGraphCreate phGraph:=0x801\n\
             cuGraphAddNode_v2 phGraphNode:=0x810 hGraph=0x801 nodeParams=[5,0*31]\n\
             t5 cuMemAlloc_v2 bytesize=4 -> 800\n cuGraphDestroy hGraph=0x801",
        ],
    ),
    (
        "threading-host-function-calls-cuda",
        KERNELS,
        "cuGraphCreate phGraph:=0x801\n\
         cuGraphAddNode_v2 phGraphNode:=0x810 hGraph=0x801 nodeParams=[3,0*31]\n\
         t5 cuMemcpyDtoHAsync_v2 srcDevice=0x1000000 ByteCount=4 -> 800\n\
         cuGraphDestroy hGraph=0x801",
        &[],
    ),
    // A helper of the host function asks which context is current first.
    (
        "threading-host-function-calls-cuda",
        KERNELS,
        "cuLaunchHostFunc hStream=0x301 fn=0x99\n t5 cuCtxGetCurrent pctx:=0\n\
         t5 cuDriverGetVersion driverVersion:=13000\n t5 cuMemFree_v2 dptr=0x1000000 -> 800\n\
         cuStreamSynchronize hStream=0x301",
        &[],
    ),
    // A destructor frees the buffer of its graph.
    (
        "threading-host-function-calls-cuda",
        KERNELS,
        "cuUserObjectCreate object_out:=0xb00 destroy=0x99 initialRefcount=1 flags=1\n\
         cuUserObjectRelease object=0xb00 count=1\n t5 cuMemFree_v2 dptr=0x1000000 -> 800",
        &[
            "cuUserObjectCreate object_out:=0xb00 destroy=0x99 initialRefcount=1 flags=1\n\
             cuUserObjectRelease object=0xb00 count=1\n cuMemFree_v2 dptr=0x1000000",
        ],
    ),
    // It runs in the thread that ends the graph.
    (
        "threading-host-function-calls-cuda",
        KERNELS,
        "cuUserObjectCreate object_out:=0xb00 destroy=0x99 initialRefcount=1 flags=1\n\
         cuGraphCreate phGraph:=0x801\n\
         cuGraphRetainUserObject graph=0x801 object=0xb00 count=1 flags=1\n\
         cuGraphDestroy hGraph=0x801 nested=cuCtxGetCurrent:800 nested=cuMemFree_v2:800",
        &[
            // What the driver lets destructors ask.
            "cuUserObjectCreate object_out:=0xb00 destroy=0x99 initialRefcount=1 flags=1\n\
             cuUserObjectRelease object=0xb00 count=1 nested=cuGetErrorString:0",
            // A signal handler.
            "cuUserObjectCreate object_out:=0xb00 destroy=0x99 initialRefcount=1 flags=1\n\
             cuUserObjectRelease object=0xb00 count=1\n\
             cuCtxSynchronize nested=cuMemFree_v2:800",
            // No program without user objects has destructors.
            "cuGraphCreate phGraph:=0x801\n cuGraphDestroy hGraph=0x801 nested=cuMemFree_v2:800",
        ],
    ),
    (
        "threading-host-function-calls-cuda",
        KERNELS,
        "cuLaunchHostFunc hStream=0x301 fn=0x99\n t5 cuMemAlloc_v2 bytesize=4 -> !",
        &[
            "cuLaunchHostFunc hStream=0x301 fn=0x99\n t5 cuCtxSetCurrent ctx=0xc1\n\
           t5 cuCtxSynchronize -> !",
        ],
    ),
    (
        "threading-destroy-while-in-use",
        KERNELS,
        "t1 cuCtxSetCurrent ctx=0xc1\n t1> cuCtxSynchronize\n cuCtxDestroy_v2 ctx=0xc1\n t1<",
        &["t1 cuCtxSetCurrent ctx=0xc1\n t1> cuCtxSynchronize\n t1<\n cuCtxDestroy_v2 ctx=0xc1"],
    ),
    (
        "threading-destroy-while-in-use",
        KERNELS,
        "t1 cuCtxSetCurrent ctx=0xc1\n t1> cuLaunchKernel f=0x200 hStream=0x301\n\
         cuModuleUnload hmod=0x100\n t1<\n cuCtxSynchronize",
        &[
            // Another object of the same kind, with the same handle as one that was destroyed.
            "t1 cuCtxSetCurrent ctx=0xc1\n t1> cuStreamQuery hStream=0x301\n\
             cuStreamDestroy_v2 hStream=0x302\n t1<",
        ],
    ),
    (
        "threading-graph-concurrent-use",
        KERNELS,
        "cuGraphCreate phGraph:=0x900\n cuGraphInstantiateWithFlags phGraphExec:=0x910 \
         hGraph=0x900\n t1 cuCtxSetCurrent ctx=0xc1\n\
         t1> cuGraphLaunch hGraph=0x910 hStream=0x301\n\
         cuGraphLaunch hGraph=0x910 hStream=0x302\n t1<",
        &[
            "cuGraphCreate phGraph:=0x900\n cuGraphInstantiateWithFlags phGraphExec:=0x910 \
             hGraph=0x900\n cuGraphInstantiateWithFlags phGraphExec:=0x911 hGraph=0x900\n\
             t1 cuCtxSetCurrent ctx=0xc1\n t1> cuGraphLaunch hGraph=0x910 hStream=0x301\n\
             cuGraphLaunch hGraph=0x911 hStream=0x302\n t1<",
            // Two threads that only read the graph.
            "cuGraphCreate phGraph:=0x900\n t1 cuCtxSetCurrent ctx=0xc1\n\
             t1> cuGraphInstantiateWithFlags phGraphExec:=0x910 hGraph=0x900\n\
             cuGraphInstantiateWithFlags phGraphExec:=0x911 hGraph=0x900\n t1<",
        ],
    ),
    (
        "library-load-behind-running-kernel",
        KERNELS,
        "cuLaunchKernel f=0x200 hStream=0x301\n t1 cuCtxSetCurrent ctx=0xc1\n\
         t1 cuLibraryLoadData code@0x5000:PTX -> !",
        &[
            "t1 cuCtxSetCurrent ctx=0xc1\n t1 cuLibraryLoadData code@0x5000:PTX -> !",
            "cuLaunchKernel f=0x200 hStream=0x301\n cuStreamSynchronize hStream=0x301\n\
             t1 cuCtxSetCurrent ctx=0xc1\n t1 cuLibraryLoadData code@0x5000:PTX -> !",
        ],
    ),
    // The first launch of a function loads it.
    (
        "library-load-behind-running-kernel",
        KERNELS,
        "cuLibraryLoadData library:=0x700 code@0x5000:PTX\n\
         cuLibraryGetKernel pKernel:=0x710 library=0x700 name=\"k\"\n\
         cuLaunchKernel f=0x200 hStream=0x301\n cuLaunchKernel f=0x710 hStream=0x302 -> !\n\
         meta exit.signal 15",
        // The queue is full.
        &["loop 20 cuLaunchKernel f=0x200 hStream=0x301\n\
           cuLaunchKernel f=0x200 hStream=0x301 -> !\n meta exit.signal 15"],
    ),
    (
        "stream-memop-operand",
        KERNELS,
        "cuMemAllocManaged dptr:=0x3000000 bytesize=64 flags=1\n\
         cuStreamWriteValue32_v2 stream=0x301 addr=0x3000000 value=1 -> 1",
        &["cuMemAllocHost_v2 pp:=0x7000000 bytesize=64\n\
           cuStreamWriteValue32_v2 stream=0x301 addr=0x7000000 value=1"],
    ),
    (
        "stream-memop-operand",
        KERNELS,
        "cuStreamBatchMemOp_v2 stream=0x301 count=256 -> 1",
        &[],
    ),
    (
        "stream-memop-self-deadlock",
        KERNELS,
        "cuStreamWaitValue32_v2 stream=0x301 addr=0x1000000 value=1 flags=1\n\
         cuStreamWriteValue32_v2 stream=0x301 addr=0x1000000 value=1\n\
         cuStreamSynchronize hStream=0x301 -> !",
        &[
            // The CPU or another stream may write it.
            "cuMemAllocHost_v2 pp:=0x7000000 bytesize=64\n\
             cuStreamWaitValue32_v2 stream=0x301 addr=0x7000000 value=1 flags=1\n\
             cuStreamSynchronize hStream=0x301 -> !",
            "cuStreamWaitValue32_v2 stream=0x301 addr=0x1000000 value=1 flags=1\n\
             cuLaunchKernel f=0x200 hStream=0x302\n cuStreamSynchronize hStream=0x301 -> !",
        ],
    ),
    (
        "stream-memop-hidden-order",
        KERNELS,
        "cuStreamWaitValue32_v2 stream=0x302 addr=0x1000000 value=1 flags=1\n\
         cuStreamWriteValue32_v2 stream=0x301 addr=0x1000000 value=1\n cuCtxSynchronize",
        &[
            "cuEventCreate phEvent:=0x401 Flags=2\n\
             cuStreamWriteValue32_v2 stream=0x301 addr=0x1000000 value=1\n\
             cuEventRecord hEvent=0x401 hStream=0x301\n\
             cuStreamWaitEvent hStream=0x302 hEvent=0x401\n\
             cuStreamWaitValue32_v2 stream=0x302 addr=0x1000000 value=1 flags=1\n\
             cuCtxSynchronize",
            "cuStreamWaitValue32_v2 stream=0x302 addr=0x1000000 value=1 flags=1\n\
             cuStreamWriteValue32_v2 stream=0x301 addr=0x1000100 value=1\n cuCtxSynchronize",
            "cuStreamWriteValue32_v2 stream=0x301 addr=0x1000000 value=1\n\
             cuStreamWaitValue32_v2 stream=0x302 addr=0x1000000 value=1 flags=1\n\
             cuCtxSynchronize",
        ],
    ),
];
