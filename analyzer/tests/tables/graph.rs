//! Graphs.

use super::{Row, START};

/// A graph that allocates, uses and frees memory, then allocates and uses memory at that address.
const REALLOCATED: &str = "
    cuInit Flags=0
    cuCtxCreate_v2 pctx:=0xc1 dev=0
    cuModuleLoadData module:=0x100 image@0x5000:PTX
    cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"
    cuStreamCreate phStream:=0x300 Flags=1
    cuGraphCreate phGraph:=0x800
    cuGraphAddMemAllocNode phGraphNode:=0x900 hGraph=0x800 nodeParams:=[0*13,4096,0x80000]
    cuGraphAddMemsetNode phGraphNode:=0x901 hGraph=0x800 dependencies=[0x900] numDependencies=1 memsetParams=[0x80000,0,0x400000000,4,1]
    cuGraphAddMemFreeNode phGraphNode:=0x902 hGraph=0x800 dependencies=[0x901] numDependencies=1 dptr=0x80000
    cuGraphAddMemAllocNode phGraphNode:=0x903 hGraph=0x800 dependencies=[0x902] numDependencies=1 nodeParams:=[0*13,4096,0x80000]
    cuGraphAddMemsetNode phGraphNode:=0x904 hGraph=0x800 dependencies=[0x903] numDependencies=1 memsetParams=[0x80000,0,0x400000000,4,1]
";

/// A graph with a memset node, instantiated; node, graph and executable are 0x900, 0x800, 0xa00.
const BUILT: &str = "
    cuInit Flags=0
    cuCtxCreate_v2 pctx:=0xc1 dev=0
    cuModuleLoadData module:=0x100 image@0x5000:PTX
    cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"
    cuStreamCreate phStream:=0x300 Flags=1
    cuStreamCreate phStream:=0x301 Flags=1
    cuEventCreate phEvent:=0x400
    cuEventCreate phEvent:=0x401
    cuMemAlloc_v2 dptr:=0x10000 bytesize=4096
    cuGraphCreate phGraph:=0x800
    cuGraphAddMemsetNode phGraphNode:=0x900 hGraph=0x800 memsetParams=[0x10000,0,0x400000000,4,1]
    cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800
";

/// A graph that copies from page-locked memory.
const STAGED: &str = "
    cuInit Flags=0
    cuCtxCreate_v2 pctx:=0xc1 dev=0
    cuStreamCreate phStream:=0x300 Flags=1
    cuMemAlloc_v2 dptr:=0x10000 bytesize=4096
    cuMemAllocHost_v2 pp:=0x50000 bytesize=64
    cuGraphCreate phGraph:=0x800
    cuGraphAddMemcpyNode phGraphNode:=0x900 hGraph=0x800 copyParams=[0*4,1,0x50000,0*3,64,1,0*4,2,0,0x10000,0,0,64,1,64,1,1]
    cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800
";

pub(crate) const GRAPHS: &[Row] = &[
    (
        "graph-use-after-destroy",
        BUILT,
        "cuGraphDestroy hGraph=0x800\n\
         cuGraphExecMemsetNodeSetParams hGraphExec=0xa00 hNode=0x900 -> 1",
        &[
            // The executable graph does not need the graph.
            "cuGraphDestroy hGraph=0x800\n cuGraphLaunch hGraph=0xa00 hStream=0x300\n\
             cuGraphExecDestroy hGraphExec=0xa00",
            // A new graph has the handles of the old one.
            "cuGraphDestroy hGraph=0x800\n cuGraphCreate phGraph:=0x800\n\
             cuGraphAddEmptyNode phGraphNode:=0x900 hGraph=0x800\n\
             cuGraphDestroyNode hNode=0x900\n cuGraphDestroy hGraph=0x800",
        ],
    ),
    (
        "graph-use-after-destroy",
        BUILT,
        "cuGraphExecDestroy hGraphExec=0xa00\n cuGraphLaunch hGraph=0xa00 hStream=0x300 -> 1",
        &[],
    ),
    (
        "graph-use-after-destroy",
        BUILT,
        "cuGraphDestroyNode hNode=0x900\n cuGraphDestroyNode hNode=0x900 -> 1",
        &[],
    ),
    (
        "graph-baked-pointer-freed",
        BUILT,
        "cuMemFree_v2 dptr=0x10000\n cuGraphLaunch hGraph=0xa00 hStream=0x300",
        &[
            "cuGraphLaunch hGraph=0xa00 hStream=0x300\n cuStreamSynchronize hStream=0x300\n\
             cuMemFree_v2 dptr=0x10000",
            // Something is allocated at that address again.
            "cuMemFree_v2 dptr=0x10000\n cuMemAlloc_v2 dptr:=0x10000 bytesize=4096\n\
             cuGraphLaunch hGraph=0xa00 hStream=0x300",
            "cuMemFree_v2 dptr=0x10000\n cuMemAlloc_v2 dptr:=0x20000 bytesize=4096\n\
             cuGraphExecMemsetNodeSetParams hGraphExec=0xa00 hNode=0x900 \
             memsetParams=[0x20000,0,0x400000000,4,1]\n\
             cuGraphLaunch hGraph=0xa00 hStream=0x300",
            "cuMemFree_v2 dptr=0x10000\n\
             cuGraphNodeSetEnabled hGraphExec=0xa00 hNode=0x900 isEnabled=0\n\
             cuGraphLaunch hGraph=0xa00 hStream=0x300",
            // Which node of the capture was changed is not recorded.
            "cuStreamBeginCapture_v2 hStream=0x300\n\
             cuMemsetD8Async dstDevice=0x10000 N=16 hStream=0x300\n\
             cuStreamEndCapture hStream=0x300 phGraph:=0x801\n\
             cuGraphInstantiateWithFlags phGraphExec:=0xa01 hGraph=0x801\n\
             cuGraphExecMemsetNodeSetParams hGraphExec=0xa01 hNode=0x901 \
             memsetParams=[0x20000,0,0x400000000,4,1]\n\
             cuMemFree_v2 dptr=0x10000\n cuGraphLaunch hGraph=0xa01 hStream=0x300",
        ],
    ),
    (
        "graph-baked-pointer-freed",
        START,
        "cuStreamBeginCapture_v2 hStream=0x300\n\
         cuLaunchKernel f=0x200 hStream=0x300 layout=8 params=0x10000\n\
         cuStreamEndCapture hStream=0x300 phGraph:=0x801\n\
         cuGraphInstantiateWithFlags phGraphExec:=0xa01 hGraph=0x801\n\
         cuMemFree_v2 dptr=0x10000\n cuGraphLaunch hGraph=0xa01 hStream=0x300",
        &[
            // Two numbers of four bytes are no pointer.
            "cuStreamBeginCapture_v2 hStream=0x300\n\
             cuLaunchKernel f=0x200 hStream=0x300 layout=4,4 params=0x10000\n\
             cuStreamEndCapture hStream=0x300 phGraph:=0x801\n\
             cuGraphInstantiateWithFlags phGraphExec:=0xa01 hGraph=0x801\n\
             cuMemFree_v2 dptr=0x10000\n cuGraphLaunch hGraph=0xa01 hStream=0x300",
        ],
    ),
    // A staging buffer in page-locked memory that is freed behind the capture
    // (PaddlePaddle/Paddle#78568 has it in pageable memory).
    (
        "graph-baked-pointer-freed",
        START,
        "cuMemAllocHost_v2 pp:=0x50000 bytesize=64\n cuStreamBeginCapture_v2 hStream=0x300\n\
         cuMemcpyHtoDAsync_v2 dstDevice=0x10000 srcHost=0x50000 ByteCount=64 hStream=0x300\n\
         cuStreamEndCapture hStream=0x300 phGraph:=0x801\n\
         cuGraphInstantiateWithFlags phGraphExec:=0xa01 hGraph=0x801\n\
         cuMemFreeHost p=0x50000\n cuGraphLaunch hGraph=0xa01 hStream=0x300",
        &[
            "cuMemAllocHost_v2 pp:=0x50000 bytesize=64\n cuStreamBeginCapture_v2 hStream=0x300\n\
             cuMemcpyHtoDAsync_v2 dstDevice=0x10000 srcHost=0x50000 ByteCount=64 hStream=0x300\n\
             cuStreamEndCapture hStream=0x300 phGraph:=0x801\n\
             cuGraphInstantiateWithFlags phGraphExec:=0xa01 hGraph=0x801\n\
             cuGraphLaunch hGraph=0xa01 hStream=0x300\n cuStreamSynchronize hStream=0x300\n\
             cuMemFreeHost p=0x50000",
            // The program has allocated other memory there before it captured.
            "cuMemAllocHost_v2 pp:=0x50000 bytesize=64\n cuMemFreeHost p=0x50000\n\
             cuStreamBeginCapture_v2 hStream=0x300\n\
             cuMemcpyHtoDAsync_v2 dstDevice=0x10000 srcHost=0x50000 ByteCount=64 hStream=0x300\n\
             cuStreamEndCapture hStream=0x300 phGraph:=0x801\n\
             cuGraphInstantiateWithFlags phGraphExec:=0xa01 hGraph=0x801\n\
             cuGraphLaunch hGraph=0xa01 hStream=0x300",
            // Memory that is no longer registered is still the program's.
            "cuMemHostRegister_v2 p=0x50000 bytesize=64\n cuStreamBeginCapture_v2 hStream=0x300\n\
             cuMemcpyHtoDAsync_v2 dstDevice=0x10000 srcHost=0x50000 ByteCount=64 hStream=0x300\n\
             cuStreamEndCapture hStream=0x300 phGraph:=0x801\n\
             cuGraphInstantiateWithFlags phGraphExec:=0xa01 hGraph=0x801\n\
             cuMemHostUnregister p=0x50000\n cuGraphLaunch hGraph=0xa01 hStream=0x300",
        ],
    ),
    // The same through the runtime, whose copies do not say which side is the host.
    (
        "graph-baked-pointer-freed",
        START,
        "cuMemHostAlloc pp:=0x50000 bytesize=64\n cuStreamBeginCapture_v2 hStream=0x300\n\
         cuMemcpyAsync dst=0x50000 src=0x10000 ByteCount=64 hStream=0x300\n\
         cuStreamEndCapture hStream=0x300 phGraph:=0x801\n\
         cuGraphInstantiateWithFlags phGraphExec:=0xa01 hGraph=0x801\n\
         cuMemFreeHost p=0x50000\n cuGraphLaunch hGraph=0xa01 hStream=0x300",
        &[],
    ),
    // Managed memory that was freed before the capture: the address may be of malloc now.
    (
        "graph-baked-pointer-freed",
        START,
        "cuMemAllocManaged dptr:=0x50000 bytesize=64 flags=1\n\
         cuStreamBeginCapture_v2 hStream=0x300\n\
         cuMemcpyAsync dst=0x10000 src=0x50000 ByteCount=64 hStream=0x300\n\
         cuStreamEndCapture hStream=0x300 phGraph:=0x801\n\
         cuGraphInstantiateWithFlags phGraphExec:=0xa01 hGraph=0x801\n\
         cuMemFree_v2 dptr=0x50000\n cuGraphLaunch hGraph=0xa01 hStream=0x300",
        &[
            "cuMemAllocManaged dptr:=0x50000 bytesize=64 flags=1\n cuMemFree_v2 dptr=0x50000\n\
             cuStreamBeginCapture_v2 hStream=0x300\n\
             cuMemcpyAsync dst=0x10000 src=0x50000 ByteCount=64 hStream=0x300\n\
             cuStreamEndCapture hStream=0x300 phGraph:=0x801\n\
             cuGraphInstantiateWithFlags phGraphExec:=0xa01 hGraph=0x801\n\
             cuGraphLaunch hGraph=0xa01 hStream=0x300",
            "cuMemAllocManaged dptr:=0x50000 bytesize=64 flags=1\n cuMemFree_v2 dptr=0x50000\n\
             cuStreamBeginCapture_v2 hStream=0x300\n\
             cuMemcpyHtoDAsync_v2 dstDevice=0x10000 srcHost=0x50000 ByteCount=64 hStream=0x300\n\
             cuStreamEndCapture hStream=0x300 phGraph:=0x801\n\
             cuGraphInstantiateWithFlags phGraphExec:=0xa01 hGraph=0x801\n\
             cuGraphLaunch hGraph=0xa01 hStream=0x300",
        ],
    ),
    // Other memory at the address of freed page-locked memory, which the node was given since.
    (
        "graph-baked-pointer-freed",
        STAGED,
        "cuMemFreeHost p=0x50000\n cuGraphLaunch hGraph=0xa00 hStream=0x300",
        &[
            "cuMemFreeHost p=0x50000\n\
             cuGraphExecMemcpyNodeSetParams hGraphExec=0xa00 hNode=0x900 copyParams=[0*4,1,0x50000,0*3,64,1,0*4,2,0,0x10000,0,0,64,1,64,1,1]\n\
             cuGraphLaunch hGraph=0xa00 hStream=0x300",
            "cuMemFreeHost p=0x50000\n\
             cuGraphMemcpyNodeSetParams hNode=0x900 nodeParams=[0*4,1,0x50000,0*3,64,1,0*4,2,0,0x10000,0,0,64,1,64,1,1]\n\
             cuGraphExecUpdate_v2 hGraphExec=0xa00 hGraph=0x800\n\
             cuGraphLaunch hGraph=0xa00 hStream=0x300",
        ],
    ),
    (
        "graph-baked-module-unloaded",
        START,
        "cuStreamBeginCapture_v2 hStream=0x300\n cuLaunchKernel f=0x200 hStream=0x300\n\
         cuStreamEndCapture hStream=0x300 phGraph:=0x801\n\
         cuGraphInstantiateWithFlags phGraphExec:=0xa01 hGraph=0x801\n\
         cuModuleUnload hmod=0x100\n cuGraphLaunch hGraph=0xa01 hStream=0x300",
        &[
            "cuStreamBeginCapture_v2 hStream=0x300\n cuLaunchKernel f=0x200 hStream=0x300\n\
             cuStreamEndCapture hStream=0x300 phGraph:=0x801\n\
             cuGraphInstantiateWithFlags phGraphExec:=0xa01 hGraph=0x801\n\
             cuGraphLaunch hGraph=0xa01 hStream=0x300\n cuStreamSynchronize hStream=0x300\n\
             cuGraphExecDestroy hGraphExec=0xa01\n cuModuleUnload hmod=0x100",
        ],
    ),
    (
        "graph-baked-module-unloaded",
        START,
        "cuStreamBeginCapture_v2 hStream=0x300\n cuLaunchKernel f=0x200 hStream=0x300\n\
         cuModuleUnload hmod=0x100 -> 900\n cuStreamEndCapture hStream=0x300 -> 901",
        &[
            // Another module is unloaded.
            "cuModuleLoadData module:=0x101 image@0x5000:PTX_OTHER\n\
             cuStreamBeginCapture_v2 hStream=0x300\n cuLaunchKernel f=0x200 hStream=0x300\n\
             cuModuleUnload hmod=0x101\n cuStreamEndCapture hStream=0x300 phGraph:=0x801",
            "cuStreamBeginCapture_v2 hStream=0x300\n cuLaunchKernel f=0x200 hStream=0x300\n\
             cuStreamEndCapture hStream=0x300 phGraph:=0x801\n cuModuleUnload hmod=0x100",
        ],
    ),
    (
        "graph-memory-node-restrictions",
        START,
        "cuGraphCreate phGraph:=0x800\n cuGraphAddMemAllocNode phGraphNode:=0x900 hGraph=0x800 \
         nodeParams:=[0*13,4096,0x80000]\n\
         cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800\n\
         cuGraphInstantiateWithFlags phGraphExec:=0 hGraph=0x800 -> 801",
        &[
            "cuGraphCreate phGraph:=0x800\n cuGraphAddMemAllocNode phGraphNode:=0x900 \
             hGraph=0x800 nodeParams:=[0*13,4096,0x80000]\n\
             cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800\n\
             cuGraphExecDestroy hGraphExec=0xa00\n\
             cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800",
        ],
    ),
    (
        "graph-memory-node-restrictions",
        START,
        "cuGraphCreate phGraph:=0x800\n cuGraphAddMemAllocNode phGraphNode:=0x900 hGraph=0x800 \
         nodeParams:=[0*13,4096,0x80000]\n cuGraphClone phGraphClone:=0 originalGraph=0x800 -> 801",
        &[],
    ),
    (
        "graph-memory-node-restrictions",
        START,
        "cuGraphCreate phGraph:=0x800\n cuGraphAddMemAllocNode phGraphNode:=0x900 hGraph=0x800 \
         nodeParams:=[0*13,4096,0x80000]\n cuGraphDestroyNode hNode=0x900 -> 801",
        &[],
    ),
    (
        "graph-relaunch-unfreed-allocation",
        START,
        "cuGraphCreate phGraph:=0x800\n cuGraphAddMemAllocNode phGraphNode:=0x900 hGraph=0x800 \
         nodeParams:=[0*13,4096,0x80000]\n\
         cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800\n\
         cuGraphLaunch hGraph=0xa00 hStream=0x300\n cuGraphLaunch hGraph=0xa00 hStream=0x300 -> 1",
        &[
            "cuGraphCreate phGraph:=0x800\n cuGraphAddMemAllocNode phGraphNode:=0x900 \
             hGraph=0x800 nodeParams:=[0*13,4096,0x80000]\n\
             cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800\n\
             cuGraphLaunch hGraph=0xa00 hStream=0x300\n\
             cuMemFreeAsync dptr=0x80000 hStream=0x300\n cuGraphLaunch hGraph=0xa00 hStream=0x300",
        ],
    ),
    (
        "graph-allocation-lifetime",
        START,
        "cuGraphCreate phGraph:=0x800\n cuGraphAddMemAllocNode phGraphNode:=0x900 hGraph=0x800 \
         nodeParams:=[0*13,4096,0x80000]\n\
         cuGraphAddMemFreeNode phGraphNode:=0x901 hGraph=0x800 dependencies=[0x900] \
         numDependencies=1 dptr=0x80000\n\
         cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800\n\
         cuGraphLaunch hGraph=0xa00 hStream=0x300\n\
         cuMemsetD8Async dstDevice=0x80010 N=16 hStream=0x300 -> 1",
        &[
            "cuGraphCreate phGraph:=0x800\n cuGraphAddMemAllocNode phGraphNode:=0x900 \
             hGraph=0x800 nodeParams:=[0*13,4096,0x80000]\n\
             cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800\n\
             cuGraphLaunch hGraph=0xa00 hStream=0x300\n\
             cuMemsetD8Async dstDevice=0x80010 N=16 hStream=0x300\n\
             cuMemFreeAsync dptr=0x80000 hStream=0x300",
        ],
    ),
    // The free has no path from the memset: demand 5.
    (
        "graph-allocation-lifetime",
        START,
        "cuGraphCreate phGraph:=0x800\n cuGraphAddMemAllocNode phGraphNode:=0x900 hGraph=0x800 \
         nodeParams:=[0*13,4096,0x80000]\n\
         cuGraphAddMemsetNode phGraphNode:=0x901 hGraph=0x800 dependencies=[0x900] \
         numDependencies=1 memsetParams=[0x80000,0,0x400000000,4,1]\n\
         cuGraphAddMemFreeNode phGraphNode:=0x902 hGraph=0x800 dependencies=[0x900] \
         numDependencies=1 dptr=0x80000\n\
         cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800",
        &[
            "cuGraphCreate phGraph:=0x800\n cuGraphAddMemAllocNode phGraphNode:=0x900 \
             hGraph=0x800 nodeParams:=[0*13,4096,0x80000]\n\
             cuGraphAddMemsetNode phGraphNode:=0x901 hGraph=0x800 dependencies=[0x900] \
             numDependencies=1 memsetParams=[0x80000,0,0x400000000,4,1]\n\
             cuGraphAddEmptyNode phGraphNode:=0x903 hGraph=0x800 dependencies=[0x901] \
             numDependencies=1\n\
             cuGraphAddMemFreeNode phGraphNode:=0x902 hGraph=0x800 dependencies=[0x903] \
             numDependencies=1 dptr=0x80000\n\
             cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800",
            // The edge is added afterwards.
            "cuGraphCreate phGraph:=0x800\n cuGraphAddMemAllocNode phGraphNode:=0x900 \
             hGraph=0x800 nodeParams:=[0*13,4096,0x80000]\n\
             cuGraphAddMemsetNode phGraphNode:=0x901 hGraph=0x800 dependencies=[0x900] \
             numDependencies=1 memsetParams=[0x80000,0,0x400000000,4,1]\n\
             cuGraphAddMemFreeNode phGraphNode:=0x902 hGraph=0x800 dependencies=[0x900] \
             numDependencies=1 dptr=0x80000\n\
             cuGraphAddDependencies hGraph=0x800 from=[0x901] to=[0x902] numDependencies=1\n\
             cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800",
        ],
    ),
    // A kernel gets an address of memory that the graph allocates after it; the control gets the end
    // of its own.
    (
        "graph-allocation-lifetime",
        START,
        "cuStreamBeginCapture_v2 hStream=0x300\n\
         cuMemAllocAsync dptr:=0x80000 bytesize=4096 hStream=0x300\n\
         cuLaunchKernel f=0x200 hStream=0x300 layout=8,8 params=0x80000,0x81010\n\
         cuMemAllocAsync dptr:=0x81000 bytesize=4096 hStream=0x300\n\
         cuMemFreeAsync dptr=0x81000 hStream=0x300\n cuMemFreeAsync dptr=0x80000 hStream=0x300\n\
         cuStreamEndCapture hStream=0x300 phGraph:=0x800\n\
         cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800",
        &["cuStreamBeginCapture_v2 hStream=0x300\n\
           cuMemAllocAsync dptr:=0x80000 bytesize=4096 hStream=0x300\n\
           cuLaunchKernel f=0x200 hStream=0x300 layout=8,8 params=0x80000,0x81000\n\
           cuMemAllocAsync dptr:=0x81000 bytesize=4096 hStream=0x300\n\
           cuMemFreeAsync dptr=0x81000 hStream=0x300\n\
           cuMemFreeAsync dptr=0x80000 hStream=0x300\n\
           cuStreamEndCapture hStream=0x300 phGraph:=0x800\n\
           cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800"],
    ),
    // The address of memory that a node has freed is given to the next allocation of the graph.
    (
        "graph-allocation-lifetime",
        REALLOCATED,
        "cuGraphAddMemFreeNode phGraphNode:=0x905 hGraph=0x800 dependencies=[0x903] \
         numDependencies=1 dptr=0x80000\n\
         cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800",
        &[
            "cuGraphAddMemFreeNode phGraphNode:=0x905 hGraph=0x800 dependencies=[0x904] \
             numDependencies=1 dptr=0x80000\n\
             cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800",
            // The second one is used and freed after the launch.
            "cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800\n\
             cuGraphLaunch hGraph=0xa00 hStream=0x300\n\
             cuMemsetD8Async dstDevice=0x80010 N=16 hStream=0x300\n\
             cuMemFreeAsync dptr=0x80000 hStream=0x300\n\
             cuGraphLaunch hGraph=0xa00 hStream=0x300",
            // A node that was added last uses the first one.
            "cuGraphAddMemsetNode phGraphNode:=0x906 hGraph=0x800 dependencies=[0x900] \
             numDependencies=1 memsetParams=[0x80000,0,0x400000000,4,1]\n\
             cuGraphAddDependencies hGraph=0x800 from=[0x906] to=[0x902] numDependencies=1\n\
             cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800",
            // In a capture.
            "cuStreamBeginCapture_v2 hStream=0x300\n\
             cuMemAllocAsync dptr:=0x90000 bytesize=4096 hStream=0x300\n\
             cuLaunchKernel f=0x200 hStream=0x300 layout=8 params=0x90000\n\
             cuMemFreeAsync dptr=0x90000 hStream=0x300\n\
             cuMemAllocAsync dptr:=0x90000 bytesize=8192 hStream=0x300\n\
             cuLaunchKernel f=0x200 hStream=0x300 layout=8 params=0x90100\n\
             cuMemFreeAsync dptr=0x90000 hStream=0x300\n\
             cuStreamEndCapture hStream=0x300 phGraph:=0x801\n\
             cuGraphInstantiateWithFlags phGraphExec:=0xa01 hGraph=0x801",
        ],
    ),
    (
        "graph-allocation-lifetime",
        REALLOCATED,
        "cuGraphAddMemsetNode phGraphNode:=0x906 hGraph=0x800 dependencies=[0x900] \
         numDependencies=1 memsetParams=[0x80000,0,0x400000000,4,1]\n\
         cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800",
        &[],
    ),
    (
        "graph-relaunch-unfreed-allocation",
        REALLOCATED,
        "cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800\n\
         cuGraphLaunch hGraph=0xa00 hStream=0x300\n cuGraphLaunch hGraph=0xa00 hStream=0x300 -> 1",
        &[],
    ),
    // The same in a capture with two streams, of which one is not joined before the free.
    (
        "graph-allocation-lifetime",
        BUILT,
        "cuStreamBeginCapture_v2 hStream=0x300\n\
         cuMemAllocAsync dptr:=0x80000 bytesize=4096 hStream=0x300\n\
         cuEventRecord hEvent=0x400 hStream=0x300\n cuStreamWaitEvent hStream=0x301 hEvent=0x400\n\
         cuLaunchKernel f=0x200 hStream=0x301 layout=8 params=0x80000\n\
         cuMemFreeAsync dptr=0x80000 hStream=0x300\n\
         cuEventRecord hEvent=0x401 hStream=0x301\n cuStreamWaitEvent hStream=0x300 hEvent=0x401\n\
         cuStreamEndCapture hStream=0x300 phGraph:=0x801\n\
         cuGraphInstantiateWithFlags phGraphExec:=0xa01 hGraph=0x801",
        &[
            "cuStreamBeginCapture_v2 hStream=0x300\n\
             cuMemAllocAsync dptr:=0x80000 bytesize=4096 hStream=0x300\n\
             cuEventRecord hEvent=0x400 hStream=0x300\n\
             cuStreamWaitEvent hStream=0x301 hEvent=0x400\n\
             cuLaunchKernel f=0x200 hStream=0x301 layout=8 params=0x80000\n\
             cuEventRecord hEvent=0x401 hStream=0x301\n\
             cuStreamWaitEvent hStream=0x300 hEvent=0x401\n\
             cuMemFreeAsync dptr=0x80000 hStream=0x300\n\
             cuStreamEndCapture hStream=0x300 phGraph:=0x801\n\
             cuGraphInstantiateWithFlags phGraphExec:=0xa01 hGraph=0x801",
            // The program says itself what the next work depends on.
            "cuStreamBeginCapture_v2 hStream=0x300\n\
             cuMemAllocAsync dptr:=0x80000 bytesize=4096 hStream=0x300\n\
             cuEventRecord hEvent=0x400 hStream=0x300\n\
             cuStreamWaitEvent hStream=0x301 hEvent=0x400\n\
             cuLaunchKernel f=0x200 hStream=0x301 layout=8 params=0x80000\n\
             cuStreamUpdateCaptureDependencies hStream=0x300 dependencies=[0x990] \
             numDependencies=1\n\
             cuMemFreeAsync dptr=0x80000 hStream=0x300\n\
             cuEventRecord hEvent=0x401 hStream=0x301\n\
             cuStreamWaitEvent hStream=0x300 hEvent=0x401\n\
             cuStreamEndCapture hStream=0x300 phGraph:=0x801\n\
             cuGraphInstantiateWithFlags phGraphExec:=0xa01 hGraph=0x801",
        ],
    ),
    (
        "graph-update-incompatible",
        BUILT,
        "cuGraphCreate phGraph:=0x801\n cuGraphExecUpdate_v2 hGraphExec=0xa00 hGraph=0x801 -> 910\n\
         cuGraphLaunch hGraph=0xa00 hStream=0x300",
        &[
            "cuGraphCreate phGraph:=0x801\n\
             cuGraphExecUpdate_v2 hGraphExec=0xa00 hGraph=0x801 -> 910\n\
             cuGraphExecDestroy hGraphExec=0xa00\n\
             cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x801\n\
             cuGraphLaunch hGraph=0xa00 hStream=0x300",
            "cuGraphCreate phGraph:=0x801\n\
             cuGraphExecUpdate_v2 hGraphExec=0xa00 hGraph=0x801 -> 910\n\
             cuGraphExecUpdate_v2 hGraphExec=0xa00 hGraph=0x800\n\
             cuGraphLaunch hGraph=0xa00 hStream=0x300",
        ],
    ),
    (
        "graph-device-launch-restrictions",
        START,
        "cuGraphCreate phGraph:=0x800\n cuGraphAddHostNode phGraphNode:=0x900 hGraph=0x800\n\
         cuGraphInstantiateWithFlags phGraphExec:=0 hGraph=0x800 flags=4 -> 1",
        &[
            "cuGraphCreate phGraph:=0x800\n cuGraphAddHostNode phGraphNode:=0x900 hGraph=0x800\n\
             cuGraphInstantiateWithFlags phGraphExec:=0xa00 hGraph=0x800",
        ],
    ),
    (
        "graph-device-launch-restrictions",
        BUILT,
        "cuGraphInstantiateWithFlags phGraphExec:=0 hGraph=0x800 flags=5 -> 1",
        &[],
    ),
    (
        "graph-device-updatable-restrictions",
        BUILT,
        "cuGraphCreate phGraph:=0x801\n\
         cuGraphAddKernelNode_v2 phGraphNode:=0x901 hGraph=0x801 nodeParams=[0x200,0*8]\n\
         cuGraphKernelNodeSetAttribute hNode=0x901 attr=13 value=[1,0]\n\
         cuGraphInstantiateWithFlags phGraphExec:=0xa01 hGraph=0x801\n\
         cuGraphInstantiateWithFlags phGraphExec:=0 hGraph=0x801 -> 801",
        &["cuGraphCreate phGraph:=0x801\n\
             cuGraphAddKernelNode_v2 phGraphNode:=0x901 hGraph=0x801 nodeParams=[0x200,0*8]\n\
             cuGraphKernelNodeSetAttribute hNode=0x901 attr=13 value=[1,0]\n\
             cuGraphInstantiateWithFlags phGraphExec:=0xa01 hGraph=0x801\n\
             cuGraphUpload hGraph=0xa01 hStream=0x300\n\
             cuGraphLaunch hGraph=0xa01 hStream=0x300"],
    ),
    (
        "graph-device-updatable-restrictions",
        BUILT,
        "cuGraphCreate phGraph:=0x801\n\
         cuGraphAddKernelNode_v2 phGraphNode:=0x901 hGraph=0x801 nodeParams=[0x200,0*8]\n\
         cuGraphKernelNodeSetAttribute hNode=0x901 attr=13 value=[1,0]\n\
         cuGraphInstantiateWithFlags phGraphExec:=0xa01 hGraph=0x801\n\
         cuGraphLaunch hGraph=0xa01 hStream=0x300",
        &[],
    ),
    (
        "graph-device-updatable-restrictions",
        BUILT,
        "cuGraphCreate phGraph:=0x801\n\
         cuGraphAddKernelNode_v2 phGraphNode:=0x901 hGraph=0x801 nodeParams=[0x200,0*8]\n\
         cuGraphKernelNodeSetAttribute hNode=0x901 attr=13 value=[1,0]\n\
         cuGraphDestroyNode hNode=0x901 -> 801",
        &[],
    ),
    (
        "graph-structure-invalid",
        BUILT,
        "cuGraphAddEmptyNode phGraphNode:=0 hGraph=0x800 dependencies=[0x900,0x900] \
         numDependencies=2 -> 1",
        &[
            "cuGraphAddEmptyNode phGraphNode:=0x901 hGraph=0x800 dependencies=[0x900] \
             numDependencies=1",
        ],
    ),
    (
        "graph-structure-invalid",
        BUILT,
        "cuGraphCreate phGraph:=0x801\n\
         cuGraphAddEmptyNode phGraphNode:=0 hGraph=0x801 dependencies=[0x900] numDependencies=1 \
         -> 1",
        &[],
    ),
    (
        "graph-structure-invalid",
        BUILT,
        "cuGraphAddEmptyNode phGraphNode:=0x901 hGraph=0x800\n\
         cuGraphRemoveDependencies hGraph=0x800 from=[0x900] to=[0x901] numDependencies=1 -> 1",
        &[
            "cuGraphAddEmptyNode phGraphNode:=0x901 hGraph=0x800 dependencies=[0x900] \
             numDependencies=1\n\
             cuGraphRemoveDependencies hGraph=0x800 from=[0x900] to=[0x901] numDependencies=1",
        ],
    ),
    (
        "graph-structure-invalid",
        BUILT,
        "cuGraphAddEmptyNode phGraphNode:=0x901 hGraph=0x800 dependencies=[0x900] \
         numDependencies=1\n\
         cuGraphAddDependencies hGraph=0x800 from=[0x901] to=[0x900] numDependencies=1\n\
         cuGraphInstantiateWithFlags phGraphExec:=0 hGraph=0x800 -> 1",
        &[],
    ),
    (
        "graph-structure-invalid",
        BUILT,
        "cuGraphAddMemsetNode phGraphNode:=0 hGraph=0x800 \
         memsetParams=[0x10000,0,0x300000000,4,1] -> 1",
        &[],
    ),
    (
        "graph-user-object-references",
        BUILT,
        "cuUserObjectCreate object_out:=0xb00 initialRefcount=1 flags=1\n\
         cuGraphRetainUserObject graph=0x800 object=0xb00 count=1 flags=1\n\
         cuUserObjectRelease object=0xb00 count=1",
        &[
            "cuUserObjectCreate object_out:=0xb00 initialRefcount=1 flags=1\n\
             cuGraphRetainUserObject graph=0x800 object=0xb00 count=1\n\
             cuUserObjectRelease object=0xb00 count=1",
            "cuUserObjectCreate object_out:=0xb00 initialRefcount=1 flags=1\n\
             cuUserObjectRetain object=0xb00 count=2\n\
             cuGraphRetainUserObject graph=0x800 object=0xb00 count=2 flags=1\n\
             cuUserObjectRelease object=0xb00 count=1",
        ],
    ),
    (
        "graph-user-object-references",
        BUILT,
        "cuUserObjectCreate object_out:=0 initialRefcount=1 flags=0 -> 1",
        &[],
    ),
];
