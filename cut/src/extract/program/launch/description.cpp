// ---- The description of the launch ----

// A piece of contents in the file, or zeros.
typedef struct { u64 at, length, file; int is_zero, is_after; } Piece;

// A word of contents that holds an address: of a variable, which lies elsewhere in each process.
typedef struct { u64 offset, addend; size_t memory; int is_after; } Address;

// Memory at a fixed address, a variable of a module, or an array.
typedef struct {
    u64 address, length;
    int is_host, is_as_loaded, is_array;
    char *variable; // NULL for memory
    size_t module;  // of a variable: 0 for that of the kernel
    ArrayShape shape;
    unsigned levels; // 0: not mipmapped
    void *array;
    Piece *pieces;
    size_t count;
    Address *addresses;
    size_t address_count;
    unsigned char *before, *expected, *first;
} Memory;

enum { RESOURCE_BYTES = 144, SAMPLER_BYTES = 104, VIEW_BYTES = 112 };

// A texture or surface object that a parameter names.
typedef struct {
    u64 offset, handle;
    int is_surface, has_array, has_view;
    size_t array; // which memory
    unsigned char resource[RESOURCE_BYTES], sampler[SAMPLER_BYTES], view[VIEW_BYTES];
} Texture;

static struct {
    char *folder, *kernel, *image, *contents, *source, *device_name;
    int major, minor;
    Config config;
    unsigned char *parameters;
    size_t parameter_bytes;
    size_t *offsets, offset_count;
    struct { int id; u64 value; } limits[16];
    struct { int id, value; } settings[16];
    size_t limit_count, setting_count;
    Address *relocations; // of parameters
    size_t relocation_count;
    char **modules; // further images
    size_t module_count;
    Texture *textures;
    size_t texture_count;
    Memory *memory;
    size_t memory_count;
} L;

static const char *driver_path, *description = "launch.txt";
static int device_number, repeat = 10;
static double tolerance = -1;
static const char *tolerance_type;
static char **arguments;

// Ends with status 2: the launch cannot be made here.
static void cannot(const char *format, ...)
{
    va_list rest;
    va_start(rest, format);
    printf("result   refused: ");
    vprintf(format, rest);
    printf("\n");
    va_end(rest);
    exit(2);
}

static const char *name_of(int code)
{
    static char number[32];
    const char *name = NULL;
    if (cuGetErrorName && cuGetErrorName(code, &name) == 0 && name) return name;
    snprintf(number, sizeof number, "result %d", code);
    return number;
}

static void check(int code, const char *what)
{
    if (code) cannot("%s returned %s", what, name_of(code));
}

static void *grown(void *list, size_t count, size_t size)
{
    // Room for the next power of two.
    if (count & (count - 1)) return list;
    list = realloc(list, (count ? 2 * count : 1) * size);
    if (!list) cannot("out of host memory");
    return list;
}

static unsigned char *zeros(u64 length)
{
    unsigned char *bytes = (unsigned char *)calloc(length ? length : 1, 1);
    if (!bytes) cannot("out of host memory: %llu bytes", (unsigned long long)length);
    return bytes;
}

// The path of a file that the description names, relative to the description.
static char *beside(const char *name)
{
    size_t room = strlen(L.folder) + strlen(name) + 2;
    char *path = (char *)zeros(room);
    snprintf(path, room, "%s%s%s", name[0] == '/' ? "" : L.folder, name[0] == '/' ? "" : "/", name);
    return path;
}

static u64 number(char **text)
{
    char *end = NULL;
    u64 value;
    while (**text == ' ') ++*text;
    value = strtoull(*text, &end, 0);
    if (end == *text) cannot("%s: a number is missing before \"%s\"", description, *text);
    *text = end;
    return value;
}

static char *rest_of(char *text)
{
    while (*text == ' ') ++text;
    return strdup(text);
}

static size_t hex(char *text, unsigned char *bytes, size_t most)
{
    size_t count = 0;
    unsigned byte;
    while (*text == ' ') ++text;
    while (count < most && sscanf(text, "%2x", &byte) == 1 && text[1]) {
        bytes[count++] = (unsigned char)byte;
        text += 2;
    }
    return count;
}

// A word of contents or parameters, and what it is the address of.
static Address address_of(char *text)
{
    Address address;
    memset(&address, 0, sizeof address);
    address.offset = number(&text);
    address.memory = number(&text);
    address.addend = number(&text);
    return address;
}

static void read_texture(const char *word, char *text)
{
    Texture *texture;
    L.textures = (Texture *)grown(L.textures, L.texture_count, sizeof(Texture));
    texture = &L.textures[L.texture_count++];
    memset(texture, 0, sizeof *texture);
    texture->is_surface = word[0] == 's';
    texture->offset = number(&text);
    texture->handle = number(&text);
    if (texture->offset > L.parameter_bytes || L.parameter_bytes - texture->offset < 8)
        cannot("%s: %s lies outside of the parameters", description, word);
}

// A line about the last texture or surface object; 0 if it is another one.
static int read_of_texture(const char *word, char *text)
{
    Texture *last = L.texture_count ? &L.textures[L.texture_count - 1] : NULL;
    if (!last) return 0;
    if (!strcmp(word, "of-array")) {
        last->has_array = 1;
        last->array = number(&text);
        if (last->array >= L.memory_count || !L.memory[last->array].is_array)
            cannot("%s: there is no array of that number", description);
    }
    else if (!strcmp(word, "resource")) hex(text, last->resource, RESOURCE_BYTES);
    else if (!strcmp(word, "sampler")) hex(text, last->sampler, SAMPLER_BYTES);
    else if (!strcmp(word, "view")) {
        hex(text, last->view, VIEW_BYTES);
        last->has_view = 1;
    }
    else return 0;
    return 1;
}

static Memory *new_memory(void)
{
    Memory *memory;
    L.memory = (Memory *)grown(L.memory, L.memory_count, sizeof(Memory));
    memory = &L.memory[L.memory_count++];
    memset(memory, 0, sizeof *memory);
    return memory;
}

static void read_line(char *line)
{
    char *text = strchr(line, ' ');
    Memory *last = L.memory_count ? &L.memory[L.memory_count - 1] : NULL;
    int i;
    if (text) *text++ = 0;
    else text = line + strlen(line);
#define IS(word) (strcmp(line, word) == 0)
    if (IS("source")) L.source = rest_of(text);
    else if (IS("kernel")) L.kernel = rest_of(text);
    else if (IS("image")) L.image = beside(rest_of(text));
    else if (IS("contents")) L.contents = beside(rest_of(text));
    else if (IS("device")) {
        L.major = (int)number(&text);
        L.minor = (int)number(&text);
        L.device_name = rest_of(text);
    }
    else if (IS("grid")) for (i = 0; i < 3; ++i) L.config.grid[i] = (unsigned)number(&text);
    else if (IS("block")) for (i = 0; i < 3; ++i) L.config.block[i] = (unsigned)number(&text);
    else if (IS("shared")) L.config.shared = (unsigned)number(&text);
    else if (IS("limit") && L.limit_count < 16) {
        L.limits[L.limit_count].id = (int)number(&text);
        L.limits[L.limit_count++].value = number(&text);
    }
    else if (IS("function-attribute") && L.setting_count < 16) {
        L.settings[L.setting_count].id = (int)number(&text);
        while (*text == ' ') ++text;
        L.settings[L.setting_count++].value = (int)strtol(text, NULL, 0);
    }
    else if (IS("attribute")) {
        Attribute *attribute;
        L.config.attributes =
            (Attribute *)grown(L.config.attributes, L.config.count, sizeof(Attribute));
        attribute = &L.config.attributes[L.config.count++];
        memset(attribute, 0, sizeof *attribute);
        attribute->id = (unsigned)number(&text);
        hex(text, attribute->value, sizeof attribute->value);
    }
    else if (IS("parameters")) {
        L.parameter_bytes = number(&text);
        // A tensor map lies at a multiple of 64.
        if (posix_memalign((void **)&L.parameters, 64, L.parameter_bytes + 64))
            cannot("out of host memory");
        memset(L.parameters, 0, L.parameter_bytes + 64);
        if (hex(text, L.parameters, L.parameter_bytes) != L.parameter_bytes)
            cannot("%s: the parameters are not whole", description);
    }
    else if (IS("parameter")) {
        L.offsets = (size_t *)grown(L.offsets, L.offset_count, sizeof(size_t));
        L.offsets[L.offset_count++] = number(&text);
    }
    else if (IS("relocate")) {
        L.relocations = (Address *)grown(L.relocations, L.relocation_count, sizeof(Address));
        L.relocations[L.relocation_count++] = address_of(text);
    }
    else if (IS("module")) {
        L.modules = (char **)grown(L.modules, L.module_count, sizeof(char *));
        L.modules[L.module_count++] = beside(rest_of(text));
    }
    else if (IS("memory") || IS("host-memory")) {
        Memory *memory = new_memory();
        memory->address = number(&text);
        memory->length = number(&text);
        memory->is_host = IS("host-memory");
    }
    else if (IS("variable") || IS("loaded-variable")) {
        Memory *memory = new_memory();
        memory->length = number(&text);
        memory->variable = rest_of(text);
        memory->module = L.module_count;
        memory->is_as_loaded = IS("loaded-variable");
    }
    else if (IS("array")) {
        Memory *memory = new_memory();
        memory->is_array = 1;
        memory->length = number(&text);
        memory->shape.width = number(&text);
        memory->shape.height = number(&text);
        memory->shape.depth = number(&text);
        memory->shape.format = (unsigned)number(&text);
        memory->shape.channels = (unsigned)number(&text);
        memory->shape.flags = (unsigned)number(&text);
        memory->levels = (unsigned)number(&text);
    }
    else if (IS("texture") || IS("surface")) read_texture(line, text);
    else if (read_of_texture(line, text)) return;
    else if (last && (IS("before-address") || IS("after-address"))) {
        Address *address;
        last->addresses = (Address *)grown(last->addresses, last->address_count, sizeof(Address));
        address = &last->addresses[last->address_count++];
        *address = address_of(text);
        address->is_after = IS("after-address");
    }
    else if (last && (IS("before") || IS("after") || IS("after-zero"))) {
        Piece *piece;
        last->pieces = (Piece *)grown(last->pieces, last->count, sizeof(Piece));
        piece = &last->pieces[last->count++];
        piece->at = number(&text);
        piece->length = number(&text);
        piece->is_zero = IS("after-zero");
        piece->is_after = line[0] == 'a';
        piece->file = piece->is_zero ? 0 : number(&text);
        if (piece->at > last->length || piece->length > last->length - piece->at)
            cannot("%s: contents lie outside of their memory", description);
    }
    else if (line[0] && line[0] != '#' && !IS("cutape-launch"))
        cannot("%s: unknown line: %s %s", description, line, text);
}

static void read_description(void)
{
    FILE *file = fopen(description, "r");
    char *line = NULL, *slash;
    size_t room = 0;
    ssize_t length;
    if (!file) cannot("%s cannot be read", description);
    L.folder = strdup(description);
    slash = strrchr(L.folder, '/');
    if (slash) *slash = 0;
    else L.folder = strdup(".");
    while ((length = getline(&line, &room, file)) >= 0) {
        if (length && line[length - 1] == '\n') line[length - 1] = 0;
        read_line(line);
    }
    fclose(file);
    if (!L.kernel || !L.image) cannot("%s names no kernel or no image", description);
}

static void *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    long length;
    unsigned char *bytes;
    if (!file) cannot("%s cannot be read", path);
    fseek(file, 0, SEEK_END);
    length = ftell(file);
    rewind(file);
    // PTX ends with a NUL.
    bytes = zeros((u64)length + 64);
    if (fread(bytes, 1, (size_t)length, file) != (size_t)length) cannot("%s cannot be read", path);
    fclose(file);
    return bytes;
}

// Reads what memory holds before and after.
static void read_contents(void)
{
    FILE *file = L.contents ? fopen(L.contents, "rb") : NULL;
    size_t m, p;
    if (L.contents && !file) cannot("%s cannot be read", L.contents);
    for (m = 0; m < L.memory_count; ++m) {
        Memory *memory = &L.memory[m];
        int is_after;
        memory->before = zeros(memory->length);
        memory->expected = zeros(memory->length);
        for (is_after = 0; is_after < 2; ++is_after) {
            unsigned char *bytes = is_after ? memory->expected : memory->before;
            if (is_after) memcpy(bytes, memory->before, memory->length);
            for (p = 0; p < memory->count; ++p) {
                Piece *piece = &memory->pieces[p];
                if (piece->is_after != is_after) continue;
                if (piece->is_zero) memset(bytes + piece->at, 0, piece->length);
                else if (!file || fseek(file, (long)piece->file, SEEK_SET) ||
                         fread(bytes + piece->at, 1, piece->length, file) != piece->length)
                    cannot("%s is too short", L.contents ? L.contents : "the file of contents");
            }
        }
    }
    if (file) fclose(file);
}

