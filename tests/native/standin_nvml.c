/* A libnvidia-ml.so.1 for machines without a driver. What it says comes from the environment:
 *
 *   STANDIN_NVML    works (default) | hang | hang-late | abort | segfault | devour: takes memory without end | garbage | a status that nvmlInit returns
 *   STANDIN_DRIVER  550.54.15       STANDIN_CUDA  12040
 *   STANDIN_GPUS    name|major.minor|MiB|uuid;...      STANDIN_MIG  uuid of the one instance of GPU 0
 *   STANDIN_OTHERS  how many programs are on a card     STANDIN_CLOCKS  crash: the process ends when it is asked for the clocks
 *   STANDIN_OLD     set: has no function for the compute capability, as before R418
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "standin.h"

static const char *behaviour(void) { return setting("STANDIN_NVML", "works"); }

int nvmlInit_v2(void) {
    misbehave(behaviour());
    puts("noise on standard output");
    fflush(stdout);
    return atoi(behaviour());
}

const char *nvmlErrorString(int status) {
    switch (status) {
        case 9: return "Driver Not Loaded";
        case 15: return "GPU is lost";
        case 18: return "Driver/library version mismatch";
        default: return "Unknown Error";
    }
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = atoi(setting("STANDIN_CUDA", "12040"));
    return strcmp(behaviour(), "garbage") == 0 ? (*version = -77, 0) : 0;
}

int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    snprintf(text, size, "%s", strcmp(behaviour(), "garbage") == 0 ? "\xff\x01not a version" : setting("STANDIN_DRIVER", "550.54.15"));
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = strcmp(behaviour(), "garbage") == 0 ? 4000000000u : (unsigned)gpu_count();
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (strcmp(behaviour(), "hang-late") == 0 && index > 0) for (;;) pause();
    if (strcmp(behaviour(), "garbage") == 0 && index > 0) return 999;
    if (strcmp(field(index, 0), "lost") == 0) return 15;
    *device = (void *)(size_t)(index + 1);
    return 0;
}

static int index_of(void *device) { return (int)(size_t)device - 1; }

int nvmlDeviceGetName(void *device, char *text, unsigned size) {
    snprintf(text, size, "%s", field(index_of(device), 0));
    return 0;
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned size) {
    if (index_of(device) == 999) snprintf(text, size, "%s", setting("STANDIN_MIG", ""));
    else snprintf(text, size, "%s", strcmp(behaviour(), "garbage") == 0 ? "GPU-?" : field(index_of(device), 3));
    return 0;
}

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    if (getenv("STANDIN_OLD")) return 13; /* function not found */
    if (strcmp(behaviour(), "garbage") == 0) { *major = -3; *minor = 700; return 0; }
    return sscanf(field(index_of(device), 1), "%d.%d", major, minor) == 2 ? 0 : 999;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory) {
    memory[0] = strtoull(field(index_of(device), 2), NULL, 10) << 20;
    if (strcmp(behaviour(), "garbage") == 0) memory[0] = 3;
    memory[1] = memory[2] = 0;
    return 0;
}

int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
    *current = *pending = index_of(device) == 0 && getenv("STANDIN_MIG") != NULL;
    return 0;
}

int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count) {
    (void)device;
    *count = 7;
    return 0;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **instance) {
    (void)device;
    if (index != 2) return 6; /* not found */
    *instance = (void *)(size_t)1000;
    return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    for (int index = 0; index < gpu_count(); index++)
        if (strcmp(field(index, 3), uuid) == 0) {
            *device = (void *)(size_t)(index + 1);
            return 0;
        }
    return 6;
}

int nvmlDeviceGetClockInfo(void *device, int kind, unsigned *clock) {
    (void)device;
    misbehave(strcmp(setting("STANDIN_CLOCKS", ""), "crash") == 0 ? "segfault" : "");
    *clock = 1500;
    return kind == 1 ? 0 : 2;
}

int nvmlDeviceGetMaxClockInfo(void *device, int kind, unsigned *clock) {
    (void)device;
    *clock = 1590;
    return kind == 1 ? 0 : 2;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons) {
    (void)device;
    *reasons = 0;
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *rows) {
    (void)device;
    if (rows) return 2;
    *count = 1 + (unsigned)atoi(setting("STANDIN_OTHERS", "0"));
    return 7;
}
