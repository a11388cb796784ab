//! What the CUDA runtime calls for a program: correct programs have no finding, and the same ones
//! with a mistake have that one.

mod script;

use script::rules;

/// The runtime of CUDA 13 begins like this: it has the handle of the primary context from a private
/// table of the driver.
const START: &str = "
    cuInit Flags=0
    cuCtxSetCurrent ctx=0xc1
    cuCtxGetCurrent pctx:=0xc1
    cuDevicePrimaryCtxRetain pctx:=0xc1 dev=0
    cuCtxGetCurrent pctx:=0xc1
    cuCtxGetDevice_v2 device:=0 ctx=0xc1
    cuModuleLoadData module:=0x100 image@0x5000:PTX
    cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"
";

/// The same without the query, as a driver API program behind a runtime library does it.
const RETAINED_LATER: &str = "
    cuInit Flags=0
    cuCtxSetCurrent ctx=0xc1
    cuModuleLoadData module:=0x100 image@0x5000:PTX
    cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"
    cuDevicePrimaryCtxRetain pctx:=0xc1 dev=0
";

/// The primary context was retained before, and released.
const RETAINED_AGAIN: &str = "
    cuInit Flags=0
    cuDevicePrimaryCtxRetain pctx:=0xc1 dev=0
    cuDevicePrimaryCtxRelease_v2 dev=0
    cuCtxSetCurrent ctx=0xc1
    cuDevicePrimaryCtxRetain pctx:=0xc1 dev=0
    cuModuleLoadData module:=0x100 image@0x5000:PTX
    cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"
";

/// Two streams, of which each has a copy to the device, a launch and a copy back.
const PIPELINE: &str = "
    cuMemHostAlloc pp:=0x700000 bytesize=4096
    cuMemHostAlloc pp:=0x710000 bytesize=4096
    cuMemAlloc_v2 dptr:=0x10000 bytesize=4096
    cuMemAlloc_v2 dptr:=0x20000 bytesize=4096
    cuStreamCreate phStream:=0x300
    cuStreamCreate phStream:=0x310
    cuEventCreate phEvent:=0x400
    cuEventCreate phEvent:=0x410
    cuMemcpyHtoDAsync_v2 dstDevice=0x10000 srcHost@0x700000=[1] ByteCount=4096 hStream=0x300
    cuLaunchKernel f=0x200 gridDimX=1 blockDimX=1 params=0x10000 layout=8 hStream=0x300
    cuMemcpyDtoHAsync_v2 dstHost=0x700000 srcDevice=0x10000 ByteCount=4096 hStream=0x300
    cuEventRecord hEvent=0x400 hStream=0x300
    cuMemcpyHtoDAsync_v2 dstDevice=0x20000 srcHost@0x710000=[1] ByteCount=4096 hStream=0x310
    cuLaunchKernel f=0x200 gridDimX=1 blockDimX=1 params=0x20000 layout=8 hStream=0x310
    cuMemcpyDtoHAsync_v2 dstHost=0x710000 srcDevice=0x20000 ByteCount=4096 hStream=0x310
    cuEventRecord hEvent=0x410 hStream=0x310
";

/// `cudaDeviceSynchronize`.
const SYNCHRONIZE: &str = "
    cuCtxGetCurrent pctx:=0xc1
    cuCtxSynchronize_v2 ctx=0xc1
";

/// Another stream uses what the first ones used.
const NEXT: &str = "
    cuMemcpyHtoDAsync_v2 dstDevice=0x20000 srcHost@0x700000=[1] ByteCount=4096 hStream=0x300
    cuMemcpyDtoHAsync_v2 dstHost=0x700000 srcDevice=0x20000 ByteCount=4096 hStream=0x300
";

const END: &str = "
    cuCtxGetCurrent pctx:=0xc1
    cuCtxSynchronize_v2 ctx=0xc1
    cuStreamDestroy_v2 hStream=0x300
    cuStreamDestroy_v2 hStream=0x310
    cuEventDestroy_v2 hEvent=0x400
    cuEventDestroy_v2 hEvent=0x410
    cuMemFreeHost p=0x700000
    cuMemFreeHost p=0x710000
    cuMemFree_v2 dptr=0x10000
    cuMemFree_v2 dptr=0x20000
    cuModuleUnload hmod=0x100
    cuDevicePrimaryCtxRelease_v2 dev=0
";

#[test]
fn a_wait_for_the_device_waits_for_all_streams() {
    for start in [START, RETAINED_LATER, RETAINED_AGAIN] {
        let correct = [start, PIPELINE, SYNCHRONIZE, NEXT, END].concat();
        assert_eq!(rules(&correct), [""; 0], "{correct}");
        let without_wait = [start, PIPELINE, NEXT, END].concat();
        assert_eq!(rules(&without_wait), ["memory-race-cross-stream"]);
        let of_another = SYNCHRONIZE.replace("0xc1", "0xc2");
        let wrong_wait = [start, PIPELINE, &of_another, NEXT, END].concat();
        assert_eq!(rules(&wrong_wait), ["memory-race-cross-stream"]);
    }
}
