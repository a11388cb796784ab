//! Textures, surfaces and tensor maps.

use super::{Row, START};

const ARRAY: &str = "
    cuCtxCreate_v2 pctx:=0xc1 dev=0
    cuModuleLoadData module:=0x100 image@0x5000:PTX
    cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"
    cuMemAlloc_v2 dptr:=0x10000 bytesize=4096
    cuArray3DCreate_v2 pHandle:=0x600 pAllocateArray=[64,64,0,0x100000020,2]
    cuTexObjectCreate pTexObject:=0x700000 pResDesc=[0,0x600,0*16] pTexDesc=[0*13]
";

const MAP: &str = "
    cuCtxCreate_v2 pctx:=0xc1 dev=0
    cuModuleLoadData module:=0x100 image@0x5000:PTX
    cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"
    cuMemAlloc_v2 dptr:=0x10000 bytesize=8192
    cuTensorMapEncodeTiled tensorMap@0x7fff0000:=[1,2,3,4,5,6,7,8,0*8] tensorDataType=6 \
    tensorRank=2 globalAddress=0x10000 globalDim=[64,64] globalStrides=[128] boxDim=[4:64,8] \
    elementStrides=[4:1,1]
";

pub(crate) const TEXTURES: &[Row] = &[
    (
        "texture-object-stale",
        ARRAY,
        "cuArrayDestroy hArray=0x600\n cuLaunchKernel f=0x200 layout=8 params=0x700000",
        &[
            "cuLaunchKernel f=0x200 layout=8 params=0x700000\n cuTexObjectDestroy \
             texObject=0x700000\n cuArrayDestroy hArray=0x600",
            // Two numbers of four bytes are no object.
            "cuArrayDestroy hArray=0x600\n cuLaunchKernel f=0x200 layout=4,4 params=0x700000",
            "cuTexObjectDestroy texObject=0x700000\n\
             cuTexObjectCreate pTexObject:=0x700000 pResDesc=[0,0x600,0*16] pTexDesc=[0*13]\n\
             cuLaunchKernel f=0x200 layout=8 params=0x700000",
        ],
    ),
    (
        "texture-object-stale",
        ARRAY,
        "cuTexObjectDestroy texObject=0x700000\n cuLaunchKernel f=0x200 layout=8 params=0x700000",
        &[],
    ),
    (
        "texture-object-stale",
        ARRAY,
        "cuTexObjectCreate pTexObject:=0x700001 pResDesc=[2,0x10000,0x100000020,4096,0*14] \
         pTexDesc=[0*13]\n\
         cuMemFree_v2 dptr=0x10000\n cuLaunchKernel f=0x200 layout=8 params=0x700001",
        &[],
    ),
    (
        "texture-descriptor-constraints",
        ARRAY,
        "cuTexObjectCreate pTexObject:=0 pResDesc=[2,0x10004,0x100000020,1024,0*14] \
         pTexDesc=[0*13] -> 1",
        &[
            "cuTexObjectCreate pTexObject:=0x700001 pResDesc=[2,0x10000,0x100000020,1024,0*14] \
             pTexDesc=[0*13]",
        ],
    ),
    // Mirrored at the borders; the words are address modes, filter mode and flags.
    (
        "texture-descriptor-constraints",
        ARRAY,
        "cuTexObjectCreate pTexObject:=0x700001 pResDesc=[0,0x600,0*16] pTexDesc=[4:1,2,0,0,0,0*21]",
        &[
            "cuTexObjectCreate pTexObject:=0x700001 pResDesc=[0,0x600,0*16] \
             pTexDesc=[4:1,2,0,0,2,0*21]",
            // Linear memory has no address mode, and clamp needs nothing.
            "cuTexObjectCreate pTexObject:=0x700001 pResDesc=[2,0x10000,0x100000020,1024,0*14] \
             pTexDesc=[4:2,2,2,0,0,0*21]",
            "cuTexObjectCreate pTexObject:=0x700001 pResDesc=[0,0x600,0*16] \
             pTexDesc=[4:1,1,1,0,0,0*21]",
        ],
    ),
    // An image with rows of 100 floats, as it lies in the program's memory.
    (
        "texture-descriptor-constraints",
        ARRAY,
        "cuTexObjectCreate pTexObject:=0 pResDesc=[3,0x10000,0x100000020,100,8,400,0*12] \
         pTexDesc=[0*13] -> 1",
        &["cuTexObjectCreate pTexObject:=0x700001 \
             pResDesc=[3,0x10000,0x100000020,100,8,416,0*12] pTexDesc=[0*13]"],
    ),
    (
        "texture-descriptor-constraints",
        ARRAY,
        "cuTexObjectCreate pTexObject:=0 pResDesc=[2,0x10000,0x300000020,1024,0*14] \
         pTexDesc=[0*13] -> 1",
        &[],
    ),
    (
        "texture-descriptor-constraints",
        ARRAY,
        "cuArray3DCreate_v2 pHandle:=0x601 pAllocateArray=[64,64,0,0x100000020,0]\n\
         cuSurfObjectCreate pSurfObject:=0 pResDesc=[0,0x601,0*16] -> 1",
        &["cuSurfObjectCreate pSurfObject:=0x710000 pResDesc=[0,0x600,0*16]"],
    ),
    (
        "texture-descriptor-constraints",
        START,
        "cuArray3DCreate_v2 pHandle:=0 pAllocateArray=[64,32,6,0x100000020,4] -> 1",
        &["cuArray3DCreate_v2 pHandle:=0x601 pAllocateArray=[64,64,6,0x100000020,4]"],
    ),
    (
        "texture-tensor-map-constraints",
        MAP,
        "cuTensorMapEncodeTiled tensorMap@0x7fff0000:=0 tensorDataType=6 tensorRank=2 \
         globalAddress=0x10000 globalDim=[64,60] globalStrides=[136] boxDim=[4:64,8] \
         elementStrides=[4:1,1] -> 1",
        &[
            // A box larger than the tensor is filled.
            "cuTensorMapEncodeTiled tensorMap@0x7fff0000:=[9,0*15] tensorDataType=6 tensorRank=2 \
             globalAddress=0x10000 globalDim=[64,32] globalStrides=[128] boxDim=[4:64,64] \
             elementStrides=[4:1,1]",
        ],
    ),
    (
        "texture-tensor-map-constraints",
        MAP,
        "cuTensorMapEncodeTiled tensorMap@0x7fff0000:=0 tensorDataType=6 tensorRank=2 \
         globalAddress=0x10000 globalDim=[64,64] globalStrides=[128] boxDim=[4:128,8] \
         elementStrides=[4:1,1] swizzle=3 -> 1",
        &[],
    ),
    (
        "texture-tensor-map-constraints",
        MAP,
        "cuTensorMapEncodeTiled tensorMap@0x7fff0008:=0 tensorDataType=6 tensorRank=2 \
         globalAddress=0x10000 globalDim=[64,64] globalStrides=[128] boxDim=[4:64,8] \
         elementStrides=[4:1,1] -> 1",
        &[],
    ),
    // The tensor has one row more than the allocation.
    (
        "texture-tensor-map-constraints",
        MAP,
        "cuTensorMapEncodeTiled tensorMap@0x7fff0000:=[9,0*15] tensorDataType=6 tensorRank=2 \
         globalAddress=0x10000 globalDim=[64,65] globalStrides=[128] boxDim=[4:64,8] \
         elementStrides=[4:1,1]",
        &[],
    ),
    (
        "texture-tensor-map-stale",
        MAP,
        "cuMemFree_v2 dptr=0x10000\n\
         cuLaunchKernel f=0x200 layout=128 params=1,2,3,4,5,6,7,8,0*8",
        &[
            "cuMemFree_v2 dptr=0x10000\n cuMemAlloc_v2 dptr:=0x20000 bytesize=8192\n\
             cuTensorMapReplaceAddress tensorMap@0x7fff0000:=[2,2,3,4,5,6,7,8,0*8] \
             globalAddress=0x20000\n\
             cuLaunchKernel f=0x200 layout=128 params=2,2,3,4,5,6,7,8,0*8",
            "cuLaunchKernel f=0x200 layout=128 params=1,2,3,4,5,6,7,8,0*8\n\
             cuMemFree_v2 dptr=0x10000",
        ],
    ),
];
