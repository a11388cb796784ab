// Events that a program has queried are queried again in batches with the next ones, also those
// that it has destroyed meanwhile. The control takes an event out of the table when it is
// destroyed.
// https://github.com/lupinemachines/lupine/pull/526
// expect: event-use-after-destroy
// may-crash: SIGSEGV
#include "program.h"

enum { MOST = 4 };

static CUevent table[MOST];
static int known;

static void query(CUevent event)
{
    table[known++] = event;
    for (int i = 0; i < known; i++)
        MISUSE(cuEventQuery(table[i]));
}

static void destroy(CUevent event)
{
#ifndef VIOLATE
    for (int i = 0; i < known; i++)
        if (table[i] == event)
            table[i--] = table[--known];
#endif
    CHECK(cuEventDestroy(event));
}

int main(void)
{
    begin();
    CUstream stream = NULL;
    CUevent first = NULL, second = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&first, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&second, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventRecord(first, stream));
    CHECK(cuEventRecord(second, stream));
    CHECK(cuStreamSynchronize(stream));
    query(first);
    destroy(first);
    query(second);
    destroy(second);
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
