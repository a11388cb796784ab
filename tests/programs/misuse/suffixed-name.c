// A driver function is looked up by the name of its exported symbol; the control asks for the
// documented name.
// expect: init-proc-address-unusable
#include "program.h"

int main(void)
{
    begin();
    void *function = NULL;
#ifdef VIOLATE
    const char *name = "cuMemAlloc_v2";
#else
    const char *name = "cuMemAlloc";
#endif
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    CHECK(cuGetProcAddress(name, &function, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &status));
    printf("found: %s\n", function != NULL && status == CU_GET_PROC_ADDRESS_SUCCESS ? "yes" : "no");
    end();
    return success();
}
