"""cuda.core: programs compiled, linked, launched."""
import numpy
from cuda.core import (
    Device,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    Linker,
    LinkerOptions,
    Program,
    ProgramOptions,
    launch,
)

device = Device()
device.set_current()
stream = device.create_stream()
arch = f"sm_{device.arch}"
options = ProgramOptions(std="c++17", arch=arch, relocatable_device_code=True)
code = Program("""
__device__ float twice(float x);
extern "C" __global__ void fill(float *out, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = twice(i);
}
""", code_type="c++", options=options).compile("ptx")
other = Program("__device__ float twice(float x) { return x + x; }", code_type="c++", options=options).compile("ptx")
linked = Linker(code, other, options=LinkerOptions(arch=arch)).link("cubin")
kernel = linked.get_kernel("fill")
buffer = device.memory_resource.allocate(4000, stream=stream)
launch(stream, LaunchConfig(grid=4, block=256), kernel, buffer, numpy.int32(1000))
host = LegacyPinnedMemoryResource().allocate(4000, stream=stream)
buffer.copy_to(host, stream=stream)
stream.sync()
values = numpy.from_dlpack(host).view(numpy.float32)
print(values[:4], values[999])
host.close(stream)
buffer.close(stream)
