/* A libcuda.so.1 for machines without a driver. What it says comes from the environment:
 *
 *   STANDIN_LIBCUDA  works (default) | hang | hang-late | abort | segfault | devour: takes memory without end | a status that cuInit returns
 *   STANDIN_CUDA     12040
 *   STANDIN_MODE     3: only one process at a time may be on a card
 *   STANDIN_GPUS     name|major.minor|MiB|uuid;...     CUDA_VISIBLE_DEVICES  obeyed where it is one digit, empty or -1
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "standin.h"

static const char *behaviour(void) { return setting("STANDIN_LIBCUDA", "works"); }

/* The place in STANDIN_GPUS of a device that the program sees. */
static int place(int device) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    return visible && strlen(visible) == 1 ? atoi(visible) : device;
}

static int count(void) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible && (*visible == 0 || *visible == '-')) return 0;
    if (visible && strlen(visible) == 1) return atoi(visible) < gpu_count();
    return gpu_count();
}

int cuDriverGetVersion(int *version) {
    *version = atoi(setting("STANDIN_CUDA", "12040"));
    return 0;
}

int cuInit(unsigned flags) {
    (void)flags;
    misbehave(behaviour());
    if (atoi(behaviour())) return atoi(behaviour());
    return count() ? 0 : 100;
}

int cuGetErrorName(int status, const char **name) {
    *name = status == 1 ? "CUDA_ERROR_INVALID_VALUE" : status == 201 ? "CUDA_ERROR_INVALID_CONTEXT" : status == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : status == 100 ? "CUDA_ERROR_NO_DEVICE" : status == 803 ? "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" : "CUDA_ERROR_UNKNOWN";
    return 0;
}

int cuDeviceGetCount(int *number) {
    *number = count();
    return 0;
}

int cuDeviceGet(int *device, int index) {
    if (strcmp(behaviour(), "hang-late") == 0 && index > 0) for (;;) pause();
    *device = index;
    return 0;
}

int cuDeviceGetName(char *text, int size, int device) {
    snprintf(text, (size_t)size, "%s", field(place(device), 0));
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    int major = 0, minor = 0;
    if (sscanf(field(place(device), 1), "%d.%d", &major, &minor) != 2) return 999;
    switch (attribute) {
        case 13: *value = 1590000; return 0;
        case 20: *value = atoi(setting("STANDIN_MODE", "0")); return 0;
        case 16: *value = 40; return 0;
        case 75: *value = major; return 0;
        case 76: *value = minor; return 0;
        default: *value = 1; return attribute < 1 || attribute > 160; /* the others that a driver knows: frameworks ask for many */
    }
}

int cuDeviceTotalMem_v2(size_t *size, int device) {
    *size = (size_t)strtoull(field(place(device), 2), NULL, 10) << 20;
    return 0;
}

int cuDeviceGetUuid(unsigned char *uuid, int device) {
    const char *text = field(place(device), 3) + 4;
    for (int byte = 0; byte < 16; text += 2) {
        if (*text == '-') text++;
        unsigned value = 0;
        if (sscanf(text, "%2x", &value) != 1) return 999;
        uuid[byte++] = (unsigned char)value;
    }
    return 0;
}

/* Memory of the card is memory of the machine, but as strict as the driver is: without a context there is none, and nobody reads or
 * writes beyond what was allocated. STANDIN_FREE is how many bytes there are. */
static struct { char *at; size_t size; } given[256];
static size_t taken;
static int retained;
static __thread void *current;

static size_t all_memory(void) { return (size_t)strtoull(setting("STANDIN_FREE", "4000000000"), NULL, 10); }

/* The bytes from an address of the card to the end of its allocation; 0 where it is none. The stand-in of cuDNN asks this, too. */
size_t standin_room(const void *address) {
    const char *at = address;
    for (unsigned index = 0; index < sizeof given / sizeof *given; index++)
        if (given[index].at && at >= given[index].at && at < given[index].at + given[index].size)
            return (size_t)(given[index].at + given[index].size - at);
    return 0;
}

void *standin_context(void) { return current; }

int cuDevicePrimaryCtxRetain(void **context, int device) {
    if (device < 0 || device >= count()) return 101;
    retained = 1;
    *context = (void *)(size_t)(device + 1);
    return 0;
}

int cuCtxSetCurrent(void *context) {
    if (!retained || !context) return 201;
    current = context;
    return 0;
}
int cuCtxSynchronize(void) { return current ? 0 : 201; }

int cuMemGetInfo_v2(size_t *free_, size_t *total) {
    if (!current) return 201;
    *free_ = all_memory() - taken;
    *total = all_memory();
    return 0;
}

int cuMemAlloc_v2(void **pointer, size_t size) {
    if (!current) return 201;
    if (!size) return 1;
    for (unsigned index = 0; index < sizeof given / sizeof *given; index++) {
        if (given[index].at) continue;
        if (size > all_memory() - taken || !(given[index].at = malloc(size))) return 2;
        given[index].size = size;
        taken += size;
        *pointer = given[index].at;
        return 0;
    }
    return 2;
}

int cuMemFree_v2(void *pointer) {
    if (!current) return 201;
    for (unsigned index = 0; index < sizeof given / sizeof *given; index++)
        if (pointer && given[index].at == pointer) {
            taken -= given[index].size;
            given[index].at = NULL;
            free(pointer);
            return 0;
        }
    return 1;
}

int cuMemcpyHtoD_v2(void *to, const void *from, size_t size) {
    if (!current) return 201;
    if (size > standin_room(to)) return 1;
    memcpy(to, from, size);
    return 0;
}

int cuMemcpyDtoH_v2(void *to, const void *from, size_t size) {
    if (!current) return 201;
    if (size > standin_room(from)) return 1;
    memcpy(to, from, size);
    return 0;
}
