/* Ranges and marks, as the argument says. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "nvtx.h"
#include "program.h"

/* That many ranges of NVTX after the first call, each with a registered name. */
static void loop(int count)
{
    CHECK(cuInit(0));
    void *domain = nvtx_domain("library");
    NvtxAttributes attributes = {.version = 3, .size = sizeof attributes, .message_type = 3};
    attributes.message.registered = nvtx_register(domain, "registered");
    for (int i = 0; i < count; i++) {
        nvtx_domain_push(domain, &attributes);
        nvtx_mark("a mark");
        nvtx_domain_pop(domain);
    }
}

/* More markers before the first call than are kept, in a range. */
static void early(void)
{
    nvtx_push("outer");
    for (int i = 0; i < 20000; i++) {
        nvtx_push("inner");
        nvtx_pop();
    }
    CHECK(cuInit(0));
    nvtx_pop();
}

static void *marker_thread(void *name)
{
    for (int i = 0; i < 2000; i++) {
        nvtx_push(name);
        nvtx_pop();
    }
    return NULL;
}

/* Threads that never call the driver. */
static void threads(void)
{
    static char names[4][8] = {"one", "two", "three", "four"};
    pthread_t started[4];
    CHECK(cuInit(0));
    for (int i = 0; i < 4; i++)
        EXPECT(pthread_create(&started[i], NULL, marker_thread, names[i]) == 0);
    for (int i = 0; i < 4; i++)
        EXPECT(pthread_join(started[i], NULL) == 0);
}

/* A child that was forked within a range. */
static void forked(void)
{
    CHECK(cuInit(0));
    nvtx_push("parent");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int count = 0;
        nvtx_push("child");
        (void)cuDeviceGetCount(&count);
        nvtx_pop();
        exit(0);
    }
    EXPECT(waitpid(child, NULL, 0) == child);
    nvtx_pop();
}

/* Arguments that no correct program passes; without a tool they are ignored. */
static void wrong(void)
{
    CHECK(cuInit(0));
    nvtx_push(NULL);
    nvtx_pop();
    nvtx_pop();
    nvtx_end(12345);
    nvtx_mark((const char *)16);
    nvtx_mark_attributes(NULL);
    NvtxAttributes attributes = {.version = 3, .size = sizeof attributes, .message_type = 3};
    attributes.message.registered = (void *)0x7fff0000;
    nvtx_mark_attributes(&attributes);
    attributes.size = 8;
    nvtx_domain_push((void *)99999, &attributes);
}

int main(int count, char **arguments)
{
    EXPECT(count > 1);
    nvtx_attach();
    if (strcmp(arguments[1], "loop") == 0)
        loop(atoi(arguments[2]));
    else if (strcmp(arguments[1], "early") == 0)
        early();
    else if (strcmp(arguments[1], "threads") == 0)
        threads();
    else if (strcmp(arguments[1], "forked") == 0)
        forked();
    else if (strcmp(arguments[1], "wrong") == 0)
        wrong();
    else if (strcmp(arguments[1], "nothing") == 0)
        nvtx_mark("and no call");
    else if (strcmp(arguments[1], "killed") == 0) {
        CHECK(cuInit(0));
        nvtx_push("until the end");
        raise(SIGKILL);
    } else if (strcmp(arguments[1], "wait") == 0) {
        /* Between two calls, until a line comes. */
        CHECK(cuInit(0));
        puts("ready");
        fflush(stdout);
        getchar();
        CHECK(cuInit(0));
    } else
        return 2;
    return success();
}
