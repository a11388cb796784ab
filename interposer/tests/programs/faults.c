/* Programs in a bad state: without memory or descriptors, that fork, cancel and exit at any
 * moment. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

typedef unsigned long long ptr;
int cuInit(unsigned);
int cuCtxSynchronize(void);
int cuMemcpyHtoD_v2(ptr, const void *, size_t);
int cuMemHostRegister_v2(void *, size_t, unsigned);
int cuMemHostUnregister(void *);

static void limit(int resource, rlim_t value)
{
    struct rlimit limits;
    getrlimit(resource, &limits);
    limits.rlim_cur = value;
    setrlimit(resource, &limits);
}

/* From now on nobody in the process gets memory. */
static void take_all_memory(void)
{
    char line[256];
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long pages = 0;
    if (fgets(line, sizeof line, file))
        pages = strtoul(line, 0, 10);
    fclose(file);
    limit(RLIMIT_AS, pages * 4096);
    for (size_t size = 1 << 20; size >= 16; size /= 2)
        while (malloc(size))
            continue;
}

void program_no_memory(void)
{
    static char data[100000], buffer[256], registered[64][4096];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    int sum = cuInit(0) + cuCtxSynchronize();
    take_all_memory();
    /* What needs tables, blobs and a longer buffer. */
    for (int i = 0; i < 64; i++) {
        data[0] = (char)i;
        sum += cuMemHostRegister_v2(registered[i], sizeof registered[i], 0);
        sum += cuMemcpyHtoD_v2(0, data, sizeof data);
        sum += cuMemcpyHtoD_v2(0, data, 3000);
    }
    for (int i = 0; i < 5000; i++)
        sum += cuCtxSynchronize();
    for (int i = 0; i < 64; i++)
        sum += cuMemHostUnregister(registered[i]);
    printf("%d\n", sum);
}

/* No file can be opened, and the descriptors of the open ones are above the limit. */
void program_no_descriptors(void)
{
    static char data[20000];
    int sum = cuInit(0);
    limit(RLIMIT_NOFILE, 3);
    for (int i = 0; i < 200; i++) {
        data[0] = (char)i;
        sum += cuMemcpyHtoD_v2(0, data, sizeof data);
    }
    for (int i = 0; i < 20000; i++)
        sum += cuCtxSynchronize();
    printf("%d\n", sum);
}

static volatile int stops;

static void *call_until_stopped(void *unused)
{
    char data[20000] = {0};
    for (uint64_t i = 0; !stops; i++) {
        memcpy(data, &i, sizeof i);
        cuMemcpyHtoD_v2(0, data, sizeof data);
        cuCtxSynchronize();
    }
    return unused;
}

/* Children that are forked while other threads are anywhere in the recorder, and fork again. */
void program_fork_storm(void)
{
    enum { THREADS = 4, CHILDREN = 40 };
    pthread_t threads[THREADS];
    pid_t children[CHILDREN];
    int right = 0;
    cuInit(0);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], 0, call_until_stopped, 0);
    for (int i = 0; i < CHILDREN; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            static char data[20000];
            int sum = cuInit(0) + cuMemcpyHtoD_v2(0, data, sizeof data), status = 0;
            pid_t child = fork();
            for (int j = 0; j < 20; j++)
                sum += cuCtxSynchronize();
            if (child == 0)
                _exit(sum);
            waitpid(child, &status, 0);
            _exit(sum + status);
        }
    }
    for (int i = 0; i < CHILDREN; i++) {
        int status = 1;
        waitpid(children[i], &status, 0);
        right += status == 0;
    }
    stops = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], 0);
    printf("%d\n", right);
}

static void *call_for_ever(void *unused)
{
    int old;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
    for (;;)
        cuCtxSynchronize();
    return unused;
}

/* Threads that are cancelled at any instruction. */
void program_cancel_anywhere(void)
{
    int cancelled = 0;
    cuInit(0);
    for (int i = 0; i < 200; i++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, 0, call_for_ever, 0);
        usleep(200 + i * 7 % 500);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        cancelled += result == PTHREAD_CANCELED;
    }
    printf("%d %d\n", cancelled, cuCtxSynchronize());
}

static pthread_key_t key;

static void exit_now(void *unused)
{
    (void)unused;
    printf("%d\n", cuCtxSynchronize());
    exit(0);
}

static void *set_and_end(void *unused)
{
    pthread_setspecific(key, &key);
    cuCtxSynchronize();
    return unused;
}

/* The process exits from the destructor of a thread's value, while another thread calls. */
void program_exit_at_thread_end(void)
{
    pthread_t thread, other;
    cuInit(0);
    pthread_key_create(&key, exit_now);
    pthread_create(&other, 0, call_until_stopped, 0);
    pthread_create(&thread, 0, set_and_end, 0);
    pthread_join(thread, 0);
    for (;;)
        pause();
}
