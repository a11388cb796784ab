// Ranges and marks through the header of NVTX: nested, shared by two threads, in a domain, with a
// registered string, attributes and wide text.
// ranges: train=1 train/step=10 train/step/fill=10 lib@registered=1 shared=1 validate=1 breit=1
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <nvtx3/nvToolsExt.h>

#define CHECK(x) do { cudaError_t e = (x); if (e != cudaSuccess) { fprintf(stderr, "%s: %s\n", #x, \
        cudaGetErrorString(e)); exit(1); } } while (0)

__global__ void add(int *out, int value) {
    atomicAdd(out, value);
}

int main() {
    int *out, back = 0;
    nvtxRangePushA("train");
    CHECK(cudaMalloc(&out, sizeof *out));
    CHECK(cudaMemset(out, 0, sizeof *out));
    for (int step = 0; step < 10; step++) {
        nvtxRangePushA("step");
        nvtxRangePushA("fill");
        add<<<1, 32>>>(out, step);
        nvtxRangePop();
        CHECK(cudaDeviceSynchronize());
        nvtxRangePop();
    }
    nvtxRangePop();

    nvtxDomainHandle_t domain = nvtxDomainCreateA("lib");
    nvtxEventAttributes_t attributes = {};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    attributes.message.registered = nvtxDomainRegisterStringA(domain, "registered");
    attributes.payloadType = NVTX_PAYLOAD_TYPE_DOUBLE;
    attributes.payload.dValue = 2.5;
    nvtxDomainRangePushEx(domain, &attributes);
    add<<<1, 1>>>(out, 1);
    nvtxDomainRangePop(domain);
    nvtxDomainMarkEx(domain, &attributes);

    nvtxRangeId_t shared = nvtxRangeStartA("shared");
    std::thread other([=] {
        nvtxRangePushA("validate");
        add<<<1, 1>>>(out, 2);
        CHECK(cudaDeviceSynchronize());
        nvtxRangePop();
        nvtxRangeEnd(shared);
    });
    other.join();
    nvtxRangePushW(L"breit");
    CHECK(cudaMemcpy(&back, out, sizeof back, cudaMemcpyDeviceToHost));
    nvtxRangePop();
    printf("%d\n", back);
    CHECK(cudaFree(out));
    puts("EXIT-SUCCESS");
}
