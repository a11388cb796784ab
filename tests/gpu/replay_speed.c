/* A loop of launches that measures itself, between two calls of cuCtxGetApiVersion by which its
 * replay finds it.
 *   replay_speed host N    a kernel that does almost nothing: the host bounds the loop
 *   replay_speed packed N  the same with the parameters in one piece (`extra`): what that way
 *                          through the driver takes
 *   replay_speed gpu N     a kernel of about 50 us: the device bounds the loop
 * Prints the nanoseconds from before the first launch until all of them are done. */
#include "program.h"

#include <time.h>

/* spin(out, nanoseconds): waits so long by the device's clock of a microsecond or better; *out is
 * never written. */
PTX_TEXT PTX_SPIN[] = PTX_HEAD
    ".visible .entry spin(.param .u64 out, .param .u64 nanoseconds)\n{\n"
    " .reg .b64 %begin, %now, %wanted, %out;\n .reg .pred %early;\n"
    " ld.param.u64 %wanted, [nanoseconds];\n"
    " ld.param.u64 %out, [out];\n"
    " mov.u64 %begin, %globaltimer;\n"
    "again:\n"
    " mov.u64 %now, %globaltimer;\n"
    " sub.u64 %now, %now, %begin;\n"
    " setp.lt.u64 %early, %now, %wanted;\n"
    " @%early bra again;\n"
    " ret;\n}\n";

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

int main(int count, char **words)
{
    int of_device = count == 3 && strcmp(words[1], "gpu") == 0;
    int is_packed = count == 3 && strcmp(words[1], "packed") == 0;
    int launches = count == 3 ? atoi(words[2]) : 0;
    if (launches <= 0 || (!of_device && !is_packed && strcmp(words[1], "host") != 0)) {
        fputs("replay_speed host|packed|gpu N\n", stderr);
        return 2;
    }
    begin();
    CUmodule module = load_ptx(of_device ? PTX_SPIN : PTX_MARK);
    CUfunction kernel = function_of(module, of_device ? "spin" : "mark");
    CUdeviceptr out = 0;
    CUstream stream = NULL;
    uint64_t nanoseconds = 50000;
    unsigned version = 0;
    CHECK(cuMemAlloc(&out, 4096));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    void *pointers[] = {&out, &nanoseconds};
    size_t length = sizeof out;
    void *list[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &out, CU_LAUNCH_PARAM_BUFFER_SIZE, &length,
                    CU_LAUNCH_PARAM_END};
    void **parameters = is_packed ? NULL : pointers;
    void **extra = is_packed ? list : NULL;
    for (int i = 0; i < 1000; i++) /* warm up: clock rates, lazy loading */
        CHECK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, extra));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuCtxGetApiVersion(context, &version));
    double start = now();
    for (int i = 0; i < launches; i++)
        CHECK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, extra));
    CHECK(cuStreamSynchronize(stream));
    double end_of_loop = now();
    CHECK(cuCtxGetApiVersion(context, &version));
    printf("%.0f\n", end_of_loop - start);
    CHECK(cuStreamDestroy(stream));
    CHECK(cuMemFree(out));
    CHECK(cuModuleUnload(module));
    end();
    return 0;
}
