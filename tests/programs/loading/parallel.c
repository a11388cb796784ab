/*
 * parallel NAME: a process of a parallel program. It asks its launcher's MPI library, without that
 * library's headers, for its rank, and calls the driver between two barriers.
 * libmpi.so.40 is Open MPI's, libmpi(ch).so.12 MPICH's.
 */
#include "loading.h"

int main(int count, char **words)
{
    int is_open_mpi = getenv("OMPI_COMM_WORLD_RANK") != NULL;
    void *library = dlopen(is_open_mpi ? "libmpi.so.40" : "libmpich.so.12", RTLD_NOW | RTLD_GLOBAL);
    if (!library && !is_open_mpi)
        library = dlopen("libmpi.so.12", RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        fprintf(stderr, "no MPI library: %s\n", dlerror());
        return 1;
    }
    /* A communicator is an address in Open MPI, and a number in MPICH. */
    void *world = is_open_mpi ? dlsym(library, "ompi_mpi_comm_world") : (void *)0x44000000;
    int (*init)(int *, char ***) = (int (*)(int *, char ***))dlsym(library, "MPI_Init");
    int (*get_rank)(void *, int *) = (int (*)(void *, int *))dlsym(library, "MPI_Comm_rank");
    int (*get_size)(void *, int *) = (int (*)(void *, int *))dlsym(library, "MPI_Comm_size");
    int (*meet)(void *) = (int (*)(void *))dlsym(library, "MPI_Barrier");
    int (*finish)(void) = (int (*)(void))dlsym(library, "MPI_Finalize");
    if (!world || !init || !get_rank || !get_size || !meet || !finish) {
        fprintf(stderr, "that is no MPI library\n");
        return 1;
    }
    int rank = -1, size = -1;
    int failed = init(NULL, NULL) || get_rank(world, &rank) || get_size(world, &size)
        || meet(world);
    dprintf(STDOUT_FILENO, "rank %d of %d\n", rank, size);
    int status = count > 1 ? ask_opened(dlopen(words[1], RTLD_NOW | RTLD_LOCAL)) : 1;
    failed = failed || meet(world) || finish();
    return failed ? 1 : status;
}
