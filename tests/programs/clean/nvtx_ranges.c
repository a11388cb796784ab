/* Ranges and marks of NVTX: before the first call, nested, repeated, on two threads, in a domain, with
 * registered and wide texts and payloads; and the recorder's own functions. */
#include <pthread.h>

#include "nvtx.h"
#include "program.h"

static CUfunction nothing;
static uint64_t shared;

static void steps(const char *name, int count)
{
    for (int i = 0; i < count; i++) {
        EXPECT(nvtx_push(name) == -2);
        nvtx_push("forward");
        launch(nothing, 1, 32, NULL, NULL);
        nvtx_pop();
        nvtx_push("backward");
        launch(nothing, 2, 32, NULL, NULL);
        launch(nothing, 3, 32, NULL, NULL);
        nvtx_pop();
        EXPECT(nvtx_pop() == -2);
    }
}

static void *other(void *unused)
{
    (void)unused;
    CHECK(cuCtxSetCurrent(context));
    nvtx_push("validate");
    launch(nothing, 4, 32, NULL, NULL);
    nvtx_pop();
    nvtx_end(shared);
    CHECK(cuCtxSetCurrent(NULL));
    return NULL;
}

/* A function of the recorder, if there is one. */
static void *own_function(const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    EXPECT(driver != NULL);
    void *function = dlsym(driver, name);
    return function != NULL ? function : dlsym(RTLD_DEFAULT, name);
}

int main(void)
{
    nvtx_attach();
    nvtx_push("train");
    nvtx_mark("before the first call");
    begin();
    CUmodule module = load_ptx(PTX_NOTHING);
    nothing = function_of(module, "nothing");
    steps("step", 5);
    nvtx_push_wide(L"l\u00e4nger");
    launch(nothing, 5, 32, NULL, NULL);
    nvtx_pop();

    void *domain = nvtx_domain("library");
    NvtxAttributes attributes = {.version = 3, .size = sizeof attributes, .message_type = 3};
    attributes.message.registered = nvtx_register(domain, "registered");
    attributes.payload_type = 2;
    attributes.payload.i64 = -7;
    attributes.color_type = 1;
    attributes.color = 0xff00ff00;
    EXPECT(nvtx_domain_push(domain, &attributes) == -2);
    launch(nothing, 6, 32, NULL, NULL);
    EXPECT(nvtx_domain_pop(domain) == -2);
    attributes.message_type = 1;
    attributes.message.bytes = "with payload";
    nvtx_mark_attributes(&attributes);

    shared = nvtx_start("shared");
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, other, NULL) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);

    void (*mark)(const char *) = (void (*)(const char *))own_function("cutape_mark");
    void (*push)(const char *) = (void (*)(const char *))own_function("cutape_range_push");
    void (*pop)(void) = (void (*)(void))own_function("cutape_range_pop");
    if (mark != NULL && push != NULL && pop != NULL) {
        push("own");
        mark("own mark");
    }
    launch(nothing, 7, 32, NULL, NULL);
    if (pop != NULL)
        pop();
    nvtx_pop();
    CHECK(cuCtxSynchronize());
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
