// Kernels whose operations and bytes are known: a copy, fused multiply-adds of three precisions, and
// products on tensor cores; one of them also in a graph. The numbers are in tests/gpu/counters.py.
#include <cstdio>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>

#define CHECK(call) \
    do { \
        cudaError_t error = (call); \
        if (error != cudaSuccess) { \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error)); \
            return 1; \
        } \
    } while (0)

const int ROUNDS = 4096, BLOCKS = 1056, THREADS = 256;

extern "C" __global__ void copy(float4 *to, const float4 *from, size_t count)
{
    for (size_t at = blockIdx.x * (size_t)blockDim.x + threadIdx.x; at < count; at += (size_t)gridDim.x * blockDim.x)
        to[at] = from[at];
}

template <typename T> __device__ T multiply_add(T a, T b, T c) { return a * b + c; }
template <> __device__ float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
template <> __device__ double multiply_add(double a, double b, double c) { return fma(a, b, c); }
template <> __device__ __half2 multiply_add(__half2 a, __half2 b, __half2 c) { return __hfma2(a, b, c); }

// Four chains of ROUNDS fused multiply-adds a thread.
template <typename T> __device__ void chains(T *out, T factor, T more)
{
    T value[4] = {more, factor, more, factor};
#pragma unroll 1
    for (int round = 0; round < ROUNDS; round++)
#pragma unroll
        for (int chain = 0; chain < 4; chain++)
            value[chain] = multiply_add(value[chain], factor, more);
    T *mine = out + 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    for (int chain = 0; chain < 4; chain++)
        mine[chain] = value[chain];
}

extern "C" __global__ void fma32(float *out, float factor, float more) { chains(out, factor, more); }
extern "C" __global__ void fma64(double *out, double factor, double more) { chains(out, factor, more); }
extern "C" __global__ void fma16(__half2 *out, float factor, float more)
{
    chains(out, __float2half2_rn(factor), __float2half2_rn(more));
}

// ROUNDS products of 16 x 16 x 16 a warp.
extern "C" __global__ void tensor(float *out, float value)
{
    using namespace nvcuda;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::col_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(left, __float2bfloat16(value));
    wmma::fill_fragment(right, __float2bfloat16(value));
    wmma::fill_fragment(sum, 0.0f);
#pragma unroll 1
    for (int round = 0; round < ROUNDS; round++)
        wmma::mma_sync(sum, left, right, sum);
    int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    wmma::store_matrix_sync(out + 256 * warp, sum, 16, wmma::mem_row_major);
}

int main()
{
    const size_t bytes = (size_t)1 << 30;
    char *from, *to;
    CHECK(cudaMalloc(&from, bytes));
    CHECK(cudaMalloc(&to, bytes));
    CHECK(cudaMemset(from, 1, bytes));
    for (int step = 0; step < 2; step++) {
        copy<<<BLOCKS, THREADS>>>((float4 *)to, (const float4 *)from, bytes / sizeof(float4));
        fma32<<<BLOCKS, THREADS>>>((float *)to, 0.5f, 1.0f);
        fma64<<<BLOCKS, THREADS>>>((double *)to, 0.5, 1.0);
        fma16<<<BLOCKS, THREADS>>>((__half2 *)to, 0.5f, 1.0f);
        tensor<<<BLOCKS, THREADS>>>((float *)to, 0.5f);
        CHECK(cudaGetLastError());
    }
    CHECK(cudaDeviceSynchronize());
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t launched;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    fma32<<<BLOCKS, THREADS, 0, stream>>>((float *)to, 0.5f, 1.0f);
    tensor<<<BLOCKS, THREADS, 0, stream>>>((float *)to, 0.5f);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&launched, graph, 0));
    CHECK(cudaGraphLaunch(launched, stream));
    CHECK(cudaStreamSynchronize(stream));
    float first;
    CHECK(cudaMemcpy(&first, to, sizeof first, cudaMemcpyDeviceToHost));
    printf("%.1f\n", first);
    return 0;
}
