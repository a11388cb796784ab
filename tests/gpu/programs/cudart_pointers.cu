// Device pointers where no parameter shows them: in a table that a copy uploads, in a struct that is
// a kernel parameter, and in a list that kernels walk.
#include <cstdio>
#include <cstdlib>

#define CHECK(x) do { cudaError_t e = (x); if (e != cudaSuccess) { fprintf(stderr, "%s: %s\n", #x, \
        cudaGetErrorString(e)); exit(1); } } while (0)

const int rows = 32, columns = 256;

struct Node {
    int *row;
    Node *next;
};

struct Batch {
    short kind;
    int **table;
    cudaTextureObject_t texture;
};

__global__ void scale(Batch batch, int factor) {
    int x = tex1Dfetch<int>(batch.texture, threadIdx.x);
    batch.table[blockIdx.x][threadIdx.x] = factor * int(blockIdx.x) + x;
}

__global__ void link(Node *nodes, int **table) {
    int i = threadIdx.x;
    nodes[i].row = table[rows - 1 - i];
    nodes[i].next = i + 1 < rows ? &nodes[i + 1] : nullptr;
}

__global__ void walk(const Node *node, int *out) {
    int sum = 0;
    for (int turn = 1; node != nullptr; node = node->next, turn++) sum += turn * node->row[threadIdx.x];
    out[threadIdx.x] = sum;
}

int main() {
    int *table[rows], **device_table, *out, *numbers, back[columns];
    Node *nodes;
    for (int i = 0; i < rows; i++) CHECK(cudaMalloc(&table[i], sizeof back));
    CHECK(cudaMalloc(&device_table, sizeof table));
    CHECK(cudaMalloc(&nodes, rows * sizeof(Node)));
    CHECK(cudaMalloc(&out, sizeof back));
    CHECK(cudaMalloc(&numbers, sizeof back));
    for (int i = 0; i < columns; i++) back[i] = i * i;
    CHECK(cudaMemcpy(numbers, back, sizeof back, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device_table, table, sizeof table, cudaMemcpyHostToDevice));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = numbers;
    resource.res.linear.desc = cudaCreateChannelDesc<int>();
    resource.res.linear.sizeInBytes = sizeof back;
    cudaTextureDesc description = {};
    Batch batch = {1, device_table, 0};
    CHECK(cudaCreateTextureObject(&batch.texture, &resource, &description, nullptr));
    scale<<<rows, columns>>>(batch, 3);
    link<<<1, rows>>>(nodes, device_table);
    walk<<<1, columns>>>(nodes, out);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(back, out, sizeof back, cudaMemcpyDeviceToHost));
    long sum = 0;
    for (int value : back) sum += value;
    printf("%ld\n", sum);
    CHECK(cudaDestroyTextureObject(batch.texture));
    CHECK(cudaFree(numbers));
    CHECK(cudaFree(out));
    CHECK(cudaFree(nodes));
    CHECK(cudaFree(device_table));
    for (int *row : table) CHECK(cudaFree(row));
    puts("EXIT-SUCCESS");
}
