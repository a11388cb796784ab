/* Streams: flags, priority, context, query, order between two streams by an event. */
#include "program.h"

enum { COUNT = 4096 };

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_THREE);
    CUfunction fill = function_of(module, "fill"), add = function_of(module, "vector_add");
    int least = 0, greatest = 0;
    CHECK(cuCtxGetStreamPriorityRange(&least, &greatest));
    CUstream plain = NULL, urgent = NULL;
    CHECK(cuStreamCreate(&plain, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreateWithPriority(&urgent, CU_STREAM_NON_BLOCKING, greatest));
    unsigned flags = ~0u;
    int priority = 100;
    CHECK(cuStreamGetFlags(plain, &flags));
    EXPECT(flags == CU_STREAM_NON_BLOCKING);
    CHECK(cuStreamGetPriority(urgent, &priority));
    EXPECT(priority == greatest);
    CUcontext owner = NULL;
    CHECK(cuStreamGetCtx(plain, &owner));
    EXPECT(owner == context);
    CUdevice on = -1;
    CHECK(cuStreamGetDevice(plain, &on));
    EXPECT(on == device);
    unsigned long long id_plain = 0, id_urgent = 0;
    CHECK(cuStreamGetId(plain, &id_plain));
    CHECK(cuStreamGetId(urgent, &id_urgent));
    EXPECT(id_plain != id_urgent);
    CUstreamCaptureStatus capturing;
    CHECK(cuStreamIsCapturing(plain, &capturing));
    EXPECT(capturing == CU_STREAM_CAPTURE_STATUS_NONE);
    CHECK(cuStreamQuery(plain)); /* it has no work */
    printf("properties agree\n");

    CUdeviceptr a = 0, b = 0, c = 0;
    CHECK(cuMemAlloc(&a, COUNT * 4));
    CHECK(cuMemAlloc(&b, COUNT * 4));
    CHECK(cuMemAlloc(&c, COUNT * 4));
    CHECK(cuMemsetD32(c, 0, COUNT));
    CHECK(cuCtxSynchronize());
    CUevent filled = NULL;
    CHECK(cuEventCreate(&filled, CU_EVENT_DISABLE_TIMING));
    uint32_t start = 10, zero = 0, count = COUNT;
    void *fill_b[] = {&b, &start, &count}, *fill_a[] = {&a, &zero, &count},
        *sum[] = {&a, &b, &c, &count};
    launch(fill, 8, 128, urgent, fill_b);
    CHECK(cuEventRecord(filled, urgent));
    launch(fill, 8, 128, plain, fill_a);
    CHECK(cuStreamWaitEvent(plain, filled, CU_EVENT_WAIT_DEFAULT));
    launch(add, 8, 128, plain, sum);
    static uint32_t out[COUNT];
    CHECK(cuMemcpyDtoHAsync(out, c, sizeof out, plain));
    CHECK(cuStreamSynchronize(plain));
    CHECK(cuStreamQuery(plain));
    CHECK(cuStreamSynchronize(urgent));
    show_u32("sum over two streams", out, COUNT);
    EXPECT_KERNEL(out[0] == 10 && out[COUNT - 1] == 10 + 2 * (COUNT - 1));

    CUstreamAttrValue attribute;
    memset(&attribute, 0, sizeof attribute);
    attribute.syncPolicy = CU_SYNC_POLICY_YIELD;
    CHECK(cuStreamSetAttribute(plain, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &attribute));
    CHECK(cuStreamCopyAttributes(urgent, plain));
    memset(&attribute, 0, sizeof attribute);
    CHECK(cuStreamGetAttribute(urgent, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &attribute));
    show("synchronisation policy, copied", attribute.syncPolicy);
    EXPECT(attribute.syncPolicy == CU_SYNC_POLICY_YIELD);
    CHECK(cuEventDestroy(filled));
    CHECK(cuStreamDestroy(urgent));
    CHECK(cuStreamDestroy(plain));
    CHECK(cuMemFree(a));
    CHECK(cuMemFree(b));
    CHECK(cuMemFree(c));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
