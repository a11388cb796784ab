// A captured launch runs after its module was unloaded; the control unloads the module after the
// executable graph was destroyed.
// expect: graph-baked-module-unloaded
#include "program.h"

int main(void)
{
    begin();
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUmodule module = load_ptx(PTX_NOTHING);
    CUfunction nothing = function_of(module, "nothing");
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    launch(nothing, 1, 32, stream, NULL);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiate(&executable, graph, 0));
#ifdef VIOLATE
    CHECK(cuModuleUnload(module));
#endif
    MISUSE(cuGraphLaunch(executable, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphDestroy(graph));
#ifndef VIOLATE
    CHECK(cuModuleUnload(module));
#endif
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
