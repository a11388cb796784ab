/*
 * Replaces frida-gum's library in tests where it is not available: the same functions, as its
 * header declares them. It patches only functions that begin like those of the null driver; for
 * others it returns GUM_REPLACE_WRONG_SIGNATURE. Like frida-gum, it works only in the namespace of
 * the program. frida-gum itself is not tested.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { REPLACE_OK = 0, REPLACE_WRONG_SIGNATURE = -1 };

/* jmp *0(%rip), and the address behind it. */
enum { JUMP = 14 };

typedef struct Patch {
    struct Patch *next;
    unsigned char *function;
    void *replacement;
    unsigned char saved[JUMP];
    int in_effect;
} Patch;

static Patch *patches;
static unsigned char *room, *room_end;
static int interceptor;

void gum_init_embedded(void)
{
    Dl_info info;
    struct link_map *map = NULL;
    Lmid_t namespace = LM_ID_BASE;
    if (!dladdr1(&patches, &info, (void **)&map, RTLD_DL_LINKMAP) ||
        dlinfo(map, RTLD_DI_LMID, &namespace) != 0 || namespace != LM_ID_BASE) {
        fputs("gum is started in another namespace than the program's\n", stderr);
        abort();
    }
}

void gum_deinit_embedded(void) {}
void *gum_interceptor_obtain(void) { return &interceptor; }
void *g_object_ref(void *object) { return object; }
void g_object_unref(void *object) { (void)object; }
void gum_interceptor_begin_transaction(void *self) { (void)self; }

static void write_jump(unsigned char *at, const void *target)
{
    static const unsigned char jump[6] = {0xff, 0x25, 0, 0, 0, 0};
    memcpy(at, jump, sizeof jump);
    memcpy(at + sizeof jump, &target, sizeof target);
}

static void write_code(unsigned char *at, const unsigned char *bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = (uintptr_t)at & -page, end = ((uintptr_t)at + JUMP + page - 1) & -page;
    mprotect((void *)start, end - start, PROT_READ | PROT_WRITE | PROT_EXEC);
    memcpy(at, bytes, JUMP);
    mprotect((void *)start, end - start, PROT_READ | PROT_EXEC);
}

/* The length of the whole instructions to move: register pushes and stack space. */
static int length_to_move(const unsigned char *code)
{
    int at = 0;
    while (at < JUMP) {
        if ((code[at] & 0xf8) == 0x50)
            at += 1;
        else if (code[at] == 0x41 && (code[at + 1] & 0xf8) == 0x50)
            at += 2;
        else if (code[at] == 0x48 && code[at + 1] == 0x81 && code[at + 2] == 0xec)
            at += 7;
        else
            return 0;
    }
    return at;
}

int gum_interceptor_replace_fast(void *self, void *address, void *replacement, void **original)
{
    unsigned char *function = address;
    int length = length_to_move(function);
    Patch *patch = calloc(1, sizeof *patch);
    (void)self;
    if (!length || !patch)
        return REPLACE_WRONG_SIGNATURE;
    if (room_end - room < length + JUMP) {
        room = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
                    -1, 0);
        room_end = room + (1 << 16);
    }
    memcpy(room, function, length);
    write_jump(room + length, function + length);
    *original = room;
    room += length + JUMP;
    *patch = (Patch){.next = patches, .function = function, .replacement = replacement};
    memcpy(patch->saved, function, JUMP);
    patches = patch;
    return REPLACE_OK;
}

int gum_interceptor_replace(void *self, void *function, void *replacement, void *data,
                            void **original)
{
    (void)data;
    return gum_interceptor_replace_fast(self, function, replacement, original);
}

void gum_interceptor_revert(void *self, void *function)
{
    (void)self;
    for (Patch **at = &patches; *at; at = &(*at)->next)
        if ((*at)->function == function) {
            Patch *gone = *at;
            if (gone->in_effect)
                write_code(gone->function, gone->saved);
            *at = gone->next;
            free(gone);
            return;
        }
}

void gum_interceptor_end_transaction(void *self)
{
    (void)self;
    for (Patch *patch = patches; patch; patch = patch->next)
        if (!patch->in_effect) {
            unsigned char jump[JUMP];
            write_jump(jump, patch->replacement);
            write_code(patch->function, jump);
            patch->in_effect = 1;
        }
}
