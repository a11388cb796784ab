//! Libraries, streams, events, memory, contexts.

use super::{Row, START};

const LIBRARY: &str = "
    cuCtxCreate_v2 pctx:=0xc1 dev=0
    cuLibraryLoadData library:=0x700 code@0x5000:PTX
    cuLibraryGetKernel pKernel:=0x710 library=0x700 name=\"k\"
    cuKernelGetFunction pFunc:=0x220 kernel=0x710
";

pub(crate) const LIBRARIES: &[Row] = &[
    (
        "library-image-unmapped",
        LIBRARY,
        // Another shared library is mapped where the first one was.
        "cuLibraryLoadData library:=0x701 code@0x5100:WRAPPER code/9~/a.so:4096:8192 libopts=1:1\n\
         cuLibraryLoadData library:=0x702 code@0x5200:WRAPPER code/9~/b.so:512:4096 libopts=1:1",
        &[
            // The first one was unloaded before.
            "cuLibraryLoadData library:=0x701 code@0x5100:WRAPPER code/9~/a.so:4096:8192 \
             libopts=1:1\n cuLibraryUnload library=0x701\n\
             cuLibraryLoadData library:=0x702 code@0x5200:WRAPPER code/9~/b.so:512:4096 \
             libopts=1:1",
            // The driver has a copy of its own.
            "cuLibraryLoadData library:=0x701 code@0x5100:WRAPPER code/9~/a.so:4096:8192\n\
             cuLibraryLoadData library:=0x702 code@0x5200:WRAPPER code/9~/b.so:512:4096",
            // The same image.
            "cuLibraryLoadData library:=0x701 code@0x5100:WRAPPER code/9~/a.so:4096:8192 \
             libopts=1:1\n\
             cuModuleLoadData module:=0x100 image@0x5200:WRAPPER image/9~/a.so:4096:8192",
        ],
    ),
    (
        "library-use-after-unload",
        LIBRARY,
        "cuLibraryUnload library=0x700\n cuLaunchKernel f=0x710 -> 400",
        &["cuLaunchKernel f=0x710\n cuCtxSynchronize\n cuLibraryUnload library=0x700"],
    ),
    (
        "library-use-after-unload",
        LIBRARY,
        "cuLibraryUnload library=0x700\n cuLaunchKernel f=0x220 -> 400",
        &[],
    ),
    (
        "library-use-after-unload",
        LIBRARY,
        "cuLibraryUnload library=0x700\n cuLibraryUnload library=0x700 -> 400",
        &[],
    ),
    (
        "library-use-after-unload",
        LIBRARY,
        "cuLibraryGetGlobal dptr:=0x20000 bytes:=4 library=0x700 name=\"g\"\n\
         cuLibraryUnload library=0x700\n \
         cuMemsetD8_v2 dstDevice=0x20000 N=4 -> 1",
        &[],
    ),
    (
        "library-preserved-image-freed",
        LIBRARY,
        "cuLibraryLoadFromFile library:=0x701 fileName=\"a.cubin\" libopts=1:1 -> 1",
        &[
            "cuLibraryLoadData library:=0x701 code@0x5100:PTX libopts=1:1\n\
             cuLibraryUnload library=0x701\n \
             cuLibraryLoadData library:=0x701 code@0x5100:PTX_OTHER libopts=1:1",
        ],
    ),
    (
        "library-preserved-image-freed",
        LIBRARY,
        "cuLibraryLoadData library:=0x701 code@0x5100:PTX libopts=1:1\n\
         cuModuleLoadData module:=0x100 image@0x5100:PTX_OTHER",
        &[],
    ),
    // A wrapper of 24 bytes, and the container that it points at, elsewhere.
    (
        "library-preserved-image-freed",
        LIBRARY,
        "cuLibraryLoadData library:=0x701 code@0x5100:WRAPPER code/9:PTX libopts=1:1\n\
         cuMemAlloc_v2 dptr@0x5110:=0x10000 bytesize=64",
        &[
            // The program's variables lie right behind the wrapper.
            "cuLibraryLoadData library:=0x701 code@0x5100:WRAPPER code/9:PTX libopts=1:1\n\
             cuMemAlloc_v2 dptr@0x5118:=0x10000 bytesize=64",
            "cuLibraryLoadData library:=0x701 code@0x5100:WRAPPER code/9:PTX libopts=1:1\n\
             cuLibraryUnload library=0x701\n \
             cuMemAlloc_v2 dptr@0x9010:=0x10000 bytesize=64",
        ],
    ),
    (
        "library-preserved-image-freed",
        LIBRARY,
        "cuLibraryLoadData library:=0x701 code@0x5100:WRAPPER code/9:PTX libopts=1:1\n\
         cuMemAlloc_v2 dptr@0x9010:=0x10000 bytesize=64",
        &[],
    ),
    (
        "library-preserved-image-freed",
        LIBRARY,
        "cuLibraryLoadData library:=0x701 code@0x5100:WRAPPER code/9:PTX libopts=1:1\n\
         cuLibraryLoadData library:=0x702 code@0x5200:WRAPPER code/9:PTX_OTHER libopts=1:1",
        &[
            "cuLibraryLoadData library:=0x701 code@0x5100:WRAPPER code/9:PTX libopts=1:1\n\
             cuLibraryLoadData library:=0x702 code@0x5200:WRAPPER code/9:PTX libopts=1:1",
        ],
    ),
    (
        "library-kernel-as-function",
        LIBRARY,
        "cuFuncSetAttribute hfunc=0x710 attrib=8 value=4096 -> 400",
        &[
            "cuLaunchKernel f=0x710",
            "cuFuncSetAttribute hfunc=0x220 attrib=8 value=4096",
        ],
    ),
    (
        "library-function-attribute-shadows-kernel",
        LIBRARY,
        "cuFuncSetAttribute hfunc=0x220 attrib=8 value=8192\n\
         cuKernelSetAttribute attrib=8 val=16384 kernel=0x710\n \
         cuLaunchKernel f=0x220",
        &[
            "cuKernelSetAttribute attrib=8 val=16384 kernel=0x710\n cuLaunchKernel f=0x220",
            "cuFuncSetAttribute hfunc=0x220 attrib=8 value=8192\n\
             cuKernelSetAttribute attrib=8 val=8192 kernel=0x710\n \
             cuLaunchKernel f=0x220",
        ],
    ),
    (
        "library-global-wrong-context",
        LIBRARY,
        "cuCtxCreate_v2 pctx:=0xc2 dev=0\n cuLaunchKernel f=0x220 -> 400",
        &[
            "cuCtxCreate_v2 pctx:=0xc2 dev=0\n cuLaunchKernel f=0x710",
            // A green context shares the code of the primary context, and what is made while it is
            // current outlives it.
            "cuGreenCtxCreate phCtx:=0xe0 dev=0\n cuCtxFromGreenCtx pContext:=0xe1 hCtx=0xe0\n\
             cuCtxSetCurrent ctx=0xe1\n cuLaunchKernel f=0x220\n\
             cuMemAlloc_v2 dptr:=0x10000 bytesize=64\n\
             cuModuleLoadData module:=0x100 image@0x5000:PTX\n\
             cuCtxSetCurrent ctx=0xc1\n cuModuleUnload hmod=0x100\n\
             cuGreenCtxDestroy hCtx=0xe0\n cuMemsetD8_v2 dstDevice=0x10000 N=64\n\
             cuMemFree_v2 dptr=0x10000",
        ],
    ),
    (
        "library-global-wrong-context",
        LIBRARY,
        "cuCtxPopCurrent_v2 pctx:=0xc1\n cuKernelGetFunction pFunc:=0 kernel=0x710 -> 201",
        &[],
    ),
];

pub(crate) const OTHERS: &[Row] = &[
    (
        "stream-use-after-destroy",
        START,
        "cuStreamDestroy_v2 hStream=0x300\n cuLaunchKernel f=0x200 hStream=0x300 -> !",
        &[
            "cuStreamDestroy_v2 hStream=0x300\n cuStreamCreate phStream:=0x300\n\
             cuStreamSynchronize hStream=0x300",
        ],
    ),
    (
        "event-use-after-destroy",
        START,
        "cuEventDestroy_v2 hEvent=0x400\n cuEventRecord hEvent=0x400 hStream=0x300 -> !",
        &["cuEventRecord hEvent=0x400 hStream=0x300\n cuEventDestroy_v2 hEvent=0x400"],
    ),
    (
        "memory-double-free",
        START,
        "cuMemFree_v2 dptr=0x10000\n cuMemFree_v2 dptr=0x10000 -> 1",
        &[
            "cuMemFree_v2 dptr=0x10000\n cuMemAlloc_v2 dptr:=0x10000 bytesize=16\n\
             cuMemFree_v2 dptr=0x10000",
            // A graph has the address of freed memory, and what it allocates is freed behind it.
            "cuMemFree_v2 dptr=0x10000\n cuGraphCreate phGraph:=0x800\n\
             cuGraphAddMemAllocNode phGraphNode:=0x900 hGraph=0x800 \
             nodeParams:=[0*13,4096,0x10000]\n\
             cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800\n\
             cuGraphLaunch hGraph=0xa00 hStream=0x300\n\
             cuMemFreeAsync dptr=0x10000 hStream=0x300",
            // Each launch of a graph allocates its memory again: captured ...
            "cuStreamBeginCapture_v2 hStream=0x300 mode=2\n\
             cuMemAllocAsync dptr:=0x302000000 bytesize=64 hStream=0x300\n\
             cuStreamEndCapture hStream=0x300 phGraph:=0x800\n\
             cuGraphInstantiateWithFlags phGraphExec:=0x810 hGraph=0x800\n\
             cuGraphLaunch hGraph=0x810 hStream=0x300\n\
             cuMemFreeAsync dptr=0x302000000 hStream=0x300\n\
             cuGraphLaunch hGraph=0x810 hStream=0x300\n\
             cuMemsetD8Async dstDevice=0x302000000 N=64 hStream=0x300\n\
             cuMemFreeAsync dptr=0x302000000 hStream=0x300",
            // ... or built, at the address of memory of the pool that was freed.
            "cuGraphAddMemAllocNode nodeParams:=[0,0,0,0,0,0,0,0,0,0,0,0,0,4096,0x302000000]\n\
             cuMemAllocAsync dptr:=0x302000000 bytesize=64 hStream=0x300\n\
             cuMemFreeAsync dptr=0x302000000 hStream=0x300\n\
             cuGraphLaunch hGraph=0x810 hStream=0x300\n\
             cuMemsetD8Async dstDevice=0x302000000 N=64 hStream=0x300\n\
             cuMemFreeAsync dptr=0x302000000 hStream=0x300",
            // Memory of another process that was opened twice.
            "cuIpcOpenMemHandle pdptr:=0x40000\n cuIpcOpenMemHandle pdptr:=0x40000\n\
             cuIpcCloseMemHandle dptr=0x40000\n cuMemsetD8_v2 dstDevice=0x40000 N=4\n\
             cuIpcCloseMemHandle dptr=0x40000",
            // A captured free has not run yet.
            "cuMemAllocAsync dptr:=0x302000000 bytesize=64 hStream=0x300\n\
             cuStreamBeginCapture_v2 hStream=0x300 mode=2\n\
             cuMemFreeAsync dptr=0x302000000 hStream=0x300\n\
             cuStreamEndCapture hStream=0x300 phGraph:=0x800\n\
             cuMemFreeAsync dptr=0x302000000 hStream=0x300",
        ],
    ),
    (
        "memory-double-free",
        START,
        "cuIpcOpenMemHandle pdptr:=0x40000\n cuIpcOpenMemHandle pdptr:=0x40000\n\
         cuIpcCloseMemHandle dptr=0x40000\n cuIpcCloseMemHandle dptr=0x40000\n\
         cuIpcCloseMemHandle dptr=0x40000 -> 1",
        &[],
    ),
    (
        "memory-double-free",
        START,
        "cuMemAllocAsync dptr:=0x302000000 bytesize=64 hStream=0x300\n\
         cuMemFreeAsync dptr=0x302000000 hStream=0x300\n\
         cuMemFreeAsync dptr=0x302000000 hStream=0x300 -> 1",
        &[],
    ),
    (
        "memory-use-after-free-operand",
        START,
        "cuMemFree_v2 dptr=0x10000\n cuMemsetD32_v2 dstDevice=0x10100 N=4 -> 1",
        &[
            "cuMemFree_v2 dptr=0x10000\n cuMemAlloc_v2 dptr:=0x10000 bytesize=4096\n\
             cuMemsetD32_v2 dstDevice=0x10100 N=4",
            "cuMemFree_v2 dptr=0x10000\n cuMemsetD32_v2 dstDevice=0x10100 N=0",
            // Memory of a graph gets the address of freed memory (seen on a real driver, with
            // that of a pool).
            "cuMemFree_v2 dptr=0x10000\n\
             cuGraphAddMemAllocNode nodeParams:=[0,0,0,0,0,0,0,0,0,0,0,0,0,4096,0x10000]\n \
             cuGraphAddMemFreeNode dptr=0x10000",
            "cuMemFree_v2 dptr=0x10000\n \
             cuGraphAddNode nodeParams:=[10,0,0,0,0,0,0,0,0,0,0,0,0,0,0,4096,0x10000,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]\n \
             cuGraphAddMemFreeNode dptr=0x10000",
        ],
    ),
    (
        "memory-use-after-free-operand",
        START,
        "cuMemFree_v2 dptr=0x10000\n\
         cuGraphAddNode nodeParams:=[2,0,0,0,0,0,0,0,0,0,0,0,0,0,0,4096,0x10000,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]\n \
         cuGraphAddMemFreeNode dptr=0x10000",
        &[],
    ),
    (
        "memory-use-after-free-kernel-argument",
        START,
        "cuMemFree_v2 dptr=0x10000\n cuLaunchKernel f=0x200 layout=8 params=0x10000",
        &[
            "cuLaunchKernel f=0x200 layout=8 params=0x10000\n cuMemFree_v2 dptr=0x10000",
            // Two numbers of four bytes are no pointer.
            "cuMemFree_v2 dptr=0x10000\n cuLaunchKernel f=0x200 layout=4,4 params=0x10000",
        ],
    ),
    // A member of a struct, behind a push without a pop.
    (
        "memory-use-after-free-kernel-argument",
        START,
        "cuCtxPushCurrent_v2 ctx=0xc1\n cuMemFree_v2 dptr=0x10000\n\
         cuLaunchKernel f=0x200 layout=8,24 params=5,7,0x10000,64",
        &[
            "cuCtxPushCurrent_v2 ctx=0xc1\n\
             cuLaunchKernel f=0x200 layout=8,24 params=5,7,0x10000,64\n cuMemFree_v2 dptr=0x10000",
            // The end of a long array of pointers may never have been set.
            "cuMemFree_v2 dptr=0x10000\n\
             cuLaunchKernel f=0x200 layout=128 params=7,0*14,0x10000",
        ],
    ),
    (
        "context-use-after-destroy",
        START,
        "cuCtxDestroy_v2 ctx=0xc1\n cuCtxPushCurrent_v2 ctx=0xc1 -> 709",
        &["cuCtxDestroy_v2 ctx=0xc1\n cuCtxCreate_v2 pctx:=0xc1\n cuCtxPushCurrent_v2 ctx=0xc1"],
    ),
    (
        "context-use-after-destroy",
        START,
        "t1 cuCtxSetCurrent ctx=0xc1\n cuCtxDestroy_v2 ctx=0xc1\n\
         t1 cuMemAlloc_v2 dptr:=0 bytesize=4 -> 709",
        &[],
    ),
    (
        "context-resource-after-destroy",
        START,
        "cuCtxDestroy_v2 ctx=0xc1\n cuMemFree_v2 dptr=0x10000 -> 1",
        &["cuMemFree_v2 dptr=0x10000\n cuCtxDestroy_v2 ctx=0xc1"],
    ),
    (
        "context-none-current",
        "cuDevicePrimaryCtxRetain pctx:=0xc0 dev=0",
        "cuMemAlloc_v2 dptr:=0 bytesize=4 -> 201",
        &["cuCtxSetCurrent ctx=0xc0\n cuMemAlloc_v2 dptr:=0x10000 bytesize=4"],
    ),
    // A copy in a thread that has none (numba/numba#2522).
    (
        "context-none-current",
        START,
        "cuMemsetD8_v2 dstDevice=0x10000 uc=1 N=16\n\
         t1 cuMemcpyDtoH_v2 dstHost=0x7000000 srcDevice=0x10000 ByteCount=4 -> 201",
        &[
            "cuMemsetD8_v2 dstDevice=0x10000 uc=1 N=16\n t1 cuCtxSetCurrent ctx=0xc1\n\
           t1 cuMemcpyDtoH_v2 dstHost=0x7000000 srcDevice=0x10000 ByteCount=4",
        ],
    ),
    (
        "context-none-current",
        START,
        "t1 cuMemsetD8_v2 dstDevice=0x10000 uc=1 N=16 -> 201",
        &[
            "cuMemsetD8_v2 dstDevice=0x10000 uc=1 N=16 -> 201",
            "t1 cuCtxSetCurrent ctx=0xc1\n t1 cuMemsetD8_v2 dstDevice=0x10000 uc=1 N=16",
        ],
    ),
    (
        "context-unbalanced",
        "cuDevicePrimaryCtxRetain pctx:=0xc0 dev=0",
        "cuDevicePrimaryCtxRelease_v2 dev=0\n cuDevicePrimaryCtxRelease_v2 dev=0 -> 201",
        &["cuDevicePrimaryCtxRelease_v2 dev=0"],
    ),
    // A function that returns early, without its pop (eyalroz/cuda-api-wrappers#317).
    (
        "context-unbalanced",
        "cuDevicePrimaryCtxRetain pctx:=0xc0 dev=0\n cuCtxSetCurrent ctx=0xc0",
        "loop 9 cuCtxPushCurrent_v2 ctx=0xc0; cuMemAlloc_v2 bytesize=64 -> 2\n meta exit.status 0",
        &[
            "loop 9 cuCtxPushCurrent_v2 ctx=0xc0; cuMemAlloc_v2 bytesize=64 -> 2; \
             cuCtxPopCurrent_v2 pctx:=0xc0\n meta exit.status 0",
            // Nested, and the trace was cut.
            "loop 9 cuCtxPushCurrent_v2 ctx=0xc0",
            // Two threads in nested scopes when main returns: one constructor pushes for all.
            "looped\n t1 cuCtxPushCurrent_v2 ctx=0xc0\n t1 cuCtxPushCurrent_v2 ctx=0xc0\n\
             t2 cuCtxPushCurrent_v2 ctx=0xc0\n t2 cuCtxPushCurrent_v2 ctx=0xc0\n\
             meta exit.status 0",
            // Python: ctypes makes all calls, and each thread keeps what it pushed first.
            "looped\n t1 cuCtxPushCurrent_v2 ctx=0xc0\n t1 cuCtxPushCurrent_v2 ctx=0xc0\n\
             t1 cuCtxPopCurrent_v2 pctx:=0xc0\n t2 cuCtxPushCurrent_v2 ctx=0xc0\n\
             t3 cuCtxPushCurrent_v2 ctx=0xc0\n t4 cuCtxPushCurrent_v2 ctx=0xc0\n\
             t5 cuCtxPushCurrent_v2 ctx=0xc0\n t6 cuCtxPushCurrent_v2 ctx=0xc0\n\
             t7 cuCtxPushCurrent_v2 ctx=0xc0\n t8 cuCtxPushCurrent_v2 ctx=0xc0\n\
             meta exit.status 0",
            // Current as long as the program runs.
            "cuCtxPushCurrent_v2 ctx=0xc0\n cuCtxSynchronize\n meta exit.status 0",
            // A context for each device.
            "loop 3 cuCtxCreate_v2 pctx:=0x$0c0 dev=0\n meta exit.status 0",
        ],
    ),
    // The error path and the end of a function both pop; the second takes its caller's context.
    (
        "context-unbalanced",
        "cuDevicePrimaryCtxRetain pctx:=0xc0 dev=0\n cuCtxSetCurrent ctx=0xc0",
        "cuCtxPushCurrent_v2 ctx=0xc0\n cuCtxPopCurrent_v2 pctx:=0xc0\n\
         cuCtxPopCurrent_v2 pctx:=0xc0\n cuMemAlloc_v2 bytesize=64 -> 201\n\
         cuCtxSynchronize -> 201",
        &[
            "cuCtxPushCurrent_v2 ctx=0xc0\n cuCtxPopCurrent_v2 pctx:=0xc0\n\
           cuCtxPopCurrent_v2 pctx:=0xc0\n cuCtxSetCurrent ctx=0xc0\n\
           cuMemAlloc_v2 dptr:=0x10000 bytesize=64",
        ],
    ),
    (
        "context-unbalanced",
        "",
        "loop 9 cuDevicePrimaryCtxRetain pctx:=0xc0 dev=0; cuCtxSetCurrent ctx=0xc0\n\
         meta exit.status 0",
        &[
            "loop 9 cuDevicePrimaryCtxRetain pctx:=0xc0 dev=0; \
           cuDevicePrimaryCtxRelease_v2 dev=0\n meta exit.status 0",
            // Other places hold it, and this one releases each time.
            "cuDevicePrimaryCtxRetain pctx:=0xc0 dev=0\n\
             cuDevicePrimaryCtxRetain pctx:=0xc0 dev=0\n\
             cuDevicePrimaryCtxRetain pctx:=0xc0 dev=0\n\
             cuDevicePrimaryCtxRetain pctx:=0xc0 dev=0\n\
             cuDevicePrimaryCtxRetain pctx:=0xc0 dev=0\n\
             cuDevicePrimaryCtxRetain pctx:=0xc0 dev=0\n\
             cuDevicePrimaryCtxRetain pctx:=0xc0 dev=0\n\
             cuDevicePrimaryCtxRetain pctx:=0xc0 dev=0\n\
             loop 9 cuDevicePrimaryCtxRetain pctx:=0xc0 dev=0; \
             cuDevicePrimaryCtxRelease_v2 dev=0\n meta exit.status 0",
        ],
    ),
    (
        "event-elapsed-invalid",
        START,
        "cuEventCreate phEvent:=0x401\n cuEventRecord hEvent=0x400 hStream=0x300\n \
         cuEventElapsedTime hStart=0x400 hEnd=0x401 -> 400",
        &[
            "cuEventCreate phEvent:=0x401\n cuEventRecord hEvent=0x400 hStream=0x300\n \
           cuEventRecord hEvent=0x401 hStream=0x300\n\
           cuEventElapsedTime pMilliseconds:=0 hStart=0x400 hEnd=0x401",
        ],
    ),
    (
        "event-elapsed-invalid",
        START,
        "cuEventCreate phEvent:=0x401 Flags=2\n cuEventRecord hEvent=0x400 hStream=0x300\n \
         cuEventRecord hEvent=0x401 hStream=0x300\n\
         cuEventElapsedTime hStart=0x400 hEnd=0x401 -> 400",
        &[],
    ),
    // Captured records have no time (NVIDIA/warp#556).
    (
        "event-elapsed-invalid",
        START,
        "cuEventCreate phEvent:=0x401\n cuStreamBeginCapture_v2 hStream=0x300 mode=0\n\
         cuEventRecord hEvent=0x400 hStream=0x300\n cuEventRecord hEvent=0x401 hStream=0x300\n\
         cuStreamEndCapture hStream=0x300 phGraph:=0x900\n\
         cuEventElapsedTime hStart=0x400 hEnd=0x401 -> 1",
        &[
            "cuEventCreate phEvent:=0x401\n cuStreamBeginCapture_v2 hStream=0x300 mode=0\n\
             cuEventRecordWithFlags hEvent=0x400 hStream=0x300 flags=1\n\
             cuEventRecordWithFlags hEvent=0x401 hStream=0x300 flags=1\n\
             cuStreamEndCapture hStream=0x300 phGraph:=0x900\n\
             cuEventElapsedTime pMilliseconds:=0 hStart=0x400 hEnd=0x401",
        ],
    ),
    (
        "event-elapsed-invalid",
        START,
        "cuEventRecord hEvent=0x400 hStream=0x300\n cuCtxCreate_v2 pctx:=0xc2 dev=1\n\
         cuEventCreate phEvent:=0x401\n cuEventRecord hEvent=0x401 hStream=0\n\
         cuEventElapsedTime hStart=0x400 hEnd=0x401 -> 400",
        &[],
    ),
    (
        "event-elapsed-invalid",
        START,
        "cuEventRecord hEvent=0x400 hStream=0x300\n cuEventElapsedTime hStart=0x400 hEnd=0 -> 400",
        &[],
    ),
    (
        "memory-free-wrong-kind",
        START,
        "cuMemAllocHost_v2 pp:=0x50000 bytesize=64\n cuMemFree_v2 dptr=0x50000 -> 1",
        &["cuMemAllocHost_v2 pp:=0x50000 bytesize=64\n cuMemFreeHost p=0x50000"],
    ),
    (
        "memory-copy-out-of-bounds",
        START,
        "cuMemsetD32_v2 dstDevice=0x10000 N=4096 -> 1",
        &[
            "cuMemsetD32_v2 dstDevice=0x10000 N=1024",
            "cuMemcpyHtoD_v2 dstDevice=0x10ff0 ByteCount=16",
            // A variable whose size depends on the architecture that the driver chose.
            "cuModuleLoadData module:=0x101 image@0x6000:FATBIN_TWO_SIZES\n\
             cuModuleEnumerateFunctions numFunctions=1 mod=0x101\n\
             cuModuleGetGlobal_v2 dptr:=0x20000 hmod=0x101 name=\"g\"\n\
             cuMemsetD8_v2 dstDevice=0x20000 N=16",
        ],
    ),
    (
        "memory-copy-out-of-bounds",
        START,
        "cuMemcpyHtoD_v2 dstDevice=0x10ff0 ByteCount=17",
        &[],
    ),
    (
        "context-resource-after-destroy",
        START,
        "cuCtxDestroy_v2 ctx=0xc1\n cuModuleUnload hmod=0x100 -> 400",
        &[],
    ),
    (
        "context-resource-after-destroy",
        "cuDevicePrimaryCtxRetain pctx:=0xc0 dev=0\n cuCtxSetCurrent ctx=0xc0\n\
         cuStreamCreate phStream:=0x300",
        "cuDevicePrimaryCtxRelease_v2 dev=0\n cuStreamDestroy_v2 hStream=0x300 -> !",
        &[
            "cuDevicePrimaryCtxRetain pctx:=0xc0 dev=0\n cuDevicePrimaryCtxRelease_v2 dev=0\n\
             cuStreamDestroy_v2 hStream=0x300",
            // Somebody whom the trace does not show holds the context.
            "cuDevicePrimaryCtxRelease_v2 dev=0\n cuStreamDestroy_v2 hStream=0x300",
        ],
    ),
];
