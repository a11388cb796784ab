/* Queries two private tables, of which the driver has one. Does not read their contents. */
// replay-skips: cuGetExportTable
#include "program.h"

int main(void)
{
    begin();
    /* the runtime's interface table, which every program of the runtime queries */
    static const unsigned char RUNTIME[16] = {
        0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d,
        0xf9,
    };
    CUuuid id;
    const void *table = NULL, *again = NULL;
    memcpy(&id, RUNTIME, sizeof id);
    CUresult result = cuGetExportTable(&table, &id);
    printf("runtime table: %s\n", result_name(result));
    EXPECT(cuGetExportTable(&again, &id) == result && again == table);
    memset(&id, 0x5a, sizeof id);
    printf("unknown table: %s\n", result_name(cuGetExportTable(&table, &id)));
    end();
    return success();
}
