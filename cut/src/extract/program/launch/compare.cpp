// ---- The comparison ----

static double value_of(const unsigned char *bytes)
{
    uint32_t word = 0;
    uint16_t half = 0;
    float single;
    double value;
    if (!strcmp(tolerance_type, "f64")) {
        memcpy(&value, bytes, 8);
        return value;
    }
    if (!strcmp(tolerance_type, "f16")) {
        int exponent, fraction;
        memcpy(&half, bytes, 2);
        exponent = half >> 10 & 31;
        fraction = half & 1023;
        value = exponent == 31 ? (fraction ? NAN : INFINITY)
              : exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
        return half & 0x8000 ? -value : value;
    }
    if (!strcmp(tolerance_type, "bf16")) {
        memcpy(&half, bytes, 2);
        word = (uint32_t)half << 16;
    }
    else memcpy(&word, bytes, 4);
    memcpy(&single, &word, 4);
    return single;
}

static u64 element_bytes(void)
{
    return !strcmp(tolerance_type, "f64") ? 8 : !strcmp(tolerance_type, "f32") ? 4 : 2;
}

// How many bytes differ from the recording; `outside` counts the numbers outside the tolerance.
static u64 compare(int run, u64 *outside, int *is_other, int is_told)
{
    size_t m;
    u64 total = 0, ranges = 0, first = 0;
    unsigned char expected = 0, received = 0;
    for (m = 0; m < L.memory_count; ++m) {
        Memory *memory = &L.memory[m];
        unsigned char *now = zeros(memory->length);
        u64 i, here = 0;
        get(memory, now);
        if (run == 0) memory->first = now;
        else *is_other |= memcmp(memory->first, now, memory->length) != 0;
        if (memcmp(now, memory->expected, memory->length)) {
            for (i = 0; i < memory->length; ++i) {
                if (now[i] == memory->expected[i]) continue;
                if (!total && !here) {
                    first = memory->address + i;
                    expected = memory->expected[i];
                    received = now[i];
                }
                ++here;
            }
            if (tolerance_type) {
                u64 size = element_bytes();
                for (i = 0; i + size <= memory->length; i += size) {
                    double a, b, scale;
                    if (!memcmp(now + i, memory->expected + i, size)) continue;
                    a = value_of(memory->expected + i);
                    b = value_of(now + i);
                    scale = fmax(1, fmax(fabs(a), fabs(b)));
                    if (isnan(a) && isnan(b)) continue;
                    if (!(a == b || (isfinite(a) && isfinite(b) &&
                                     fabs(a - b) <= tolerance * scale)))
                        ++*outside;
                }
                *outside += memcmp(now + i, memory->expected + i, memory->length - i) != 0;
            }
            ++ranges;
        }
        total += here;
        if (run) free(now);
    }
    if (total && is_told)
        printf("differs  %llu bytes in %llu of %llu ranges; the first at %#llx: "
               "expected %02x, received %02x\n",
               (unsigned long long)total, (unsigned long long)ranges,
               (unsigned long long)L.memory_count, (unsigned long long)first, expected, received);
    return total;
}
