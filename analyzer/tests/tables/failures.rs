//! Calls that fail, and what programs do with the output that they did not write.

use super::{Row, START};

/// A link state.
const LINK: &str = "
    cuCtxCreate_v2 pctx:=0xc1 dev=0
    cuLinkCreate_v2 stateOut:=0x600
";

pub(crate) const FAILURES: &[Row] = &[
    // A load that fails, and all that the program does with it.
    (
        "module-no-binary-for-device",
        START,
        "cuModuleLoadData module:=0 image@0x5100:CUBIN75 -> 209\n\
         cuModuleGetFunction hfunc:=0 hmod=0 name=\"k\" -> 400\n\
         cuModuleGetGlobal_v2 dptr:=0 bytes:=0 hmod=0 name=\"g\" -> 400\n\
         cuMemcpyHtoD_v2 dstDevice=0 ByteCount=4 -> 1\n cuLaunchKernel f=0 -> 400\n\
         cuModuleUnload hmod=0 -> 400",
        &[],
    ),
    // The driver looks at the code when it is needed.
    (
        "module-no-binary-for-device",
        START,
        "cuLibraryLoadData library:=0x700 code@0x5100:CUBIN75\n\
         cuLibraryGetKernel pKernel:=0 library=0x700 name=\"k\" -> 209\n\
         cuLaunchKernel f=0 -> 400\n cuLibraryUnload library=0x700",
        &["cuLibraryLoadData library:=0x700 code@0x5100:CUBIN\n\
           cuLibraryGetKernel pKernel:=0x710 library=0x700 name=\"k\"\n\
           cuLibraryUnload library=0x700"],
    ),
    (
        "module-ptx-jit-failure",
        START,
        "cuLibraryLoadData library:=0x700 code@0x5100:PTX_FUTURE\n\
         cuLibraryGetKernel pKernel:=0x710 library=0x700 name=\"k\"\n\
         cuKernelGetFunction pFunc:=0 kernel=0x710 -> 222\n cuLaunchKernel f=0 -> 400\n\
         cuLibraryUnload library=0x700",
        &["cuLibraryLoadData library:=0x700 code@0x5100:PTX\n\
           cuLibraryGetKernel pKernel:=0x710 library=0x700 name=\"k\"\n\
           cuKernelGetFunction pFunc:=0x720 kernel=0x710\n cuLibraryUnload library=0x700"],
    ),
    // A link goes on without an input.
    (
        "module-ptx-jit-failure",
        LINK,
        "cuLinkAddData_v2 state=0x600 type=1 data@0x5000:PTX_FUTURE -> 222\n\
         cuLinkComplete state=0x600 cubinOut:=0x30000 sizeOut:=4000\n\
         cuModuleLoadData module:=0x100 image@0x30000:CUBIN\n\
         cuModuleGetFunction hfunc:=0 hmod=0x100 name=\"late\" -> 500\n\
         cuLaunchKernel f=0 -> 400\n cuLinkDestroy state=0x600",
        &[],
    ),
    (
        "errors-result-ignored",
        LINK,
        "cuLinkAddData_v2 state=0x600 type=1 data@0x5000:PTX -> 999\n\
         cuLinkComplete state=0x600 cubinOut:=0x30000 sizeOut:=4000\n\
         cuModuleLoadData module:=0x100 image@0x30000:CUBIN\n\
         cuModuleGetFunction hfunc:=0 hmod=0x100 name=\"late\" -> 500\n\
         cuLaunchKernel f=0 -> 400\n cuLinkDestroy state=0x600",
        &[
            // Another input took its place, and a name is optional.
            "cuLinkAddData_v2 state=0x600 type=1 data@0x5100:PTX -> 999\n\
             cuLinkAddData_v2 state=0x600 type=1 data@0x5000:PTX\n\
             cuLinkComplete state=0x600 cubinOut:=0x30000 sizeOut:=4000\n\
             cuModuleLoadData module:=0x100 image@0x30000:CUBIN\n\
             cuModuleGetFunction hfunc:=0 hmod=0x100 name=\"late\" -> 500\n\
             cuLinkDestroy state=0x600",
            // The library is not needed: what is launched is found.
            "cuLinkAddData_v2 state=0x600 type=1 data@0x5000:PTX\n\
             cuLinkAddFile_v2 state=0x600 type=3 path=\"libextra.a\" -> 999\n\
             cuLinkComplete state=0x600 cubinOut:=0x30000 sizeOut:=4000\n\
             cuModuleLoadData module:=0x100 image@0x30000:CUBIN\n\
             cuModuleGetFunction hfunc:=0 hmod=0x100 name=\"late\" -> 500\n\
             cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"\n\
             cuLaunchKernel f=0x200\n cuCtxSynchronize\n cuLinkDestroy state=0x600",
        ],
    ),
    (
        "errors-result-ignored",
        LINK,
        "cuLinkAddData_v2 state=0x600 type=1 data@0x5000:PTX -> 999\n\
         cuLinkComplete state=0x600 cubinOut:=0 sizeOut:=0 -> 999\n\
         cuModuleLoadData module:=0 image=0 -> 1\n\
         cuModuleGetFunction hfunc:=0 hmod=0 name=\"late\" -> 400\n\
         cuLaunchKernel f=0 -> 400\n cuLinkDestroy state=0x600",
        &[
            "cuLinkAddData_v2 state=0x600 type=1 data@0x5000:PTX -> 999\n\
             cuLinkDestroy state=0x600",
        ],
    ),
    (
        "errors-result-ignored",
        LINK,
        "cuLinkComplete state=0x600 cubinOut:=0 sizeOut:=0 -> 999\n\
         cuModuleLoadData module:=0 image=0 -> 1\n cuLinkDestroy state=0x600",
        &["cuLinkComplete state=0x600 cubinOut:=0 sizeOut:=0 -> 999\n\
           cuModuleLoadData module:=0x100 image@0x5100:CUBIN\n cuLinkDestroy state=0x600"],
    ),
    // Lookups.
    (
        "module-symbol-not-found",
        START,
        "cuModuleGetFunction hfunc:=0 hmod=0x100 name=\"scale\" -> 500\n meta exit.status 1",
        &[
            "cuModuleGetFunction hfunc:=0 hmod=0x100 name=\"scale\" -> 500\n\
             cuModuleGetFunction hfunc:=0x201 hmod=0x100 name=\"_Z5scalePf\"\n meta exit.status 1",
            "cuModuleGetFunction hfunc:=0x201 hmod=0x100 name=\"_Z5scalePf\"\n\
             cuModuleGetFunction hfunc:=0 hmod=0x100 name=\"scale\" -> 500\n meta exit.status 1",
            // Nothing resembles it.
            "cuModuleGetFunction hfunc:=0 hmod=0x100 name=\"absent\" -> 500\n meta exit.status 1",
            // Not the same name.
            "cuModuleGetFunction hfunc:=0 hmod=0x100 name=\"scal\" -> 500\n meta exit.status 1",
        ],
    ),
    (
        "module-symbol-not-found",
        START,
        "cuLibraryLoadData library:=0x700 code@0x5000:PTX\n\
         cuLibraryGetKernel pKernel:=0 library=0x700 name=\"_Z5scalePd\" -> 500\n\
         cuLibraryUnload library=0x700\n meta exit.status 0",
        &[],
    ),
    // A suffix for the arguments that a kernel is compiled for, and one that is part of the name.
    (
        "module-symbol-not-found",
        START,
        "cuModuleLoadData module:=0x101 image@0x6000:PTX_SUFFIXED\n\
         cuModuleGetFunction hfunc:=0 hmod=0x101 name=\"matmul\" -> 500\n meta exit.status 1",
        &[
            "cuModuleLoadData module:=0x101 image@0x6000:PTX_SUFFIXED\n\
             cuModuleGetFunction hfunc:=0 hmod=0x101 name=\"matmul\" -> 500\n\
             cuModuleGetFunction hfunc:=0x201 hmod=0x101 name=\"matmul_0d1d2d\"\n\
             meta exit.status 1",
            "cuModuleLoadData module:=0x101 image@0x6000:PTX_SUFFIXED\n\
             cuModuleGetFunction hfunc:=0 hmod=0x101 name=\"scan\" -> 500\n meta exit.status 1",
            // The program looks for one specialisation and has another.
            "cuModuleLoadData module:=0x101 image@0x6000:PTX_SUFFIXED\n\
             cuModuleGetFunction hfunc:=0 hmod=0x101 name=\"matmul_0d1d2d3d\" -> 500\n\
             meta exit.status 1",
        ],
    ),
    // A launch of another function shows that it is optional, unless it is used.
    (
        "module-symbol-not-found",
        START,
        "cuModuleGetFunction hfunc:=0 hmod=0x100 name=\"scale\" -> 500\n\
         cuLaunchKernel f=0x200\n cuLaunchKernel f=0 -> 400\n cuCtxSynchronize",
        &[],
    ),
    (
        "module-symbol-not-found",
        START,
        "cuModuleGetGlobal_v2 dptr:=0 bytes:=0 hmod=0x100 name=\"absent\" -> 500\n\
         cuMemcpyHtoD_v2 dstDevice=0 ByteCount=4 -> 1\n\
         cuMemcpyDtoH_v2 srcDevice=0 ByteCount=4 -> 1",
        &[
            "cuModuleGetGlobal_v2 dptr:=0 bytes:=0 hmod=0x100 name=\"absent\" -> 500\n\
           cuMemcpyHtoD_v2 dstDevice=0x10000 ByteCount=4",
        ],
    ),
    // A capture: the first call that breaks it leads.
    (
        "stream-capture-forbidden-call",
        START,
        "cuStreamBeginCapture_v2 hStream=0x300 mode=0\n\
         cuMemAlloc_v2 dptr:=0 bytesize=64 -> 900\n\
         cuLaunchKernel f=0x200 hStream=0x300 -> 901\n cuMemFree_v2 dptr=0 -> 900\n\
         cuStreamSynchronize hStream=0x300 -> 900\n\
         cuStreamEndCapture hStream=0x300 phGraph:=0 -> 901\n\
         cuGraphInstantiateWithFlags phGraphExec:=0 hGraph=0 -> 1\n\
         cuGraphLaunch hGraph=0 hStream=0x300 -> 1",
        &[],
    ),
    // A graph.
    (
        "errors-result-ignored",
        START,
        "cuGraphCreate phGraph:=0x900\n\
         cuGraphInstantiateWithFlags phGraphExec:=0 hGraph=0x900 -> 2\n\
         cuGraphLaunch hGraph=0 hStream=0x300 -> 1\n cuGraphLaunch hGraph=0 hStream=0x300 -> 1\n\
         cuGraphExecDestroy hGraphExec=0 -> 1",
        &[],
    ),
    // Allocations.
    (
        "errors-result-ignored",
        START,
        "cuMemCreate handle@0x8000:=0 size=2097152 -> 2\n\
         cuMemAddressReserve ptr:=0x4000000 size=2097152\n\
         cuMemMap ptr=0x4000000 size=2097152 handle=0 -> 1",
        &["cuMemCreate handle@0x8000:=0 size=2097152 -> 2\n\
           cuMemCreate handle:=0x900 size=2097152\n cuMemRelease handle=0x900"],
    ),
    // An allocation that failed, and calls that fail for another reason.
    (
        "errors-result-ignored",
        START,
        "cuMemAlloc_v2 dptr:=0 bytesize=0x1000000000 -> 2\n\
         cuMemcpyAsync dst=0x10000 src=0 ByteCount=64 hStream=0x300 -> 1",
        &[
            "cuMemAlloc_v2 dptr:=0 bytesize=0x1000000000 -> 2\n cuLaunchKernel f=0x200\n\
             cuMemcpyAsync dst=0x10000 src=0x7f0000000000 ByteCount=64 hStream=0x300 -> 700",
            "cuCtxCreate_v2 pctx:=0 dev=1 -> 101\n cuCtxGetApiVersion ctx=0 -> 1",
        ],
    ),
    // The context is retained in its place.
    (
        "errors-result-ignored",
        START,
        "cuCtxCreate_v2 pctx:=0 dev=0 -> 101\n cuCtxPushCurrent_v2 ctx=0xdead -> 201",
        &[
            "cuCtxCreate_v2 pctx:=0 dev=0 -> 101\n cuDevicePrimaryCtxRetain pctx:=0xc7 dev=0\n\
             cuCtxPushCurrent_v2 ctx=0 -> 1\n cuDevicePrimaryCtxRelease_v2 dev=0",
        ],
    ),
    (
        "errors-result-ignored",
        START,
        "cuGraphCreate phGraph:=0x900\n\
         cuGraphAddMemsetNode phGraphNode:=0 hGraph=0x900 -> 999\n\
         cuGraphNodeGetType hNode=0 -> 1",
        &[],
    ),
];
