// ---- The launch ----

static int launch(void *function, void *stream)
{
    void *given[4096], *extra[5], **pointers = given;
    size_t bytes = L.parameter_bytes, i;
    Config *config = &L.config;
    extra[0] = (void *)1; // CU_LAUNCH_PARAM_BUFFER_POINTER
    extra[1] = L.parameters;
    extra[2] = (void *)2; // CU_LAUNCH_PARAM_BUFFER_SIZE
    extra[3] = &bytes;
    extra[4] = NULL;
    for (i = 0; i < L.offset_count && i < 4096; ++i) given[i] = L.parameters + L.offsets[i];
    // Without the places of the parameters they are given in one piece.
    if (!L.offset_count) pointers = NULL;
    config->stream = stream;
    if (!config->count)
        return cuLaunchKernel(function, config->grid[0], config->grid[1], config->grid[2],
                              config->block[0], config->block[1], config->block[2],
                              config->shared, stream, pointers,
                              pointers || !bytes ? NULL : extra);
    if (!cuLaunchKernelEx) cannot("the driver has no cuLaunchKernelEx");
    return cuLaunchKernelEx(config, function, pointers, pointers || !bytes ? NULL : extra);
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

static void time_launches(void *function, void *stream)
{
    void *begin, *end;
    float *times = (float *)zeros((u64)(repeat + 1) * sizeof(float));
    int i;
    check(cuEventCreate(&begin, 0), "cuEventCreate");
    check(cuEventCreate(&end, 0), "cuEventCreate");
    for (i = 0; i < repeat; ++i) {
        restore(1);
        check(cuEventRecord(begin, stream), "cuEventRecord");
        check(launch(function, stream), "the launch");
        check(cuEventRecord(end, stream), "cuEventRecord");
        check(cuEventSynchronize(end), "cuEventSynchronize");
        check(cuEventElapsedTime(&times[i], begin, end), "cuEventElapsedTime");
    }
    if (!repeat) return;
    qsort(times, (size_t)repeat, sizeof *times, by_value);
    printf("time     %.2f us (median of %d; %.2f to %.2f)\n", 1e3 * times[repeat / 2], repeat,
           1e3 * times[0], 1e3 * times[repeat - 1]);
}

static int run(void *function, void *stream)
{
    enum { RUNS = 3 };
    u64 differing = 0, outside = 0;
    int attempt, code, is_other = 0;
    for (attempt = 0; attempt < RUNS; ++attempt) {
        restore(0);
        code = launch(function, stream);
        if (!code) code = cuCtxSynchronize();
        if (code) {
            printf("result   failed: the launch returned %s\n", name_of(code));
            return 1;
        }
        differing = compare(attempt, &outside, &is_other, attempt == 0);
        if (!differing && attempt == 0) {
            time_launches(function, stream);
            printf("result   same\n");
            return 0;
        }
        if (tolerance_type && !outside) {
            printf("result   same within %s=%g\n", tolerance_type, tolerance);
            return 0;
        }
        if (is_other) {
            printf("result   nondeterministic: two launches from the same memory differ\n");
            return 1;
        }
    }
    printf("result   different\n");
    return 1;
}

static void read_arguments(int count, char **values)
{
    int i;
    for (i = 1; i < count; ++i) {
        const char *next = i + 1 < count ? values[i + 1] : NULL;
        if (values[i][0] != '-') {
            description = values[i];
            continue;
        }
        if (!next) cannot("%s needs a value, or is unknown", values[i]);
        if (!strcmp(values[i], "--driver")) driver_path = next;
        else if (!strcmp(values[i], "--device")) device_number = atoi(next);
        else if (!strcmp(values[i], "--repeat")) repeat = atoi(next) < 0 ? 0 : atoi(next);
        else if (!strcmp(values[i], "--tolerance")) {
            char *type = strdup(next), *equals = strchr(type, '=');
            if (equals) *equals = 0;
            if (!equals || (strcmp(type, "f16") && strcmp(type, "bf16") && strcmp(type, "f32") &&
                            strcmp(type, "f64")))
                cannot("--tolerance %s: give f16, bf16, f32 or f64, and a number: f32=1e-5", next);
            tolerance_type = type;
            tolerance = atof(equals + 1);
        }
        else cannot("%s is unknown", values[i]);
        ++i;
    }
}

int main(int count, char **values)
{
    int device = 0, major = 0, minor = 0, version = 0, now;
    size_t i;
    u64 bytes = 0;
    char name[256] = "";
    void *context = NULL, *module, *function = NULL, *stream = NULL;
    arguments = values;
    setvbuf(stdout, NULL, _IOLBF, 0);
    read_arguments(count, values);
    if (!getenv("CUTAPE_LAUNCH_ATTEMPT")) restart(0);
    read_description();
    load_driver();
    check(cuInit(0), "cuInit");
    check(cuDeviceGet(&device, device_number), "cuDeviceGet");
    check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    place_memory(device);
    cuDriverGetVersion(&version);
    cuDeviceGetName(name, sizeof name - 1, device);
    cuDeviceGetAttribute(&major, 75, device);
    cuDeviceGetAttribute(&minor, 76, device);
    for (i = 0; i < L.memory_count; ++i) bytes += L.memory[i].length;
    printf("kernel   %s\n", L.kernel);
    if (L.source) printf("from     %s\n", L.source);
    printf("device   %s, compute capability %d.%d, driver %d.%d\n", name, major, minor,
           version / 1000, version / 10 % 100);
    if (L.device_name && (major != L.major || minor != L.minor || strcmp(name, L.device_name)))
        printf("recorded %s, compute capability %d.%d: results may differ\n", L.device_name,
               L.major, L.minor);
    printf("memory   %llu bytes in %llu ranges\n", (unsigned long long)bytes,
           (unsigned long long)L.memory_count);
    read_contents();
    for (i = 0; i < L.limit_count; ++i) {
        size_t value = 0;
        // The stack and the heap of kernels.
        if (cuCtxGetLimit(&value, L.limits[i].id) == 0 && value != L.limits[i].value)
            check(cuCtxSetLimit(L.limits[i].id, L.limits[i].value), "cuCtxSetLimit");
    }
    module = load_modules();
    relocate();
    create_arrays();
    create_textures();
    check(cuModuleGetFunction(&function, module, L.kernel), "cuModuleGetFunction");
    for (i = 0; i < L.setting_count; ++i)
        if (cuFuncGetAttribute(&now, L.settings[i].id, function) == 0 &&
            now != L.settings[i].value)
            check(cuFuncSetAttribute(function, L.settings[i].id, L.settings[i].value),
                  "cuFuncSetAttribute");
    check(cuStreamCreate(&stream, 1), "cuStreamCreate"); // not blocking
    return run(function, stream);
}
