/* Initialisation, version, and queries about a device. */
#include "program.h"

static const struct {
    CUdevice_attribute attribute;
    const char *name;
} ATTRIBUTES[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, "threads per block"},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, "block x"},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, "block z"},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, "grid y"},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, "warp size"},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, "shared memory per block"},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, "shared memory per block, opt-in"},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, "multiprocessors"},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, "capability major"},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, "capability minor"},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, "unified addressing"},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, "maps host memory"},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, "cooperative launch"},
};

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    int version = 0, again = 0, count = 0;
    CHECK(cuDriverGetVersion(&version)); /* allowed before cuInit */
    CHECK(cuInit(0));
    CHECK(cuInit(0)); /* a second time is allowed */
    CHECK(cuDriverGetVersion(&again));
    EXPECT(version == again && version >= 11000);
    show("driver version", version);
    CHECK(cuDeviceGetCount(&count));
    EXPECT(count >= 1);

    CUdevice dev = -1;
    CHECK(cuDeviceGet(&dev, 0));
    show("device 0 is", dev);
    char name[256] = "";
    CHECK(cuDeviceGetName(name, sizeof name, dev));
    EXPECT(name[0] != '\0');
    printf("name: %s\n", name);

    size_t total = 0;
    CHECK(cuDeviceTotalMem(&total, dev));
    EXPECT(total > 0);
    CUuuid uuid, uuid_again;
    memset(&uuid, 0, sizeof uuid);
    memset(&uuid_again, 1, sizeof uuid_again);
    CHECK(cuDeviceGetUuid(&uuid, dev));
    CHECK(cuDeviceGetUuid(&uuid_again, dev));
    EXPECT(memcmp(&uuid, &uuid_again, sizeof uuid) == 0);
    printf("uuid is stable\n");

    char bus[32] = "";
    CHECK(cuDeviceGetPCIBusId(bus, sizeof bus, dev));
    CUdevice by_bus = -1;
    CHECK(cuDeviceGetByPCIBusId(&by_bus, bus));
    EXPECT(by_bus == dev);
    printf("found again by its bus id\n");

    for (size_t i = 0; i < sizeof ATTRIBUTES / sizeof ATTRIBUTES[0]; i++) {
        int value = -1;
        CHECK(cuDeviceGetAttribute(&value, ATTRIBUTES[i].attribute, dev));
        printf("%s: %d\n", ATTRIBUTES[i].name, value);
    }
    int affinity = -1;
    CHECK(cuDeviceGetExecAffinitySupport(&affinity, CU_EXEC_AFFINITY_TYPE_SM_COUNT, dev));
    CUmoduleLoadingMode mode;
    CHECK(cuModuleGetLoadingMode(&mode));
    EXPECT(mode == CU_MODULE_EAGER_LOADING || mode == CU_MODULE_LAZY_LOADING);
    printf("loading mode: %s\n", mode == CU_MODULE_LAZY_LOADING ? "lazy" : "eager");
    return success();
}
