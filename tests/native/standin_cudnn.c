/* A libcudnn for tests. Compiled with
 *
 *   NUMBER   what cudnnGetVersion answers, 90100 or 8907
 *   TEXT     its release as text, "9.1.0"
 *   CUDART   what cudnnGetCudartVersion answers
 *   HOW      0 works | 1 hangs when it is asked | 2 hangs while it is loaded | 3 segfaults when it is asked | 4 is one library
 *
 * As the real one it opens its parts by name, has the version told by one of them, and ends the process where it finds none.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAJOR ((NUMBER) < 10000 ? (NUMBER) / 1000 : (NUMBER) / 10000)

static void *open_part(const char *part)
{
    static const int full = MAJOR >= 9;
    char name[200], text[32];
    void *found = NULL;
    strcpy(text, TEXT);
    if (!full) *strchr(text, '.') = 0;
    while (!found) {
        char *dot = strrchr(text, '.');
        snprintf(name, sizeof name, "libcudnn_%s.so.%s", part, text);
        found = dlopen(name, RTLD_NOW);
        if (!dot) break;
        *dot = 0;
    }
    if (!found) {
        fprintf(stderr, "Unable to load any of {libcudnn_%s.so.%s}\n", part, TEXT);
        abort();
    }
    return found;
}

static size_t part_number(const char *part)
{
    size_t (*function)(void) = (size_t (*)(void))dlsym(open_part(part), "standin_part_number");
    return function ? function() : 0;
}

__attribute__((constructor)) static void start(void)
{
    if (HOW == 2) for (;;) pause();
}

size_t cudnnGetVersion(void)
{
    printf("standard output is not the answer\n");
    fflush(stdout);
    if (HOW == 1) for (;;) pause();
    if (HOW == 3) *(volatile int *)0 = 1;
    if (HOW == 4) return NUMBER;
    return part_number(MAJOR >= 9 ? "graph" : "ops_infer");
}

size_t cudnnGetCudartVersion(void) { return CUDART; }

#if HOW != 4
static int check(const char *part) { return part_number(part) == NUMBER ? 0 : 1002; }
#endif

#if NUMBER >= 90000
int cudnnGraphVersionCheck(void) { return check("graph"); }
int cudnnOpsVersionCheck(void) { return check("ops"); }
int cudnnCnnVersionCheck(void) { return check("cnn"); }
int cudnnAdvVersionCheck(void) { return check("adv"); }
#elif HOW != 4
int cudnnOpsInferVersionCheck(void) { return check("ops_infer"); }
int cudnnOpsTrainVersionCheck(void) { return check("ops_train"); }
int cudnnCnnInferVersionCheck(void) { return check("cnn_infer"); }
int cudnnCnnTrainVersionCheck(void) { return check("cnn_train"); }
int cudnnAdvInferVersionCheck(void) { return check("adv_infer"); }
int cudnnAdvTrainVersionCheck(void) { return check("adv_train"); }
#endif
