// replay-skips: cuOccupancyMaxPotentialBlockSizeWithFlags
/* Occupancy questions about a function and about a library kernel. */
#include "program.h"

static size_t shared_bytes(int block)
{
    return (size_t)block * 4;
}

int main(void)
{
    begin();
    CUmodule module = load_ptx(PTX_REDUCE_DYNAMIC);
    CUfunction function = function_of(module, "reduce_dynamic");
    CUlibrary library = NULL;
    CUkernel kernel = NULL;
    CHECK(cuLibraryLoadData(&library, PTX_FILL, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernel(&kernel, library, "fill"));

    int blocks = 0, grid = 0, block = 0;
    size_t dynamic = 0;
    CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 128, 512));
    EXPECT(blocks >= 1);
    show("blocks of 128 threads", blocks);
    CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, function, 256, 1024,
            CU_OCCUPANCY_DEFAULT));
    EXPECT(blocks >= 1);
    show("blocks of 256 threads", blocks);
    CHECK(cuOccupancyMaxPotentialBlockSize(&grid, &block, function, NULL, 512, 0));
    EXPECT(grid >= 1 && block >= 1 && block <= 1024);
    printf("best: %d blocks of %d\n", grid, block);
    CHECK(cuOccupancyMaxPotentialBlockSizeWithFlags(&grid, &block, function, shared_bytes, 0, 512,
                                                    CU_OCCUPANCY_DEFAULT));
    EXPECT(block >= 1 && block <= 512);
    printf("best up to 512: %d blocks of %d\n", grid, block);
    CHECK(cuOccupancyAvailableDynamicSMemPerBlock(&dynamic, function, 1, 128));
    EXPECT(dynamic >= 1024);
    show("dynamic shared memory for one block", dynamic);
    CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (CUfunction)kernel, 128, 0));
    EXPECT(blocks >= 1);
    show("blocks of the library kernel", blocks);

    int clusters = 0;
    CHECK(cuDeviceGetAttribute(&clusters, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, device));
    if (clusters) {
        CUlaunchAttribute attribute;
        memset(&attribute, 0, sizeof attribute);
        attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attribute.value.clusterDim.x = 2;
        attribute.value.clusterDim.y = 1;
        attribute.value.clusterDim.z = 1;
        CUlaunchConfig config = {
            .gridDimX = 8, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 128, .blockDimY = 1,
            .blockDimZ = 1,
            .sharedMemBytes = 512, .attrs = &attribute, .numAttrs = 1,
        };
        int active = 0, largest = 0;
        CHECK(cuOccupancyMaxActiveClusters(&active, function, &config));
        CHECK(cuOccupancyMaxPotentialClusterSize(&largest, function, &config));
        EXPECT(active >= 1 && largest >= 2);
        printf("clusters of 2: %d, largest cluster %d\n", active, largest);
    }

    CHECK(cuLibraryUnload(library));
    CHECK(cuModuleUnload(module));
    end();
    return success();
}
