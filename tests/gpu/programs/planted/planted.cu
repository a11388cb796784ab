// Programs with one planted wrong byte, by name; as planted.py.
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>

static void planted(const void *address, int line, const char *kernel)
{
    printf("PLANTED %p %d %s\n", address, line, kernel);
    fflush(stdout);
}

__global__ void add(float *data, float value, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        data[i] += value;
}

__global__ void spoil(float *data, int at)
{
    data[at] = -1e20f;
}

/* Through a pointer in memory, which no parameter names. */
__global__ void spoil_behind(float **table, int at)
{
    table[3][at] = -1e20f;
}

static void eager()
{
    float *data;
    cudaMalloc(&data, 1 << 20);
    cudaMemset(data, 0, 1 << 20);
    for (int step = 0; step < 50; step++) {
        add<<<1024, 256>>>(data, 1, 1 << 18);
        if (step == 20) {
            spoil<<<1, 1>>>(data, 200000); planted((char *)(data + 200000) + 3, __LINE__, "spoil");
        }
        if (step == 20)
            break;
    }
    cudaDeviceSynchronize();
}

static void pointer()
{
    float *parts[8], **table;
    for (auto &part : parts)
        cudaMalloc(&part, 4096), cudaMemset(part, 0, 4096);
    cudaMalloc(&table, sizeof parts);
    cudaMemcpy(table, parts, sizeof parts, cudaMemcpyHostToDevice);
    for (auto part : parts)
        add<<<4, 256>>>(part, 2, 1000);
    spoil_behind<<<1, 1>>>(table, 500); planted((char *)(parts[3] + 500) + 3, __LINE__, "spoil_behind");
    add<<<4, 256>>>(parts[2], 2, 1000);
    cudaDeviceSynchronize();
}

static void graph()
{
    float *data;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaMalloc(&data, 1 << 16);
    cudaMemset(data, 0, 1 << 16);
    cudaStreamCreate(&stream);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    add<<<64, 256, 0, stream>>>(data, 1, 1 << 14);
    spoil<<<1, 1, 0, stream>>>(data, 9000);
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphLaunch(exec, stream); planted((char *)(data + 9000) + 3, __LINE__, "graph");
    cudaStreamSynchronize(stream);
}

int main(int, char **argv)
{
    if (!strcmp(argv[1], "eager"))
        eager();
    else if (!strcmp(argv[1], "pointer"))
        pointer();
    else
        graph();
    return cudaGetLastError() != cudaSuccess;
}
