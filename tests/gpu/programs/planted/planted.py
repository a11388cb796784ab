"""Programs with one planted wrong byte, by name. Prints where it is, and the line that writes it.

Each works on before and after. `planted` prints the address of the byte, as the driver knows it.
"""

import sys


def planted(address, kernel=""):
    """The line before the call wrote the byte at the address."""
    line = sys._getframe(1).f_lineno - 1
    print(f"PLANTED {address:#x} {line} {kernel}", flush=True)


def torch_eager():
    import torch

    a = torch.randn(1000, device="cuda")
    b = torch.zeros(1000, device="cuda")
    for step in range(50):
        b += a * step
        if step == 30:
            b.view(torch.uint8)[1234] = 77
            planted(b.data_ptr() + 1234)
            kept, b = b, b + 0
    torch.cuda.synchronize()
    print(float((b + kept).sum()) != 0)


def torch_matmul():
    import torch

    a, b = (torch.randn(256, 256, device="cuda") for _ in range(2))
    out = [torch.mm(a, b) for _ in range(20)]
    out[7][3, 5:6].fill_(1e30)
    planted(out[7].data_ptr() + (3 * 256 + 5) * 4 + 3)
    total = sum(float(x.sum()) for x in out)
    print(total != 0)


def torch_backward():
    import torch

    layer = torch.nn.Linear(128, 128).cuda()
    x = torch.randn(32, 128, device="cuda")
    for step in range(10):
        layer.zero_grad()
        layer(x).square().mean().backward()
        if step == 6:
            layer.weight.grad[0, 1] = float("nan")
            planted(layer.weight.grad.data_ptr() + 4 + 3)
            break
    print(bool(layer.weight.grad.isnan().any()))


def torch_streams():
    import torch

    streams = [torch.cuda.Stream() for _ in range(3)]
    data = [torch.zeros(4096, device="cuda") for _ in range(3)]
    torch.cuda.synchronize()
    for step in range(20):
        for stream, one in zip(streams, data):
            with torch.cuda.stream(stream):
                one += step
                if step == 11 and one is data[1]:
                    one[100:101].mul_(-3)
                    planted(one.data_ptr() + 403)
                    data[1] = one.clone()
    torch.cuda.synchronize()
    print(float(data[1].sum()) != 0)


def torch_copy():
    import torch

    a = torch.ones(1 << 16, dtype=torch.uint8, device="cuda")
    host = torch.full((16,), 9, dtype=torch.uint8)
    for step in range(10):
        a.mul_(1)
        if step == 4:
            a[5000:5016].copy_(host)
            planted(a.data_ptr() + 5003)
    print(int(a.sum()) != 0)


def torch_graph():
    import torch

    a, b = (torch.ones(1000, device="cuda") for _ in range(2))
    for _ in range(3):
        b.copy_(a * 2)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        b.copy_(a * 2)
        b[10:11].add_(5)
    graph.replay()
    planted(b.data_ptr() + 42, "graph")
    torch.cuda.synchronize()
    print(float(b[10]) == 7)


def torch_graph_streams():
    import torch

    a, b = (torch.ones(1000, device="cuda") for _ in range(2))
    other = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            b[500:501].fill_(-8)
        a.add_(1)
        torch.cuda.current_stream().wait_stream(other)
    graph.replay()
    planted(b.data_ptr() + 2003, "graph")
    torch.cuda.synchronize()
    print(float(b[500]) == -8)


def torch_pinned():
    import torch

    a = torch.zeros(1000, device="cuda")
    host = torch.zeros(1000).pin_memory()
    for step in range(10):
        a += 1
        if step == 5:
            host.copy_(a, non_blocking=True)
            planted(host.data_ptr() + 402)
            torch.cuda.synchronize()
    print(float(host[100]) == 6)


def jax_set():
    import jax
    import jax.numpy as jnp

    x = jnp.arange(1000.0)
    for step in range(5):
        x = x * 1.5
    y = x.at[100].set(jnp.nan).block_until_ready()
    planted(y.unsafe_buffer_pointer() + 403)
    print(bool(jnp.isnan(y).any()))


def jax_jit():
    import jax
    import jax.numpy as jnp

    @jax.jit
    def step(x):
        return jnp.where(jnp.arange(2048) == 700, -1e30, x + 1)

    x = jnp.ones(2048)
    y = step(x).block_until_ready()
    planted(y.unsafe_buffer_pointer() + 2803)
    print(float(y.sum()) < 0)


def jax_matmul():
    import jax
    import jax.numpy as jnp

    a = jnp.ones((128, 128))
    b = (a @ a).block_until_ready()
    c = jax.jit(lambda b: b.at[4, 4].multiply(-1))(b).block_until_ready()
    planted(c.unsafe_buffer_pointer() + (4 * 128 + 4) * 4 + 3)
    print(float(c[4, 4]) < 0)


def cupy_element():
    import cupy

    a = cupy.ones(10000, dtype=cupy.float32)
    for step in range(20):
        a *= 1.01
    a[4321] = -1
    planted(a.data.ptr + 4321 * 4 + 3)
    print(float(a[4321]) == -1)


def cupy_raw():
    import cupy

    code = """extern "C" __global__ void spoil(unsigned char* bytes, int at)
    { if (threadIdx.x == 0) bytes[at] = 200; }"""
    spoil = cupy.RawKernel(code, "spoil")
    a = cupy.zeros(1 << 20, dtype=cupy.uint8)
    for step in range(10):
        a += 1
    spoil((1,), (32,), (a, cupy.int32(777777)))
    planted(a.data.ptr + 777777, "spoil")
    a += 0
    print(int(a[777777]) == 200)


def cupy_memset():
    import cupy

    a = cupy.ones(4096, dtype=cupy.uint8)
    a.data.memset_async(0xEE, 1)
    planted(a.data.ptr)
    print(int(a[0]) == 0xEE)


def cupy_graph():
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    a = cupy.ones(1000, dtype=cupy.float32)
    cupy.cuda.Device().synchronize()
    with stream:
        a += 1
        stream.begin_capture()
        a *= 3
        a[10:11] -= 100
        graph = stream.end_capture()
        graph.launch()
        planted(a.data.ptr + 43, "graph")
        stream.synchronize()
    print(float(a[10]) == -94)


def triton_kernel():
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def scale(data, factor, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(data + at, mask=at < n)
        x = tl.where(at == 1500, x * factor, x)
        tl.store(data + at, x, mask=at < n)

    a = torch.ones(4096, device="cuda")
    for _ in range(5):
        a += 1
    scale[(4,)](a, -2.0, 4096, BLOCK=1024)
    planted(a.data_ptr() + 6003, "scale")
    torch.cuda.synchronize()
    print(float(a[1500]) == -12)


def triton_graph():
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def scale(data, factor, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(data + at, mask=at < n)
        x = tl.where(at == 1500, x * factor, x)
        tl.store(data + at, x, mask=at < n)

    a = torch.ones(4096, device="cuda")
    scale[(4,)](torch.ones_like(a), 1.0, 4096, BLOCK=1024)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        a.add_(1)
        scale[(4,)](a, -2.0, 4096, BLOCK=1024)
    graph.replay()
    planted(a.data_ptr() + 6003, "graph")
    torch.cuda.synchronize()
    print(float(a[1500]) == -4)


def numba_kernel():
    import numpy
    from numba import cuda

    @cuda.jit
    def spoil(data):
        if cuda.grid(1) == 33:
            data[33] = -5

    a = cuda.to_device(numpy.ones(1000, dtype=numpy.float32))
    spoil[4, 64](a)
    planted(a.device_ctypes_pointer.value + 135, "spoil")
    print(a.copy_to_host()[33] == -5)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
