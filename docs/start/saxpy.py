"""y = 2 x + y on the GPU, through the driver API. Needs Python and libcuda, nothing else."""
import ctypes
import sys

KERNEL = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry saxpy(.param .u64 x, .param .u64 y, .param .u32 n)
{
    .reg .pred %p;
    .reg .f32 %f<4>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p, %r5, %r1;
    @%p ret;
    mul.wide.u32 %rd3, %r5, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.f32 %f1, [%rd4];
    ld.global.f32 %f2, [%rd5];
    fma.rn.f32 %f3, %f1, 0f40000000, %f2;
    st.global.f32 [%rd5], %f3;
    ret;
}
"""
N = 100_000
BYTES = ctypes.c_size_t(4 * N)
cuda = ctypes.CDLL("libcuda.so.1")


def call(function, *arguments):
    status = getattr(cuda, function)(*arguments)
    if status != 0:
        sys.exit(f"{function} failed with error {status}")


def main():
    context, module, kernel = (ctypes.c_void_p() for _ in range(3))
    x, y = ctypes.c_uint64(), ctypes.c_uint64()
    host = (ctypes.c_float * N)(*([1.0] * N))
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    call("cuModuleLoadData", ctypes.byref(module), KERNEL)
    call("cuModuleGetFunction", ctypes.byref(kernel), module, b"saxpy")
    for memory in (x, y):
        call("cuMemAlloc_v2", ctypes.byref(memory), BYTES)
        call("cuMemcpyHtoD_v2", memory, host, BYTES)
    values = (x, y, ctypes.c_uint32(N))
    parameters = (ctypes.c_void_p * 3)(*(ctypes.addressof(value) for value in values))
    for _ in range(5):
        call("cuLaunchKernel", kernel, 391, 1, 1, 256, 1, 1, 0, None, parameters, None)
    call("cuMemcpyDtoH_v2", host, y, BYTES)
    print(f"y[0] = {host[0]}")
    for memory in (x, y):
        call("cuMemFree_v2", memory)
    call("cuModuleUnload", module)
    call("cuDevicePrimaryCtxRelease_v2", 0)


main()
