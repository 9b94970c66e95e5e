/* cuDNN 8.5 to 8.7, compiled twice: with PART its libcudnn_cnn_infer.so.8, which looks for libcuda.so as it is loaded, and without
 * it the libcudnn.so.8 that takes the error of that search for its own; with EARLY (8.5.0) when it is asked for its version already.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef PART
__attribute__((constructor)) static void start(void) { dlopen("libcuda.so", RTLD_LAZY); }
int standin_check(void) { return 0; }
#else
static void *open_part(void)
{
    void *part = dlopen("libcudnn_cnn_infer.so.8", RTLD_NOW);
    const char *error = dlerror();
    if (error) {
        fprintf(stderr, "Could not load library libcudnn_cnn_infer.so.8. Error: %s\n", error);
        abort();
    }
    return part;
}

size_t cudnnGetVersion(void)
{
#ifdef EARLY
    open_part();
#endif
    return 8600;
}

int cudnnCnnInferVersionCheck(void) { return ((int (*)(void))dlsym(open_part(), "standin_check"))(); }
#endif
