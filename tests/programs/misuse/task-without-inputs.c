// Tasks run on streams of a pool and begin behind the start event of a stream that captures, unless
// they only write data: such a task is not captured, and the stream waits for it. The control lets
// every task begin behind the start event.
// https://github.com/NVIDIA/cccl/pull/8674
// expect: stream-capture-cross-dependency
#include "program.h"

enum { TASKS = 2, PART = 4096 };

struct task {
    CUstream stream;
    CUevent done;
    int has_inputs;
};

static void submit(const struct task *task, CUevent start, CUdeviceptr memory)
{
#ifdef VIOLATE
    if (task->has_inputs)
#endif
        CHECK(cuStreamWaitEvent(task->stream, start, 0));
    CHECK(cuMemsetD8Async(memory, 1, PART, task->stream));
    CHECK(cuEventRecord(task->done, task->stream));
}

int main(void)
{
    begin();
    CUstream user = NULL;
    CUevent start = NULL;
    CUdeviceptr memory = 0;
    CUgraph graph = NULL;
    struct task tasks[TASKS] = {{.has_inputs = 1}, {.has_inputs = 0}};
    CHECK(cuStreamCreate(&user, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&start, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc(&memory, TASKS * PART));
    for (int i = 0; i < TASKS; i++) {
        CHECK(cuStreamCreate(&tasks[i].stream, CU_STREAM_NON_BLOCKING));
        CHECK(cuEventCreate(&tasks[i].done, CU_EVENT_DISABLE_TIMING));
    }
    CHECK(cuStreamBeginCapture(user, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuEventRecord(start, user));
    for (int i = 0; i < TASKS; i++)
        submit(&tasks[i], start, memory + (CUdeviceptr)i * PART);
    for (int i = 0; i < TASKS; i++)
        MISUSE(cuStreamWaitEvent(user, tasks[i].done, 0));
    if (cuStreamEndCapture(user, &graph) == CUDA_SUCCESS)
        CHECK(cuGraphDestroy(graph));
    for (int i = 0; i < TASKS; i++) {
        CHECK(cuStreamSynchronize(tasks[i].stream));
        CHECK(cuEventDestroy(tasks[i].done));
        CHECK(cuStreamDestroy(tasks[i].stream));
    }
    CHECK(cuMemFree(memory));
    CHECK(cuEventDestroy(start));
    CHECK(cuStreamDestroy(user));
    end();
    return success();
}
