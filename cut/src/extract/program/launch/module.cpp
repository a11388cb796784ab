// ---- Modules, their variables, and addresses of variables ----

// Loads the modules; returns that of the kernel.
static void *load_modules(void)
{
    void *module = NULL;
    size_t m, i;
    for (m = 0; m <= L.module_count; ++m) {
        void *loaded = NULL;
        check(cuModuleLoadData(&loaded, read_file(m ? L.modules[m - 1] : L.image)),
              "cuModuleLoadData");
        if (!m) module = loaded;
        for (i = 0; i < L.memory_count; ++i) {
            Memory *memory = &L.memory[i];
            size_t size = 0;
            if (!memory->variable || memory->module != m) continue;
            check(cuModuleGetGlobal_v2(&memory->address, &size, loaded, memory->variable),
                  "cuModuleGetGlobal");
            if (size != memory->length)
                cannot("variable %s has another size", memory->variable);
        }
    }
    return module;
}

static void put_address(unsigned char *bytes, u64 length, const Address *address)
{
    u64 value;
    if (address->memory >= L.memory_count || length < 8 || address->offset > length - 8)
        cannot("%s: an address lies outside of its memory", description);
    value = L.memory[address->memory].address + address->addend;
    memcpy(bytes + address->offset, &value, 8);
}

// Puts the addresses that variables have in this process into parameters and contents.
static void relocate(void)
{
    size_t m, i;
    for (i = 0; i < L.relocation_count; ++i)
        put_address(L.parameters, L.parameter_bytes, &L.relocations[i]);
    for (m = 0; m < L.memory_count; ++m) {
        Memory *memory = &L.memory[m];
        for (i = 0; i < memory->address_count; ++i) {
            const Address *address = &memory->addresses[i];
            unsigned char *bytes = address->is_after ? memory->expected : memory->before;
            put_address(bytes, memory->length, address);
        }
        // What an unchanged variable holds may depend on addresses of this process.
        if (memory->is_as_loaded) {
            unsigned char *now = zeros(memory->length);
            u64 byte;
            check(cuMemcpyDtoH_v2(now, memory->address, memory->length), "cuMemcpyDtoH");
            for (byte = 0; byte < memory->length; ++byte)
                if (memory->expected[byte] == memory->before[byte])
                    memory->expected[byte] = now[byte];
            free(memory->before);
            memory->before = now;
        }
    }
}
