//! Memory that work in flight uses: what is freed, memory of pools, fresh memory, what the CPU does.

use super::Row;
use super::order::{MAPPED, STREAMS};

pub(crate) const PENDING: &[Row] = &[
    (
        "memory-pageable-h2d-unordered",
        STREAMS,
        "cuMemcpyHtoD_v2 dstDevice=0x1000000 srcHost=0x99000000 ByteCount=64\n\
         cuMemcpyDtoHAsync_v2 dstHost=0x7000000 srcDevice=0x1000000 ByteCount=64 hStream=0x302",
        &[
            // Page-locked memory: the copy is complete. A blocking stream waits for it.
            "cuMemcpyHtoD_v2 dstDevice=0x1000000 srcHost=0x7000000 ByteCount=64\n\
             cuMemcpyDtoHAsync_v2 dstHost=0x7000800 srcDevice=0x1000000 ByteCount=64 \
             hStream=0x302",
            "cuMemcpyHtoD_v2 dstDevice=0x1000000 srcHost=0x99000000 ByteCount=64\n\
             cuMemcpyDtoHAsync_v2 dstHost=0x7000000 srcDevice=0x1000000 ByteCount=64 \
             hStream=0x303",
            "cuMemcpyHtoD_v2 dstDevice=0x1000000 srcHost=0x99000000 ByteCount=64\n\
             cuStreamSynchronize hStream=0\n\
             cuMemcpyDtoHAsync_v2 dstHost=0x7000000 srcDevice=0x1000000 ByteCount=64 \
             hStream=0x302",
            "cuMemcpyHtoD_v2 dstDevice=0x1000000 srcHost=0x99000000 ByteCount=64\n\
             cuMemcpyDtoH_v2 dstHost=0x99000000 srcDevice=0x1000000 ByteCount=64\n\
             cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x302",
        ],
    ),
    (
        "memory-pageable-h2d-unordered",
        STREAMS,
        "cuMemcpyHtoD_v2 dstDevice=0x1000000 srcHost=0x99000000 ByteCount=64\n\
         cuLaunchKernel f=0x200 hStream=0x302 layout=8 params=0x1000000",
        &[
            "cuMemcpyHtoDAsync_v2 dstDevice=0x1000000 srcHost=0x99000000 ByteCount=64 \
           hStream=0x302\n\
           cuLaunchKernel f=0x200 hStream=0x302 layout=8 params=0x1000000",
        ],
    ),
    (
        "memory-pool-access-unordered",
        STREAMS,
        "cuMemAllocAsync dptr:=0x2000000 bytesize=4096 hStream=0x301\n\
         cuMemsetD8Async dstDevice=0x2000000 N=64 hStream=0x302",
        &[
            "cuMemAllocAsync dptr:=0x2000000 bytesize=4096 hStream=0x301\n\
             cuMemsetD8Async dstDevice=0x2000000 N=64 hStream=0x301\n\
             cuMemFreeAsync dptr=0x2000000 hStream=0x301",
            "cuMemAllocAsync dptr:=0x2000000 bytesize=4096 hStream=0x301\n\
             cuEventRecord hEvent=0x401 hStream=0x301\n\
             cuStreamWaitEvent hStream=0x302 hEvent=0x401\n\
             cuMemsetD8Async dstDevice=0x2000000 N=64 hStream=0x302\n\
             cuEventRecord hEvent=0x402 hStream=0x302\n\
             cuStreamWaitEvent hStream=0x301 hEvent=0x402\n\
             cuMemFreeAsync dptr=0x2000000 hStream=0x301",
        ],
    ),
    // Freed in a stream that does not wait for the allocation.
    (
        "memory-pool-access-unordered",
        STREAMS,
        "cuMemAllocAsync dptr:=0x2000000 bytesize=4096 hStream=0x301\n\
         cuMemFreeAsync dptr=0x2000000 hStream=0x302",
        &[
            "cuMemAllocAsync dptr:=0x2000000 bytesize=4096 hStream=0x301\n\
             cuStreamSynchronize hStream=0x301\n\
             cuMemFreeAsync dptr=0x2000000 hStream=0x302",
        ],
    ),
    // Freed while a kernel in another stream may use it, and not given out again.
    (
        "memory-pool-access-unordered",
        STREAMS,
        "cuMemAllocAsync dptr:=0x2000000 bytesize=4096 hStream=0x301\n\
         cuStreamSynchronize hStream=0x301\n\
         cuLaunchKernel f=0x200 hStream=0x302 layout=8 params=0x2000000\n\
         cuMemFreeAsync dptr=0x2000000 hStream=0x301\n cuCtxSynchronize",
        &[
            "cuMemAllocAsync dptr:=0x2000000 bytesize=4096 hStream=0x301\n\
             cuStreamSynchronize hStream=0x301\n\
             cuLaunchKernel f=0x200 hStream=0x302 layout=8 params=0x2000000\n\
             cuEventRecord hEvent=0x402 hStream=0x302\n\
             cuStreamWaitEvent hStream=0x301 hEvent=0x402\n\
             cuMemFreeAsync dptr=0x2000000 hStream=0x301\n cuCtxSynchronize",
        ],
    ),
    (
        "memory-pool-access-unordered",
        STREAMS,
        "cuMemAllocAsync dptr:=0x2000000 bytesize=4096 hStream=0x301\n\
         cuStreamSynchronize hStream=0x301\n\
         cuMemsetD8Async dstDevice=0x2000000 N=64 hStream=0x302\n\
         cuMemFreeAsync dptr=0x2000000 hStream=0x301",
        &[],
    ),
    (
        "memory-reuse-cross-stream",
        STREAMS,
        "cuMemAllocAsync dptr:=0x2000000 bytesize=4096 hStream=0x301\n\
         cuStreamSynchronize hStream=0x301\n\
         cuLaunchKernel f=0x200 hStream=0x302 layout=8 params=0x2000000\n\
         cuMemFreeAsync dptr=0x2000000 hStream=0x301\n\
         cuMemAllocAsync dptr:=0x2000000 bytesize=4096 hStream=0x301",
        &[
            "cuMemAllocAsync dptr:=0x2000000 bytesize=4096 hStream=0x301\n\
             cuStreamSynchronize hStream=0x301\n\
             cuLaunchKernel f=0x200 hStream=0x302 layout=8 params=0x2000000\n\
             cuMemFreeAsync dptr=0x2000000 hStream=0x302\n\
             cuMemAllocAsync dptr:=0x2000000 bytesize=4096 hStream=0x301",
            "cuMemAllocAsync dptr:=0x2000000 bytesize=4096 hStream=0x301\n\
             cuStreamSynchronize hStream=0x301\n\
             cuLaunchKernel f=0x200 hStream=0x302 layout=8 params=0x2000000\n\
             cuStreamSynchronize hStream=0x302\n cuMemFreeAsync dptr=0x2000000 hStream=0x301\n\
             cuMemAllocAsync dptr:=0x2000000 bytesize=4096 hStream=0x301",
        ],
    ),
    (
        "memory-free-pool-pointer-in-use",
        STREAMS,
        "cuMemAllocAsync dptr:=0x2000000 bytesize=4096 hStream=0x301\n\
         cuMemsetD8Async dstDevice=0x2000000 N=64 hStream=0x301\n cuMemFree_v2 dptr=0x2000000",
        &[
            "cuMemAllocAsync dptr:=0x2000000 bytesize=4096 hStream=0x301\n\
           cuMemsetD8Async dstDevice=0x2000000 N=64 hStream=0x301\n\
           cuStreamSynchronize hStream=0x301\n cuMemFree_v2 dptr=0x2000000",
        ],
    ),
    // A single stream.
    (
        "memory-free-pool-pointer-in-use",
        super::START,
        "cuMemAllocAsync dptr:=0x2000000 bytesize=4096 hStream=0x300\n\
         cuLaunchKernel f=0x200 hStream=0x300 layout=8 params=0x2000000\n\
         cuMemFree_v2 dptr=0x2000000",
        &[
            "cuMemAllocAsync dptr:=0x2000000 bytesize=4096 hStream=0x300\n\
             cuLaunchKernel f=0x200 hStream=0x300 layout=8 params=0x2000000\n\
             cuMemFreeAsync dptr=0x2000000 hStream=0x300",
        ],
    ),
    (
        "memory-free-pending-work",
        STREAMS,
        "cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n cuMemFree_v2 dptr=0x1000000",
        &[
            "cuMemsetD8Async dstDevice=0x1000000 N=64 hStream=0x301\n cuCtxSynchronize\n\
             cuMemFree_v2 dptr=0x1000000",
            "cuMemsetD8_v2 dstDevice=0x1000000 N=64\n cuMemFree_v2 dptr=0x1000000",
            "cuMemcpyHtoD_v2 dstDevice=0x1000000 srcHost=0x99000000 ByteCount=64\n\
             cuMemFree_v2 dptr=0x1000000",
        ],
    ),
    // Memory is unmapped behind a memset, and behind a kernel in the only stream.
    (
        "memory-free-pending-work",
        MAPPED,
        "cuMemsetD8Async dstDevice=0x40000000 N=64 hStream=0x301\n\
         cuMemUnmap ptr=0x40000000 size=0x200000",
        &[
            "cuMemsetD8Async dstDevice=0x40000000 N=64 hStream=0x301\n\
             cuStreamSynchronize hStream=0x301\n cuMemUnmap ptr=0x40000000 size=0x200000",
            // Another mapping of the same memory; memory that was mapped there before.
            "cuMemsetD8Async dstDevice=0x40000000 N=64 hStream=0x301\n\
             cuMemUnmap ptr=0x40200000 size=0x200000",
            "cuMemUnmap ptr=0x40000000 size=0x200000\n cuMemCreate handle:=0x900\n\
             cuMemMap ptr=0x40000000 size=0x200000 handle=0x900\n\
             cuMemUnmap ptr=0x40000000 size=0x200000",
        ],
    ),
    (
        "memory-free-pending-work",
        MAPPED,
        "cuLaunchKernel f=0x200 hStream=0x301 layout=8 params=0x40000100\n\
         cuMemRelease handle=0x900\n cuMemUnmap ptr=0x40000000 size=0x200000",
        &[
            "cuLaunchKernel f=0x200 hStream=0x301 layout=8 params=0x40000100\n\
             cuEventRecord hEvent=0x401 hStream=0x301\n cuEventSynchronize hEvent=0x401\n\
             cuMemUnmap ptr=0x40000000 size=0x200000",
        ],
    ),
    // Streams that use mapped memory.
    (
        "memory-race-cross-stream",
        MAPPED,
        "cuMemsetD8Async dstDevice=0x40000000 N=64 hStream=0x301\n\
         cuMemsetD8Async dstDevice=0x40000020 N=64 hStream=0",
        &[
            "cuMemsetD8Async dstDevice=0x40000000 N=64 hStream=0x301\n\
             cuMemsetD8Async dstDevice=0x40000040 N=64 hStream=0",
            "cuMemsetD8Async dstDevice=0x40000000 N=64 hStream=0x301\n\
             cuEventRecord hEvent=0x401 hStream=0x301\n\
             cuStreamWaitEvent hStream=0 hEvent=0x401\n\
             cuMemsetD8Async dstDevice=0x40000000 N=64 hStream=0",
        ],
    ),
    (
        "memory-host-buffer-freed-while-pending",
        STREAMS,
        "cuMemcpyDtoHAsync_v2 dstHost=0x7000000 srcDevice=0x1000000 ByteCount=64 hStream=0x301\n\
         cuMemFreeHost p=0x7000000",
        &[
            "cuMemcpyDtoHAsync_v2 dstHost=0x7000000 srcDevice=0x1000000 ByteCount=64 \
             hStream=0x301\n\
             cuEventRecord hEvent=0x401 hStream=0x301\n cuEventSynchronize hEvent=0x401\n\
             cuMemFreeHost p=0x7000000",
            "cuMemcpyDtoH_v2 dstHost=0x7000000 srcDevice=0x1000000 ByteCount=64\n\
             cuMemFreeHost p=0x7000000",
        ],
    ),
    (
        "memory-host-buffer-freed-while-pending",
        STREAMS,
        "cuMemHostRegister_v2 p=0x8000000 bytesize=4096\n\
         cuMemcpyHtoDAsync_v2 dstDevice=0x1000000 srcHost=0x8000800 ByteCount=64 hStream=0x301\n\
         cuMemHostUnregister p=0x8000000",
        &[],
    ),
    (
        "memory-host-buffer-freed-while-pending",
        STREAMS,
        "cuMemcpyBatchAsync_v2 dsts=[0x1000000] srcs=[0x7000000] sizes=[64] count=1 \
         attrs=[4:1,0*5] attrsIdxs=[0] numAttrs=1 hStream=0x302\n cuMemFreeHost p=0x7000000",
        &[],
    ),
    // A kernel in the only stream gets the address of page-locked memory.
    (
        "memory-host-buffer-freed-while-pending",
        super::START,
        "cuMemAllocHost_v2 pp:=0x7000000 bytesize=4096\n\
         cuLaunchKernel f=0x200 hStream=0x300 layout=8,8 params=5,0x7000040\n\
         cuMemFreeHost p=0x7000000",
        &["cuMemAllocHost_v2 pp:=0x7000000 bytesize=4096\n\
             cuLaunchKernel f=0x200 hStream=0x300 layout=8,8 params=5,0x7000040\n\
             cuStreamSynchronize hStream=0x300\n cuMemFreeHost p=0x7000000"],
    ),
    // A memset that nothing waits for where a loop over buffers has none:
    // https://github.com/openxla/xla/issues/46093
    (
        "memory-host-buffer-freed-while-pending",
        STREAMS,
        "cuMemsetD32Async dstDevice=0x7000000 N=16 hStream=0x301\n cuMemFreeHost p=0x7000000",
        &["cuMemsetD32Async dstDevice=0x7000000 N=16 hStream=0x301\n\
           cuStreamSynchronize hStream=0x301\n cuMemFreeHost p=0x7000000"],
    ),
    (
        "memory-uninitialised-read",
        STREAMS,
        "cuMemAlloc_v2 dptr:=0x2000000 bytesize=4096\n\
         cuMemsetD8_v2 dstDevice=0x2000000 N=64\n\
         cuMemcpyDtoH_v2 dstHost=0x99000000 srcDevice=0x2000040 ByteCount=64",
        &[
            "cuMemAlloc_v2 dptr:=0x2000000 bytesize=4096\n\
             cuMemsetD8_v2 dstDevice=0x2000000 N=65\n\
             cuMemcpyDtoH_v2 dstHost=0x99000000 srcDevice=0x2000040 ByteCount=64",
            // A kernel may have the address from memory.
            "cuMemAlloc_v2 dptr:=0x2000000 bytesize=4096\n cuLaunchKernel f=0x200\n\
             cuMemcpyDtoH_v2 dstHost=0x99000000 srcDevice=0x2000000 ByteCount=64",
            "cuMemAllocManaged dptr:=0x2000000 bytesize=4096 flags=1\n\
             cuMemcpyDtoH_v2 dstHost=0x99000000 srcDevice=0x2000000 ByteCount=64",
            "cuMemAlloc_v2 dptr:=0x2000000 bytesize=4096\n\
             cuMemcpy dst=0x2000000 src=0x99000000 ByteCount=64\n\
             cuMemcpy dst=0x99000000 src=0x2000000 ByteCount=64",
            "cuMemAlloc_v2 dptr:=0x2000000 bytesize=4096\n cuMemcpyBatchAsync count=1\n\
             cuMemcpyDtoH_v2 dstHost=0x99000000 srcDevice=0x2000000 ByteCount=64",
            // A part that was written, and one that was not.
            "cuMemAlloc_v2 dptr:=0x2000000 bytesize=4096\n\
             cuMemsetD2D8_v2 dstDevice=0x2000000 dstPitch=64 Width=8 Height=4\n\
             cuMemcpyDtoH_v2 dstHost=0x99000000 srcDevice=0x2000000 ByteCount=256",
        ],
    ),
    (
        "memory-uninitialised-read",
        STREAMS,
        "cuMemAlloc_v2 dptr:=0x2000000 bytesize=4096\n\
         cuMemcpyBatchAsync_v2 dsts=[0x7000000] srcs=[0x2000000] sizes=[64] count=1 \
         attrs=[4:1,0*5] attrsIdxs=[0] numAttrs=1 hStream=0x302",
        &["cuMemAlloc_v2 dptr:=0x2000000 bytesize=4096\n\
             cuMemcpyBatchAsync_v2 dsts=[0x2000000] srcs=[0x7000000] sizes=[64] count=1 \
             attrs=[4:1,0*5] attrsIdxs=[0] numAttrs=1 hStream=0x302\n\
             cuMemcpyDtoHAsync_v2 dstHost=0x7000800 srcDevice=0x2000000 ByteCount=64 \
             hStream=0x302"],
    ),
    (
        "memory-race-host-access",
        STREAMS,
        "cuMemcpyHtoDAsync_v2 dstDevice=0x1000000 srcHost@0x7000000=\"one\" ByteCount=4 \
         hStream=0x301\n\
         cuMemcpyHtoDAsync_v2 dstDevice=0x1000100 srcHost@0x7000000=\"two\" ByteCount=4 \
         hStream=0x301",
        &[
            "cuMemcpyHtoDAsync_v2 dstDevice=0x1000000 srcHost@0x7000000=\"one\" ByteCount=4 \
             hStream=0x301\n\
             cuMemcpyHtoDAsync_v2 dstDevice=0x1000100 srcHost@0x7000000=\"one\" ByteCount=4 \
             hStream=0x301",
            "cuMemcpyHtoDAsync_v2 dstDevice=0x1000000 srcHost@0x7000000=\"one\" ByteCount=4 \
             hStream=0x301\n\
             cuEventRecord hEvent=0x401 hStream=0x301\n cuEventSynchronize hEvent=0x401\n\
             cuMemcpyHtoDAsync_v2 dstDevice=0x1000100 srcHost@0x7000000=\"two\" ByteCount=4 \
             hStream=0x301",
            // Pageable memory was read before the call returned.
            "cuMemcpyHtoDAsync_v2 dstDevice=0x1000000 srcHost@0x99000000=\"one\" ByteCount=4 \
             hStream=0x301\n\
             cuMemcpyHtoDAsync_v2 dstDevice=0x1000100 srcHost@0x99000000=\"two\" ByteCount=4 \
             hStream=0x301",
            // The device, a kernel or a host function may have written it.
            "cuMemcpyHtoDAsync_v2 dstDevice=0x1000000 srcHost@0x7000000=\"one\" ByteCount=4 \
             hStream=0x301\n\
             cuMemcpyDtoHAsync_v2 dstHost=0x7000000 srcDevice=0x1000800 ByteCount=4 \
             hStream=0x301\n\
             cuMemcpyHtoDAsync_v2 dstDevice=0x1000100 srcHost@0x7000000=\"two\" ByteCount=4 \
             hStream=0x301",
            "cuMemcpyHtoDAsync_v2 dstDevice=0x1000000 srcHost@0x7000000=\"one\" ByteCount=4 \
             hStream=0x301\n\
             cuLaunchKernel f=0x200 hStream=0x301 layout=8 params=0x7000000\n\
             cuMemcpyHtoDAsync_v2 dstDevice=0x1000100 srcHost@0x7000000=\"two\" ByteCount=4 \
             hStream=0x301",
            "cuMemcpyHtoDAsync_v2 dstDevice=0x1000000 srcHost@0x7000000=\"one\" ByteCount=4 \
             hStream=0x301\n cuLaunchHostFunc hStream=0x301 fn=0x99\n\
             cuMemcpyHtoDAsync_v2 dstDevice=0x1000100 srcHost@0x7000000=\"two\" ByteCount=4 \
             hStream=0x301",
            // The recorder read the source before a memset that comes before the copy.
            "cuMemsetD8Async dstDevice=0x7000000 N=4 hStream=0x302\n\
             cuEventRecord hEvent=0x401 hStream=0x302\n\
             cuStreamWaitEvent hStream=0x301 hEvent=0x401\n\
             cuMemcpyHtoDAsync_v2 dstDevice=0x1000000 srcHost@0x7000000=\"one\" ByteCount=4 \
             hStream=0x301\n cuStreamSynchronize hStream=0x302\n\
             cuMemcpyHtoDAsync_v2 dstDevice=0x1000100 srcHost@0x7000000=\"two\" ByteCount=4 \
             hStream=0x301",
            // A kernel sets a flag in other memory, which the CPU polls.
            "cuMemAllocHost_v2 pp:=0x8000000 bytesize=64\n\
             cuMemcpyHtoDAsync_v2 dstDevice=0x1000000 srcHost@0x7000000=\"one\" ByteCount=4 \
             hStream=0x301\n\
             cuLaunchKernel f=0x200 hStream=0x301 layout=8 params=0x8000000\n\
             cuMemcpyHtoDAsync_v2 dstDevice=0x1000100 srcHost@0x7000000=\"two\" ByteCount=4 \
             hStream=0x301",
        ],
    ),
    (
        "memory-race-host-access",
        STREAMS,
        "cuMemcpyHtoDAsync_v2 dstDevice=0x1000000 srcHost@0x7000000=\"one\" ByteCount=4 \
         hStream=0x301\n\
         cuLaunchKernel f=0x200 hStream=0x301 layout=8 params=0x1000000\n\
         cuMemcpyHtoDAsync_v2 dstDevice=0x1000100 srcHost@0x7000000=\"two\" ByteCount=4 \
         hStream=0x301",
        &[],
    ),
    // The same buffer with more bytes.
    (
        "memory-race-host-access",
        STREAMS,
        "cuMemcpyHtoDAsync_v2 dstDevice=0x1000000 srcHost@0x7000000=\"one\" ByteCount=4 \
         hStream=0x301\n\
         cuMemcpyHtoDAsync_v2 dstDevice=0x1000100 srcHost@0x7000000=\"two,three\" ByteCount=10 \
         hStream=0x302",
        &[
            // The first bytes are the same; the next ones were not copied before.
            "cuMemcpyHtoDAsync_v2 dstDevice=0x1000000 srcHost@0x7000000=\"one\" ByteCount=3 \
             hStream=0x301\n\
             cuMemcpyHtoDAsync_v2 dstDevice=0x1000100 srcHost@0x7000000=\"one,two\" ByteCount=8 \
             hStream=0x302",
            "cuMemcpyHtoDAsync_v2 dstDevice=0x1000000 srcHost@0x7000000=\"one\" ByteCount=4 \
             hStream=0x301\n\
             cuMemcpyHtoDAsync_v2 dstDevice=0x1000100 srcHost@0x7000004=\"two\" ByteCount=4 \
             hStream=0x302",
        ],
    ),
];
