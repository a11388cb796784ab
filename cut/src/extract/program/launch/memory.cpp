// ---- The driver, and memory at its recorded addresses ----

static void load_driver(void)
{
    const char *path = driver_path ? driver_path : "libcuda.so.1";
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library) cannot("%s", dlerror());
#define FIND(name, arguments) \
    *(void **)&name = dlsym(library, #name); \
    if (!name) cannot("%s has no %s", path, #name);
    FUNCTIONS(FIND)
    *(void **)&cuLaunchKernelEx = dlsym(library, "cuLaunchKernelEx");
}

// Other addresses of this process's own memory may leave the recorded ones free: first without
// randomisation, then with a new one.
static void restart(u64 address)
{
    enum { ATTEMPTS = 8 };
    const char *text = getenv("CUTAPE_LAUNCH_ATTEMPT");
    int attempt = text ? atoi(text) : 0;
    char next[16];
    if (attempt > ATTEMPTS)
        cannot("address %#llx is not free in this process, in %d attempts",
               (unsigned long long)address, ATTEMPTS);
    snprintf(next, sizeof next, "%d", attempt + 1);
    setenv("CUTAPE_LAUNCH_ATTEMPT", next, 1);
    personality((unsigned long)(personality(0xffffffff) & ~ADDR_NO_RANDOMIZE) |
                (attempt == 0 ? ADDR_NO_RANDOMIZE : 0));
    execv("/proc/self/exe", arguments);
    cannot("it cannot start itself again");
}

typedef struct { u64 start, end; } Range;

static int by_start(const void *a, const void *b)
{
    u64 x = ((const Range *)a)->start, y = ((const Range *)b)->start;
    return x < y ? -1 : x > y;
}

// Joins ranges that overlap or touch; returns how many are left.
static size_t joined(Range *ranges, size_t count)
{
    size_t i, last = 0;
    if (!count) return 0;
    qsort(ranges, count, sizeof *ranges, by_start);
    for (i = 1; i < count; ++i) {
        if (ranges[i].start > ranges[last].end) ranges[++last] = ranges[i];
        else if (ranges[i].end > ranges[last].end) ranges[last].end = ranges[i].end;
    }
    return last + 1;
}

static Range around(const Memory *memory, u64 unit)
{
    Range range;
    range.start = memory->address / unit * unit;
    range.end = (memory->address + memory->length + unit - 1) / unit * unit;
    return range;
}

static int reserve(u64 start, u64 length)
{
    u64 address = 0;
    if (cuMemAddressReserve(&address, length, 0, start, 0)) return 0;
    if (address == start) return 1;
    cuMemAddressFree(address, length);
    return 0;
}

// Page-locked pages at a fixed address.
static int map_host(const Memory *memory)
{
    Range pages = around(memory, 4096);
    u64 seen = 0;
    void *start = (void *)(uintptr_t)pages.start;
    size_t length = (size_t)(pages.end - pages.start);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    if (mmap(start, length, PROT_READ | PROT_WRITE, flags, -1, 0) != start) return 0;
    return cuMemHostRegister_v2(start, length, 3) == 0 &&
           cuMemHostGetDevicePointer_v2(&seen, start, 0) == 0 && seen == pages.start;
}

// Reservations of 32 MiB are honoured where they are free, filled in units of 2 MiB. Host memory
// that is not among device memory may lie where nothing can be reserved: there it is pages of this
// process.
static void place_memory(int device)
{
    size_t m, i, slots = 0, units = 0;
    Range *slot = (Range *)zeros((L.memory_count + 1) * sizeof(Range));
    Range *unit = (Range *)zeros((L.memory_count + 1) * sizeof(Range));
    int pass;
    for (pass = 0; pass < 2; ++pass) {
        for (m = 0; m < L.memory_count; ++m) {
            Memory *memory = &L.memory[m];
            int is_inside = 0;
            Range wanted = around(memory, SLOT);
            if (memory->variable || memory->is_array || memory->is_host != pass) continue;
            for (i = 0; i < slots; ++i)
                is_inside |= wanted.start >= slot[i].start && wanted.end <= slot[i].end;
            if (pass && !is_inside) {
                if (!reserve(wanted.start, wanted.end - wanted.start)) {
                    if (!map_host(memory)) restart(memory->address);
                    continue;
                }
                slot[slots++] = wanted;
            }
            else if (!pass) slot[slots++] = wanted;
            unit[units++] = around(memory, GRANULE);
        }
        if (pass) continue;
        slots = joined(slot, slots);
        for (i = 0; i < slots; ++i) {
            u64 at;
            if (reserve(slot[i].start, slot[i].end - slot[i].start)) continue;
            for (at = slot[i].start; at < slot[i].end; at += SLOT)
                if (!reserve(at, SLOT)) restart(at);
        }
    }
    units = joined(unit, units);
    for (i = 0; i < units; ++i) {
        u64 at, end;
        // A mapping lies in one reservation, which may be of one slot.
        for (at = unit[i].start; at < unit[i].end; at = end) {
            MemoryProperties properties;
            MemoryAccess access;
            u64 handle;
            end = (at / SLOT + 1) * SLOT;
            if (end > unit[i].end) end = unit[i].end;
            memset(&properties, 0, sizeof properties);
            properties.type = 1;     // pinned
            properties.location = 1; // a device
            properties.id = device;
            access.location = 1;
            access.id = device;
            access.access = 3; // reading and writing
            check(cuMemCreate(&handle, end - at, &properties, 0), "cuMemCreate");
            check(cuMemMap(at, end - at, 0, handle, 0), "cuMemMap");
            check(cuMemSetAccess(at, end - at, &access, 1), "cuMemSetAccess");
        }
    }
    free(slot);
    free(unit);
}

