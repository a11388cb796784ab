// Frees memory of a pool twice, as two owners of one pointer do. A test builds it again with more
// lines, and with -DSECOND, where the same call also frees other memory twice.
#include "program.h"

// More lines go here: elsewhere in the file.

class Pool {
public:
    __attribute__((noinline)) CUdeviceptr weights() { return allocate(64); }

    __attribute__((noinline)) CUdeviceptr cache() { return allocate(128); }

    __attribute__((noinline)) void release(CUdeviceptr pointer)
    {
        result = cuMemFree(pointer);
        count++;
    }

private:
    __attribute__((noinline)) CUdeviceptr allocate(size_t size)
    {
        CUdeviceptr pointer = 0;
        CHECK(cuMemAlloc(&pointer, size));
        count++;
        return pointer;
    }

    volatile int result = 0;
    volatile int count = 0;
};

__attribute__((noinline)) static void train(Pool &pool)
{
    // More lines go here: in the same function.
    CUdeviceptr weights = pool.weights();
    pool.release(weights);
    pool.release(weights);
#ifdef SECOND
    CUdeviceptr cache = pool.cache();
    for (int owner = 0; owner < 2; owner++)
        pool.release(cache);
#endif
}

int main()
{
    begin();
    Pool pool;
    train(pool);
    end();
    return success();
}
