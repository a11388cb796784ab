// nvcc: --default-stream per-thread
// not-played: any of its threads may initialise the runtime
// Eight threads, each with the default stream of its own: polling, host functions, pitched copies.
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#define CHECK(x) do { cudaError_t e = (x); if (e != cudaSuccess) { fprintf(stderr, "%s: %s\n", #x, \
        cudaGetErrorString(e)); exit(1); } } while (0)

const int width = 100, height = 64, threads = 8;

__global__ void step(float *rows, size_t pitch, int number) {
    int x = threadIdx.x, y = blockIdx.x;
    float *row = (float *)((char *)rows + y * pitch);
    if (x < width) row[x] = row[x] * (number + 2) + y;
}

void count(void *counter) { ++*(int *)counter; }

double sums[threads];

void work(int number) {
    float *rows;
    size_t pitch;
    std::vector<float> host(width * height), back(width * height);
    for (int i = 0; i < width * height; i++) host[i] = i % (17 + number);
    CHECK(cudaMallocPitch(&rows, &pitch, width * sizeof(float), height));
    const size_t bytes = width * sizeof(float);
    CHECK(cudaMemcpy2DAsync(rows, pitch, host.data(), bytes, bytes, height, cudaMemcpyHostToDevice,
                            0));
    int calls = 0;
    for (int round = 0; round < 3; round++) {
        step<<<height, 128>>>(rows, pitch, number);
        CHECK(cudaGetLastError());
        CHECK(cudaLaunchHostFunc(0, count, &calls));
    }
    cudaEvent_t done;
    CHECK(cudaEventCreate(&done));
    CHECK(cudaEventRecord(done, 0));
    cudaError_t state;
    while ((state = cudaEventQuery(done)) == cudaErrorNotReady) std::this_thread::yield();
    CHECK(state);
    CHECK(cudaMemcpy2DAsync(back.data(), bytes, rows, pitch, bytes, height, cudaMemcpyDeviceToHost,
                            0));
    CHECK(cudaStreamSynchronize(0));
    sums[number] = calls;
    for (float value : back) sums[number] += value;
    CHECK(cudaEventDestroy(done));
    CHECK(cudaFree(rows));
}

int main() {
    std::vector<std::thread> all;
    for (int i = 0; i < threads; i++) all.emplace_back(work, i);
    for (auto &thread : all) thread.join();
    for (double sum : sums) printf("%.0f\n", sum);
    CHECK(cudaDeviceReset());
    int *again;
    CHECK(cudaMalloc(&again, 64));
    CHECK(cudaMemset(again, 7, 64));
    int value;
    CHECK(cudaMemcpy(&value, again, sizeof value, cudaMemcpyDeviceToHost));
    printf("%x\n", value);
    puts("EXIT-SUCCESS");
}
