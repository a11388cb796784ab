// An array is copied to the host in a thread of a data frame, which has no context: the functions
// that transfer memory do not get one, unlike those that create an array. The control's do.
// https://github.com/numba/numba/issues/2522
// expect: context-none-current
#include "program.h"

#include <pthread.h>

struct array {
    CUdeviceptr memory;
    size_t size;
};

static void require_context(void)
{
    CUcontext current = NULL;
    CHECK(cuCtxGetCurrent(&current));
    if (current == NULL)
        CHECK(cuCtxSetCurrent(context));
}

static void create(struct array *array, size_t size)
{
    require_context();
    array->size = size;
    CHECK(cuMemAlloc(&array->memory, size));
    CHECK(cuMemsetD8(array->memory, 7, size));
}

static void *copy_to_host(void *argument)
{
    const struct array *array = argument;
    unsigned char *values = malloc(array->size);
    EXPECT(values != NULL);
#ifndef VIOLATE
    require_context();
#endif
    MISUSE(cuMemcpyDtoH(values, array->memory, array->size));
    free(values);
    return NULL;
}

int main(void)
{
    begin();
    struct array array;
    create(&array, 4096);
    copy_to_host(&array);
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, copy_to_host, &array) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
    CHECK(cuMemFree(array.memory));
    end();
    return success();
}
