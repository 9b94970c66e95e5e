/* A libcuda.so.1 for machines without a driver. What it says comes from the environment:
 *
 *   STANDIN_LIBCUDA  works (default) | hang | hang-late | abort | segfault | a status that cuInit returns
 *   STANDIN_CUDA     12040
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
    *name = status == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : status == 100 ? "CUDA_ERROR_NO_DEVICE" : status == 803 ? "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" : "CUDA_ERROR_UNKNOWN";
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
    *value = attribute == 75 ? major : minor;
    return 0;
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

/* Memory of the card is memory of the machine; STANDIN_FREE is how many bytes of it are left. */
static size_t taken;

int cuDevicePrimaryCtxRetain(void **context, int device) {
    *context = (void *)(size_t)(device + 1);
    return 0;
}

int cuCtxSetCurrent(void *context) { return context ? 0 : 201; }
int cuCtxSynchronize(void) { return 0; }

int cuMemAlloc_v2(void **pointer, size_t size) {
    taken += size;
    if (taken > strtoull(setting("STANDIN_FREE", "1000000000"), NULL, 10)) return 2;
    *pointer = malloc(size);
    return *pointer ? 0 : 2;
}

int cuMemFree_v2(void *pointer) {
    free(pointer);
    return 0;
}

int cuMemcpyHtoD_v2(void *to, const void *from, size_t size) {
    memcpy(to, from, size);
    return 0;
}

int cuMemcpyDtoH_v2(void *to, const void *from, size_t size) {
    memcpy(to, from, size);
    return 0;
}
