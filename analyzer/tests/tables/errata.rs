//! Published defects of the driver: the calls that meet one with a driver that has it, and with the
//! next that does not, or other calls.

use super::Row;

pub(crate) const ERRATA: &[Row] = &[
    (
        "driver-pool-opportunistic-reuse",
        "cuCtxCreate_v2 pctx:=0xc1 dev=0\n cuStreamCreate phStream:=0x300 Flags=1\n\
         cuStreamCreate phStream:=0x301 Flags=1\n\
         cuMemAllocAsync dptr:=0x10000 bytesize=4096 hStream=0x300",
        "meta driver.version 11040\n cuMemFreeAsync dptr=0x10000 hStream=0x300\n\
         cuMemAllocAsync dptr:=0x10000 bytesize=4096 hStream=0x301",
        &[
            "meta driver.version 11050\n cuMemFreeAsync dptr=0x10000 hStream=0x300\n\
             cuMemAllocAsync dptr:=0x10000 bytesize=4096 hStream=0x301",
            // The null driver has no defect.
            "meta driver.version 11040\n meta driver.kind null\n\
             cuMemFreeAsync dptr=0x10000 hStream=0x300\n\
             cuMemAllocAsync dptr:=0x10000 bytesize=4096 hStream=0x301",
            // In the same stream, in other memory, after a wait, not permitted.
            "meta driver.version 11040\n cuMemFreeAsync dptr=0x10000 hStream=0x300\n\
             cuMemAllocAsync dptr:=0x10000 bytesize=4096 hStream=0x300",
            "meta driver.version 11040\n cuMemFreeAsync dptr=0x10000 hStream=0x300\n\
             cuMemAllocAsync dptr:=0x20000 bytesize=4096 hStream=0x301",
            "meta driver.version 11040\n cuEventCreate phEvent:=0x400\n\
             cuMemFreeAsync dptr=0x10000 hStream=0x300\n\
             cuEventRecord hEvent=0x400 hStream=0x300\n\
             cuStreamWaitEvent hStream=0x301 hEvent=0x400\n\
             cuMemAllocAsync dptr:=0x10000 bytesize=4096 hStream=0x301\n\
             cuEventDestroy_v2 hEvent=0x400",
            "meta driver.version 11040\n cuDeviceGetDefaultMemPool pool_out:=0x700 dev=0\n\
             cuMemPoolSetAttribute pool=0x700 attr=2 value=[4:0]\n\
             cuMemFreeAsync dptr=0x10000 hStream=0x300\n\
             cuMemAllocAsync dptr:=0x10000 bytesize=4096 hStream=0x301",
        ],
    ),
    (
        "driver-pool-after-primary-reset",
        "cuDevicePrimaryCtxRetain pctx:=0xc1 dev=0\n cuCtxSetCurrent ctx=0xc1",
        "meta driver.version 11020\n cuMemAllocAsync dptr:=0x10000 bytesize=4096 hStream=0\n\
         cuDevicePrimaryCtxReset_v2 dev=0\n\
         cuMemAllocAsync dptr:=0x20000 bytesize=4096 hStream=0",
        &[
            "meta driver.version 11030\n cuMemAllocAsync dptr:=0x10000 bytesize=4096 hStream=0\n\
             cuDevicePrimaryCtxReset_v2 dev=0\n\
             cuMemAllocAsync dptr:=0x20000 bytesize=4096 hStream=0",
            "meta driver.version 11020\n cuDevicePrimaryCtxReset_v2 dev=0\n\
             cuMemAllocAsync dptr:=0x20000 bytesize=4096 hStream=0",
        ],
    ),
    (
        "driver-copy-3d-pool-memory",
        "cuCtxCreate_v2 pctx:=0xc1 dev=0\n cuMemAllocAsync dptr:=0x10000 bytesize=4096 hStream=0\n\
         cuMemAlloc_v2 dptr:=0x90000 bytesize=4096\n\
         cuMemsetD8_v2 dstDevice=0x10000 uc=0 N=4096\n\
         cuMemsetD8_v2 dstDevice=0x90000 uc=0 N=4096",
        // The second row of two, to the host.
        "meta driver.version 11020\n cuMemcpy3DAsync_v2 \
         pCopy=[0,1,0,0,2,0,0x10000,0,0,8,2,0,0,0,0,1,0x7fff0000,0,0,0,8,1,8,1,1] hStream=0\n\
         cuCtxSynchronize",
        &[
            "meta driver.version 11030\n cuMemcpy3DAsync_v2 \
             pCopy=[0,1,0,0,2,0,0x10000,0,0,8,2,0,0,0,0,1,0x7fff0000,0,0,0,8,1,8,1,1] hStream=0\n\
             cuCtxSynchronize",
            // The first row; memory of no pool; no stream.
            "meta driver.version 11020\n cuMemcpy3DAsync_v2 \
             pCopy=[0,0,0,0,2,0,0x10000,0,0,8,2,0,0,0,0,1,0x7fff0000,0,0,0,8,1,8,1,1] hStream=0\n\
             cuCtxSynchronize",
            "meta driver.version 11020\n cuMemcpy3DAsync_v2 \
             pCopy=[0,1,0,0,2,0,0x90000,0,0,8,2,0,0,0,0,1,0x7fff0000,0,0,0,8,1,8,1,1] hStream=0\n\
             cuCtxSynchronize",
            "meta driver.version 11020\n cuMemcpy3D_v2 \
             pCopy=[0,1,0,0,2,0,0x10000,0,0,8,2,0,0,0,0,1,0x7fff0000,0,0,0,8,1,8,1,1]",
        ],
    ),
    (
        "driver-pool-access-inherited",
        "cuCtxCreate_v2 pctx:=0xc1 dev=0\n\
         cuMemPoolCreate pool:=0x700 poolProps=[1,1,0*9]",
        "cuMemPoolSetAccess pool=0x700 map=[4:1,1,3] count=1\n cuMemPoolDestroy pool=0x700\n\
         cuMemPoolCreate pool:=0x700 poolProps=[1,1,0*9]",
        &[
            "meta driver.version 13040\n\
             cuMemPoolSetAccess pool=0x700 map=[4:1,1,3] count=1\n cuMemPoolDestroy pool=0x700\n\
             cuMemPoolCreate pool:=0x700 poolProps=[1,1,0*9]",
            // Taken away again; another handle; no access.
            "cuMemPoolSetAccess pool=0x700 map=[4:1,1,3] count=1\n\
             cuMemPoolSetAccess pool=0x700 map=[4:1,1,0] count=1\n cuMemPoolDestroy pool=0x700\n\
             cuMemPoolCreate pool:=0x700 poolProps=[1,1,0*9]",
            "cuMemPoolSetAccess pool=0x700 map=[4:1,1,3] count=1\n cuMemPoolDestroy pool=0x700\n\
             cuMemPoolCreate pool:=0x701 poolProps=[1,1,0*9]",
            "cuMemPoolDestroy pool=0x700\n cuMemPoolCreate pool:=0x700 poolProps=[1,1,0*9]",
        ],
    ),
    (
        "driver-dma-buf-managed-pool",
        "cuCtxCreate_v2 pctx:=0xc1 dev=0\n cuMemPoolCreate pool:=0x700 poolProps=[2,1,0*9]\n\
         cuMemPoolCreate pool:=0x701 poolProps=[1,1,0*9]\n\
         cuMemAllocFromPoolAsync dptr:=0x10000 bytesize=4096 pool=0x700 hStream=0\n\
         cuMemAlloc_v2 dptr:=0x90000 bytesize=4096",
        "cuMemGetHandleForAddressRange dptr=0x10000 size=4096 handleType=1 -> !",
        &[
            "meta driver.version 13020\n\
             cuMemGetHandleForAddressRange dptr=0x10000 size=4096 handleType=1 -> !",
            // It returned; it is memory of no pool.
            "cuMemGetHandleForAddressRange dptr=0x10000 size=4096 handleType=1 -> 801",
            "cuMemGetHandleForAddressRange dptr=0x90000 size=4096 handleType=1 -> !",
        ],
    ),
    (
        "driver-host-numa-allocation",
        "cuCtxCreate_v2 pctx:=0xc1 dev=0",
        "cuMemCreate size=0x200000 prop=[1,3,0,0] -> !",
        &[
            "meta driver.version 13020\n cuMemCreate size=0x200000 prop=[1,3,0,0] -> !",
            "cuMemCreate handle:=0x800 size=0x200000 prop=[1,3,0,0]\n cuMemRelease handle=0x800",
            "cuMemCreate size=0x200000 prop=[1,1,0,0] -> !",
        ],
    ),
    (
        "driver-tensor-map-small-allocation",
        "meta device.0.compute-capability 10.0\n cuCtxCreate_v2 pctx:=0xc1 dev=0\n\
         cuMemAlloc_v2 dptr:=0x10000 bytesize=16384\n\
         cuMemAlloc_v2 dptr:=0x1000000 bytesize=131072",
        // Rows of 128 bytes, 256 bytes apart.
        "cuTensorMapEncodeTiled tensorMap@0x7fff0000:=[9,0*15] tensorDataType=6 tensorRank=2 \
         globalAddress=0x10000 globalDim=[64,64] globalStrides=[256] boxDim=[4:64,8] \
         elementStrides=[4:1,1]",
        &[
            "meta driver.version 13040\n\
             cuTensorMapEncodeTiled tensorMap@0x7fff0000:=[9,0*15] tensorDataType=6 tensorRank=2 \
             globalAddress=0x10000 globalDim=[64,64] globalStrides=[256] boxDim=[4:64,8] \
             elementStrides=[4:1,1]",
            // A Hopper GPU; a dense tensor; a large allocation.
            "meta device.0.compute-capability 9.0\n\
             cuTensorMapEncodeTiled tensorMap@0x7fff0000:=[9,0*15] tensorDataType=6 tensorRank=2 \
             globalAddress=0x10000 globalDim=[64,64] globalStrides=[256] boxDim=[4:64,8] \
             elementStrides=[4:1,1]",
            "cuTensorMapEncodeTiled tensorMap@0x7fff0000:=[9,0*15] tensorDataType=6 tensorRank=2 \
             globalAddress=0x10000 globalDim=[64,64] globalStrides=[128] boxDim=[4:64,8] \
             elementStrides=[4:1,1]",
            "cuTensorMapEncodeTiled tensorMap@0x7fff0000:=[9,0*15] tensorDataType=6 tensorRank=2 \
             globalAddress=0x1000000 globalDim=[64,64] globalStrides=[256] boxDim=[4:64,8] \
             elementStrides=[4:1,1]",
        ],
    ),
    (
        "driver-graph-launched-while-running",
        "cuCtxCreate_v2 pctx:=0xc1 dev=0\n cuStreamCreate phStream:=0x300 Flags=1\n\
         cuGraphCreate phGraph:=0x800\n cuGraphAddEmptyNode phGraphNode:=0x900 hGraph=0x800\n\
         cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800",
        "meta driver.version 11030\n cuGraphLaunch hGraph=0xa00 hStream=0x300\n\
         cuGraphLaunch hGraph=0xa00 hStream=0x300\n cuStreamSynchronize hStream=0x300",
        &[
            "meta driver.version 11040\n cuGraphLaunch hGraph=0xa00 hStream=0x300\n\
             cuGraphLaunch hGraph=0xa00 hStream=0x300\n cuStreamSynchronize hStream=0x300",
            "meta driver.version 11030\n cuGraphLaunch hGraph=0xa00 hStream=0x300\n\
             cuStreamSynchronize hStream=0x300\n\
             cuGraphLaunch hGraph=0xa00 hStream=0x300\n cuStreamSynchronize hStream=0x300",
            // Another executable graph with its handle.
            "meta driver.version 11030\n cuGraphLaunch hGraph=0xa00 hStream=0x300\n\
             cuGraphExecDestroy hGraphExec=0xa00\n\
             cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800\n\
             cuGraphLaunch hGraph=0xa00 hStream=0x300\n cuStreamSynchronize hStream=0x300",
        ],
    ),
    (
        "driver-conditional-body-empty",
        CONDITIONAL,
        "meta driver.version 12060\n\
         cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800",
        &[
            "meta driver.version 12080\n\
             cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800",
            "meta driver.version 12060\n\
             cuGraphAddMemsetNode phGraphNode:=0x901 hGraph=0x801 \
             memsetParams=[0x10000,0,0x400000000,4,1]\n\
             cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800",
            "meta driver.version 12060\n cuStreamCreate phStream:=0x300 Flags=1\n\
             cuStreamBeginCaptureToGraph hStream=0x300 hGraph=0x801\n\
             cuStreamEndCapture hStream=0x300 phGraph:=0x801\n\
             cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800",
            // Another graph, also one that gets the handle of a destroyed one.
            "meta driver.version 12060\n cuGraphDestroy hGraph=0x800\n\
             cuGraphCreate phGraph:=0x800\n\
             cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800",
            "meta driver.version 12060\n cuGraphCreate phGraph:=0x802\n\
             cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x802",
        ],
    ),
    (
        "driver-conditional-body-empty-node",
        CONDITIONAL,
        "meta driver.version 12030\n cuGraphAddEmptyNode phGraphNode:=0x901 hGraph=0x801\n\
         cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800",
        &[
            "meta driver.version 12040\n cuGraphAddEmptyNode phGraphNode:=0x901 hGraph=0x801\n\
           cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800",
        ],
    ),
    (
        "driver-conditional-capture-invalidated",
        CONDITIONAL,
        "cuStreamCreate phStream:=0x300 Flags=1\n\
         cuStreamBeginCaptureToGraph hStream=0x300 hGraph=0x801\n\
         cuStreamEndCapture hStream=0x300 -> 901",
        &[
            "meta driver.version 13040\n cuStreamCreate phStream:=0x300 Flags=1\n\
             cuStreamBeginCaptureToGraph hStream=0x300 hGraph=0x801\n\
             cuStreamEndCapture hStream=0x300 -> 901",
            // It was not invalidated; it is no body.
            "cuStreamCreate phStream:=0x300 Flags=1\n\
             cuStreamBeginCaptureToGraph hStream=0x300 hGraph=0x801\n\
             cuStreamEndCapture hStream=0x300 phGraph:=0x801",
            "cuStreamCreate phStream:=0x300 Flags=1\n cuGraphCreate phGraph:=0x802\n\
             cuStreamBeginCaptureToGraph hStream=0x300 hGraph=0x802\n\
             cuStreamEndCapture hStream=0x300 -> 901",
        ],
    ),
    (
        "driver-graph-memset-pool-memory",
        "cuCtxCreate_v2 pctx:=0xc1 dev=0\n cuGraphCreate phGraph:=0x800\n\
         cuMemAllocAsync dptr:=0x10000 bytesize=4096 hStream=0\n\
         cuMemAlloc_v2 dptr:=0x90000 bytesize=4096",
        "meta driver.version 12010\n\
         cuGraphAddMemsetNode phGraphNode:=0 hGraph=0x800 \
         memsetParams=[0x10000,0,0x400000000,4,1] -> 1",
        &[
            "meta driver.version 12020\n\
             cuGraphAddMemsetNode phGraphNode:=0 hGraph=0x800 \
             memsetParams=[0x10000,0,0x400000000,4,1] -> 1",
            // It succeeded; memory of no pool.
            "meta driver.version 12010\n\
             cuGraphAddMemsetNode phGraphNode:=0x900 hGraph=0x800 \
             memsetParams=[0x10000,0,0x400000000,4,1]",
            "meta driver.version 12010\n\
             cuGraphAddMemsetNode phGraphNode:=0 hGraph=0x800 \
             memsetParams=[0x90000,0,0x400000000,4,1] -> 1",
        ],
    ),
    (
        "driver-jit-and-not",
        "cuCtxCreate_v2 pctx:=0xc1 dev=0\n meta driver.version 12020",
        "meta driver.path /usr/lib/libcuda.so.535.54.03\n\
         cuModuleLoadData module:=0x100 image@0x5000:PTX_AND_NOT",
        &[
            "meta driver.path /usr/lib/libcuda.so.535.104.05\n\
             cuModuleLoadData module:=0x100 image@0x5000:PTX_AND_NOT",
            "cuModuleLoadData module:=0x100 image@0x5000:PTX_AND_NOT",
            "meta driver.path /usr/lib/libcuda.so.535.54.03\n\
             cuModuleLoadData module:=0x100 image@0x5000:PTX",
        ],
    ),
];

/// A graph with an IF node, whose body is 0x801. The type comes first, the body after the call.
const CONDITIONAL: &str = "
    cuCtxCreate_v2 pctx:=0xc1 dev=0
    cuMemAlloc_v2 dptr:=0x10000 bytesize=4096
    cuGraphCreate phGraph:=0x800
    cuGraphConditionalHandleCreate pHandle_out:=0x5 hGraph=0x800 ctx=0xc1
    cuGraphAddNode_v2 phGraphNode:=0x900 hGraph=0x800 nodeParams=[13,0*31] bodies=0x801
";
