// ---- Arrays, texture and surface objects ----

static size_t at_level(size_t size, unsigned level)
{
    return size >> level > 1 ? size >> level : 1;
}

static size_t element_bytes_of(const Memory *memory)
{
    // The levels follow one another, so that their elements together are all bytes.
    size_t elements = 0;
    unsigned level;
    for (level = 0; level < (memory->levels ? memory->levels : 1); ++level) {
        const ArrayShape *shape = &memory->shape;
        size_t depth = shape->flags & 5 ? shape->depth : at_level(shape->depth, level);
        elements += at_level(shape->width, level) * at_level(shape->height, level) *
                    (depth ? depth : 1);
    }
    return memory->length / elements;
}

// Copies the contents of an array to or from host memory: its levels, rows without gaps.
static void copy_array(const Memory *memory, unsigned char *bytes, int is_read)
{
    unsigned level;
    size_t element = element_bytes_of(memory);
    for (level = 0; level < (memory->levels ? memory->levels : 1); ++level) {
        const ArrayShape *shape = &memory->shape;
        Copy copy;
        CopySide host, array;
        memset(&copy, 0, sizeof copy);
        memset(&host, 0, sizeof host);
        memset(&array, 0, sizeof array);
        copy.width = at_level(shape->width, level) * element;
        copy.height = at_level(shape->height, level);
        // Layers and faces of a cube are as many in all levels.
        copy.depth = shape->flags & 5 ? shape->depth : at_level(shape->depth, level);
        if (!copy.depth) copy.depth = 1;
        host.type = 1; // host memory
        host.host = bytes;
        host.pitch = copy.width;
        host.height = copy.height;
        array.type = 3; // an array
        array.array = memory->array;
        if (memory->levels)
            check(cuMipmappedArrayGetLevel(&array.array, memory->array, level),
                  "cuMipmappedArrayGetLevel");
        copy.source = is_read ? array : host;
        copy.target = is_read ? host : array;
        check(cuMemcpy3D_v2(&copy), "cuMemcpy3D");
        bytes += copy.width * copy.height * copy.depth;
    }
}

static void create_arrays(void)
{
    size_t m;
    for (m = 0; m < L.memory_count; ++m) {
        Memory *memory = &L.memory[m];
        if (!memory->is_array) continue;
        if (memory->levels)
            check(cuMipmappedArrayCreate(&memory->array, &memory->shape, memory->levels),
                  "cuMipmappedArrayCreate");
        else check(cuArray3DCreate_v2(&memory->array, &memory->shape), "cuArray3DCreate");
    }
}

static u64 create_texture(const Texture *texture)
{
    u64 handle = 0;
    if (texture->is_surface)
        check(cuSurfObjectCreate(&handle, texture->resource), "cuSurfObjectCreate");
    else
        check(cuTexObjectCreate(&handle, texture->resource, texture->sampler,
                                texture->has_view ? texture->view : NULL), "cuTexObjectCreate");
    return handle;
}

static int by_handle(const void *a, const void *b)
{
    u64 x = ((const Texture *)a)->handle, y = ((const Texture *)b)->handle;
    return x < y ? -1 : x > y;
}

// Creates the objects, with their recorded handles if the driver counts up: a parameter that equals
// a handle may be a number. Otherwise the parameter gets the new handle.
static void create_textures(void)
{
    enum { MOST_FILLERS = 4096 };
    size_t t;
    if (L.texture_count) qsort(L.textures, L.texture_count, sizeof *L.textures, by_handle);
    for (t = 0; t < L.texture_count; ++t) {
        Texture *texture = &L.textures[t], *other;
        u64 handle = 0, last;
        int fillers = 0;
        if (texture->has_array)
            memcpy(texture->resource + 8, &L.memory[texture->array].array, sizeof(void *));
        // Several parameters may name one object.
        for (other = L.textures; other < texture; ++other)
            if (other->handle == texture->handle && other->is_surface == texture->is_surface)
                memcpy(&handle, L.parameters + other->offset, 8);
        if (!handle) {
            do {
                last = handle;
                handle = create_texture(texture);
            } while (handle < texture->handle && handle > last && ++fillers < MOST_FILLERS);
        }
        for (other = L.textures; other < texture; ++other)
            if (other->offset == texture->offset && handle != texture->handle)
                cannot("parameter at %llu equals a texture object and a surface object",
                       (unsigned long long)texture->offset);
        memcpy(L.parameters + texture->offset, &handle, 8);
    }
}

static void put(const Memory *memory, unsigned char *bytes)
{
    if (memory->is_array) copy_array(memory, bytes, 0);
    else check(cuMemcpyHtoD_v2(memory->address, bytes, memory->length), "cuMemcpyHtoD");
}

static void get(const Memory *memory, unsigned char *bytes)
{
    if (memory->is_array) copy_array(memory, bytes, 1);
    else check(cuMemcpyDtoH_v2(bytes, memory->address, memory->length), "cuMemcpyDtoH");
}

// Puts all memory into the state before the launch; if `only_changed`, only what it changes.
static void restore(int only_changed)
{
    size_t m;
    for (m = 0; m < L.memory_count; ++m) {
        Memory *memory = &L.memory[m];
        if (only_changed && !memcmp(memory->before, memory->expected, memory->length)) continue;
        put(memory, memory->before);
    }
    check(cuCtxSynchronize(), "cuCtxSynchronize");
}
