// Two live link states share a log buffer; the control uses it again after the first is destroyed.
// expect: link-log-buffer-shared
#include "program.h"

int main(void)
{
    begin();
    static char log[1024];
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)sizeof log}, *other_values[] = {log, (void *)sizeof log};
    CUlinkState first = NULL, second = NULL;
    CHECK(cuLinkCreate(2, options, values, &first));
#ifndef VIOLATE
    CHECK(cuLinkDestroy(first));
#endif
    CHECK(cuLinkCreate(2, options, other_values, &second));
    CHECK(cuLinkDestroy(second));
#ifdef VIOLATE
    CHECK(cuLinkDestroy(first));
#endif
    end();
    return success();
}
