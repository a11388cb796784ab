// may: errors-deprecated-api
/* Host functions and stream callbacks: in order, with their data, no driver call inside. */
#include "program.h"

struct line {
    int length;
    int order[16];
};

struct note {
    struct line *line;
    int number;
};

static void append(struct note *note)
{
    note->line->order[note->line->length++] = note->number;
}

static void host_function(void *data)
{
    append(data);
}

static void callback(CUstream stream, CUresult status, void *data)
{
    (void)stream;
    if (status == CUDA_SUCCESS)
        append(data);
}

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUdeviceptr memory = 0;
    struct line line = {0};
    struct note notes[6];
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&memory, 1 << 20));
    for (int i = 0; i < 6; i++) {
        notes[i] = (struct note){&line, i};
        CHECK(cuMemsetD8Async(memory, (unsigned char)i, 1 << 20, stream));
        if (i % 2 == 0)
            CHECK(cuLaunchHostFunc(stream, host_function, &notes[i]));
        else
            CHECK(cuStreamAddCallback(stream, callback, &notes[i], 0));
    }
    CHECK(cuStreamSynchronize(stream));
    EXPECT(line.length == 6);
    for (int i = 0; i < line.length; i++) {
        EXPECT(line.order[i] == i);
        printf("called: %d\n", line.order[i]);
    }
    CHECK(cuMemFree(memory));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
