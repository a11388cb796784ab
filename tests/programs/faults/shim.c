/* Preloaded into a program or into cutape, to play a system that is in a bad state. FAULT says how:
 *
 *   FUNCTION:ERROR:FIRST:COUNT  calls FIRST to FIRST + COUNT - 1 of that function, from 0, fail with
 *                               that error if the recorder makes them; those that write only write a
 *                               part if the error is SHORT
 *   before-rename, after-rename the process is killed there
 *   clock                       the time of day goes back by an hour at each look
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Not an error of the system. */
enum { SHORT = -1 };

static atomic_long calls;

/* Whether the code at that address is the recorder's. */
static int is_recorder(void *address)
{
    Dl_info info;
    return dladdr(address, &info) && info.dli_fname && strstr(info.dli_fname, "libcuda.so");
}

/* The error with which this call of a function fails; 0 if it does not. */
static int error_of(const char *function, void *caller)
{
    const char *fault = getenv("FAULT");
    size_t length = strlen(function);
    int error;
    long first, count;
    if (!fault || strncmp(fault, function, length) != 0 || fault[length] != ':' ||
        sscanf(fault + length + 1, "%d:%ld:%ld", &error, &first, &count) != 3 ||
        !is_recorder(caller))
        return 0;
    long call = atomic_fetch_add(&calls, 1);
    return call >= first && call - first < count ? error : 0;
}

#define FAIL_IF_ASKED(function, result)                                                            \
    do {                                                                                           \
        int error = error_of(function, __builtin_return_address(0));                               \
        if (error > 0) {                                                                               \
            errno = error;                                                                         \
            return result;                                                                         \
        }                                                                                          \
    } while (0)

int open(const char *path, int flags, ...)
{
    FAIL_IF_ASKED("open", -1);
    va_list rest;
    va_start(rest, flags);
    int mode = va_arg(rest, int);
    va_end(rest);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int fallocate(int file, int mode, off_t offset, off_t length)
{
    FAIL_IF_ASKED("fallocate", -1);
    return (int)syscall(SYS_fallocate, file, mode, offset, length);
}

ssize_t pwrite(int file, const void *bytes, size_t length, off_t offset)
{
    int error = error_of("pwrite", __builtin_return_address(0));
    if (error > 0) {
        errno = error;
        return -1;
    }
    if (error == SHORT)
        length = (length + 1) / 2;
    return syscall(SYS_pwrite64, file, bytes, length, offset);
}

ssize_t pwritev(int file, const struct iovec *pieces, int count, off_t offset)
{
    int error = error_of("pwritev", __builtin_return_address(0));
    if (error > 0) {
        errno = error;
        return -1;
    }
    if (error == SHORT)
        return syscall(SYS_pwrite64, file, pieces[0].iov_base, pieces[0].iov_len, offset);
    return syscall(SYS_pwritev, file, pieces, count, offset, 0L);
}

ssize_t pread(int file, void *bytes, size_t length, off_t offset)
{
    FAIL_IF_ASKED("pread", -1);
    return syscall(SYS_pread64, file, bytes, length, offset);
}

void *mmap(void *address, size_t length, int access, int flags, int file, off_t offset)
{
    FAIL_IF_ASKED("mmap", MAP_FAILED);
    return (void *)syscall(SYS_mmap, address, length, access, flags, file, offset);
}

int madvise(void *address, size_t length, int advice)
{
    FAIL_IF_ASKED("madvise", -1);
    return (int)syscall(SYS_madvise, address, length, advice);
}

ssize_t process_vm_readv(pid_t process, const struct iovec *own, unsigned long own_count,
                         const struct iovec *other, unsigned long other_count, unsigned long flags)
{
    FAIL_IF_ASKED("process_vm_readv", -1);
    return syscall(SYS_process_vm_readv, process, own, own_count, other, other_count, flags);
}

int rename(const char *from, const char *to)
{
    const char *fault = getenv("FAULT");
    if (fault && strcmp(fault, "before-rename") == 0)
        raise(SIGKILL);
    int result = (int)syscall(SYS_rename, from, to);
    if (fault && strcmp(fault, "after-rename") == 0)
        raise(SIGKILL);
    return result;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    static atomic_long looks;
    const char *fault = getenv("FAULT");
    int result = (int)syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && clock == CLOCK_REALTIME && fault && strcmp(fault, "clock") == 0)
        time->tv_sec -= 3600 * atomic_fetch_add(&looks, 1);
    return result;
}
