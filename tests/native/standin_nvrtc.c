/* A libnvrtc that compiles nothing, compiled with the STATUS that it answers. */
#include <stddef.h>

int nvrtcCreateProgram(void **program, const char *text, const char *name, int count, const char *const *headers, const char *const *names) {
    *program = (void *)1;
    return !text || !name || count || headers || names;
}
int nvrtcCompileProgram(void *program, int count, const char *const *options) { return !program || count || options ? 5 : STATUS; }
int nvrtcDestroyProgram(void **program) {
    *program = NULL;
    return 0;
}
