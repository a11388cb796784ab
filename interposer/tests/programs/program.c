/* Programs that are hard to record; the first argument selects one, which prints what it sees. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

typedef unsigned long long ptr;
int cuInit(unsigned);
int cuCtxGetCurrent(void **);
int cuCtxSynchronize(void);
int cuStreamSynchronize(void *);
int cuEventSynchronize(void *);
int cuLaunchHostFunc(void *, void (*)(void *), void *);
int cuMemcpyHtoD_v2(ptr, const void *, size_t);
int cuMemcpyDtoHAsync_v2(void *, ptr, size_t, void *);
int cuMemcpyBatchAsync_v2(ptr *, ptr *, size_t *, size_t, void *, size_t *, size_t, void *);
int cuMemcpy3DBatchAsync_v2(size_t, void *, ptr, void *);
int cuModuleLoad(void **, const char *);
int cuModuleLoadData(void **, const void *);
int cuModuleUnload(void *);
int cuModuleGetFunction(void **, void *, const char *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   void *, void **, void **);
int cuParamSetf(void *, int, float);
int cuMemHostRegister_v2(void *, size_t, unsigned);
int cuMemHostUnregister(void *);

/* In faults.c. */
void program_no_memory(void);
void program_no_descriptors(void);
void program_fork_storm(void);
void program_cancel_anywhere(void);
void program_exit_at_thread_end(void);

static jmp_buf place;
static volatile int reached;

static void jump(void *data) { (void)data; longjmp(place, 1); }

static void __attribute__((noinline)) synchronise_deep(int depth)
{
    volatile char room[512];
    memset((void *)room, depth, sizeof room);
    if (depth > 0)
        synchronise_deep(depth - 1);
    else
        printf("deep %d\n", cuCtxSynchronize());
    room[0] = 0;
}

/* A call that is left by a jump, then calls from above and from below its frame. */
static void program_jump(void)
{
    if (setjmp(place) == 0)
        cuLaunchHostFunc(0, jump, 0);
    synchronise_deep(20);
    if (setjmp(place) == 0)
        cuLaunchHostFunc(0, jump, 0);
    printf("%d\n", cuCtxSynchronize());
    synchronise_deep(3);
}

static void nested(void *data) { *(int *)data = cuCtxSynchronize() + 5; }

static void program_nested(void)
{
    int result = 0;
    printf("%d ", cuLaunchHostFunc(0, nested, &result));
    printf("%d\n", result);
}

static pthread_key_t key;
static void at_thread_end(void *value) { (void)value; reached += cuCtxSynchronize() + 1; }

static void *wait_for_cancellation(void *data)
{
    (void)data;
    pthread_setspecific(key, &key);
    cuEventSynchronize(0);
    return 0;
}

static void end_thread(void *data) { pthread_exit(data); }

static void *exit_inside(void *data)
{
    pthread_setspecific(key, &key);
    cuLaunchHostFunc(0, end_thread, data);
    return 0;
}

/* A thread that ends itself within a call. */
static void program_exit_inside(void)
{
    pthread_t thread;
    void *result;
    pthread_key_create(&key, at_thread_end);
    pthread_create(&thread, 0, exit_inside, &key);
    pthread_join(thread, &result);
    printf("%d %d\n", result == &key, reached);
}

static void program_cancel(void)
{
    pthread_t thread;
    void *result;
    pthread_key_create(&key, at_thread_end);
    pthread_create(&thread, 0, wait_for_cancellation, 0);
    usleep(200000);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    printf("%d %d\n", result == PTHREAD_CANCELED, reached);
}

static void *copy_while_cancelled(void *data)
{
    int old;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    pthread_cancel(pthread_self());
    cuInit(0);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
    cuMemcpyHtoD_v2(0, data, 1 << 20);
    reached = 1;
    pthread_testcancel();
    reached = 2;
    return 0;
}

/* A copy of memory is not a cancellation point. */
static void program_cancelled_copy(void)
{
    pthread_t thread;
    void *result;
    pthread_create(&thread, 0, copy_while_cancelled, calloc(1, 1 << 20));
    pthread_join(thread, &result);
    printf("%d %d\n", result == PTHREAD_CANCELED, reached);
}

static void *one_call(void *data)
{
    *(int *)data += 1 + cuCtxSynchronize();
    return 0;
}

static int mappings(void)
{
    char line[4096];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps))
        count += strstr(line, ".cutape") != 0;
    fclose(maps);
    return count;
}

static void program_short_threads(void)
{
    int calls = 0;
    for (int i = 0; i < 2000; i++) {
        pthread_t thread;
        pthread_create(&thread, 0, one_call, &calls);
        pthread_join(thread, 0);
    }
    printf("%d %d\n", calls, mappings() < 20);
}

static pthread_barrier_t barrier;

static void *call_and_wait(void *data)
{
    cuCtxSynchronize();
    pthread_barrier_wait(&barrier);
    cuCtxSynchronize();
    return data;
}

static void program_many_threads(void)
{
    enum { COUNT = 2000 };
    static pthread_t threads[COUNT];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    pthread_barrier_init(&barrier, 0, COUNT);
    for (int i = 0; i < COUNT; i++)
        if (pthread_create(&threads[i], &attributes, call_and_wait, 0))
            exit(9);
    for (int i = 0; i < COUNT; i++)
        pthread_join(threads[i], 0);
    printf("done\n");
}

/* No file may become longer than that. */
static void limit_files(rlim_t bytes)
{
    struct rlimit limit = {bytes, bytes};
    setrlimit(RLIMIT_FSIZE, &limit);
}

static void program_file_limit(void)
{
    char *data = calloc(1, 1 << 20);
    int sum = cuInit(0);
    limit_files(3 << 20);
    for (int i = 0; i < 20; i++) {
        /* Bytes that have not changed are not written again. */
        data[0] = (char)i;
        errno = 55;
        sum += cuMemcpyHtoD_v2(0, data, 1 << 20) + errno;
        sum += cuCtxSynchronize() + errno;
    }
    for (int i = 0; i < 100000; i++)
        sum += cuCtxSynchronize();
    printf("%d\n", sum);
}

static void program_close_all(void)
{
    cuInit(0);
    for (int descriptor = 3; descriptor < 1024; descriptor++)
        close(descriptor);
    chdir("/");
    for (int i = 0; i < 50000; i++)
        cuCtxSynchronize();
    printf("closed\n");
}

static void program_pipe(void)
{
    char path[] = "pipe-XXXXXX", name[64];
    void *module;
    mkdtemp(path);
    snprintf(name, sizeof name, "%s/pipe", path);
    mkfifo(name, 0600);
    if (fork() == 0) {
        int descriptor = open(name, O_WRONLY);
        write(descriptor, "ABC", 3);
        usleep(300000);
        _exit(0);
    }
    printf("%d\n", cuModuleLoad(&module, name));
    wait(0);
    unlink(name);
    rmdir(path);
}

/* Wrong lengths and addresses give the program an error and do not stop the recording. */
static void program_wrong_lengths(void)
{
    static const size_t lengths[] = {1ull << 33, 1ull << 40, 1ull << 63, -1ull, 1 << 20, 100};
    char *page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(page + 4096, 4096);
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        errno = 66;
        printf("%d ", cuMemcpyHtoD_v2(0, page + 4090, lengths[i]));
        printf("%d %d\n", cuMemcpyHtoD_v2(0, (void *)16, lengths[i]), errno);
    }
}

static void *first_call(void *data) { (void)data; usleep(100000); cuInit(0); return 0; }

/* A library's constructor calls the driver while another thread makes the program's first call. */
static void program_constructor(const char *library)
{
    pthread_t thread;
    pthread_create(&thread, 0, first_call, 0);
    void *handle = dlopen(library, RTLD_NOW);
    pthread_join(thread, 0);
    printf("%d\n", handle != 0);
}

static void program_exec(char **arguments)
{
    cuCtxSynchronize();
    int left = atoi(arguments[2]);
    printf("%d\n", left);
    fflush(stdout);
    if (left > 0) {
        arguments[2][0]--;
        execv(arguments[0], arguments);
    }
}

static void fork_inside(void *data) { *(int *)data = fork(); }

/* The child returns from a call that its parent made. */
static void program_fork_inside(void)
{
    int child = -1, status = 0;
    cuLaunchHostFunc(0, fork_inside, &child);
    for (int i = 0; i < 10; i++)
        cuCtxSynchronize();
    if (child == 0)
        _exit(7);
    waitpid(child, &status, 0);
    for (int i = 0; i < 10; i++)
        cuCtxSynchronize();
    printf("%d\n", WEXITSTATUS(status));
}

static volatile long handled;
static char stream;

static void call_in_handler(int number)
{
    void *context;
    (void)number;
    cuCtxGetCurrent(&context);
    handled++;
}

static void program_handlers(void)
{
    stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    struct sigaction action = {.sa_handler = call_in_handler, .sa_flags = SA_RESTART | SA_ONSTACK};
    struct itimerval often = {{0, 300}, {0, 300}};
    void *context;
    cuInit(0);
    sigaltstack(&stack, 0);
    sigaction(SIGALRM, &action, 0);
    setitimer(ITIMER_REAL, &often, 0);
    while (handled < 1000)
        cuCtxSynchronize();
    memset(&often, 0, sizeof often);
    setitimer(ITIMER_REAL, &often, 0);
    cuCtxGetCurrent(&context);
    printf("done\n");
}

/* Copies that are too long for a record, and more of them than a chunk holds. */
static void program_copies(void)
{
    static char data[20000];
    for (int i = 0; i < 4000; i++)
        cuMemcpyHtoD_v2(0, data, sizeof data);
}

/* Batches whose copies read host memory (address 0 is the driver's): a long and a short one, one
   without host memory, one with too many copies, and one into an array. */
static void program_batches(void)
{
    enum { MANY = (1 << 16) + 1 };
    static char data[50000];
    static ptr to[MANY], from[MANY];
    static size_t sizes[MANY], starts[1];
    ptr how[8] = {0};
    ptr box[14] = {1, (ptr)data, 0, 0, 0, 2, 7, 0, 0, 0, 4, 1, 1};
    for (int i = 0; i < 50000; i++)
        data[i] = i % 251;
    from[0] = (ptr)(data + 30000), sizes[0] = 20000;
    from[2] = (ptr)(data + 7), sizes[2] = 5;
    from[3] = (ptr)data, sizes[3] = 30000;
    cuMemcpyBatchAsync_v2(to, from, sizes, 4, how, starts, 1, (void *)0x10);
    cuMemcpyBatchAsync_v2(to, from + 1, sizes + 1, 2, how, starts, 1, (void *)0x10);
    cuMemcpyBatchAsync_v2(to, from + 1, sizes + 1, 1, how, starts, 1, (void *)0x10);
    cuMemcpyBatchAsync_v2(to, from, sizes, MANY, how, starts, 1, (void *)0x10);
    cuMemcpy3DBatchAsync_v2(1, box, 0, (void *)0x10);
}

static void program_launches(void)
{
    void *module, *function;
    int number = 100;
    long other = 1000;
    void *parameters[] = {&number, &other};
    cuModuleLoadData(&module, ".version 7.0\n");
    cuModuleGetFunction(&function, module, "f");
    printf("%d\n", cuLaunchKernel(function, 1, 2, 3, 4, 5, 6, 7, &number, parameters, 0));
    printf("%d\n", cuParamSetf(function, 3, 40.0f));
    cuModuleUnload(module);
    /* Now the driver must not read the parameters. */
    parameters[1] = (void *)0x123456789000;
    printf("%d\n", cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 1, 0, parameters, 0));
    printf("%d\n", cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 1, 0, (void **)0x123456789000, 0));
}

/* A driver function that begins at the very end of a stack. */
static void program_small_stack(void)
{
    static ucontext_t here, there;
    char *stack = mmap(0, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(stack + (1 << 15), 1 << 15);
    cuInit(0);
    getcontext(&there);
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = 1 << 15;
    there.uc_link = &here;
    makecontext(&there, (void (*)(void))cuCtxSynchronize, 0);
    swapcontext(&here, &there);
    printf("back\n");
}

static char *short_stack;
static long short_stack_size;

static void call_on_short_stack(int number)
{
    static char data[100000];
    (void)number;
    void *function;
    /* The thread's first call, one with a string, one with a payload, more than a buffer holds. */
    cuCtxSynchronize();
    cuModuleGetFunction(&function, 0, "name");
    cuMemcpyHtoD_v2(0, data, sizeof data);
    for (int i = 0; i < 5000; i++)
        cuCtxSynchronize();
}

static void *raise_on_short_stack(void *data)
{
    stack_t stack = {.ss_size = short_stack_size};
    struct sigaction action = {.sa_handler = call_on_short_stack, .sa_flags = SA_ONSTACK};
    (void)data;
    short_stack = mmap(0, short_stack_size + 4096, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(short_stack, 4096, PROT_NONE);
    stack.ss_sp = short_stack + 4096;
    sigaltstack(&stack, 0);
    sigaction(SIGUSR1, &action, 0);
    pthread_kill(pthread_self(), SIGUSR1);
    return 0;
}

/* Calls from a signal handler on a stack of its own, of that many bytes. */
static void program_alternate_stack(const char *size)
{
    pthread_t thread;
    short_stack_size = atol(size);
    cuInit(0);
    pthread_create(&thread, 0, raise_on_short_stack, 0);
    pthread_join(thread, 0);
    printf("back\n");
}

/* Truncates its own trace between two calls, and copies the same memory again. */
static void program_truncated(const char *length)
{
    static char data[100000];
    const char *trace = getenv("CUTAPE_TRACE");
    cuInit(0);
    for (int i = 0; i < 3; i++)
        cuMemcpyHtoD_v2(0, data, sizeof data);
    if (trace)
        truncate(trace, atol(length));
    for (int i = 0; i < 10000; i++)
        cuCtxSynchronize();
    for (int i = 0; i < 3; i++)
        cuMemcpyHtoD_v2(0, data, sizeof data);
    printf("done\n");
}

/* Deletes its own trace. */
static void program_deleted(void)
{
    const char *trace = getenv("CUTAPE_TRACE");
    cuInit(0);
    if (trace)
        unlink(trace);
    cuCtxSynchronize();
    printf("done\n");
}

static void leave_by_handler(int number)
{
    printf("handler %d\n", number);
    fflush(stdout);
    _exit(0);
}

/* SIGBUS that is the program's own: of a fault, with and without a handler, and sent. */
static void program_bus_error(const char *kind)
{
    struct sigaction action = {.sa_handler = leave_by_handler};
    char name[] = "/tmp/busXXXXXX";
    int file = mkstemp(name), status;
    unlink(name);
    if (!strcmp(kind, "handled"))
        sigaction(SIGBUS, &action, 0);
    if (!strcmp(kind, "ignored"))
        signal(SIGBUS, SIG_IGN);
    cuInit(0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        cuCtxSynchronize();
        if (!strcmp(kind, "sent") || !strcmp(kind, "ignored"))
            kill(getpid(), SIGBUS);
        else
            *(volatile char *)mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) = 1;
        cuCtxSynchronize();
        _exit(7);
    }
    waitpid(child, &status, 0);
    printf("%#x\n", status & 0xff7f);
}

/* The time stamp counter may not be read. */
static void program_no_counter(void)
{
    prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
    cuInit(0);
    for (int i = 0; i < 5000; i++)
        cuCtxSynchronize();
    printf("done\n");
}

static void program_readbacks(void)
{
    unsigned char near[64], *far = malloc(1 << 20);
    cuMemcpyDtoHAsync_v2(near, 3, sizeof near, 0);
    cuMemcpyDtoHAsync_v2(far, 4, 1 << 20, &stream);
    cuMemcpyDtoHAsync_v2(near, 5, 1, (void *)1);
    printf("%d\n", cuStreamSynchronize((void *)1));
    printf("%d\n", cuStreamSynchronize(&stream));
    printf("%d %d %d\n", near[0], near[1], far[1]);
}

static void *abandon(void *data)
{
    sigset_t set;
    cuCtxSynchronize();
    pthread_sigmask(SIG_SETMASK, 0, &set);
    *(int *)data = sigisemptyset(&set);
    return 0;
}

static void program_mask(void)
{
    pthread_t thread;
    int empty = 0;
    pthread_create(&thread, 0, abandon, &empty);
    pthread_join(thread, 0);
    printf("%d\n", empty);
}

enum { REGISTERED = 256 << 10 };

static void *kernel;

/* Launches with an address as the second parameter; returns whether errno is unchanged. */
static int launch_with(void *memory)
{
    int number = 1;
    void *parameters[] = {&number, &memory};
    errno = 77;
    cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 1, 0, parameters, 0);
    return errno == 77;
}

/* Memory that is allocated and freed, and that all threads change at the same time. */
static void *register_often(void *data)
{
    (void)data;
    int kept = 0;
    for (int i = 0; i < 100; i++) {
        unsigned char *memory = mmap(0, REGISTERED, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memory[i] = 1;
        cuMemHostRegister_v2(memory, REGISTERED, 0);
        kept += launch_with(memory + 8);
        memory[REGISTERED - 1] = 2;
        kept += launch_with(memory + REGISTERED - 8);
        cuMemHostUnregister(memory);
        munmap(memory, REGISTERED);
    }
    return (void *)(long)kept;
}

static void program_host_memory(void)
{
    void *module;
    cuModuleLoadData(&module, ".version 7.0\n");
    cuModuleGetFunction(&kernel, module, "f");
    unsigned char *memory = mmap(0, REGISTERED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                                 -1, 0);
    memset(memory, 3, REGISTERED);
    cuMemHostRegister_v2(memory, REGISTERED, 0);
    printf("%d\n", launch_with(memory));
    memory[5] = 9;
    printf("%d\n", launch_with(memory));
    printf("%d\n", launch_with((void *)5));
    /* Unmapped without a driver call. */
    munmap(memory + REGISTERED / 2, REGISTERED / 2);
    memory[5] = 10;
    printf("%d\n", launch_with(memory));
    memory[5] = 11;
    printf("%d\n", launch_with(memory));
    cuMemHostUnregister(memory);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], 0, register_often, 0);
    for (int i = 0; i < 4; i++) {
        void *kept;
        pthread_join(threads[i], &kept);
        printf("%ld\n", (long)kept);
    }
}

int main(int count, char **arguments)
{
    static const struct { const char *name; void (*run)(void); } programs[] = {
        {"jump", program_jump}, {"nested", program_nested}, {"cancel", program_cancel},
        {"exit-inside", program_exit_inside},
        {"cancelled-copy", program_cancelled_copy}, {"short-threads", program_short_threads},
        {"many-threads", program_many_threads}, {"file-limit", program_file_limit},
        {"close-all", program_close_all}, {"pipe", program_pipe},
        {"wrong-lengths", program_wrong_lengths},
        {"fork-inside", program_fork_inside}, {"handlers", program_handlers},
        {"copies", program_copies}, {"batches", program_batches},
        {"launches", program_launches},
        {"small-stack", program_small_stack}, {"readbacks", program_readbacks},
        {"mask", program_mask},
        {"host-memory", program_host_memory}, {"no-counter", program_no_counter},
        {"deleted", program_deleted},
        {"no-memory", program_no_memory}, {"no-descriptors", program_no_descriptors},
        {"fork-storm", program_fork_storm}, {"cancel-anywhere", program_cancel_anywhere},
        {"exit-at-thread-end", program_exit_at_thread_end},
    };
    if (count > 2 && !strcmp(arguments[1], "alternate-stack"))
        program_alternate_stack(arguments[2]);
    if (count > 2 && !strcmp(arguments[1], "truncated"))
        program_truncated(arguments[2]);
    if (count > 2 && !strcmp(arguments[1], "bus-error"))
        program_bus_error(arguments[2]);
    if (count > 2 && !strcmp(arguments[1], "constructor"))
        program_constructor(arguments[2]);
    if (count > 2 && !strcmp(arguments[1], "exec"))
        program_exec(arguments);
    for (unsigned i = 0; i < sizeof programs / sizeof *programs; i++)
        if (!strcmp(arguments[1], programs[i].name))
            programs[i].run();
    return 0;
}
