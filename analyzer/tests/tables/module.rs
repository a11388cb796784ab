//! Modules.

use super::{Row, START};

pub(crate) const MODULE: &[Row] = &[
    (
        "module-live-growth",
        START,
        "loop 40 cuModuleLoadData module:=0x$0000000 image@0x6000:PTX_OTHER",
        &[
            "loop 7 cuModuleLoadData module:=0x$0000000 image@0x6000:PTX_OTHER; \
             cuModuleUnload hmod=0x$0000000",
            "loop 7 cuModuleLoadData module:=0x$0000000 image@0x6000:PTX_OTHER\n\
             loop 7 cuModuleLoadData module:=0x$00000000 image@0x6000:CUBIN",
        ],
    ),
    // Each round compiles another image, runs it, and forgets it.
    (
        "module-live-growth",
        START,
        "loop 70 cuModuleLoadData module:=0x$0000000 image@0x6000:PTX_ROUND_$; \
         cuModuleGetFunction hfunc:=0x$1000000 hmod=0x$0000000 name=\"k\"; \
         cuLaunchKernel f=0x$1000000; cuCtxSynchronize",
        &[
            // A cache.
            "loop 70 cuModuleLoadData module:=0x$0000000 image@0x6000:PTX_ROUND_$; \
             cuModuleGetFunction hfunc:=0x$1000000 hmod=0x$0000000 name=\"k\"; \
             cuLaunchKernel f=0x$1000000; cuCtxSynchronize\n\
             cuLaunchKernel f=0x31000000\n cuCtxSynchronize",
            "loop 20 cuModuleLoadData module:=0x$0000000 image@0x6000:PTX_ROUND_$; \
             cuModuleGetFunction hfunc:=0x$1000000 hmod=0x$0000000 name=\"k\"; \
             cuLaunchKernel f=0x$1000000; cuCtxSynchronize",
        ],
    ),
    (
        "module-live-growth",
        START,
        "loop 12 cuModuleLoadData module:=0x$0000000 image@0x6000:PTX_OTHER",
        &[],
    ),
    (
        "module-use-after-unload",
        START,
        "cuModuleUnload hmod=0x100\n cuModuleGetFunction hfunc:=0x201 hmod=0x100 name=\"k\" -> 400",
        &[
            "cuModuleUnload hmod=0x100\n cuModuleLoadData module:=0x100 image@0x5000:PTX\n \
           cuModuleGetFunction hfunc:=0x201 hmod=0x100 name=\"k\"",
        ],
    ),
    (
        "module-double-unload",
        START,
        "cuModuleUnload hmod=0x100\n cuModuleUnload hmod=0x100 -> 400",
        &[
            "cuModuleLoadData module:=0x101 image@0x5000:PTX\n cuModuleUnload hmod=0x100\n\
             cuModuleUnload hmod=0x101",
            // An unload that failed has unloaded nothing.
            "cuModuleUnload hmod=0x100 -> 201\n cuModuleUnload hmod=0x100",
        ],
    ),
    (
        "module-double-unload",
        START,
        "cuModuleUnload hmod=0 -> 400",
        &["cuModuleUnload hmod=0 -> 201", "cuModuleUnload hmod=0x100"],
    ),
    (
        "module-function-after-unload",
        START,
        "cuModuleUnload hmod=0x100\n cuLaunchKernel f=0x200 hStream=0x300 -> 400",
        &[
            "cuLaunchKernel f=0x200 hStream=0x300\n cuStreamSynchronize hStream=0x300\n\
             cuModuleUnload hmod=0x100",
            "cuModuleUnload hmod=0x100\n cuModuleLoadData module:=0x100 image@0x5000:PTX\n \
             cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"\n cuFuncLoad function=0x200",
        ],
    ),
    (
        "module-function-after-unload",
        START,
        "cuModuleEnumerateFunctions functions:=[0x210,0x211] numFunctions=2 mod=0x100\n\
         cuModuleUnload hmod=0x100\n \
         cuFuncGetAttribute pi:=0 attrib=0 hfunc=0x211 -> 400",
        &[
            "cuModuleEnumerateFunctions functions:=[0x210,0x211] numFunctions=2 mod=0x100\n \
           cuFuncGetAttribute pi:=0 attrib=0 hfunc=0x211",
        ],
    ),
    (
        "module-function-name-after-unload",
        START,
        "cuFuncGetName name:=0x9000 name/17=\"k\" hfunc=0x200\n cuModuleUnload hmod=0x100\n \
         cuModuleLoadData module:=0x101 image@0x5000:PTX\n\
         cuModuleGetFunction hfunc:=0x201 hmod=0x101 name@0x9000=\"k\"",
        &[
            "cuFuncGetName name:=0x9000 name/17=\"k\" hfunc=0x200\n cuModuleUnload hmod=0x100\n \
             cuModuleLoadData module:=0x101 image@0x5000:PTX\n\
             cuModuleGetFunction hfunc:=0x201 hmod=0x101 name=\"k\"",
            // The program's own string at that address.
            "cuFuncGetName name:=0x9000 name/17=\"k\" hfunc=0x200\n cuModuleUnload hmod=0x100\n \
             cuModuleLoadData module:=0x101 image@0x5000:PTX\n \
             cuModuleGetFunction hfunc:=0x201 hmod=0x101 name@0x9000=\"_Z5scalePf\"",
        ],
    ),
    (
        "module-global-after-unload",
        START,
        "cuModuleGetGlobal_v2 dptr:=0x20000 bytes:=4 hmod=0x100 name=\"g\"\n\
         cuModuleUnload hmod=0x100\n \
         cuMemcpyHtoD_v2 dstDevice=0x20002 ByteCount=2 -> 1",
        &[
            "cuModuleGetGlobal_v2 dptr:=0x20000 bytes:=4 hmod=0x100 name=\"g\"\n \
             cuMemcpyHtoD_v2 dstDevice=0x20000 ByteCount=4\n cuModuleUnload hmod=0x100",
            "cuModuleGetGlobal_v2 dptr:=0x20000 bytes:=4 hmod=0x100 name=\"g\"\n\
             cuModuleUnload hmod=0x100\n \
             cuMemAlloc_v2 dptr:=0x1f000 bytesize=65536\n\
             cuMemcpyHtoD_v2 dstDevice=0x20000 ByteCount=4",
        ],
    ),
    (
        "module-unload-library-owned",
        START,
        "cuLibraryLoadData library:=0x700 code@0x5000:PTX\n\
         cuLibraryGetModule pMod:=0x102 library=0x700\n \
         cuModuleUnload hmod=0x102 -> 800\n cuLibraryUnload library=0x700",
        &["cuLibraryLoadData library:=0x700 code@0x5000:PTX\n\
             cuLibraryGetModule pMod:=0x102 library=0x700\n \
           cuLibraryUnload library=0x700"],
    ),
    (
        "module-unload-library-owned",
        START,
        "cuLibraryLoadData library:=0x700 code@0x5000:PTX\n\
         cuLibraryGetKernel pKernel:=0x710 library=0x700 name=\"k\"\n \
         cuKernelGetFunction pFunc:=0x220 kernel=0x710\n cuFuncGetModule hmod:=0x103 hfunc=0x220\n \
         cuModuleUnload hmod=0x103 -> 800",
        &["cuFuncGetModule hmod:=0x100 hfunc=0x200\n cuModuleUnload hmod=0x100"],
    ),
    (
        "module-unload-runtime-owned",
        "cuDevicePrimaryCtxRetain pctx:=0xc0 dev=0\n cuCtxSetCurrent ctx=0xc0",
        "cuFuncGetModule hmod:=0x150 hfunc=0x999\n cuModuleUnload hmod=0x150",
        &["cuModuleLoadData module:=0x150 image@0x5000:PTX\n\
             cuModuleGetFunction hfunc:=0x999 hmod=0x150 name=\"k\"\n \
           cuFuncGetModule hmod:=0x150 hfunc=0x999\n cuModuleUnload hmod=0x150"],
    ),
    (
        "module-unload-wrong-context",
        START,
        "cuCtxCreate_v2 pctx:=0xc2 dev=0\n cuModuleUnload hmod=0x100",
        &[
            "cuCtxCreate_v2 pctx:=0xc2 dev=0\n cuCtxPushCurrent_v2 ctx=0xc1\n\
             cuModuleUnload hmod=0x100",
            "cuCtxCreate_v2 pctx:=0xc2 dev=0\n cuCtxPopCurrent_v2 pctx:=0xc2\n\
             cuModuleUnload hmod=0x100",
        ],
    ),
    (
        "module-unload-work-pending",
        START,
        "cuLaunchKernel f=0x200 hStream=0x300\n cuModuleUnload hmod=0x100\n\
         cuStreamSynchronize hStream=0x300",
        &[
            "cuLaunchKernel f=0x200 hStream=0x300\n cuCtxSynchronize\n cuModuleUnload hmod=0x100",
            "cuLaunchKernel f=0x200 hStream=0x300\n cuStreamQuery hStream=0x300\n\
             cuModuleUnload hmod=0x100",
            "cuLaunchKernel f=0x200 hStream=0x300\n cuEventRecord hEvent=0x400 hStream=0x300\n \
             cuEventSynchronize hEvent=0x400\n cuModuleUnload hmod=0x100",
            // Through another stream that waited for the event.
            "cuStreamCreate phStream:=0x301 Flags=1\n cuLaunchKernel f=0x200 hStream=0x300\n \
             cuEventRecord hEvent=0x400 hStream=0x300\n\
             cuStreamWaitEvent hStream=0x301 hEvent=0x400\n \
             cuMemsetD8Async dstDevice=0x10000 N=1 hStream=0x301\n\
             cuStreamSynchronize hStream=0x301\n \
             cuModuleUnload hmod=0x100",
            // The default stream, waited for by a synchronous copy.
            "cuLaunchKernel f=0x200\n\
             cuMemcpyDtoH_v2 dstHost=0x7000 srcDevice=0x10000 ByteCount=4\n \
             cuModuleUnload hmod=0x100",
            "cuLaunchKernel_ptsz f=0x200\n cuStreamSynchronize_ptsz hStream=0\n\
             cuModuleUnload hmod=0x100",
        ],
    ),
    (
        "module-unload-work-pending",
        START,
        "cuLibraryLoadData library:=0x700 code@0x5000:PTX\n\
         cuLibraryGetKernel pKernel:=0x710 library=0x700 name=\"k\"\n\
         cuLaunchKernel f=0x710 hStream=0x300\n cuLibraryUnload library=0x700\n\
         cuStreamSynchronize hStream=0x300",
        &[
            "cuLibraryLoadData library:=0x700 code@0x5000:PTX\n\
             cuLibraryGetKernel pKernel:=0x710 library=0x700 name=\"k\"\n\
             cuLaunchKernel f=0x710 hStream=0x300\n cuStreamSynchronize hStream=0x300\n\
             cuLibraryUnload library=0x700",
            // Another library's.
            "cuLibraryLoadData library:=0x700 code@0x5000:PTX\n\
             cuLaunchKernel f=0x200 hStream=0x300\n cuLibraryUnload library=0x700\n\
             cuStreamSynchronize hStream=0x300",
        ],
    ),
    (
        "module-unload-work-pending",
        START,
        "cuLibraryLoadData library:=0x700 code@0x5000:PTX\n\
         cuLibraryGetKernel pKernel:=0x710 library=0x700 name=\"k\"\n\
         cuKernelGetFunction pFunc:=0x220 kernel=0x710\n\
         cuLaunchKernel f=0x220 hStream=0x300\n cuLibraryUnload library=0x700\n\
         cuStreamSynchronize hStream=0x300",
        &[],
    ),
    (
        "module-unload-work-pending",
        START,
        "cuLaunchKernel f=0x200 hStream=0x300\n cuStreamQuery hStream=0x300 -> 600\n \
         cuEventRecord hEvent=0x400 hStream=0x300\n cuModuleUnload hmod=0x100",
        &[],
    ),
    (
        "module-image-unrecognised",
        START,
        "cuModuleLoadData module:=0x101 image@0x5100:JUNK -> 200",
        &[
            "cuModuleLoadData module:=0x101 image@0x5100:PTX_COMMENTED",
            "cuModuleLoadData module:=0x101 image@0x5100:CUBIN",
        ],
    ),
    (
        "module-image-unrecognised",
        START,
        "cuModuleLoadData module:=0x101 image=0 -> 1",
        &[],
    ),
    (
        "module-image-unrecognised",
        START,
        "cuModuleLoadData module:=0x101 image? -> !",
        &[],
    ),
    (
        "module-ptx-unterminated",
        START,
        "cuModuleLoadData module:=0x101 image@0x5100:PTX_NO_NUL -> !",
        &["cuModuleLoadData module:=0x101 image@0x5100:PTX"],
    ),
    (
        "module-ptx-unterminated",
        START,
        "cuModuleLoadData module:=0x101 image@0x5100:PTX_JUNK -> 218",
        &["cuModuleLoadData module:=0x101 image@0x5100:PTX_LATIN1"],
    ),
    (
        "module-fatbinary-wrong-kind",
        START,
        "cuModuleLoadFatBinary module:=0x101 fatCubin@0x5100:PTX",
        &["cuModuleLoadData module:=0x101 image@0x5100:PTX"],
    ),
    (
        "module-no-binary-for-device",
        START,
        "cuModuleLoadData module:=0x101 image@0x5100:CUBIN75 -> 209",
        &["cuModuleLoadData module:=0x101 image@0x5100:CUBIN"],
    ),
    (
        "module-ptx-jit-failure",
        START,
        "cuModuleLoadData module:=0x101 image@0x5100:PTX_FUTURE -> 222",
        &["cuModuleLoadData module:=0x101 image@0x5100:PTX"],
    ),
    (
        "module-ptx-jit-failure",
        START,
        "cuModuleLoadData module:=0x101 image@0x5100:PTX -> 218",
        &[],
    ),
    (
        "module-unresolved-symbol",
        START,
        "cuModuleLoadData module:=0x101 image@0x5100:PTX_EXTERN",
        &["cuModuleLoadData module:=0x101 image@0x5100:PTX"],
    ),
    (
        "module-unresolved-symbol",
        START,
        "cuModuleLoadData module:=0x101 image@0x5100:PTX_EXTERN -> 302",
        &[],
    ),
    (
        "module-file-not-found",
        START,
        "cuModuleLoad module:=0x101 fname=\"a.cubin\" fname/8=\"/home\" -> 301",
        &["cuModuleLoad module:=0x101 fname=\"a.cubin\" -> 301\n\
             cuModuleLoad module:=0x101 fname=\"b.cubin\""],
    ),
    (
        "module-load-allocation-failure",
        START,
        "cuModuleLoadData module@0x8000:=0 image@0x5100:PTX -> 2\n\
         cuModuleGetFunction hfunc:=0 hmod=0 name=\"k\" -> 400",
        &["cuModuleLoadData module@0x8000:=0 image@0x5100:PTX -> 2\n\
             cuModuleLoadData module@0x8000:=0x101 image@0x5100:PTX\n \
             cuModuleGetFunction hfunc:=0x201 hmod=0x101 name=\"k\""],
    ),
    (
        "module-load-allocation-failure",
        START,
        "cuModuleLoadData module@0x8000:=0 image@0x5100:PTX -> 2\n cuModuleUnload hmod=0 -> 400",
        &["cuModuleLoadData module@0x8000:=0 image@0x5100:PTX -> 2\n cuModuleUnload hmod=0x100"],
    ),
    (
        "module-symbol-not-found",
        START,
        "cuModuleGetFunction hfunc:=0 hmod=0x100 name=\"scale\" -> 500\n cuLaunchKernel f=0 -> 400",
        &[
            "cuModuleGetFunction hfunc:=0 hmod=0x100 name=\"scale\" -> 500\n \
           cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"\n cuLaunchKernel f=0x200\n\
           cuCtxSynchronize",
        ],
    ),
    (
        "module-global-outputs-both-null",
        START,
        "cuModuleGetGlobal_v2 dptr=0 bytes=0 hmod=0x100 name=\"g\" -> 1",
        &["cuModuleGetGlobal_v2 dptr=0 bytes:=4 hmod=0x100 name=\"g\""],
    ),
    (
        "module-enumerate-truncated",
        START,
        "cuModuleGetFunctionCount count:=2 mod=0x100\n\
         cuModuleEnumerateFunctions functions:=[0x210] numFunctions=1 mod=0x100",
        &["cuModuleGetFunctionCount count:=2 mod=0x100\n \
           cuModuleEnumerateFunctions functions:=[0x210,0x211] numFunctions=8 mod=0x100"],
    ),
    (
        "module-enumerate-truncated",
        START,
        "cuModuleEnumerateFunctions functions:=[0x210] numFunctions=1 mod=0x100",
        &[],
    ),
    (
        "module-jit-options-malformed",
        START,
        "cuModuleLoadDataEx module:=0x101 image@0x5100:PTX opts=5:0x9000 -> 1",
        &[
            "cuModuleLoadDataEx module:=0x101 image@0x5100:PTX opts=5:0x9000,6:64",
            "cuModuleLoadDataEx module:=0x101 image@0x5100:PTX numOptions=0",
        ],
    ),
    (
        "module-jit-options-malformed",
        START,
        "cuModuleLoadDataEx module:=0x101 image@0x5100:PTX numOptions=1 -> 1",
        &[],
    ),
    (
        "module-jit-options-malformed",
        START,
        "cuModuleLoadDataEx module:=0x101 image@0x5100:PTX opts=1000:1 -> 1",
        &["cuModuleLoadDataEx module:=0x101 image@0x5100:PTX opts=1000:1"],
    ),
    (
        "module-jit-options-malformed",
        START,
        "cuModuleLoadDataEx module:=0x101 image@0x5100:PTX opts=17:0x9000,19:1 -> 1",
        &[],
    ),
    (
        "module-jit-output-reused",
        START,
        "cuModuleLoadDataEx module:=0x101 image@0x5100:PTX opts@0x8000=3:0x9000,4:4096 left=0x9000,0\n \
         cuModuleLoadDataEx module:=0x102 image@0x5100:PTX opts@0x8000=3:0x9000,4:0 left=0x9000,0",
        &[
            "cuModuleLoadDataEx module:=0x101 image@0x5100:PTX opts@0x8000=3:0x9000,4:4096 left=0x9000,0\n \
           cuModuleLoadDataEx module:=0x102 image@0x5100:PTX opts@0x8000=3:0x9000,4:4096 left=0x9000,0",
        ],
    ),
];
