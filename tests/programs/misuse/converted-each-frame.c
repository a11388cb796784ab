// The conversion of a camera's frames allocates device memory for its source and its result, and
// frees both, at every single frame. The control reuses the buffers between frames.
// https://github.com/realsenseai/librealsense/issues/11692
// expect: performance-allocation-churn
#include "program.h"

enum { FRAMES = 100, PIXELS = 2048 };

struct buffers {
    CUdeviceptr source, result;
};

static void allocate(struct buffers *buffers)
{
    CHECK(cuMemAlloc(&buffers->source, PIXELS * sizeof(float)));
    CHECK(cuMemAlloc(&buffers->result, PIXELS * sizeof(float)));
}

static void release(const struct buffers *buffers)
{
    CHECK(cuMemFree(buffers->result));
    CHECK(cuMemFree(buffers->source));
}

static void convert(CUfunction saxpy, const struct buffers *buffers, float *frame)
{
    uint32_t count = PIXELS;
    float factor = 2;
    CUdeviceptr source = buffers->source, result = buffers->result;
    void *parameters[] = {&count, &factor, &source, &result};
    CHECK(cuMemcpyHtoD(source, frame, PIXELS * sizeof(float)));
    CHECK(cuMemsetD32(result, 0, PIXELS));
    launch(saxpy, 4, 128, NULL, parameters);
    CHECK(cuMemcpyDtoH(frame, result, PIXELS * sizeof(float)));
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_SAXPY);
    CUfunction saxpy = function_of(module, "saxpy");
    static float frame[PIXELS];
    struct buffers buffers;
#ifndef VIOLATE
    allocate(&buffers);
#endif
    for (int i = 0; i < FRAMES; i++) {
#ifdef VIOLATE
        allocate(&buffers);
#endif
        convert(saxpy, &buffers, frame);
#ifdef VIOLATE
        release(&buffers);
#endif
    }
#ifndef VIOLATE
    release(&buffers);
#endif
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
