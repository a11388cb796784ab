/* Rounds of a buffer that a kernel and a memset write, and that is looked at, each in a range of NVTX.
 *   debugged ROUNDS
 * Prints the lines that debug.py reads: which range writes the number at which offset; for each round
 * the address of the buffer, how many numbers it has, the first ones, smallest, largest, mean and
 * variance. */
#include "nvtx.h"
#include "program.h"

enum { COUNT = 4096, SHOWN = 4 };

/* scale(numbers, n): each number but the last is multiplied with 1.0009765625, and 1 added. */
static const char PTX_SCALE[] = PTX_HEAD
    ".visible .entry scale(.param .u64 numbers, .param .u32 n)\n{\n"
    " .reg .b64 %numbers, %at;\n .reg .b32 %n, %i, %block, %threads;\n .reg .f32 %value;\n"
    " .reg .pred %done;\n"
    " ld.param.u64 %numbers, [numbers];\n ld.param.u32 %n, [n];\n"
    " cvta.to.global.u64 %numbers, %numbers;\n"
    " mov.u32 %i, %tid.x;\n mov.u32 %block, %ctaid.x;\n mov.u32 %threads, %ntid.x;\n"
    " mad.lo.u32 %i, %block, %threads, %i;\n sub.u32 %n, %n, 1;\n"
    " setp.ge.u32 %done, %i, %n;\n @%done bra finished;\n"
    " mul.wide.u32 %at, %i, 4;\n add.u64 %at, %numbers, %at;\n"
    " ld.global.f32 %value, [%at];\n"
    " fma.rn.f32 %value, %value, 0f3F802000, 0f3F800000;\n"
    " st.global.f32 [%at], %value;\n"
    "finished:\n ret;\n}\n";

static void print_round(int round, CUdeviceptr numbers, const float *host)
{
    double sum = 0, squares = 0;
    float least = host[0], most = host[0];
    for (int i = 0; i < COUNT; i++) {
        sum += host[i];
        least = host[i] < least ? host[i] : least;
        most = host[i] > most ? host[i] : most;
    }
    for (int i = 0; i < COUNT; i++)
        squares += (host[i] - sum / COUNT) * (host[i] - sum / COUNT);
    printf("ROUND %d %#llx %d", round, numbers, COUNT);
    for (int i = 0; i < SHOWN; i++)
        printf(" %.9g", host[i]);
    printf(" %.9g %.9g %.17g %.17g\n", least, most, sum / COUNT, squares / COUNT);
}

int main(int count, char **words)
{
    int rounds = count == 2 ? atoi(words[1]) : 0;
    nvtx_attach();
    begin();
    CUmodule module = load_ptx(PTX_SCALE);
    CUfunction scale = function_of(module, "scale");
    CUdeviceptr numbers, other;
    static float host[COUNT];
    for (int i = 0; i < COUNT; i++)
        host[i] = i * 0.25f;
    CHECK(cuMemAlloc(&numbers, sizeof host));
    CHECK(cuMemAlloc(&other, sizeof host));
    CHECK(cuMemcpyHtoD(numbers, host, sizeof host));
    printf("WRITES write 0\nWRITES mark %zu\n", sizeof host - 4);
    uint32_t n = COUNT;
    void *parameters[] = {&numbers, &n}, *others[] = {&other, &n};
    for (int round = 0; round < rounds; round++) {
        CHECK(cuMemsetD32(other, round, COUNT));
        launch(scale, COUNT / 256, 256, NULL, others);
        nvtx_push("write");
        launch(scale, COUNT / 256, 256, NULL, parameters);
        nvtx_pop();
        nvtx_push("mark");
        CHECK(cuMemsetD32(numbers + sizeof host - 4, 0x3f800000 + round, 1));
        nvtx_pop();
        nvtx_push("look");
        CHECK(cuMemcpyDtoH(host, numbers, sizeof host));
        nvtx_pop();
        print_round(round, numbers, host);
    }
    CHECK(cuMemFree(numbers));
    CHECK(cuMemFree(other));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
