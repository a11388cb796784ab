/* Launches in two pieces of memory, for the tests of play; a macro changes them:
 *   APART       two launches that share no memory, in the other order
 *   SHARED      two launches in the same memory, in the other order
 *   PARAMETER   the launch in the first memory starts with another value
 *   ADDITIONAL  one launch more in the first memory
 *   LEFT_OUT    the launch in the first memory is not made
 *   UPLOAD      the first memory gets other bytes before a kernel reads it
 *   CODE        the kernel of the first memory comes from another image
 *   PINNED      as PARAMETER, for a kernel that writes page-locked memory
 *   COPY        a copy to the host is longer
 *   GRAPH       as PARAMETER, in a graph
 * The second memory is read first. */
#include "program.h"

enum { COUNT = 64, BYTES = COUNT * sizeof(uint32_t) };

#ifdef CODE
#define PTX_FIRST PTX_THREE
#else
#define PTX_FIRST PTX_FILL
#endif
#if defined PARAMETER || defined PINNED || defined GRAPH
enum { FIRST = 7 };
#else
enum { FIRST = 1000 };
#endif

static uint32_t sum(const uint32_t *values)
{
    uint32_t all = 0;
    for (int i = 0; i < COUNT; i++)
        all += values[i];
    return all;
}

static void write_values(CUfunction fill, CUdeviceptr memory, uint32_t start)
{
    uint32_t count = COUNT;
    void *parameters[] = {&memory, &start, &count};
    launch(fill, 1, COUNT, NULL, parameters);
}

int main(void)
{
    begin();
    CUmodule first_module = load_ptx(PTX_FIRST), second_module = load_ptx(PTX_FILL);
    CUfunction of_first UNUSED = function_of(first_module, "fill");
    CUfunction of_second = function_of(second_module, "fill");
    CUdeviceptr first = 0, second = 0, third = 0;
    CHECK(cuMemAlloc(&first, BYTES));
    CHECK(cuMemAlloc(&second, BYTES));
    CHECK(cuMemAlloc(&third, BYTES));
    static uint32_t values[2 * COUNT];
#ifdef UPLOAD
    values[3] = 1;
#endif
    CHECK(cuMemcpyHtoD(first, values, BYTES));
#ifdef APART
    write_values(of_second, second, 2000);
    write_values(of_first, first, FIRST);
#else
#ifndef LEFT_OUT
    write_values(of_first, first, FIRST);
#endif
    write_values(of_second, second, 2000);
#endif
#ifdef ADDITIONAL
    write_values(of_first, first, 5);
#endif
#ifdef SHARED
    write_values(of_second, third, 4000);
    write_values(of_second, third, 3000);
#else
    write_values(of_second, third, 3000);
    write_values(of_second, third, 4000);
#endif
#ifdef USES_PINNED
    uint32_t *pinned = NULL;
    CHECK(cuMemHostAlloc((void **)&pinned, BYTES, CU_MEMHOSTALLOC_DEVICEMAP));
    write_values(of_first, (CUdeviceptr)pinned, FIRST);
#endif
#ifdef USES_GRAPH
    CUstream stream = NULL;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    uint32_t start = FIRST, count = COUNT;
    void *parameters[] = {&first, &start, &count};
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    launch(of_second, 1, COUNT, stream, parameters);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    CHECK(cuGraphLaunch(exec, NULL));
#endif
    CHECK(cuMemcpyDtoH(values, second, BYTES));
    printf("second %u\n", sum(values));
    fflush(stdout);
#ifdef USES_PINNED
    printf("pinned %u\n", sum(pinned));
#endif
#ifdef COPY
    CHECK(cuMemcpyDtoH(values, first, BYTES / 2));
#else
    CHECK(cuMemcpyDtoH(values, first, BYTES));
#endif
    printf("first %u\n", sum(values));
    end();
    return success();
}
