/* Ends and behaves as its first argument says, in ways that a recorder must survive. The second
 * argument is a number of calls. */
#include "program.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/resource.h>

static sigjmp_buf place;

/* Calls that `at_unload` makes. */
static unsigned at_unload_count;

static void jump_out(int number)
{
    siglongjmp(place, number);
}

/* Called by the driver, inside a call that fails. */
static void ask(void *unused UNUSED, CUlogLevel level UNUSED, char *text UNUSED, size_t length UNUSED)
{
    int version = 0;
    CHECK(cuDriverGetVersion(&version));
}

/* Calls that are easy to count. */
static void synchronise(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        CHECK(cuCtxSynchronize());
}

/* Closes all descriptors except the standard ones, then opens files until each number is in
 * use. */
static void take_descriptors(unsigned count)
{
    enum { FIRST = 3, LAST = 700 };
    for (int descriptor = FIRST; descriptor <= LAST; descriptor++)
        close(descriptor);
    struct rlimit limit;
    EXPECT(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    if (limit.rlim_cur < LAST + 1) {
        limit.rlim_cur = LAST + 1;
        EXPECT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    }
    char path[64];
    write_temporary(path, "mine", 4);
    int descriptor;
    do {
        descriptor = open(path, O_RDWR);
        EXPECT(descriptor >= 0);
    } while (descriptor < LAST);
    synchronise(count);
    char text[16];
    for (descriptor = FIRST; descriptor <= LAST; descriptor++)
        EXPECT(pread(descriptor, text, sizeof text, 0) == 4 && memcmp(text, "mine", 4) == 0);
    unlink(path);
}

/* Runs after the handlers of `atexit`, that of the driver among them, before the destructors of
 * libraries. */
__attribute__((destructor)) static void at_unload(void)
{
    for (unsigned i = 0; i < at_unload_count; i++)
        EXPECT(cuCtxSynchronize() == CUDA_ERROR_DEINITIALIZED);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "end";
    unsigned count = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 10;
    begin();
    printf("begun\n");
    if (strcmp(how, "errno") == 0) {
        /* the driver may change errno; the test compares its values with and without cutape */
        CUdeviceptr memory = 0;
        for (unsigned i = 0; i < count; i++) {
            errno = 77;
            CHECK(cuMemAlloc(&memory, 64 << 10));
            printf("%d ", errno);
            errno = 78;
            CHECK(cuMemsetD8(memory, 0, 16));
            printf("%d ", errno);
            CHECK(cuMemFree(memory));
            printf("%d\n", errno);
        }
    } else if (strcmp(how, "destructor") == 0) {
        at_unload_count = count;
        return success();
    } else if (strcmp(how, "descriptors") == 0) {
        take_descriptors(count);
    } else if (strcmp(how, "handler") == 0) {
        /* a program that handles its faults is recorded after them */
        struct sigaction action = {.sa_handler = jump_out, .sa_flags = SA_NODEFER};
        EXPECT(sigaction(SIGSEGV, &action, NULL) == 0);
        for (unsigned i = 0; i < count; i++) {
            if (sigsetjmp(place, 1) == 0)
                raise(SIGSEGV);
            CHECK(cuCtxSynchronize());
        }
    } else if (strcmp(how, "callback") == 0) {
        CUlogsCallbackHandle handle = NULL;
        CHECK(cuLogsRegisterCallback(ask, NULL, &handle));
        CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(NULL, 1));
        CHECK(cuLogsUnregisterCallback(handle));
    } else if (strcmp(how, "misuse") == 0) {
        /* frees memory twice, again and again, and never ends */
        for (CUdeviceptr memory = 0;; memory = 0) {
            CHECK(cuMemAlloc(&memory, 4096));
            CHECK(cuMemFree(memory));
            MISUSE(cuMemFree(memory));
            usleep(count);
        }
    } else {
        synchronise(count);
    }

    if (strcmp(how, "kill") == 0)
        raise(SIGKILL);
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "fault") == 0)
        raise(SIGSEGV);
    if (strcmp(how, "exit") == 0)
        exit(3);
    if (strcmp(how, "_exit") == 0)
        _exit(4);
    if (strcmp(how, "exec") == 0) {
        execl(argv[0], argv[0], "end", argv[2], (char *)NULL);
        return 1;
    }
    if (strcmp(how, "pause") == 0) {
        printf("waiting\n");
        for (;;)
            pause();
    }
    end();
    return success();
}
