//! Link states.

use super::{Row, START};

const LINK: &str = "
    cuCtxCreate_v2 pctx:=0xc1 dev=0
    cuLinkCreate_v2 stateOut:=0x600
    cuLinkAddData_v2 state=0x600 type=1 data@0x5000:PTX
";

pub(crate) const LINKS: &[Row] = &[
    (
        "link-state-leak",
        LINK,
        "cuLinkComplete state=0x600 cubinOut:=0x30000 sizeOut:=100\n\
         cuModuleLoadData module:=0x100 image@0x30000:CUBIN",
        &[
            "cuLinkDestroy state=0x600",
            // A program that died could not clean up.
            "cuCtxSynchronize -> !",
        ],
    ),
    ("link-state-leak", LINK, "cuCtxDestroy_v2 ctx=0xc1", &[]),
    (
        "link-state-leak",
        "cuDevicePrimaryCtxRetain pctx:=0xc0 dev=0\n cuCtxSetCurrent ctx=0xc0",
        "cuLinkCreate_v2 stateOut:=0x600\n cuDevicePrimaryCtxRelease_v2 dev=0",
        &[
            "cuDevicePrimaryCtxRetain pctx:=0xc0 dev=0\n cuLinkCreate_v2 stateOut:=0x600\n \
           cuDevicePrimaryCtxRelease_v2 dev=0\n cuLinkDestroy state=0x600",
        ],
    ),
    (
        "link-use-after-destroy",
        LINK,
        "cuLinkDestroy state=0x600\n cuLinkComplete state=0x600 -> !",
        &[
            "cuLinkDestroy state=0x600\n cuLinkCreate_v2 stateOut:=0x600\n\
             cuLinkDestroy state=0x600",
        ],
    ),
    (
        "link-use-after-destroy",
        LINK,
        "cuLinkDestroy state=0x600\n cuLinkDestroy state=0x600 -> !",
        &[],
    ),
    (
        "link-cubin-after-destroy",
        LINK,
        "cuLinkComplete state=0x600 cubinOut:=0x30000 cubinOut/7:CUBIN sizeOut:=4000\n\
         cuLinkDestroy state=0x600\n \
         cuModuleLoadData module:=0x100 image@0x30000:CUBIN",
        &[
            // Loaded before, or copied.
            "cuLinkComplete state=0x600 cubinOut:=0x30000 cubinOut/7:CUBIN sizeOut:=4000\n \
             cuModuleLoadData module:=0x100 image@0x30000:CUBIN\n cuLinkDestroy state=0x600",
            "cuLinkComplete state=0x600 cubinOut:=0x30000 cubinOut/7:CUBIN sizeOut:=4000\n\
             cuLinkDestroy state=0x600\n \
             cuModuleLoadData module:=0x100 image@0x40000:CUBIN",
            // The heap has given the block out again and something else is in it.
            "cuLinkComplete state=0x600 cubinOut:=0x30000 cubinOut/7:CUBIN sizeOut:=4000\n\
             cuLinkDestroy state=0x600\n \
             cuModuleLoadData module:=0x100 image@0x30000:PTX",
            // The copy of an equal, newer cubin in the block of the older.
            "cuLinkComplete state=0x600 cubinOut:=0x30000 cubinOut/7:CUBIN sizeOut:=4000\n\
             cuLinkDestroy state=0x600\n \
             cuLinkCreate_v2 stateOut:=0x601\n\
             cuLinkComplete state=0x601 cubinOut:=0x38000 cubinOut/7:CUBIN sizeOut:=4000\n \
             cuLinkDestroy state=0x601\n cuModuleLoadData module:=0x100 image@0x30000:CUBIN",
        ],
    ),
    (
        "link-cubin-after-destroy",
        LINK,
        "cuLinkComplete state=0x600 cubinOut:=0x30000 cubinOut/7:CUBIN sizeOut:=4000\n\
         cuLinkDestroy state=0x600\n \
         cuModuleLoadData module:=0x100 image@0x30000:OVERWRITTEN -> 200",
        &[],
    ),
    // The heap has written into the free block, as free itself does.
    (
        "link-cubin-after-destroy",
        LINK,
        "cuLinkComplete state=0x600 cubinOut:=0x30000 cubinOut/7:CUBIN sizeOut:=4000\n\
         cuLinkDestroy state=0x600\n \
         cuModuleLoadData module:=0x100 image@0x30000:CUBIN_FREED",
        &[
            // Another cubin in a block that the heap has given out again.
            "cuLinkComplete state=0x600 cubinOut:=0x30000 cubinOut/7:CUBIN sizeOut:=4000\n\
             cuLinkDestroy state=0x600\n \
             cuModuleLoadData module:=0x100 image@0x30000:CUBIN_OTHER",
            "cuLinkComplete state=0x600 cubinOut:=0x30000 cubinOut/7:CUBIN sizeOut:=4000\n\
             cuLinkDestroy state=0x600\n \
             cuModuleLoadData module:=0x100 image@0x30000:CUBIN_DAMAGED",
            // The copy of a newer cubin, which happens to differ as if the heap had written.
            "cuLinkComplete state=0x600 cubinOut:=0x30000 cubinOut/7:CUBIN sizeOut:=4000\n\
             cuLinkDestroy state=0x600\n cuLinkCreate_v2 stateOut:=0x601\n\
             cuLinkComplete state=0x601 cubinOut:=0x38000 cubinOut/7:CUBIN_FREED sizeOut:=4000\n \
             cuLinkDestroy state=0x601\n\
             cuModuleLoadData module:=0x100 image@0x30000:CUBIN_FREED",
            // A copy elsewhere in the block: what is there begins behind an object's header.
            "cuLinkComplete state=0x600 cubinOut:=0x30000 cubinOut/7:CUBIN sizeOut:=4000\n\
             cuLinkDestroy state=0x600\n \
             cuModuleLoadData module:=0x100 image@0x30020:CUBIN",
        ],
    ),
    (
        "link-cubin-after-destroy",
        LINK,
        "cuLinkComplete state=0x600 cubinOut:=0x30000 cubinOut/7:CUBIN sizeOut:=4000\n\
         cuLinkDestroy state=0x600\n \
         cuModuleLoadData module:=0x100 image@0x30000:CUBIN_DAMAGED -> 200",
        &[],
    ),
    (
        "link-cubin-after-destroy",
        LINK,
        "cuLinkComplete state=0x600 cubinOut:=0x30000 cubinOut/7:CUBIN sizeOut:=4000\n\
         cuLinkDestroy state=0x600\n \
         cuLibraryLoadData library:=0x700 code@0x30000? -> !",
        &[],
    ),
    (
        "link-add-after-complete",
        LINK,
        "cuLinkComplete state=0x600 cubinOut:=0x30000 sizeOut:=100\n \
         cuLinkAddData_v2 state=0x600 type=1 data@0x5000:PTX -> 1\n cuLinkDestroy state=0x600",
        &[
            "cuLinkAddData_v2 state=0x600 type=1 data@0x5000:PTX_OTHER\n \
           cuLinkComplete state=0x600 cubinOut:=0x30000 sizeOut:=100\n cuLinkDestroy state=0x600",
        ],
    ),
    (
        "link-option-values-lifetime",
        "cuCtxCreate_v2 pctx:=0xc1 dev=0",
        "cuLinkCreate_v2 opts@0x8000=3:0x9000,4:64 stateOut:=0x600\n \
         cuLinkAddData_v2 state=0x600 type=1 data@0x5000:PTX state_values=0x1234,0\n\
         cuLinkDestroy state=0x600",
        &[
            "cuLinkCreate_v2 opts@0x8000=3:0x9000,4:64 stateOut:=0x600\n \
             cuLinkAddData_v2 state=0x600 type=1 data@0x5000:PTX state_values=0x9000,0\n\
             cuLinkDestroy state=0x600",
            // Inputs may die at once.
            "cuLinkCreate_v2 opts@0x8000=7:3 stateOut:=0x600\n\
             cuMemAlloc_v2 dptr@0x8000:=0x10000 bytesize=4\n \
             cuLinkAddData_v2 state=0x600 type=1 data@0x5000:PTX state_values=0x1234\n\
             cuLinkDestroy state=0x600",
        ],
    ),
    (
        "link-option-values-lifetime",
        "cuCtxCreate_v2 pctx:=0xc1 dev=0",
        "cuLinkCreate_v2 opts@0x8000=3:0x9000,4:64 stateOut:=0x600\n\
         cuMemAlloc_v2 dptr@0x8008:=0x10000 bytesize=4\n \
         cuLinkDestroy state=0x600",
        &[],
    ),
    (
        "link-option-values-lifetime",
        "cuCtxCreate_v2 pctx:=0xc1 dev=0",
        "cuLinkCreate_v2 opts@0x8000=3:0x9000,4:64 stateOut:=0x600\n \
         cuLinkAddData_v2 state=0x600 type=1 data@0x5000:PTX state/4? -> !",
        &[],
    ),
    // The array is freed when the linker is closed, and the state destroyed after it
    // (NVIDIA/cuda-python#2320).
    (
        "link-option-values-lifetime",
        "cuCtxCreate_v2 pctx:=0xc1 dev=0",
        "cuLinkCreate_v2 opts@0x8000=3:0x9000,4:64 stateOut:=0x600\n\
         cuLinkDestroy state=0x600 state_values=0x1234,0",
        &[
            "cuLinkCreate_v2 opts@0x8000=3:0x9000,4:64 stateOut:=0x600\n\
             cuLinkDestroy state=0x600 state_values=0x9000,17",
        ],
    ),
    (
        "link-log-buffer-shared",
        "cuCtxCreate_v2 pctx:=0xc1 dev=0",
        "cuLinkCreate_v2 opts@0x8000=5:0x9000,6:64 stateOut:=0x600\n \
         cuLinkCreate_v2 opts@0x8100=5:0x9020,6:64 stateOut:=0x601\n cuLinkDestroy state=0x600\n\
         cuLinkDestroy state=0x601",
        &[
            "cuLinkCreate_v2 opts@0x8000=5:0x9000,6:64 stateOut:=0x600\n\
             cuLinkDestroy state=0x600\n \
           cuLinkCreate_v2 opts@0x8000=5:0x9000,6:64 stateOut:=0x601\n cuLinkDestroy state=0x601",
        ],
    ),
    (
        "link-log-buffer-shared",
        "cuCtxCreate_v2 pctx:=0xc1 dev=0",
        "cuLinkCreate_v2 opts@0x8000=5:0x9000,6:64 stateOut:=0x600\n \
         cuModuleLoadDataEx module:=0x100 image@0x5000:PTX opts@0x8100=5:0x9000,6:64\n\
         cuLinkDestroy state=0x600",
        &[],
    ),
    (
        "link-add-rejected-option",
        LINK,
        "cuLinkAddData_v2 state=0x600 type=1 data@0x5000:PTX_OTHER opts=9:90 -> 1\n\
         cuLinkDestroy state=0x600",
        &[
            "cuLinkAddData_v2 state=0x600 type=1 data@0x5000:PTX_OTHER opts=0:32\n\
             cuLinkDestroy state=0x600",
        ],
    ),
    (
        "link-option-without-effect",
        LINK,
        "cuLinkAddData_v2 state=0x600 type=0 data@0x5000:CUBIN_REL opts=0:32 -> 1\n\
         cuLinkDestroy state=0x600",
        &["cuLinkAddData_v2 state=0x600 type=0 data@0x5000:CUBIN_REL\n cuLinkDestroy state=0x600"],
    ),
    (
        "link-option-value-by-address",
        START,
        "cuModuleLoadDataEx module:=0x101 image@0x5100:PTX opts=0:0x7ffcd0401000",
        &[
            "cuModuleLoadDataEx module:=0x101 image@0x5100:PTX opts=3:0x7ffc00001000,4:64",
            // A negative int.
            "cuModuleLoadDataEx module:=0x101 image@0x5100:PTX opts=0:-1",
            // The upper half of the slot was never set.
            "cuModuleLoadDataEx module:=0x101 image@0x5100:PTX opts=0:0x7ffc00000020",
        ],
    ),
    (
        "link-option-conflict",
        "cuCtxCreate_v2 pctx:=0xc1 dev=0",
        "cuLinkCreate_v2 opts=1:256,9:90 stateOut:=0 -> 1",
        &["cuModuleLoadDataEx module:=0x101 image@0x5100:PTX opts=10:0"],
    ),
    (
        "link-ptx-unterminated",
        LINK,
        "cuLinkAddData_v2 state=0x600 type=1 data@0x5000:PTX_NO_NUL data/14=65\n\
         cuLinkDestroy state=0x600",
        &[
            "cuLinkAddData_v2 state=0x600 type=1 data@0x5000:PTX_NO_NUL data/14=0\n\
             cuLinkDestroy state=0x600",
        ],
    ),
    (
        "link-input-type-mismatch",
        LINK,
        "cuLinkAddData_v2 state=0x600 type=0 data@0x5000:PTX -> 200\n cuLinkDestroy state=0x600",
        &["cuLinkAddData_v2 state=0x600 type=0 data@0x5000:CUBIN_REL\n cuLinkDestroy state=0x600"],
    ),
    (
        "link-input-type-mismatch",
        LINK,
        "cuLinkAddData_v2 state=0x600 type=1 data=0 size=5 -> 1\n cuLinkDestroy state=0x600",
        &[],
    ),
    (
        "link-lto-ir-too-new",
        LINK,
        "cuLinkAddData_v2 state=0x600 type=5 data@0x5000:BITCODE -> 1\n cuLinkDestroy state=0x600",
        &[],
    ),
    (
        "link-lto-ir-too-new",
        "cuCtxCreate_v2 pctx:=0xc1 dev=0",
        "cuLinkCreate_v2 opts=20:1 stateOut:=0x600\n cuLinkDestroy state=0x600",
        &[],
    ),
    (
        "link-non-relocatable-input",
        LINK,
        "cuLinkAddData_v2 state=0x600 type=1 data@0x5000:PTX -> 300\n cuLinkDestroy state=0x600",
        &["cuLinkAddData_v2 state=0x600 type=1 data@0x5000:PTX_OTHER\n cuLinkDestroy state=0x600"],
    ),
    (
        "link-non-relocatable-input",
        LINK,
        "cuLinkAddData_v2 state=0x600 type=0 data@0x5000:CUBIN\n cuLinkDestroy state=0x600",
        &[],
    ),
    (
        "link-address-size-mismatch",
        LINK,
        "cuLinkAddData_v2 state=0x600 type=1 data@0x5000:PTX_NARROW -> 218\n\
         cuLinkDestroy state=0x600",
        &[],
    ),
    (
        "module-unresolved-symbol",
        LINK,
        "cuLinkAddData_v2 state=0x600 type=1 data@0x5000:PTX_EXTERN\n\
         cuLinkComplete state=0x600 -> 999\n \
         cuLinkDestroy state=0x600",
        &[],
    ),
];
