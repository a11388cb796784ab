// nvcc: -rdc=true -lcufft_static -lculibos
// A load callback of cuFFT: the address of a device function, passed through host memory.
#include <cstdio>
#include <cstdlib>
#include <cufft.h>
#include <cufftXt.h>

#define CHECK(x) do { cudaError_t e = (x); if (e != cudaSuccess) { fprintf(stderr, "%s: %s\n", #x, \
        cudaGetErrorString(e)); exit(1); } } while (0)
#define CHECK_FFT(x) do { cufftResult e = (x); if (e != CUFFT_SUCCESS) { fprintf(stderr, \
        "%s: %d\n", #x, int(e)); exit(1); } } while (0)

const int count = 1024;

__device__ cufftComplex scaled(void *input, size_t offset, void *scale, void *) {
    cufftComplex value = static_cast<cufftComplex *>(input)[offset];
    value.x *= *static_cast<float *>(scale);
    value.y *= *static_cast<float *>(scale);
    return value;
}
__device__ cufftCallbackLoadC load = scaled;

int main() {
    static cufftComplex values[count];
    for (int i = 0; i < count; i++) values[i] = {float(i % 7), float(i % 3)};
    cufftComplex *data;
    float *scale, two = 2;
    CHECK(cudaMalloc(&data, sizeof values));
    CHECK(cudaMalloc(&scale, sizeof two));
    CHECK(cudaMemcpy(data, values, sizeof values, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(scale, &two, sizeof two, cudaMemcpyHostToDevice));
    cufftHandle plan;
    CHECK_FFT(cufftPlan1d(&plan, count, CUFFT_C2C, 1));
    cufftCallbackLoadC function;
    CHECK(cudaMemcpyFromSymbol(&function, load, sizeof function));
    void *functions[] = {reinterpret_cast<void *>(function)}, *arguments[] = {scale};
    CHECK_FFT(cufftXtSetCallback(plan, functions, CUFFT_CB_LD_COMPLEX, arguments));
    CHECK_FFT(cufftExecC2C(plan, data, data, CUFFT_FORWARD));
    CHECK(cudaMemcpy(values, data, sizeof values, cudaMemcpyDeviceToHost));
    printf("%.3f %.3f\n", values[0].x, values[1].y);
    CHECK_FFT(cufftDestroy(plan));
    CHECK(cudaFree(scale));
    CHECK(cudaFree(data));
    puts("EXIT-SUCCESS");
}
