// Two graphs captured in one stream use its workspace, which is freed with the first of them that
// is destroyed; the control keeps it until no graph needs it.
// https://github.com/pytorch/pytorch/issues/193402
// expect: graph-baked-pointer-freed
// may: errors-async-misattributed errors-sticky-continue
#include "program.h"

static CUdeviceptr workspace;
static int users;

static CUgraphExec capture(CUfunction multiply, CUstream stream)
{
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    uint32_t start = 1, count = 64;
    if (!workspace)
        CHECK(cuMemAlloc(&workspace, 1 << 16));
    users++;
    void *parameters[] = {&workspace, &start, &count};
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    launch(multiply, 1, 64, stream, parameters);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    CHECK(cuGraphDestroy(graph));
    return executable;
}

static void reset(CUgraphExec executable)
{
    CHECK(cuGraphExecDestroy(executable));
    users--;
#ifndef VIOLATE
    if (users > 0)
        return;
#endif
    if (workspace)
        CHECK(cuMemFree(workspace));
    workspace = 0;
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_FILL);
    CUfunction multiply = function_of(module, "fill");
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUgraphExec training = capture(multiply, stream);
    CUgraphExec evaluation = capture(multiply, stream);
    CHECK(cuGraphLaunch(evaluation, stream));
    CHECK(cuStreamSynchronize(stream));
    reset(evaluation);
    MISUSE(cuGraphLaunch(training, stream));
    MISUSE(cuStreamSynchronize(stream));
    reset(training);
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
