/* The cheapest possible tracer with CUPTI, for comparison: at entry and exit of each driver call, a
 * callback stores time, function, side and correlation number in a ring buffer of its thread. The
 * driver loads it (CUDA_INJECTION64_PATH); CUPTI_LIBRARY names CUPTI. It needs no headers of CUPTI:
 * what it uses is declared here. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <x86intrin.h>

/* The members of CUpti_CallbackData, in their order. */
struct callback_data {
    int site;
    const char *function_name;
    const void *parameters;
    void *result;
    const char *symbol_name;
    void *context;
    uint32_t context_number;
    uint64_t *correlation_data;
    uint32_t correlation;
};

enum { DRIVER_API = 1, RING = 4096 };

struct event {
    uint64_t ticks;
    uint32_t function, site;
    uint64_t correlation;
};

static __thread struct event ring[RING];
static __thread unsigned filled;

static void on_call(void *user, int domain, uint32_t function, const void *given)
{
    const struct callback_data *data = given;
    struct event *event = &ring[filled++ % RING];
    (void)user, (void)domain;
    event->ticks = __rdtsc();
    event->function = function;
    event->site = data->site;
    event->correlation = data->correlation;
}

/* The driver calls this from cuInit. */
int InitializeInjection(void)
{
    const char *path = getenv("CUPTI_LIBRARY");
    void *cupti = dlopen(path ? path : "libcupti.so", RTLD_NOW);
    int (*subscribe)(void **, void *, void *) = cupti
        ? (int (*)(void **, void *, void *))dlsym(cupti, "cuptiSubscribe") : NULL;
    int (*enable)(uint32_t, void *, int) = cupti
        ? (int (*)(uint32_t, void *, int))dlsym(cupti, "cuptiEnableDomain") : NULL;
    void *subscriber;
    if (subscribe == NULL || enable == NULL) {
        fprintf(stderr, "cupti_callbacks: %s\n", cupti ? "not CUPTI" : dlerror());
        return 0;
    }
    int subscribed = subscribe(&subscriber, (void *)on_call, NULL);
    int enabled = subscribed == 0 ? enable(1, subscriber, DRIVER_API) : -1;
    if (subscribed != 0 || enabled != 0)
        fprintf(stderr, "cupti_callbacks: subscribing gave %d, enabling %d\n", subscribed, enabled);
    return subscribed == 0 && enabled == 0;
}
