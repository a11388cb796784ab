// Arrays, textures and surfaces, a table of pointers in device memory, a symbol that holds an
// address.
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(x) do { cudaError_t e = (x); if (e != cudaSuccess) { fprintf(stderr, "%s: %s\n", #x, \
        cudaGetErrorString(e)); exit(1); } } while (0)

const int width = 64, height = 32;

__device__ float *result;

__global__ void sample(cudaTextureObject_t texture, cudaSurfaceObject_t surface, float **tables) {
    int x = threadIdx.x, y = blockIdx.x;
    float value = tex2D<float>(texture, x + 0.5f, y + 0.5f) + tables[y % 2][x];
    surf2Dwrite(value, surface, x * sizeof(float), y);
    result[y * width + x] = value * 2;
}

int main() {
    std::vector<float> pixels(width * height), back(width * height);
    for (int i = 0; i < width * height; i++) pixels[i] = i % 101;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    cudaArray_t source, target;
    CHECK(cudaMallocArray(&source, &format, width, height));
    CHECK(cudaMallocArray(&target, &format, width, height, cudaArraySurfaceLoadStore));
    const size_t bytes = width * sizeof(float);
    CHECK(cudaMemcpy2DToArray(source, 0, 0, pixels.data(), bytes, bytes, height,
                              cudaMemcpyHostToDevice));
    cudaResourceDesc from = {}, to = {};
    from.resType = to.resType = cudaResourceTypeArray;
    from.res.array.array = source;
    to.res.array.array = target;
    cudaTextureDesc how = {};
    how.addressMode[0] = how.addressMode[1] = cudaAddressModeClamp;
    how.filterMode = cudaFilterModePoint;
    how.readMode = cudaReadModeElementType;
    cudaTextureObject_t texture;
    cudaSurfaceObject_t surface;
    CHECK(cudaCreateTextureObject(&texture, &from, &how, nullptr));
    CHECK(cudaCreateSurfaceObject(&surface, &to));

    float *rows[2], **tables, *out;
    for (int i = 0; i < 2; i++) {
        std::vector<float> row(width, i + 0.25f);
        CHECK(cudaMalloc(&rows[i], bytes));
        CHECK(cudaMemcpy(rows[i], row.data(), bytes, cudaMemcpyHostToDevice));
    }
    CHECK(cudaMalloc(&tables, sizeof rows));
    CHECK(cudaMemcpy(tables, rows, sizeof rows, cudaMemcpyHostToDevice));
    CHECK(cudaMalloc(&out, width * height * sizeof(float)));
    CHECK(cudaMemcpyToSymbol(result, &out, sizeof out));
    sample<<<height, width>>>(texture, surface, tables);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(back.data(), out, width * height * sizeof(float), cudaMemcpyDeviceToHost));
    double sum = 0;
    for (float value : back) sum += value;
    CHECK(cudaMemcpy2DFromArray(back.data(), bytes, target, 0, 0, bytes, height,
                                cudaMemcpyDeviceToHost));
    for (float value : back) sum += value;
    printf("%.2f\n", sum);
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaDestroySurfaceObject(surface));
    CHECK(cudaFreeArray(source));
    CHECK(cudaFreeArray(target));
    CHECK(cudaFree(tables));
    CHECK(cudaFree(out));
    for (float *row : rows) CHECK(cudaFree(row));
    puts("EXIT-SUCCESS");
}
