"""cuda.core: a kernel that the null driver computes too, with bytes copied there and back."""
import ctypes

import numpy
from cuda.core import (
    Device,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    Program,
    ProgramOptions,
    launch,
)

device = Device()
device.set_current()
stream = device.create_stream()
program = Program("""
extern "C" __global__ void cutape_mix(unsigned *out, const unsigned *in, unsigned count,
                                      unsigned seed) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    unsigned sum = out[i] * 0x9e3779b1u + in[i];
    out[i] = (sum << 7 | sum >> 25) ^ (seed + i * 0x85ebca6bu);
}
""", code_type="c++", options=ProgramOptions(arch=f"sm_{device.arch}"))
mix = program.compile("cubin").get_kernel("cutape_mix")
count, seed = 1000, 7
index = numpy.arange(count, dtype=numpy.uint32)
total = index * numpy.uint32(0x9E3779B1) + 3 * index
expected = (total << 7 | total >> 25) ^ (index * numpy.uint32(0x85EBCA6B) + seed)
pinned = LegacyPinnedMemoryResource()
host = [pinned.allocate(4 * count, stream=stream) for _ in range(2)]
views = [
    numpy.ctypeslib.as_array((ctypes.c_uint32 * count).from_address(int(buffer.handle)))
    for buffer in host
]
views[0][:], views[1][:] = index, 3 * index
out, words = (device.memory_resource.allocate(4 * count, stream=stream) for _ in host)
out.copy_from(host[0], stream=stream)
words.copy_from(host[1], stream=stream)
config = LaunchConfig(grid=4, block=256)
launch(stream, config, mix, out, words, numpy.uint32(count), numpy.uint32(seed))
out.copy_to(host[0], stream=stream)
stream.sync()
assert (views[0] == expected).all(), views[0]
print(views[0][:4])
for buffer in [*host, out, words]:
    buffer.close(stream)
