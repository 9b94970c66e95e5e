/* Opens libraries as told and prints every object of the process, in the order of the loader.

   opener NAME        dlopen(NAME) from the program
   opener SONAME@NAME dlopen(NAME) from inside the library SONAME, which must be loaded and export open_from_here() */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

static int show(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    (void)data;
    printf("object %s\n", info->dlpi_name);
    return 0;
}

static void *open_from(char *soname, const char *name)
{
    void *library = dlopen(soname, RTLD_NOW | RTLD_NOLOAD);
    void *(*function)(const char *) = library ? (void *(*)(const char *))dlsym(library, "open_from_here") : NULL;
    return function ? function(name) : NULL;
}

int main(int count, char **words)
{
    for (int index = 1; index < count; index++) {
        char *at = strchr(words[index], '@');
        void *opened;
        if (at) {
            *at = 0;
            opened = open_from(words[index], at + 1);
        } else {
            opened = dlopen(words[index], RTLD_NOW);
        }
        printf("open %s\n", opened ? "yes" : "no");
        if (!opened) {
            const char *why = dlerror();
            printf("error %s\n", why ? why : "");
        }
    }
    dl_iterate_phdr(show, NULL);
    return 0;
}
