/* Objects that one thread creates and another uses and destroys, and two threads that create and
 * destroy at the same time, so that each gets handles and addresses that the other has just
 * released. */
// may: performance-allocation-churn
#include "program.h"

#include <pthread.h>

enum { PARCELS = 40, COUNT = 256, ROUNDS = 150 };

/* One parcel at a time goes from the producer to the consumer. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct parcel {
    int full;
    CUdeviceptr memory;
    CUstream stream;
    CUevent event;
} parcel;

static void *make(void *unused)
{
    (void)unused;
    CHECK(cuCtxSetCurrent(context));
    for (uint32_t number = 0; number < PARCELS; number++) {
        struct parcel next = {.full = 1};
        CHECK(cuStreamCreate(&next.stream, CU_STREAM_NON_BLOCKING));
        CHECK(cuEventCreate(&next.event, CU_EVENT_DISABLE_TIMING));
        CHECK(cuMemAlloc(&next.memory, COUNT * sizeof number));
        CHECK(cuMemsetD32Async(next.memory, number, COUNT, next.stream));
        CHECK(cuEventRecord(next.event, next.stream));
        pthread_mutex_lock(&lock);
        while (parcel.full)
            pthread_cond_wait(&changed, &lock);
        parcel = next;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static void *take(void *sum)
{
    CHECK(cuCtxSetCurrent(context));
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (uint32_t number = 0; number < PARCELS; number++) {
        pthread_mutex_lock(&lock);
        while (!parcel.full)
            pthread_cond_wait(&changed, &lock);
        struct parcel taken = parcel;
        parcel.full = 0;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
        uint32_t values[COUNT] = {0};
        CHECK(cuStreamWaitEvent(stream, taken.event, 0));
        CHECK(cuMemcpyDtoHAsync(values, taken.memory, sizeof values, stream));
        CHECK(cuStreamSynchronize(stream));
        EXPECT(values[0] == number && values[COUNT - 1] == number);
        *(uint64_t *)sum += values[COUNT / 2];
        CHECK(cuMemFree(taken.memory));
        CHECK(cuEventDestroy(taken.event));
        CHECK(cuStreamDestroy(taken.stream));
    }
    CHECK(cuStreamDestroy(stream));
    return NULL;
}

/* Both threads at once, without waiting for each other. */
static void *churn(void *seed)
{
    uint32_t value = *(uint32_t *)seed;
    CHECK(cuCtxSetCurrent(context));
    for (uint32_t round = 0; round < ROUNDS; round++, value++) {
        CUstream stream = NULL;
        CUdeviceptr memory = 0;
        uint32_t back = 0;
        CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        CHECK(cuMemAlloc(&memory, 512 * (1 + round % 3)));
        CHECK(cuMemcpyHtoDAsync(memory, &value, sizeof value, stream));
        CHECK(cuMemcpyDtoHAsync(&back, memory, sizeof back, stream));
        CHECK(cuStreamSynchronize(stream));
        EXPECT(back == value);
        CHECK(cuMemFree(memory));
        CHECK(cuStreamDestroy(stream));
    }
    *(uint32_t *)seed = value;
    return NULL;
}

int main(void)
{
    begin();
    pthread_t threads[2];
    uint64_t sum = 0;
    EXPECT(pthread_create(&threads[0], NULL, make, NULL) == 0);
    EXPECT(pthread_create(&threads[1], NULL, take, &sum) == 0);
    for (int i = 0; i < 2; i++)
        EXPECT(pthread_join(threads[i], NULL) == 0);
    show("sum of what was taken", sum);
    uint32_t values[2] = {1000, 2000};
    for (int i = 0; i < 2; i++)
        EXPECT(pthread_create(&threads[i], NULL, churn, &values[i]) == 0);
    for (int i = 0; i < 2; i++)
        EXPECT(pthread_join(threads[i], NULL) == 0);
    show("first", values[0]);
    show("second", values[1]);
    end();
    return success();
}
