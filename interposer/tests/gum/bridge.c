/*
 * Replaces frida-gum's library where its development kit is not available, but Frida's Python
 * package is: the same functions, as the header declares them, carried out by the gum in Frida's
 * agent. bridge.py loads the agent into this process, and bridge.js calls it;
 * CUTAPE_GUM_BRIDGE_SOCKET names the socket on which bridge.py listens. The code that patches
 * functions is frida-gum's own; the functions of its library are not tested. For tests only.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* GumReplaceReturn, where the bridge has no answer. */
enum { REPLACE_WRONG_SIGNATURE = -1 };

/* What bridge.js does next; it knows these numbers and this layout. */
enum Kind { REPLACE_FAST = 0, REPLACE = 1, REVERT = 2, END = 3 };
static struct {
    uint64_t kind;
    void *function;
    void *replacement;
} request;
static struct {
    int code;
    void *original;
} answer;
static sem_t asked, answered;
/* Whether the agent's thread waits for requests. */
static int attached;
static int interceptor;

/* How long the agent may take for anything. */
enum { PATIENCE = 60 };

/* Called by bridge.js, on the agent's thread. */
static void *next_request(void)
{
    while (sem_wait(&asked) != 0 && errno == EINTR)
        ;
    return &request;
}

static void give_answer(int code, void *original)
{
    answer.code = code;
    answer.original = original;
    sem_post(&answered);
}

static void say(const char *format, ...)
{
    char text[512];
    va_list words;
    va_start(words, format);
    vsnprintf(text, sizeof text, format, words);
    va_end(words);
    dprintf(STDERR_FILENO, "gum bridge: process %d: %s\n", (int)getpid(), text);
}

/* Has the agent brought in; it is then in `next_request`. */
static int attach(void)
{
    const char *path = getenv("CUTAPE_GUM_BRIDGE_SOCKET");
    struct sockaddr_un place = {.sun_family = AF_UNIX};
    char text[300];
    size_t length = 0;
    int channel;
    if (!path || strlen(path) >= sizeof place.sun_path) {
        say("CUTAPE_GUM_BRIDGE_SOCKET names no socket of bridge.py");
        return 0;
    }
    strcpy(place.sun_path, path);
    channel = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (channel < 0 || connect(channel, (struct sockaddr *)&place, sizeof place) != 0) {
        say("%s: %s", path, strerror(errno));
        close(channel);
        return 0;
    }
    sem_init(&asked, 0, 0);
    sem_init(&answered, 0, 0);
    /* Where only ancestors may look into a process. */
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    dprintf(channel, "%d %p %p\n", (int)getpid(), (void *)next_request, (void *)give_answer);
    for (;;) {
        ssize_t got = read(channel, text + length, sizeof text - 1 - length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        length += (size_t)got;
        if (memchr(text, '\n', length) || length == sizeof text - 1)
            break;
    }
    text[length] = 0;
    close(channel);
    if (strcmp(text, "attached\n") == 0)
        return 1;
    say("not attached: %s", length ? text : "bridge.py went away");
    return 0;
}

/* Has the agent do something, and waits until it is done. */
static int ask(enum Kind kind, void *function, void *replacement, void **original)
{
    struct timespec end;
    if (!attached)
        return REPLACE_WRONG_SIGNATURE;
    request.kind = kind;
    request.function = function;
    request.replacement = replacement;
    sem_post(&asked);
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += PATIENCE;
    while (sem_timedwait(&answered, &end) != 0)
        if (errno != EINTR) {
            say("no answer");
            abort();
        }
    if (original && answer.code == 0)
        *original = answer.original;
    return answer.code;
}

/*
 * Refusals can be requested, because no function of these drivers needs one.
 * CUTAPE_GUM_BRIDGE_REFUSES=fast refuses replace_fast for all functions; =any refuses everything
 * from the hundredth function on.
 */
static int refuses(enum Kind kind)
{
    static int replaced;
    const char *refused = getenv("CUTAPE_GUM_BRIDGE_REFUSES");
    if (!refused)
        return 0;
    if (strcmp(refused, "any") == 0)
        return ++replaced > 100;
    return kind == REPLACE_FAST && strcmp(refused, "fast") == 0;
}

void gum_init_embedded(void) {}
void gum_deinit_embedded(void) {}
void *gum_interceptor_obtain(void) { return &interceptor; }
void *g_object_ref(void *object) { return object; }
void g_object_unref(void *object) { (void)object; }

void gum_interceptor_begin_transaction(void *self)
{
    (void)self;
    attached = attach();
}

int gum_interceptor_replace_fast(void *self, void *function, void *replacement, void **original)
{
    (void)self;
    if (refuses(REPLACE_FAST))
        return REPLACE_WRONG_SIGNATURE;
    return ask(REPLACE_FAST, function, replacement, original);
}

int gum_interceptor_replace(void *self, void *function, void *replacement, void *data,
                            void **original)
{
    (void)self;
    (void)data;
    if (refuses(REPLACE))
        return REPLACE_WRONG_SIGNATURE;
    return ask(REPLACE, function, replacement, original);
}

void gum_interceptor_revert(void *self, void *function)
{
    (void)self;
    ask(REVERT, function, NULL, NULL);
}

void gum_interceptor_end_transaction(void *self)
{
    (void)self;
    ask(END, NULL, NULL, NULL);
    attached = 0;
}
