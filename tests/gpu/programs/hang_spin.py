"""A training step whose kernel spins without end. It needs libcuda and nothing else."""

import ctypes
import sys

PTX = b""".version 7.0
.target sm_70
.address_size 64
.visible .entry prepare()
{
 ret;
}
.visible .entry spin(.param .u64 flag)
{
 .reg .pred p;
 .reg .u32 v;
 .reg .u64 a;
 ld.param.u64 a, [flag];
again:
 ld.volatile.global.u32 v, [a];
 setp.eq.u32 p, v, 0;
 @p bra again;
 ret;
}
"""
cuda = ctypes.CDLL("libcuda.so.1")
pointer = ctypes.c_void_p


def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    if result:
        sys.exit(f"{name}: {result}")


SHAPE = [ctypes.c_uint(number) for number in (1, 1, 1, 1, 1, 1, 0)]


def training_step(kernels, stream, flag):
    prepare, spin = kernels
    for _ in range(20):
        cuda.cuLaunchKernel(prepare, *SHAPE, stream, None, None)
    address = ctypes.c_uint64(flag.value)
    parameters = (pointer * 1)(ctypes.addressof(address))
    cuda.cuLaunchKernel(spin, *SHAPE, stream, parameters, None)
    cuda.cuLaunchKernel(prepare, *SHAPE, stream, None, None)
    print("HANGS", flush=True)
    cuda.cuStreamSynchronize(stream)


def main():
    device, context, module, stream, flag = ctypes.c_int(), pointer(), pointer(), pointer(), pointer()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuModuleLoadData", ctypes.byref(module), PTX)
    kernels = [pointer(), pointer()]
    for kernel, name in zip(kernels, (b"prepare", b"spin")):
        call("cuModuleGetFunction", ctypes.byref(kernel), module, name)
    call("cuMemHostAlloc", ctypes.byref(flag), ctypes.c_size_t(4096), 2)
    ctypes.memset(flag.value, 0, 4096)
    call("cuStreamCreate", ctypes.byref(stream), 1)
    training_step(kernels, stream, flag)


main()
