// Calls from places where a stack is hard to follow: a coroutine, a signal handler with a stack of
// its own, functions in assembly without unwind tables, a library that is unloaded and replaced by
// another at the same address, a frame that longjmp leaves. The calls succeed and the program ends
// as it does without cutape.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "program.h"

static ucontext_t main_context, coroutine;

static void allocate(void)
{
    CUdeviceptr pointer;
    CHECK(cuMemAlloc(&pointer, 64));
    CHECK(cuMemFree(pointer));
}

static void in_coroutine(void)
{
    allocate();
    swapcontext(&coroutine, &main_context);
    allocate();
}

static void on_signal(int number)
{
    (void)number;
    allocate();
}

static jmp_buf start_again;

static void leave(void)
{
    allocate();
    longjmp(start_again, 1);
}

// Calls its argument; keeps no frame pointer and has no unwind table.
__asm__(".text\n.type bare_call, @function\nbare_call:\n push %rbx\n xor %ebp, %ebp\n call *%rdi\n pop %rbx\n ret\n");
void bare_call(void (*function)(void));

// The same without rbp changed, in memory that no file has.
static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};

int main(int count, char **words)
{
    begin();
    // A stack that ends with a page that cannot be read.
    size_t length = 256 << 10;
    char *stack = mmap(NULL, length + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(stack + length, 4096, PROT_NONE);
    getcontext(&coroutine);
    coroutine.uc_stack.ss_sp = stack;
    coroutine.uc_stack.ss_size = length;
    coroutine.uc_link = &main_context;
    makecontext(&coroutine, in_coroutine, 0);
    swapcontext(&main_context, &coroutine);
    swapcontext(&main_context, &coroutine);

    stack_t other = {.ss_sp = malloc(256 << 10), .ss_size = 256 << 10};
    sigaltstack(&other, NULL);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);

    if (setjmp(start_again) == 0)
        leave();
    allocate();

    bare_call(allocate);
    void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(memory, code, sizeof code);
    ((void (*)(void (*)(void)))memory)(allocate);

    for (int index = 1; index < count; index++) {
        void *library = dlopen(words[index], RTLD_NOW);
        if (library == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        void (*call)(void (*)(void)) = (void (*)(void (*)(void)))dlsym(library, "call");
        call(allocate);
        dlclose(library);
    }
    end();
    return success();
}
