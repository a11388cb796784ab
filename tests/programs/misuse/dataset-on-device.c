// A dataset is on the device before its loader forks a worker, which reads an item of it. The control
// keeps the dataset on the host and initialises the driver after the fork.
// https://github.com/pytorch/pytorch/issues/40403
// expect: init-fork-child-use
#include "program.h"

#include <sys/wait.h>

enum { ITEMS = 8, ITEM = 256 };

struct dataset {
    CUdeviceptr device;
    uint8_t host[ITEMS][ITEM];
};

static void load(struct dataset *dataset)
{
    memset(dataset->host, 3, sizeof dataset->host);
#ifdef VIOLATE
    CHECK(cuMemAlloc(&dataset->device, sizeof dataset->host));
    CHECK(cuMemcpyHtoD(dataset->device, dataset->host, sizeof dataset->host));
#endif
}

static int worker(struct dataset *dataset)
{
    uint8_t item[ITEM];
#ifdef VIOLATE
    MISUSE(cuMemcpyDtoH(item, dataset->device + ITEM, ITEM));
    return 0;
#else
    memcpy(item, dataset->host[1], ITEM);
    return item[0] != 3;
#endif
}

int main(void)
{
    static struct dataset dataset;
#ifdef VIOLATE
    begin();
#endif
    load(&dataset);
    fflush(stdout);
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0)
        _exit(worker(&dataset));
    int status = 0;
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
#ifdef VIOLATE
    CHECK(cuMemFree(dataset.device));
#else
    begin();
#endif
    end();
    return success();
}
