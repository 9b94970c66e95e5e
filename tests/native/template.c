/* A library whose soname, needs and search path are written over after it was linked. */
#include <dlfcn.h>

void *open_from_here(const char *name)
{
    void *opened = dlopen(name, RTLD_NOW);
    return opened; /* not a tail call: the loader looks at who called */
}
