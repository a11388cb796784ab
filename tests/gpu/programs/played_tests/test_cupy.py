"""Tests of CuPy that are recorded and played. With CHANGED=1 their driver calls differ."""

import os

import numpy
import pytest

cupy = pytest.importorskip("cupy")
SIZE = 1000 + int(os.environ.get("CHANGED", "0"))


@pytest.mark.parametrize("name", ["sin", "sqrt"])
def test_elementwise(name):
    values = numpy.arange(SIZE, dtype=numpy.float64)
    found = getattr(cupy, name)(cupy.asarray(values)).get()
    assert numpy.allclose(found, getattr(numpy, name)(values))


def test_raw_kernel():
    twice = cupy.RawKernel(
        'extern "C" __global__ void twice(int *values, int count) {'
        "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < count) values[i] *= 2; }",
        "twice",
    )
    values = cupy.arange(SIZE, dtype=cupy.int32)
    twice((SIZE // 256 + 1,), (256,), (values, numpy.int32(SIZE)))
    assert int(values.sum()) == SIZE * (SIZE - 1)
