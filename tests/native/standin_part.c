/* A part of the libcudnn for tests, compiled with the NUMBER of its release. */
#include <stddef.h>

size_t standin_part_number(void) { return NUMBER; }
