//! Calls of several processes.

use super::Row;

/// A context in each process, and what rank 0 exports: memory, an event, an allocation, two pools
/// and memory of the first one.
const START: &str = "
    p0 cuCtxCreate_v2 pctx:=0xc1 dev=0
    p1 cuCtxCreate_v2 pctx:=0xc1 dev=0
    p0 cuStreamCreate phStream:=0x300 Flags=1
    p1 cuStreamCreate phStream:=0x300 Flags=1
    p0 cuMemAlloc_v2 dptr:=0x10000 bytesize=4096
    p0 cuIpcGetMemHandle pHandle:=[7*8] dptr=0x10000
    p0 cuEventCreate phEvent:=0x400 Flags=6
    p0 cuIpcGetEventHandle pHandle:=[9*8] event=0x400
    p0 cuMemCreate handle:=0x500 size=65536
    p0 cuMemExportToShareableHandle shareableHandle:=9 handle=0x500 handleType=1 file=40
    p0 cuMemCreate handle:=0x510 size=131072
    p0 cuMemExportToShareableHandle shareableHandle:=9 handle=0x510 handleType=1 file=41
    p0 cuMemPoolCreate pool:=0x600
    p0 cuMemPoolExportToShareableHandle handle_out:=9 pool=0x600 handleType=1 file=50
    p0 cuMemPoolCreate pool:=0x610
    p0 cuMemPoolExportToShareableHandle handle_out:=9 pool=0x610 handleType=1 file=51
    p0 cuMemAllocFromPoolAsync dptr:=0x20000 bytesize=4096 pool=0x600 hStream=0x300
    p0 cuMemPoolExportPointer shareData_out:=[11*8] ptr=0x20000
";

/// Two ranks, each with memory of the other in two communicators.
const COLLECTIVES: &str = "
    p0 cuCtxCreate_v2 pctx:=0xc1 dev=0
    p1 cuCtxCreate_v2 pctx:=0xc1 dev=0
    p0 cuModuleLoadData module:=0x100 image@0x5000:PTX
    p1 cuModuleLoadData module:=0x100 image@0x5000:PTX
    p0 cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"ncclDevKernel_AllReduce_Sum_f32_RING_LL\"
    p1 cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"ncclDevKernel_AllReduce_Sum_f32_RING_LL\"
    p0 cuModuleGetFunction hfunc:=0x210 hmod=0x100 name=\"ncclDevKernel_AllGather_RING_LL\"
    p1 cuModuleGetFunction hfunc:=0x210 hmod=0x100 name=\"ncclDevKernel_AllGather_RING_LL\"
    p0 cuModuleGetFunction hfunc:=0x220 hmod=0x100 name=\"ncclDevKernel_SendRecv\"
    p1 cuModuleGetFunction hfunc:=0x220 hmod=0x100 name=\"ncclDevKernel_SendRecv\"
    p0 cuMemAlloc_v2 dptr:=0x10000 bytesize=4096
    p0 cuIpcGetMemHandle pHandle:=[7*8] dptr=0x10000
    p0 cuMemAlloc_v2 dptr:=0x11000 bytesize=4096
    p0 cuIpcGetMemHandle pHandle:=[8*8] dptr=0x11000
    p1 cuIpcOpenMemHandle_v2 pdptr:=0x30000 handle=7 Flags=1
    p1 cuIpcOpenMemHandle_v2 pdptr:=0x31000 handle=8 Flags=1
    p0 cuMemAlloc_v2 dptr:=0x70000 bytesize=4096
    p0 cuMemAlloc_v2 dptr:=0x71000 bytesize=4096
    p1 cuMemAlloc_v2 dptr:=0x70000 bytesize=4096
    p1 cuMemAlloc_v2 dptr:=0x71000 bytesize=4096
    p0 cuMemcpyHtoD_v2 dstDevice=0x70000 srcHost=[0x10000] ByteCount=8
    p1 cuMemcpyHtoD_v2 dstDevice=0x70000 srcHost=[0x30000] ByteCount=8
    p0 cuMemcpyHtoD_v2 dstDevice=0x71000 srcHost=[0x11000] ByteCount=8
    p1 cuMemcpyHtoD_v2 dstDevice=0x71000 srcHost=[0x31000] ByteCount=8
    p0 cuLaunchKernel f=0x200 gridDimX=2 blockDimX=32 params=0x70000
    p1 cuLaunchKernel f=0x200 gridDimX=2 blockDimX=32 params=0x70000
";

pub(crate) const RANKS: &[Row] = &[
    (
        "ranks-collective-order",
        COLLECTIVES,
        "p0 cuLaunchKernel f=0x200 gridDimX=2 blockDimX=32 params=0x70000
         p0 cuLaunchKernel f=0x210 gridDimX=2 blockDimX=32 params=0x70000
         p1 cuLaunchKernel f=0x210 gridDimX=2 blockDimX=32 params=0x70000
         p1 cuLaunchKernel f=0x200 gridDimX=2 blockDimX=32 params=0x70000",
        &[
            "p0 cuLaunchKernel f=0x200 gridDimX=2 blockDimX=32 params=0x70000
             p0 cuLaunchKernel f=0x210 gridDimX=2 blockDimX=32 params=0x70000
             p1 cuLaunchKernel f=0x200 gridDimX=2 blockDimX=32 params=0x70000
             p1 cuLaunchKernel f=0x210 gridDimX=2 blockDimX=32 params=0x70000",
            // Of two communicators, the order may differ.
            "p0 cuLaunchKernel f=0x200 gridDimX=2 blockDimX=32 params=0x70000
             p0 cuLaunchKernel f=0x210 gridDimX=2 blockDimX=32 params=0x71000
             p1 cuLaunchKernel f=0x210 gridDimX=2 blockDimX=32 params=0x71000
             p1 cuLaunchKernel f=0x200 gridDimX=2 blockDimX=32 params=0x70000",
            // A launch may do both: what is sent between two ranks, and a collective.
            "p0 cuLaunchKernel f=0x220 gridDimX=2 blockDimX=32 params=0x70000
             p0 cuLaunchKernel f=0x210 gridDimX=2 blockDimX=32 params=0x70000
             p1 cuLaunchKernel f=0x200 gridDimX=2 blockDimX=32 params=0x70000
             p1 cuLaunchKernel f=0x210 gridDimX=2 blockDimX=32 params=0x70000",
            // A refused launch is none.
            "p0 cuLaunchKernel f=0x210 gridDimX=2 blockDimX=32 params=0x70000
             p1 cuLaunchKernel f=0x200 gridDimX=2 blockDimX=32 params=0x70000 -> 702
             p1 cuLaunchKernel f=0x210 gridDimX=2 blockDimX=32 params=0x70000",
            // Memory that no other process has.
            "p0 cuLaunchKernel f=0x200 gridDimX=2 blockDimX=32 params=0x70800
             p1 cuLaunchKernel f=0x210 gridDimX=2 blockDimX=32 params=0x70800",
        ],
    ),
    (
        // Registered memory that both have mapped, in its second part.
        "ranks-collective-order",
        COLLECTIVES,
        "p0 cuMemHostRegister_v2 p=0x80000 bytesize=0x2000 mapped=60:0x80000:4096,61:0x81000:4096
         p1 cuMemHostRegister_v2 p=0x90000 bytesize=0x1000 mapped=61:0x90000:4096
         p0 cuLaunchKernel f=0x200 gridDimX=2 blockDimX=32 params=0x81000
         p0 cuLaunchKernel f=0x210 gridDimX=2 blockDimX=32 params=0x81000
         p1 cuLaunchKernel f=0x210 gridDimX=2 blockDimX=32 params=0x90000
         p1 cuLaunchKernel f=0x200 gridDimX=2 blockDimX=32 params=0x90000",
        &[
            // It is registered no longer, no part of it.
            "p0 cuMemHostRegister_v2 p=0x80000 bytesize=0x2000 mapped=60:0x80000:4096,61:0x81000:4096
             p1 cuMemHostRegister_v2 p=0x90000 bytesize=0x1000 mapped=61:0x90000:4096
             p0 cuMemHostUnregister p=0x80000
             p0 cuLaunchKernel f=0x200 gridDimX=2 blockDimX=32 params=0x81000
             p0 cuLaunchKernel f=0x210 gridDimX=2 blockDimX=32 params=0x81000
             p1 cuLaunchKernel f=0x210 gridDimX=2 blockDimX=32 params=0x90000
             p1 cuLaunchKernel f=0x200 gridDimX=2 blockDimX=32 params=0x90000",
            // Other files.
            "p0 cuMemHostRegister_v2 p=0x80000 bytesize=0x1000 mapped=60:0x80000:4096
             p1 cuMemHostRegister_v2 p=0x90000 bytesize=0x1000 mapped=61:0x90000:4096
             p0 cuLaunchKernel f=0x200 gridDimX=2 blockDimX=32 params=0x80000
             p0 cuLaunchKernel f=0x210 gridDimX=2 blockDimX=32 params=0x80000
             p1 cuLaunchKernel f=0x210 gridDimX=2 blockDimX=32 params=0x90000
             p1 cuLaunchKernel f=0x200 gridDimX=2 blockDimX=32 params=0x90000",
        ],
    ),
    (
        "ranks-collective-shape",
        COLLECTIVES,
        "p0 cuLaunchKernel f=0x200 gridDimX=4 blockDimX=32 params=0x70000
         p1 cuLaunchKernel f=0x200 gridDimX=2 blockDimX=32 params=0x70000",
        &[
            "p0 cuLaunchKernel f=0x220 gridDimX=4 blockDimX=32 params=0x70000
             p1 cuLaunchKernel f=0x220 gridDimX=2 blockDimX=32 params=0x70000",
            "p0 cuLaunchKernel f=0x200 gridDimX=4 blockDimX=32 params=0x70000
             p1 cuLaunchKernel f=0x200 gridDimX=4 blockDimX=32 params=0x70000
             p0 cuLaunchKernel f=0x200 gridDimX=2 blockDimX=32 params=0x71000
             p1 cuLaunchKernel f=0x200 gridDimX=4 blockDimX=32 params=0x70000
             p0 cuLaunchKernel f=0x200 gridDimX=4 blockDimX=32 params=0x70000
             p1 cuLaunchKernel f=0x200 gridDimX=2 blockDimX=32 params=0x71000",
        ],
    ),
    (
        "ranks-collective-missing",
        COLLECTIVES,
        "p0 cuLaunchKernel f=0x200 gridDimX=2 blockDimX=32 params=0x70000
         p1 cuCtxGetCurrent
         p0 meta exit.signal 15
         p1 meta exit.status 1",
        &[
            // It ended well after the last one.
            "p0 cuLaunchKernel f=0x200 gridDimX=2 blockDimX=32 params=0x70000
             p1 cuLaunchKernel f=0x200 gridDimX=2 blockDimX=32 params=0x70000
             p0 meta exit.signal 15
             p1 meta exit.status 1",
            // The launch was complete without the other rank.
            "p0 cuLaunchKernel f=0x200 gridDimX=2 blockDimX=32 params=0x70000
             p0 cuCtxSynchronize
             p0 meta exit.signal 15
             p1 meta exit.status 1",
            // It may have given up because the other rank crashed.
            "p0 cuLaunchKernel f=0x200 gridDimX=2 blockDimX=32 params=0x70000
             p0 meta exit.signal 6
             p1 meta exit.status 1",
            // Somebody stopped both, or nobody knows how they ended.
            "p0 cuLaunchKernel f=0x200 gridDimX=2 blockDimX=32 params=0x70000
             p0 meta exit.signal 2
             p1 meta exit.signal 2",
            "p0 cuLaunchKernel f=0x200 gridDimX=2 blockDimX=32 params=0x70000
             p0 meta exit.signal 9
             p1 meta exit.signal 9",
            "p0 cuLaunchKernel f=0x200 gridDimX=2 blockDimX=32 params=0x70000",
            // All ended well.
            "p0 cuLaunchKernel f=0x200 gridDimX=2 blockDimX=32 params=0x70000
             p0 meta exit.status 0
             p1 meta exit.status 0",
        ],
    ),
    (
        "ranks-collective-missing",
        COLLECTIVES,
        "p0 cuLaunchKernel f=0x200 gridDimX=2 blockDimX=32 params=0x70000
         p0 cuCtxSynchronize -> !
         p0 meta exit.signal 15
         p1 meta exit.signal 9",
        &[],
    ),
    (
        "ranks-memory-freed-while-open",
        START,
        "p1 cuIpcOpenMemHandle_v2 pdptr:=0x30000 handle=7 Flags=1
         p0 cuMemFree_v2 dptr=0x10000
         p1 cuMemcpyDtoH_v2 dstHost=0x99000000 srcDevice=0x30010 ByteCount=16
         p1 cuIpcCloseMemHandle dptr=0x30000",
        &[
            "p1 cuIpcOpenMemHandle_v2 pdptr:=0x30000 handle=7 Flags=1
             p1 cuIpcCloseMemHandle dptr=0x30000
             p0 cuMemFree_v2 dptr=0x10000
             p1 cuCtxSynchronize",
            // It may have closed the memory before it was free.
            "p1 cuIpcOpenMemHandle_v2 pdptr:=0x30000 handle=7 Flags=1
             p0 ~ cuMemFree_v2 dptr=0x10000
             p1 cuIpcCloseMemHandle dptr=0x30000
             p1 cuCtxSynchronize",
            // It may have ended before.
            "p1 cuIpcOpenMemHandle_v2 pdptr:=0x30000 handle=7 Flags=1
             p0 cuMemFree_v2 dptr=0x10000",
            // The context's end closes the memory.
            "p1 cuIpcOpenMemHandle_v2 pdptr:=0x30000 handle=7 Flags=1
             p1 cuCtxDestroy_v2 ctx=0xc1
             p0 cuMemFree_v2 dptr=0x10000
             p1 cuCtxCreate_v2 pctx:=0xc2 dev=0",
            // Opened twice, closed twice.
            "p1 cuIpcOpenMemHandle_v2 pdptr:=0x30000 handle=7 Flags=1
             p1 cuIpcOpenMemHandle_v2 pdptr:=0x30000 handle=7 Flags=1
             p1 cuIpcCloseMemHandle dptr=0x30000
             p1 cuIpcCloseMemHandle dptr=0x30000
             p0 cuMemFree_v2 dptr=0x10000
             p1 cuCtxSynchronize",
            // Physical memory lives as long as an import.
            "p1 cuMemImportFromShareableHandle handle:=0x700 osHandle=9 shHandleType=1 file=40
             p0 cuMemRelease handle=0x500
             p1 cuMemMap ptr=0x40000 size=65536 handle=0x700
             p1 cuMemRelease handle=0x700",
            // The exporter's memory is another one that has the handle's bytes, too.
            "p0 cuMemAlloc_v2 dptr:=0x11000 bytesize=4096
             p0 cuIpcGetMemHandle pHandle:=[7*8] dptr=0x11000
             p1 cuIpcOpenMemHandle_v2 pdptr:=0x30000 handle=7 Flags=1
             p0 cuMemFree_v2 dptr=0x11000
             p1 cuIpcCloseMemHandle dptr=0x30000",
            // The same, of two processes.
            "p2 cuCtxCreate_v2 pctx:=0xc1 dev=0
             p1 cuMemAlloc_v2 dptr:=0x11000 bytesize=4096
             p1 cuIpcGetMemHandle pHandle:=[7*8] dptr=0x11000
             p2 cuIpcOpenMemHandle_v2 pdptr:=0x30000 handle=7 Flags=1
             p1 cuMemFree_v2 dptr=0x11000
             p2 cuIpcCloseMemHandle dptr=0x30000",
            // The call failed.
            "p1 cuIpcOpenMemHandle_v2 pdptr:=0x30000 handle=7 Flags=1
             p0 cuMemFree_v2 dptr=0x10000 -> 1
             p1 cuIpcCloseMemHandle dptr=0x30000",
        ],
    ),
    (
        "ranks-memory-freed-while-open",
        START,
        "p1 cuIpcOpenMemHandle_v2 pdptr:=0x30000 handle=7 Flags=1
         p1 cuIpcOpenMemHandle_v2 pdptr:=0x30000 handle=7 Flags=1
         p1 cuIpcCloseMemHandle dptr=0x30000
         p0 cuMemFree_v2 dptr=0x10000
         p1 cuCtxSynchronize",
        &[],
    ),
    (
        "ranks-memory-freed-while-open",
        START,
        "p1 cuMemPoolImportFromShareableHandle pool_out:=0x800 handle=9 handleType=1 file=50
         p1 cuMemPoolImportPointer ptr_out:=0x50000 pool=0x800 shareData=[11*8]
         p0 cuMemFreeAsync dptr=0x20000 hStream=0x300
         p0 cuStreamSynchronize hStream=0x300
         p1 cuMemFreeAsync dptr=0x50000 hStream=0x300",
        &[
            // The stream may wait for the other process before it frees the memory.
            "p1 cuMemPoolImportFromShareableHandle pool_out:=0x800 handle=9 handleType=1 file=50
             p1 cuMemPoolImportPointer ptr_out:=0x50000 pool=0x800 shareData=[11*8]
             p0 cuStreamWaitValue32_v2 stream=0x300 addr=0x10000 value=1
             p0 cuMemFreeAsync dptr=0x20000 hStream=0x300
             p0 cuStreamSynchronize hStream=0x310
             p0 cuStreamSynchronize hStream=0x300 -> 700
             p1 cuMemcpyDtoH_v2 dstHost=0x99000000 srcDevice=0x50000 ByteCount=16
             p1 cuMemFreeAsync dptr=0x50000 hStream=0x300
             p0 cuStreamSynchronize hStream=0x300
             p1 cuMemPoolDestroy pool=0x800",
            "p1 cuMemPoolImportFromShareableHandle pool_out:=0x800 handle=9 handleType=1 file=50
           p1 cuMemPoolImportPointer ptr_out:=0x50000 pool=0x800 shareData=[11*8]
           p1 cuMemFreeAsync dptr=0x50000 hStream=0x300
           p0 cuMemFreeAsync dptr=0x20000 hStream=0x300
           p1 cuMemPoolDestroy pool=0x800",
        ],
    ),
    (
        "ranks-memory-freed-while-open",
        START,
        "p1 cuMemPoolImportFromShareableHandle pool_out:=0x800 handle=9 handleType=1 file=50
         p1 cuMemPoolImportPointer ptr_out:=0x50000 pool=0x800 shareData=[11*8]
         p0 cuMemFreeAsync dptr=0x20000 hStream=0x300
         p0 cuCtxSynchronize
         p1 cuMemcpyDtoH_v2 dstHost=0x99000000 srcDevice=0x50000 ByteCount=16",
        &[],
    ),
    // The address is given out again for other memory.
    (
        "ranks-memory-freed-while-open",
        START,
        "p1 cuIpcOpenMemHandle_v2 pdptr:=0x30000 handle=7 Flags=1
         p0 cuMemFree_v2 dptr=0x10000
         p1 cuMemcpyDtoH_v2 dstHost=0x99000000 srcDevice=0x30010 ByteCount=16
         p0 cuMemAlloc_v2 dptr:=0x10000 bytesize=4096
         p0 cuIpcGetMemHandle pHandle:=[8*8] dptr=0x10000
         p1 cuIpcOpenMemHandle_v2 pdptr:=0x30000 handle=8 Flags=1",
        &[],
    ),
    (
        "ranks-event-use-after-destroy",
        START,
        "p1 cuIpcOpenEventHandle phEvent:=0x410 handle=9
         p0 cuEventDestroy_v2 hEvent=0x400
         p1 cuStreamWaitEvent hStream=0x300 hEvent=0x410",
        &[
            "p1 cuIpcOpenEventHandle phEvent:=0x410 handle=9
             p1 cuStreamWaitEvent hStream=0x300 hEvent=0x410
             p0 cuEventDestroy_v2 hEvent=0x400
             p1 cuEventDestroy_v2 hEvent=0x410",
            // The two overlap.
            "p1 cuIpcOpenEventHandle phEvent:=0x410 handle=9
             p0 ~ cuEventDestroy_v2 hEvent=0x400
             p1 cuStreamWaitEvent hStream=0x300 hEvent=0x410",
        ],
    ),
    (
        "ranks-event-use-after-destroy",
        START,
        "p1 cuIpcOpenEventHandle phEvent:=0x410 handle=9
         p0 cuCtxDestroy_v2 ctx=0xc1
         p1 cuEventQuery hEvent=0x410",
        &[],
    ),
    (
        "ranks-import-after-end",
        START,
        "p0 cuMemFree_v2 dptr=0x10000
         p1 cuIpcOpenMemHandle_v2 handle=7 Flags=1 -> 1",
        &[
            // Other memory of that address has a handle of its own.
            "p0 cuMemFree_v2 dptr=0x10000
             p0 cuMemAlloc_v2 dptr:=0x10000 bytesize=4096
             p0 cuIpcGetMemHandle pHandle:=[8*8] dptr=0x10000
             p1 cuIpcOpenMemHandle_v2 pdptr:=0x30000 handle=8 Flags=1
             p1 cuIpcCloseMemHandle dptr=0x30000",
            "p0 cuMemRelease handle=0x500
             p1 cuMemImportFromShareableHandle handle:=0x700 osHandle=9 shHandleType=1 file=40
             p1 cuMemRelease handle=0x700",
            // Refused for another reason.
            "p1 cuIpcOpenMemHandle_v2 handle=7 Flags=1 -> 208",
        ],
    ),
    (
        "ranks-import-after-end",
        START,
        "p0 cuEventDestroy_v2 hEvent=0x400
         p1 cuIpcOpenEventHandle phEvent:=0x410 handle=9",
        &[],
    ),
    (
        "ranks-import-wrong-handle",
        START,
        "p1 cuMemImportFromShareableHandle osHandle=9 shHandleType=1 file=50 -> 1",
        &[
            "p1 cuMemImportFromShareableHandle handle:=0x700 osHandle=9 shHandleType=1 file=40
           p1 cuMemRelease handle=0x700
           p1 cuMemImportFromShareableHandle osHandle=9 shHandleType=1 file=99 -> 1",
        ],
    ),
    (
        "ranks-import-wrong-handle",
        START,
        "p1 cuMemPoolImportFromShareableHandle pool_out:=0x800 handle=9 handleType=1 file=50
         p1 cuMemPoolImportFromShareableHandle pool_out:=0x810 handle=9 handleType=1 file=51
         p1 cuMemPoolImportPointer pool=0x810 shareData=[11*8] -> 1",
        &[
            "p1 cuMemPoolImportFromShareableHandle pool_out:=0x800 handle=9 handleType=1 file=50
           p1 cuMemPoolImportFromShareableHandle pool_out:=0x810 handle=9 handleType=1 file=51
           p1 cuMemPoolImportPointer ptr_out:=0x50000 pool=0x800 shareData=[11*8]
           p1 cuMemFreeAsync dptr=0x50000 hStream=0x300",
        ],
    ),
    (
        "ranks-map-beyond-export",
        START,
        "p1 cuMemImportFromShareableHandle handle:=0x700 osHandle=9 shHandleType=1 file=40
         p1 cuMemImportFromShareableHandle handle:=0x710 osHandle=9 shHandleType=1 file=41
         p1 cuMemMap ptr=0x40000 size=131072 handle=0x700 -> 1",
        &[
            "p1 cuMemImportFromShareableHandle handle:=0x700 osHandle=9 shHandleType=1 file=40
           p1 cuMemImportFromShareableHandle handle:=0x710 osHandle=9 shHandleType=1 file=41
           p1 cuMemMap ptr=0x40000 size=65536 handle=0x710
           p1 cuMemMap ptr=0x60000 size=65536 handle=0x700",
        ],
    ),
];
