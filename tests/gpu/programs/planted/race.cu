// Work in two streams on the same memory: `race NAME` without the event that orders the two, `race
// NAME ordered` with it. The first work takes longer than the second one, so that a run shows the
// order of the streams, and the replay has to find the other one. `overlapping_kernels` has one
// stream: the second kernel may start before the first has written, and waits for it if ordered.
#include <cstdio>
#include <cstring>

#include <cuda_runtime.h>

#define CHECK(call)                                                                        \
    do {                                                                                   \
        cudaError_t error = (call);                                                       \
        if (error != cudaSuccess) {                                                       \
            fprintf(stderr, "%d: %s: %s\n", __LINE__, #call, cudaGetErrorString(error));  \
            return 1;                                                                      \
        }                                                                                  \
    } while (0)

enum { COUNT = 1 << 16, BYTES = COUNT * 4 };

__global__ void fill(float *out, float value)
{
    for (int i = threadIdx.x; i < COUNT; i += blockDim.x)
        out[i] = value + i;
}

__global__ void add(float *out, const float *in, float value)
{
    for (int i = threadIdx.x; i < COUNT; i += blockDim.x)
        out[i] = in[i] + value;
}

__global__ void scale(float *data, float factor)
{
    for (int i = threadIdx.x; i < COUNT; i += blockDim.x)
        data[i] *= factor;
}

// Lets the next kernel start, works for about 3 ms, and writes only then.
__global__ void produce(float *out, float value)
{
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
    for (int i = 0; i < 3000; i++)
        __nanosleep(1000);
#endif
    for (int i = threadIdx.x; i < COUNT; i += blockDim.x)
        out[i] = value + i;
}

template <bool WAITS> __global__ void consume(float *out, const float *in)
{
#if __CUDA_ARCH__ >= 900
    if (WAITS)
        cudaGridDependencySynchronize();
#endif
    for (int i = threadIdx.x; i < COUNT; i += blockDim.x)
        out[i] = in[i];
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    bool ordered = argc > 2;
    cudaStream_t first, second, third;
    cudaEvent_t event;
    float *data, *other, *result, *host;
    CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&third, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaMalloc(&data, BYTES));
    CHECK(cudaMalloc(&other, BYTES));
    CHECK(cudaMalloc(&result, BYTES));
    CHECK(cudaMallocHost(&host, BYTES));
    for (int i = 0; i < COUNT; i++)
        host[i] = 0.5f * i;
    CHECK(cudaMemset(data, 0, BYTES));
    CHECK(cudaMemset(result, 0, BYTES));
    CHECK(cudaMemcpy(other, host, BYTES, cudaMemcpyHostToDevice));
    CHECK(cudaDeviceSynchronize());
    auto order = [&](cudaStream_t from, cudaStream_t to) {
        if (ordered) {
            cudaEventRecord(event, from);
            cudaStreamWaitEvent(to, event, 0);
        }
    };
    auto is = [&](const char *wanted) { return !strcmp(name, wanted); };
    if (is("kernel_then_kernel")) {
        fill<<<1, 256, 0, first>>>(data, 1);
        order(first, second);
        add<<<1, 256, 0, second>>>(result, data, 2);
    } else if (is("two_kernels_write")) {
        fill<<<1, 256, 0, first>>>(data, 1);
        order(first, second);
        fill<<<1, 256, 0, second>>>(data, 2);
    } else if (is("overwritten_while_read")) {
        add<<<1, 256, 0, first>>>(result, other, 1);
        order(first, second);
        fill<<<1, 256, 0, second>>>(other, 9);
    } else if (is("updated_twice")) {
        add<<<1, 256, 0, first>>>(other, other, 1);
        order(first, second);
        scale<<<1, 256, 0, second>>>(other, 3);
    } else if (is("memset_then_kernel")) {
        CHECK(cudaMemsetAsync(other, 0, BYTES, first));
        order(first, second);
        add<<<1, 256, 0, second>>>(result, other, 2);
    } else if (is("kernel_then_copy")) {
        fill<<<1, 256, 0, first>>>(data, 1);
        order(first, second);
        CHECK(cudaMemcpyAsync(result, data, BYTES, cudaMemcpyDeviceToDevice, second));
    } else if (is("kernel_then_readback")) {
        fill<<<1, 256, 0, first>>>(data, 1);
        order(first, second);
        CHECK(cudaMemcpyAsync(host, data, BYTES, cudaMemcpyDeviceToHost, second));
    } else if (is("upload_then_kernel")) {
        CHECK(cudaMemcpyAsync(data, host, BYTES, cudaMemcpyHostToDevice, first));
        order(first, second);
        add<<<1, 256, 0, second>>>(result, data, 2);
    } else if (is("copy_then_copy")) {
        CHECK(cudaMemcpyAsync(data, other, BYTES, cudaMemcpyDeviceToDevice, first));
        order(first, second);
        CHECK(cudaMemcpyAsync(result, data, BYTES, cudaMemcpyDeviceToDevice, second));
    } else if (is("copy_then_memset")) {
        CHECK(cudaMemcpyAsync(result, other, BYTES, cudaMemcpyDeviceToDevice, first));
        order(first, second);
        CHECK(cudaMemsetAsync(other, 7, BYTES, second));
    } else if (is("graph_then_copy")) {
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
        CHECK(cudaMemcpyAsync(data, other, BYTES, cudaMemcpyDeviceToDevice, first));
        CHECK(cudaStreamEndCapture(first, &graph));
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        CHECK(cudaGraphLaunch(exec, first));
        order(first, second);
        CHECK(cudaMemcpyAsync(result, data, BYTES, cudaMemcpyDeviceToDevice, second));
    } else if (is("event_of_another_stream")) {
        fill<<<1, 256, 0, first>>>(data, 1);
        CHECK(cudaEventRecord(event, ordered ? first : third));
        CHECK(cudaStreamWaitEvent(second, event, 0));
        add<<<1, 256, 0, second>>>(result, data, 2);
    } else if (is("three_streams")) {
        fill<<<1, 256, 0, first>>>(data, 1);
        order(first, second);
        fill<<<1, 256, 0, second>>>(data, 2);
        order(second, third);
        CHECK(cudaMemcpyAsync(result, data, BYTES, cudaMemcpyDeviceToDevice, third));
    } else if (is("overlapping_kernels")) {
        produce<<<1, 256, 0, first>>>(data, 1);
        cudaLaunchAttribute attribute = {};
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = 1;
        config.blockDim = 256;
        config.stream = first;
        config.attrs = &attribute;
        config.numAttrs = 1;
        auto *kernel = &consume<false>;
        if (ordered)
            kernel = &consume<true>;
        CHECK(cudaLaunchKernelEx(&config, kernel, result, (const float *)data));
    } else {
        fprintf(stderr, "no program %s\n", name);
        return 2;
    }
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(host, result, BYTES, cudaMemcpyDeviceToHost));
    printf("%s %g\n", name, host[COUNT - 1]);
    return 0;
}
