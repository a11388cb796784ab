//! Copies that are described, batches, pools, virtual memory.

use super::{Row, START};

/// Two reservations' worth of addresses, and physical memory for one.
const RESERVED: &str = "
    cuInit Flags=0
    cuCtxCreate_v2 pctx:=0xc1 dev=0
    cuModuleLoadData module:=0x100 image@0x5000:PTX
    cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"
    cuMemAddressReserve ptr:=0x40000000 size=4194304
    cuMemCreate handle:=0x900 size=2097152
";

/// Memory of 4096 bytes that was written.
const WRITTEN: &str = "
    cuInit Flags=0
    cuCtxCreate_v2 pctx:=0xc1 dev=0
    cuStreamCreate phStream:=0x300 Flags=1
    cuMemAlloc_v2 dptr:=0x10000 bytesize=4096
    cuMemsetD8_v2 dstDevice=0x10000 N=4096
    cuCtxSynchronize
";

const MULTICAST: &str = "
    cuInit Flags=0
    cuCtxCreate_v2 pctx:=0xc1 dev=0
    cuMulticastCreate mcHandle:=0x910 prop=[2,2097152,0,0]
    cuMulticastAddDevice mcHandle=0x910 dev=0
";

pub(crate) const MEMORY: &[Row] = &[
    (
        "memory-copy-descriptor",
        START,
        // 32 bytes a row, with a pitch of 16 in the source.
        "cuMemcpy2D_v2 pCopy=[0,0,1,0x7000,0,0,16,0,0,2,0,0x10000,0,64,32,4] -> 1",
        &[
            "cuMemcpy2D_v2 pCopy=[0,0,1,0x7000,0,0,32,0,0,2,0,0x10000,0,64,32,4]",
            // A pitch of 0 is not stated.
            "cuMemcpy2D_v2 pCopy=[0,0,1,0x7000,0,0,0,0,0,2,0,0x10000,0,64,32,1]",
            // Refused for a reason that the struct does not show.
            "cuMemcpy2D_v2 pCopy=[0,0,1,0x7000,0,0,32,0,0,2,0,0x10000,0,64,32,4] -> 1",
        ],
    ),
    (
        "memory-copy-descriptor",
        START,
        "cuMemcpy2D_v2 pCopy=[0,0,9,0x7000,0,0,32,0,0,2,0,0x10000,0,64,32,4] -> 1",
        &[],
    ),
    (
        "memory-copy-descriptor",
        START,
        "cuMemsetD32_v2 dstDevice=0x10002 N=1 -> 1",
        &["cuMemsetD32_v2 dstDevice=0x10004 N=1"],
    ),
    (
        "memory-copy-descriptor",
        START,
        "cuMemsetD2D32_v2 dstDevice=0x10000 dstPitch=16 Width=8 Height=2 -> 1",
        &["cuMemsetD2D32_v2 dstDevice=0x10000 dstPitch=32 Width=8 Height=2"],
    ),
    (
        "memory-batch-copy-invalid",
        WRITTEN,
        // Two buffers are exchanged.
        "cuMemcpyBatchAsync_v2 dsts=[0x10000,0x10400] srcs=[0x10400,0x10000] sizes=[64,64] \
         count=2 attrsIdxs=[0] numAttrs=1 hStream=0x300",
        &[
            "cuMemcpyBatchAsync_v2 dsts=[0x10000,0x10040] srcs=[0x10400,0x10400] \
             sizes=[64,64] count=2 attrsIdxs=[0] numAttrs=1 hStream=0x300",
            // A copy of no bytes.
            "cuMemcpyBatchAsync_v2 dsts=[0x10000,0x10400] srcs=[0x10400,0x10000] \
             sizes=[64,0] count=2 attrsIdxs=[0] numAttrs=1 hStream=0x300",
        ],
    ),
    (
        "memory-batch-copy-invalid",
        WRITTEN,
        "cuMemcpyBatchAsync_v2 dsts=[0x10000] srcs=[0x10400] sizes=[64] count=1 \
         attrsIdxs=[0] numAttrs=1 hStream=0 -> 1",
        &[],
    ),
    // CU_STREAM_LEGACY is the legacy stream whatever NULL means to the function.
    (
        "memory-batch-copy-invalid",
        WRITTEN,
        "cuMemcpyBatchAsync_v2_ptsz dsts=[0x10000] srcs=[0x10400] sizes=[64] count=1 \
         attrsIdxs=[0] numAttrs=1 hStream=1 -> 1",
        &[
            "cuMemcpyBatchAsync_v2_ptsz dsts=[0x10000] srcs=[0x10400] sizes=[64] count=1 \
             attrsIdxs=[0] numAttrs=1 hStream=0 -> 1",
        ],
    ),
    (
        "memory-batch-copy-invalid",
        WRITTEN,
        "cuMemcpyBatchAsync_v2 dsts=[0x10000] srcs=[0x10400] sizes=[64] count=1 \
         attrsIdxs=[1] numAttrs=1 hStream=0x300 -> 1",
        &[],
    ),
    // An attribute of zeros; none at all; a box that is written and read.
    (
        "memory-batch-copy-invalid",
        WRITTEN,
        "cuMemcpyBatchAsync_v2 dsts=[0x10000] srcs=[0x10400] sizes=[64] count=1 attrs=[4:0*6] \
         attrsIdxs=[0] numAttrs=1 hStream=0x300 -> 1",
        &[
            // Refused for a reason that the attributes do not show.
            "cuMemcpyBatchAsync_v2 dsts=[0x10000] srcs=[0x10400] sizes=[64] count=1 \
             attrs=[4:3,0*5] attrsIdxs=[0] numAttrs=1 hStream=0x300 -> 1",
        ],
    ),
    (
        "memory-batch-copy-invalid",
        WRITTEN,
        "cuMemcpyBatchAsync_v2 dsts=[0x10000] srcs=[0x10400] sizes=[64] count=1 numAttrs=0 \
         hStream=0x300 -> 1",
        &[],
    ),
    (
        "memory-batch-copy-invalid",
        WRITTEN,
        "cuMemcpy3DBatchAsync_v2 numOps=2 \
         opList=[1,0x10000,32,4,0,1,0x10200,32,4,0,16,4,1,1,\
         1,0x10200,32,4,0,1,0x10400,32,4,0,16,4,1,1] hStream=0x300",
        &[
            // The left and the right half of the same rows.
            "cuMemcpy3DBatchAsync_v2 numOps=2 \
             opList=[1,0x10000,32,4,0,1,0x10200,32,4,0,16,4,1,1,\
             1,0x10010,32,4,0,1,0x10210,32,4,0,16,4,1,1] hStream=0x300",
        ],
    ),
    // Copies and memsets that leave their allocation.
    (
        "memory-copy-out-of-bounds",
        START,
        // One row too many; the last row begins inside.
        "cuMemcpy2D_v2 pCopy=[0,0,1,0x70001000,0,0,64,0,0,2,0,0x10000,0,128,64,33]",
        &[
            // The padding of the last row may be missing.
            "cuMemcpy2D_v2 pCopy=[0,0,1,0x70001000,0,0,64,0,0,2,0,0x10000,0,128,64,32]",
            "cuMemcpy2D_v2 pCopy=[0,0,1,0x70001000,0,0,64,0,0,2,0,0x10000,0,128,64,0]",
        ],
    ),
    (
        "memory-copy-out-of-bounds",
        START,
        "cuMemcpy2DAsync_v2 pCopy=[0,8,2,0,0x10000,0,128,0,0,1,0x70001000,0,0,64,64,25] \
         hStream=0x300 -> 1",
        &["cuMemsetD8Async dstDevice=0x10000 N=4096 hStream=0x300\n\
           cuMemcpy2DAsync_v2 pCopy=[0,8,2,0,0x10000,0,128,0,0,1,0x70001000,0,0,64,64,24] \
           hStream=0x300"],
    ),
    (
        "memory-copy-out-of-bounds",
        START,
        "cuMemcpy3D_v2 pCopy=[0,0,0,0,1,0x70001000,0,0,0,64,8,0,0,0,0,2,0,0x10000,0,0,64,8,64,8,9]",
        &["cuMemcpy3D_v2 \
           pCopy=[0,0,0,0,1,0x70001000,0,0,0,64,8,0,0,0,0,2,0,0x10000,0,0,64,8,64,8,8]"],
    ),
    (
        "memory-copy-out-of-bounds",
        START,
        "cuMemsetD2D8_v2 dstDevice=0x10000 dstPitch=128 Width=64 Height=33",
        &["cuMemsetD2D8_v2 dstDevice=0x10000 dstPitch=128 Width=64 Height=32"],
    ),
    (
        "memory-copy-out-of-bounds",
        START,
        "cuMemcpyBatchAsync_v2 dsts=[0x7000100] srcs=[0x10000] sizes=[4097] count=1 \
         attrs=[4:1,0*5] attrsIdxs=[0] numAttrs=1 hStream=0x300 -> 1",
        &[],
    ),
    // Wholly behind its allocation.
    (
        "memory-copy-out-of-bounds",
        START,
        "cuMemsetD8_v2 dstDevice=0x15000 N=64 -> 1",
        &[
            // Memory that the trace does not know.
            "cuMemsetD8_v2 dstDevice=0x15000 N=64",
            "cuMemsetD8_v2 dstDevice=0x15001 N=64 -> 1",
        ],
    ),
    (
        "memory-pool-misuse",
        START,
        "cuDeviceGetDefaultMemPool pool_out:=0xa00 dev=0\n cuMemPoolDestroy pool=0xa00 -> 1",
        &[
            // Memory of the pool may outlive its handle.
            "cuMemPoolCreate pool:=0xa00\n\
             cuMemAllocFromPoolAsync dptr:=0x20000 bytesize=64 pool=0xa00 hStream=0x300\n\
             cuMemPoolDestroy pool=0xa00\n cuMemFreeAsync dptr=0x20000 hStream=0x300",
        ],
    ),
    (
        "memory-pool-misuse",
        START,
        "cuMemPoolCreate pool:=0xa00\n cuMemPoolDestroy pool=0xa00\n\
         cuMemAllocFromPoolAsync bytesize=64 pool=0xa00 hStream=0x300 -> 1",
        &[],
    ),
    (
        "memory-pool-misuse",
        START,
        "cuMemPoolImportFromShareableHandle pool_out:=0xa00\n\
         cuMemAllocFromPoolAsync bytesize=64 pool=0xa00 hStream=0x300 -> 1",
        &[],
    ),
    (
        "memory-pool-misuse",
        START,
        "cuMemPoolCreate pool:=0xa00\n cuMemPoolSetAttribute pool=0xa00 attr=8 value=[64] -> 1",
        &["cuMemPoolCreate pool:=0xa00\n cuMemPoolSetAttribute pool=0xa00 attr=8 value=[0]"],
    ),
    (
        "memory-leak",
        START,
        "loop 20 cuMemAlloc_v2 dptr:=0x$00000000 bytesize=64; \
         cuMemsetD8_v2 dstDevice=0x$00000000 N=64\n\
         cuCtxDestroy_v2 ctx=0xc1",
        &[
            "loop 20 cuMemAlloc_v2 dptr:=0x$00000000 bytesize=64; \
             cuMemFree_v2 dptr=0x$00000000\n cuMemFree_v2 dptr=0x10000\n\
             cuCtxDestroy_v2 ctx=0xc1",
            // Buffers that are filled first and used later, by a kernel that gets one of them.
            "loop 20 cuMemAlloc_v2 dptr:=0x$00000000 bytesize=64; \
             cuMemsetD8_v2 dstDevice=0x$00000000 N=64\n\
             cuLaunchKernel f=0x200 layout=8 params=0x300000000\n cuCtxDestroy_v2 ctx=0xc1",
            // Or by a graph, which holds the addresses.
            "loop 20 cuMemAlloc_v2 dptr:=0x$00000000 bytesize=64; \
             cuMemsetD8_v2 dstDevice=0x$00000000 N=64\n\
             cuGraphLaunch hGraph=0x810 hStream=0x300\n cuCtxDestroy_v2 ctx=0xc1",
            // A few allocations that live as long as the program.
            "loop 5 cuMemAlloc_v2 dptr:=0x$00000000 bytesize=64\n cuCtxDestroy_v2 ctx=0xc1",
            "loop 20 cuMemAlloc_v2 dptr:=0x$00000000 bytesize=64; \
             cuMemsetD8_v2 dstDevice=0x$00000000 N=64",
        ],
    ),
    (
        "memory-leak",
        START,
        "loop 100 cuMemAlloc_v2 dptr:=0x$00000000 bytesize=64; \
         cuMemsetD8_v2 dstDevice=0x$00000000 N=64",
        &["loop 100 cuMemAlloc_v2 dptr:=0x$00000000 bytesize=64; \
           cuMemsetD8_v2 dstDevice=0x$00000000 N=64\n cuCtxSynchronize -> !"],
    ),
    // The only memory that is not freed.
    (
        "memory-leak",
        WRITTEN,
        "cuMemAlloc_v2 dptr:=0x20000 bytesize=64\n cuMemFree_v2 dptr=0x10000\n\
         cuCtxDestroy_v2 ctx=0xc1",
        &[
            "cuMemAlloc_v2 dptr:=0x20000 bytesize=64\n cuMemFree_v2 dptr=0x10000\n\
             cuMemFree_v2 dptr=0x20000\n cuCtxDestroy_v2 ctx=0xc1",
            // The program does not end its context, frees nothing, or leaves more to that end.
            "cuMemAlloc_v2 dptr:=0x20000 bytesize=64\n cuMemFree_v2 dptr=0x10000",
            "cuMemAlloc_v2 dptr:=0x20000 bytesize=64\n cuCtxDestroy_v2 ctx=0xc1",
            "cuMemAlloc_v2 dptr:=0x20000 bytesize=64\n cuMemAlloc_v2 dptr:=0x30000 bytesize=64\n\
             cuMemFree_v2 dptr=0x10000\n cuCtxDestroy_v2 ctx=0xc1",
        ],
    ),
    // An address inside an allocation; a mapping; registered memory; memory of malloc.
    (
        "memory-free-wrong-kind",
        WRITTEN,
        "cuMemFree_v2 dptr=0x10040 -> 1",
        &["cuMemFree_v2 dptr=0x10000"],
    ),
    (
        "memory-free-wrong-kind",
        RESERVED,
        "cuMemMap ptr=0x40000000 size=2097152 handle=0x900\n cuMemFree_v2 dptr=0x40000000 -> 1",
        &[],
    ),
    (
        "memory-free-wrong-kind",
        WRITTEN,
        "cuMemHostRegister_v2 p=0x8000000 bytesize=4096\n cuMemFreeHost p=0x8000000 -> 1",
        &[
            "cuMemHostRegister_v2 p=0x8000000 bytesize=4096\n cuMemHostUnregister p=0x8000000",
            // UCX and others register what the program may have page-locked, and ignore that.
            "cuMemAllocHost_v2 pp:=0x8000000 bytesize=4096\n\
             cuMemHostRegister_v2 p=0x8000000 bytesize=4096 -> 712\n\
             cuMemHostUnregister p=0x8000000 -> 713\n cuMemFreeHost p=0x8000000",
        ],
    ),
    (
        "memory-free-wrong-kind",
        WRITTEN,
        "cuMemcpyHtoDAsync_v2 dstDevice=0x10000 srcHost=0x8000000 ByteCount=64 hStream=0x300\n\
         cuMemFreeHost p=0x8000000 -> 1",
        &[],
    ),
    (
        "memory-host-register-overlap",
        WRITTEN,
        "looped\n cuMemHostRegister_v2 p=0x8000000 bytesize=4096\n\
         cuMemHostRegister_v2 p=0x8000000 bytesize=4096 -> 712",
        &[
            "looped\n cuMemHostRegister_v2 p=0x8000000 bytesize=4096\n\
             cuMemHostUnregister p=0x8000000\n cuMemHostRegister_v2 p=0x8000000 bytesize=4096",
            "looped\n cuMemHostRegister_v2 p=0x8000000 bytesize=4096\n\
             cuMemHostRegister_v2 p=0x8001000 bytesize=4096",
            // Other code than the first: a library that tries.
            "cuMemHostRegister_v2 p=0x8000000 bytesize=4096\n\
             cuMemHostRegister_v2 p=0x8000000 bytesize=4096 -> 712",
            // The trace does not show what is registered there.
            "looped\n cuMemHostRegister_v2 p=0x8000000 bytesize=4096\n\
             cuMemHostRegister_v2 p=0x9000000 bytesize=4096 -> 712",
        ],
    ),
    // Some of it is not registered.
    (
        "memory-host-register-overlap",
        WRITTEN,
        "looped\n cuMemHostRegister_v2 p=0x8000000 bytesize=4096\n\
         cuMemHostRegister_v2 p=0x8000000 bytesize=8192 -> 712",
        &[],
    ),
    (
        "memory-host-pointer-as-kernel-argument",
        START,
        "cuMemcpyHtoD_v2 dstDevice=0x10000 srcHost=0x7700000 ByteCount=64\n\
         cuLaunchKernel f=0x200 hStream=0x300 layout=8 params=0x7700000\n\
         cuStreamSynchronize hStream=0x300 -> 700\n cuCtxSynchronize -> 700",
        &[
            // A device that can access pageable memory.
            "cuMemcpyHtoD_v2 dstDevice=0x10000 srcHost=0x7700000 ByteCount=64\n\
             cuLaunchKernel f=0x200 hStream=0x300 layout=8 params=0x7700000\n\
             cuStreamSynchronize hStream=0x300",
            // Page-locked memory, and an illegal address that has another cause.
            "cuMemAllocHost_v2 pp:=0x7700000 bytesize=4096\n\
             cuMemcpyHtoD_v2 dstDevice=0x10000 srcHost=0x7700040 ByteCount=64\n\
             cuLaunchKernel f=0x200 hStream=0x300 layout=8 params=0x7700040\n\
             cuStreamSynchronize hStream=0x300 -> 700",
            // Page-locked memory whose last end the trace does not show.
            "cuMemAllocHost_v2 pp:=0x7700000 bytesize=4096\n\
             cuMemAllocHost_v2 pp:=0x7700000 bytesize=4096\n\
             cuMemcpyHtoD_v2 dstDevice=0x10000 srcHost=0x7700040 ByteCount=64\n\
             cuLaunchKernel f=0x200 hStream=0x300 layout=8 params=0x7700040\n\
             cuStreamSynchronize hStream=0x300 -> 700",
        ],
    ),
    (
        "memory-vmm-access-not-set",
        RESERVED,
        "cuMemMap ptr=0x40000000 size=2097152 handle=0x900\n\
         cuMemsetD8_v2 dstDevice=0x40000000 N=64 -> 1",
        &[
            "cuMemMap ptr=0x40000000 size=2097152 handle=0x900\n cuMemRelease handle=0x900\n\
             cuMemSetAccess ptr=0x40000000 size=2097152 desc=[1,3] count=1\n\
             cuMemsetD8_v2 dstDevice=0x40000000 N=64\n\
             cuLaunchKernel f=0x200 layout=8 params=0x40000000",
        ],
    ),
    (
        "memory-vmm-access-not-set",
        RESERVED,
        "cuMemMap ptr=0x40000000 size=2097152 handle=0x900\n\
         cuLaunchKernel f=0x200 layout=8 params=0x40000100",
        &[],
    ),
    (
        "memory-vmm-access-not-set",
        RESERVED,
        // A new mapping has no access.
        "cuMemMap ptr=0x40000000 size=2097152 handle=0x900\n\
         cuMemSetAccess ptr=0x40000000 size=2097152 desc=[1,3] count=1\n\
         cuMemUnmap ptr=0x40000000 size=2097152\n\
         cuMemMap ptr=0x40000000 size=2097152 handle=0x900\n\
         cuMemsetD8_v2 dstDevice=0x40000000 N=64 -> 1",
        &[],
    ),
    (
        "memory-vmm-access-not-set",
        RESERVED,
        "cuMemMap ptr=0x40000000 size=2097152 handle=0x900\n\
         cuMemSetAccess ptr=0x40000000 size=4194304 desc=[1,3] count=1 -> 1",
        &[],
    ),
    // Reserved addresses without a mapping, also past an allocation or a mapping.
    (
        "memory-vmm-access-not-set",
        START,
        "cuMemAddressReserve ptr:=0x11000 size=65536\n cuMemsetD8_v2 dstDevice=0x15000 N=64 -> 1",
        &[],
    ),
    (
        "memory-vmm-access-not-set",
        RESERVED,
        "cuMemsetD8_v2 dstDevice=0x40000000 N=64 -> 1",
        &["cuMemsetD8_v2 dstDevice=0x50000000 N=64 -> 1"],
    ),
    (
        "memory-vmm-access-not-set",
        RESERVED,
        "cuMemMap ptr=0x40000000 size=0x200000 handle=0x900\n\
         cuMemSetAccess ptr=0x40000000 size=0x200000 desc=[1,3] count=1\n\
         cuMemsetD8_v2 dstDevice=0x40200000 N=64 -> 1",
        // Refused for another reason.
        &[
            "cuMemMap ptr=0x40000000 size=0x200000 handle=0x900\n\
             cuMemSetAccess ptr=0x40000000 size=0x200000 desc=[1,3] count=1\n\
             cuMemsetD8_v2 dstDevice=0x40000000 N=64 -> 1",
            "cuMemsetD8_v2 dstDevice=0x40000000 N=64 -> 719",
        ],
    ),
    // A memset that reaches a mapping without access; a launch on another device.
    (
        "memory-vmm-access-not-set",
        RESERVED,
        "cuMemMap ptr=0x40000000 size=0x200000 handle=0x900\n\
         cuMemSetAccess ptr=0x40000000 size=0x200000 desc=[1,3] count=1\n\
         cuMemMap ptr=0x40200000 size=0x200000 handle=0x900\n\
         cuMemsetD8_v2 dstDevice=0x40000000 N=0x200001 -> 1",
        &[],
    ),
    (
        "memory-vmm-access-not-set",
        RESERVED,
        "cuMemMap ptr=0x40000000 size=0x200000 handle=0x900\n\
         cuMemSetAccess ptr=0x40000000 size=0x200000 desc=[1,3] count=1\n\
         cuCtxCreate_v2 pctx:=0xc2 dev=1\n\
         cuModuleLoadData module:=0x101 image@0x5000:PTX\n\
         cuModuleGetFunction hfunc:=0x201 hmod=0x101 name=\"k\"\n\
         cuLaunchKernel f=0x201 layout=8 params=0x40000000",
        &["cuMemMap ptr=0x40000000 size=0x200000 handle=0x900\n\
             cuMemSetAccess ptr=0x40000000 size=0x200000 desc=[4:1,0,3,1,1,3] count=2\n\
             cuCtxCreate_v2 pctx:=0xc2 dev=1\n\
             cuModuleLoadData module:=0x101 image@0x5000:PTX\n\
             cuModuleGetFunction hfunc:=0x201 hmod=0x101 name=\"k\"\n\
             cuLaunchKernel f=0x201 layout=8 params=0x40000000"],
    ),
    // In a struct; through a copy of rows.
    (
        "memory-vmm-access-not-set",
        RESERVED,
        "cuMemMap ptr=0x40000000 size=2097152 handle=0x900\n\
         cuLaunchKernel f=0x200 layout=8,24 params=5,5,0x40000100,7",
        &[],
    ),
    (
        "memory-vmm-access-not-set",
        RESERVED,
        "cuMemMap ptr=0x40000000 size=2097152 handle=0x900\n\
         cuMemcpy2D_v2 pCopy=[0,0,1,0x70001000,0,0,64,0,0,2,0,0x40000000,0,64,64,4] -> 1",
        &["cuMemMap ptr=0x40000000 size=2097152 handle=0x900\n\
           cuMemSetAccess ptr=0x40000000 size=2097152 desc=[1,3] count=1\n\
           cuMemcpy2D_v2 pCopy=[0,0,1,0x70001000,0,0,64,0,0,2,0,0x40000000,0,64,64,4]"],
    ),
    (
        "memory-vmm-map-order",
        RESERVED,
        "cuMemMap ptr=0x50000000 size=2097152 handle=0x900 -> 1",
        &[
            // Memory that was released while it is mapped lives until the unmap.
            "cuMemMap ptr=0x40000000 size=2097152 handle=0x900\n cuMemRelease handle=0x900\n\
             cuMemUnmap ptr=0x40000000 size=2097152\n\
             cuMemAddressFree ptr=0x40000000 size=4194304",
            // Another reference of the handle.
            "cuMemMap ptr=0x40000000 size=2097152 handle=0x900\n\
             cuMemRetainAllocationHandle handle:=0x900 addr=0x40000000\n\
             cuMemRelease handle=0x900\n cuMemRelease handle=0x900",
        ],
    ),
    (
        "memory-vmm-map-order",
        RESERVED,
        "cuMemMap ptr=0x40000000 size=4194304 handle=0x900 -> 1",
        &[],
    ),
    (
        "memory-vmm-map-order",
        RESERVED,
        "cuMemMap ptr=0x40000000 size=2097152 handle=0x900\n\
         cuMemMap ptr=0x40000000 size=2097152 handle=0x900 -> 1",
        &[],
    ),
    (
        "memory-vmm-map-order",
        RESERVED,
        "cuMemMap ptr=0x40000000 size=2097152 handle=0x900\n\
         cuMemUnmap ptr=0x40000000 size=65536 -> 1",
        &[],
    ),
    (
        "memory-vmm-map-order",
        RESERVED,
        "cuMemAddressFree ptr=0x40000000 size=2097152 -> 1",
        &[],
    ),
    (
        "memory-vmm-map-order",
        RESERVED,
        "cuMemMap ptr=0x40000000 size=2097152 handle=0x900\n\
         cuMemAddressFree ptr=0x40000000 size=4194304 -> 1",
        &[],
    ),
    (
        "memory-vmm-map-order",
        RESERVED,
        "cuMemRelease handle=0x900\n cuMemRelease handle=0x900 -> 1",
        &[],
    ),
    (
        "memory-multicast-order",
        MULTICAST,
        "cuMulticastBindAddr mcHandle=0x910 mcOffset=0 memptr=0x40000000 size=2097152 -> !",
        &[
            "cuMulticastAddDevice mcHandle=0x910 dev=1\n\
             cuMulticastBindAddr mcHandle=0x910 mcOffset=0 memptr=0x40000000 size=2097152\n\
             cuMulticastUnbind mcHandle=0x910 dev=0 mcOffset=0 size=2097152",
            // Another process adds the second device.
            "cuMemExportToShareableHandle handle=0x910\n\
             cuMulticastBindAddr mcHandle=0x910 mcOffset=0 memptr=0x40000000 size=2097152",
        ],
    ),
    (
        "memory-multicast-order",
        MULTICAST,
        "cuMulticastAddDevice mcHandle=0x910 dev=1\n\
         cuMulticastBindAddr mcHandle=0x910 mcOffset=0 memptr=0x40000000 size=2097152\n\
         cuMulticastUnbind mcHandle=0x910 dev=0 mcOffset=0 size=65536",
        &[],
    ),
];
