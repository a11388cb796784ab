/* A graph with a node of nearly every kind: built by hand, queried, changed, cloned, and launched
 * with other host bytes. */
#include "program.h"

enum { COUNT = 256 };

static uint32_t source[COUNT], pageable[COUNT];

static void count_up(void *data)
{
    ++*(int *)data;
}

static CUDA_MEMCPY3D copy_to_host(void *host, CUdeviceptr memory, size_t size)
{
    return (CUDA_MEMCPY3D){
        .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = memory,
        .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = host,
        .WidthInBytes = size, .Height = 1, .Depth = 1,
    };
}

static void fill_source(uint32_t start)
{
    for (uint32_t i = 0; i < COUNT; i++)
        source[i] = start + i;
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_THREE);
    CUfunction add = function_of(module, "vector_add");
    CUstream stream = NULL;
    CUevent event = NULL, other = NULL;
    CUdeviceptr a = 0, total = 0;
    uint32_t count = COUNT, *pinned = NULL;
    int called = 0;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&other, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc(&a, sizeof source));
    CHECK(cuMemAlloc(&total, sizeof source));
    CHECK(cuMemHostAlloc((void **)&pinned, sizeof source, 0));
    memset(pinned, 0, sizeof source);

    CUgraph graph = NULL, inner = NULL;
    CUgraphNode in = NULL, clear = NULL, work = NULL, out = NULL, back = NULL, host = NULL,
        nothing = NULL;
    CUgraphNode record = NULL, wait = NULL, child = NULL, inside = NULL;
    CHECK(cuGraphCreate(&graph, 0));
    CUDA_MEMCPY3D copy = {
        .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = source,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = a,
        .WidthInBytes = sizeof source, .Height = 1, .Depth = 1,
    };
    CHECK(cuGraphAddMemcpyNode(&in, graph, NULL, 0, &copy, context));
    CUDA_MEMSET_NODE_PARAMS set = {.dst = total, .value = 7, .elementSize = 4, .width = COUNT,
                                   .height = 1};
    CHECK(cuGraphAddMemsetNode(&clear, graph, NULL, 0, &set, context));
    void *parameters[] = {&a, &total, &total, &count};
    CUDA_KERNEL_NODE_PARAMS kernel = {
        .func = add, .gridDimX = 2, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 128, .blockDimY = 1,
        .blockDimZ = 1,
        .kernelParams = parameters,
    };
    CUgraphNode both[] = {in, clear};
    CHECK(cuGraphAddKernelNode(&work, graph, both, 2, &kernel));
    copy = copy_to_host(pinned, total, sizeof source);
    CHECK(cuGraphAddMemcpyNode(&out, graph, &work, 1, &copy, context));
    copy = copy_to_host(pageable, a, sizeof source);
    CHECK(cuGraphAddMemcpyNode(&back, graph, &in, 1, &copy, context));
    CUDA_HOST_NODE_PARAMS function = {.fn = count_up, .userData = &called};
    CHECK(cuGraphAddHostNode(&host, graph, &out, 1, &function));
    CHECK(cuGraphAddEmptyNode(&nothing, graph, &host, 1));
    CHECK(cuGraphAddEventRecordNode(&record, graph, &nothing, 1, event));
    CHECK(cuGraphAddEventWaitNode(&wait, graph, &record, 1, event));
    CHECK(cuGraphCreate(&inner, 0));
    set.dst = a, set.value = 1;
    CHECK(cuGraphAddMemsetNode(&inside, inner, NULL, 0, &set, context));
    CUgraphNode last[] = {wait, back, host};
    CHECK(cuGraphAddChildGraphNode(&child, graph, last, 3, inner));
    CHECK(cuGraphDestroy(inner)); /* the node has a copy */

    /* Queries. */
    CUgraphNode nodes[16];
    size_t number = 16;
    CHECK(cuGraphGetNodes(graph, nodes, &number));
    show("nodes", number);
    EXPECT(number == 10);
    number = 16;
    CHECK(cuGraphGetRootNodes(graph, nodes, &number));
    show("roots", number);
    EXPECT(number == 2);
    number = 0;
    CHECK(cuGraphGetEdges(graph, NULL, NULL, NULL, &number));
    show("edges", number);
    EXPECT(number == 11);
    CUgraphNode from[16], to[16];
    CUgraphEdgeData data[16];
    CHECK(cuGraphGetEdges(graph, from, to, data, &number));
    number = 16;
    CHECK(cuGraphNodeGetDependencies(work, nodes, NULL, &number));
    EXPECT(number == 2);
    number = 16;
    CHECK(cuGraphNodeGetDependentNodes(in, nodes, NULL, &number));
    EXPECT(number == 2);
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    CHECK(cuGraphNodeGetType(child, &type));
    EXPECT(type == CU_GRAPH_NODE_TYPE_GRAPH);
    CUDA_KERNEL_NODE_PARAMS asked_kernel;
    CHECK(cuGraphKernelNodeGetParams(work, &asked_kernel));
    EXPECT(asked_kernel.gridDimX == 2 && asked_kernel.blockDimX == 128);
    CUDA_MEMSET_NODE_PARAMS asked_set;
    CHECK(cuGraphMemsetNodeGetParams(clear, &asked_set));
    EXPECT(asked_set.dst == total && asked_set.value == 7 && asked_set.width == COUNT);
    CUDA_MEMCPY3D asked_copy;
    CHECK(cuGraphMemcpyNodeGetParams(out, &asked_copy));
    EXPECT(asked_copy.WidthInBytes == sizeof source);
    CUDA_HOST_NODE_PARAMS asked_host;
    CHECK(cuGraphHostNodeGetParams(host, &asked_host));
    EXPECT(asked_host.fn == count_up && asked_host.userData == &called);
    CUevent asked_event = NULL;
    CHECK(cuGraphEventRecordNodeGetEvent(record, &asked_event));
    EXPECT(asked_event == event);
    CHECK(cuGraphChildGraphNodeGetGraph(child, &inner));
    number = 16;
    CHECK(cuGraphGetNodes(inner, nodes, &number));
    EXPECT(number == 1);
    CHECK(cuGraphMemsetNodeGetParams(nodes[0], &asked_set));
    EXPECT(asked_set.dst == a && asked_set.value == 1);

    /* Changes. */
    set = (CUDA_MEMSET_NODE_PARAMS){.dst = total, .value = 5, .elementSize = 4, .width = COUNT,
                                    .height = 1};
    CHECK(cuGraphMemsetNodeSetParams(clear, &set));
    CHECK(cuGraphKernelNodeSetParams(work, &kernel));
    CHECK(cuGraphEventRecordNodeSetEvent(record, other));
    CHECK(cuGraphEventWaitNodeSetEvent(wait, other));
    CHECK(cuGraphRemoveDependencies(graph, &record, &wait, NULL, 1));
    CHECK(cuGraphAddDependencies(graph, &record, &wait, NULL, 1));
    CUkernelNodeAttrValue value = {.priority = 0};
    CHECK(cuGraphKernelNodeSetAttribute(work, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
    CHECK(cuGraphKernelNodeGetAttribute(work, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
    EXPECT(value.priority == 0);
    CUgraph clone = NULL;
    CUgraphNode twin = NULL;
    CHECK(cuGraphClone(&clone, graph));
    CHECK(cuGraphNodeFindInClone(&twin, clear, clone));
    CHECK(cuGraphMemsetNodeGetParams(twin, &asked_set));
    EXPECT(asked_set.value == 5);
    CHECK(cuGraphDestroyNode(nothing));

    /* Launches, each with different bytes in host memory. */
    CUgraphExec executable = NULL, second = NULL;
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    CUDA_GRAPH_INSTANTIATE_PARAMS how = {.hUploadStream = stream};
    CHECK(cuGraphInstantiateWithParams(&second, clone, &how));
    EXPECT(how.result_out == CUDA_GRAPH_INSTANTIATE_SUCCESS);
    cuuint64_t flags = 1;
    CHECK(cuGraphExecGetFlags(executable, &flags));
    EXPECT(flags == 0);
    CHECK(cuGraphUpload(executable, stream));
    for (uint32_t round = 0; round < 3; round++) {
        fill_source(100 * round);
        CHECK(cuGraphLaunch(round == 2 ? second : executable, stream));
        CHECK(cuStreamSynchronize(stream));
        EXPECT(memcmp(pageable, source, sizeof source) == 0);
        EXPECT_KERNEL(pinned[1] == 5 + 100 * round + 1);
        show_u32("pageable", pageable, COUNT);
    }
    EXPECT(called == 3);
    uint32_t after[COUNT];
    CHECK(cuMemcpyDtoH(after, a, sizeof after));
    show_u32("set by the child", after, COUNT);
    EXPECT(after[0] == 1 && after[COUNT - 1] == 1);

    CHECK(cuGraphExecDestroy(second));
    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphDestroy(clone));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuMemFreeHost(pinned));
    CHECK(cuMemFree(total));
    CHECK(cuMemFree(a));
    CHECK(cuEventDestroy(other));
    CHECK(cuEventDestroy(event));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
