// Misses of an access policy window that persist; the control lets them stream.
// expect: launch-config-access-policy-window
#include "program.h"

int main(void)
{
    begin();
    CUstream stream = NULL;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, 4096));
    CUstreamAttrValue value;
    memset(&value, 0, sizeof value);
    value.accessPolicyWindow.base_ptr = (void *)memory;
    value.accessPolicyWindow.num_bytes = 4096;
    value.accessPolicyWindow.hitRatio = 1.0f;
    value.accessPolicyWindow.hitProp = CU_ACCESS_PROPERTY_PERSISTING;
#ifdef VIOLATE
    value.accessPolicyWindow.missProp = CU_ACCESS_PROPERTY_PERSISTING;
#else
    value.accessPolicyWindow.missProp = CU_ACCESS_PROPERTY_STREAMING;
#endif
    MISUSE(cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value));
    CHECK(cuMemFree(memory));
    CHECK(cuStreamDestroy(stream));
    end();
    return success();
}
