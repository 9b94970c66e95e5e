/* A libcudnn that computes convolutions on the CPU, compiled with the NUMBER of its release, 90100, 8907 or 7605.
 *
 *   STANDIN_CUDNN  works (default) | hang | abort | segfault | a status that the convolutions return
 *                  off-by-one: reads one element too far | transposed: kernel axes exchanged | nan: one result is none
 *                  ulp: one result is off by STANDIN_OFF | no-gradient: leaves the gradient of the weights as it was
 *                  tf32: rounds its factors to ten bits | loose: adds in half precision
 *   STANDIN_RANK   only in convolutions of so many dimensions, batch and channels counted
 *   STANDIN_CREATE a status that cudnnCreate returns
 *   CUDNN_LOGINFO_DBG, CUDNN_LOGDEST_DBG  as the real one obeys them, to a file
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "standin.h"

typedef struct {
    int type, format, rank, dim[8], stride[8], pad[8], step[8], dilation[8], groups;
} Descriptor;

typedef struct {
    int algo, status;
    float time;
    size_t memory;
    int determinism, math, reserved[3];
} Perf;

static int rank_now;
static const char *how(void) {
    const char *only = getenv("STANDIN_RANK");
    return only && atoi(only) != rank_now ? "works" : setting("STANDIN_CUDNN", "works");
}
static int is(const char *word) { return strcmp(how(), word) == 0; }

static void logged(const char *name) {
    const char *target = getenv("CUDNN_LOGDEST_DBG");
    if (!target || strcmp(setting("CUDNN_LOGINFO_DBG", "0"), "1") != 0) return;
    FILE *file = fopen(target, "a");
    if (!file) return;
    fprintf(file, "\nI! CuDNN (v%d 70) function %s() called:\ni!     handle: type=cudnnHandle_t; streamId=(nil) (defaultStream);\n", NUMBER, name);
    fclose(file);
}

size_t cudnnGetVersion(void) { return NUMBER; }
size_t cudnnGetCudartVersion(void) { return 12040; }
const char *cudnnGetErrorString(int status) {
    return status == 1 || status == 1001 ? "CUDNN_STATUS_NOT_INITIALIZED" : status == 8 ? "CUDNN_STATUS_EXECUTION_FAILED" : "CUDNN_STATUS_INTERNAL_ERROR";
}

int cudnnCreate(void **handle) {
    logged("cudnnCreate");
    *handle = (void *)1;
    return atoi(setting("STANDIN_CREATE", "0"));
}

static int make(void **descriptor) {
    *descriptor = calloc(1, sizeof(Descriptor));
    return 0;
}
int cudnnCreateTensorDescriptor(void **made) { return make(made); }
int cudnnCreateFilterDescriptor(void **made) { return make(made); }
int cudnnCreateConvolutionDescriptor(void **made) { return make(made); }
static int drop(void *descriptor) {
    free(descriptor);
    return 0;
}
int cudnnDestroyTensorDescriptor(void *made) { return drop(made); }
int cudnnDestroyFilterDescriptor(void *made) { return drop(made); }
int cudnnDestroyConvolutionDescriptor(void *made) { return drop(made); }

int cudnnSetTensorNdDescriptor(Descriptor *made, int type, int rank, const int *dim, const int *stride) {
    made->type = type;
    made->rank = rank;
    memcpy(made->dim, dim, sizeof(int) * (size_t)rank);
    memcpy(made->stride, stride, sizeof(int) * (size_t)rank);
    return 0;
}

int cudnnSetFilterNdDescriptor(Descriptor *made, int type, int format, int rank, const int *dim) {
    int step = 1;
    made->type = type;
    made->format = format;
    made->rank = rank;
    memcpy(made->dim, dim, sizeof(int) * (size_t)rank);
    if (format == 1) {
        made->stride[1] = 1;
        step = dim[1];
    }
    for (int axis = rank - 1; axis >= 0; axis--) {
        if (format == 1 && axis == 1) continue;
        made->stride[axis] = step;
        step *= dim[axis];
    }
    return 0;
}

int cudnnSetConvolutionNdDescriptor(Descriptor *made, int rank, const int *pad, const int *step, const int *dilation, int mode, int type) {
    (void)mode;
    made->type = type;
    made->rank = rank;
    made->groups = 1;
    memcpy(made->pad, pad, sizeof(int) * (size_t)rank);
    memcpy(made->step, step, sizeof(int) * (size_t)rank);
    memcpy(made->dilation, dilation, sizeof(int) * (size_t)rank);
    return 0;
}
int cudnnSetConvolutionGroupCount(Descriptor *made, int groups) {
    made->groups = groups;
    return 0;
}
int cudnnSetConvolutionMathType(Descriptor *made, int math) {
    (void)made;
    return math < 0 || (NUMBER < 8000 && math > 2) ? (NUMBER < 90000 ? 3 : 2000) : 0;
}

static int heuristics(int count, int *found, Perf *rows) {
    memset(rows, 0, sizeof(Perf) * (size_t)count);
    rows[0].algo = 3; /* one that does not serve */
    rows[0].status = 9;
    rows[1].algo = 1;
    *found = 2;
    return 0;
}
int cudnnGetConvolutionForwardAlgorithm_v7(void *h, void *a, void *b, void *c, void *d, int count, int *found, Perf *rows) {
    (void)h, (void)a, (void)b, (void)c, (void)d;
    return heuristics(count, found, rows);
}
int cudnnGetConvolutionBackwardDataAlgorithm_v7(void *h, void *a, void *b, void *c, void *d, int count, int *found, Perf *rows) {
    (void)h, (void)a, (void)b, (void)c, (void)d;
    return heuristics(count, found, rows);
}
int cudnnGetConvolutionBackwardFilterAlgorithm_v7(void *h, void *a, void *b, void *c, void *d, int count, int *found, Perf *rows) {
    (void)h, (void)a, (void)b, (void)c, (void)d;
    return heuristics(count, found, rows);
}

static int room(int algo, size_t *size) {
    *size = 256;
    return algo == 1 ? 0 : (NUMBER < 90000 ? 9 : 3000);
}
int cudnnGetConvolutionForwardWorkspaceSize(void *h, void *a, void *b, void *c, void *d, int algo, size_t *size) {
    (void)h, (void)a, (void)b, (void)c, (void)d;
    return room(algo, size);
}
int cudnnGetConvolutionBackwardDataWorkspaceSize(void *h, void *a, void *b, void *c, void *d, int algo, size_t *size) {
    (void)h, (void)a, (void)b, (void)c, (void)d;
    return room(algo, size);
}
int cudnnGetConvolutionBackwardFilterWorkspaceSize(void *h, void *a, void *b, void *c, void *d, int algo, size_t *size) {
    (void)h, (void)a, (void)b, (void)c, (void)d;
    return room(algo, size);
}

static double from_half(uint16_t bits) {
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double value = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return bits >> 15 ? -value : value;
}

static uint16_t to_half(double value) {
    int exponent;
    uint16_t sign = value < 0 ? 0x8000 : 0;
    double size = fabs(value);
    if (size != size) return 0x7e00;
    if (size == 0) return sign;
    frexp(size, &exponent);
    if (exponent < -13) return (uint16_t)(sign | (uint16_t)nearbyint(ldexp(size, 24)));
    double fraction = nearbyint(ldexp(size, 11 - exponent));
    return (uint16_t)(sign | (uint16_t)(fraction + ldexp(exponent + 13, 10)));
}

static double get(const void *data, int type, long at) {
    double value = type == 1 ? ((const double *)data)[at] : type == 2 ? from_half(((const uint16_t *)data)[at]) : ((const float *)data)[at];
    if (is("tf32")) {
        int exponent;
        double fraction = frexp(value, &exponent);
        value = ldexp(nearbyint(ldexp(fraction, 11)), exponent - 11);
    }
    return value;
}

static void put(void *data, int type, long at, double value) {
    if (type == 1) ((double *)data)[at] = value;
    else if (type == 2) ((uint16_t *)data)[at] = to_half(value);
    else ((float *)data)[at] = (float)value;
}

/* Every product of a convolution, added to where the direction wants it. */
static int convolve(const char *name, int direction, const Descriptor *xd, const void *x, const Descriptor *wd, const void *w,
                    const Descriptor *cd, const Descriptor *yd, const void *y) {
    const Descriptor *target = direction == 0 ? yd : direction == 1 ? xd : wd;
    const void *data = direction == 0 ? y : direction == 1 ? x : w;
    long size = 1, products = 1;
    int rank = yd->rank, type = target->type;
    rank_now = rank;
    misbehave(how());
    if (atoi(how())) return atoi(how());
    logged(name);
    for (int axis = 0; axis < rank; axis++) size *= target->dim[axis];
    for (int axis = 0; axis < rank; axis++) products *= yd->dim[axis];
    for (int axis = 1; axis < rank; axis++) products *= wd->dim[axis];
    if (is("no-gradient") && direction == 2) return 0;
    double *sum = calloc((size_t)size, sizeof(double));
    for (long number = 0; number < products; number++) {
        long rest = number, atx = 0, atw = 0, aty = 0;
        int inside = 1, place[8], tap[8];
        for (int axis = rank - 1; axis >= 1; axis--) {
            tap[axis] = (int)(rest % wd->dim[axis]);
            rest /= wd->dim[axis];
        }
        for (int axis = rank - 1; axis >= 0; axis--) {
            place[axis] = (int)(rest % yd->dim[axis]);
            rest /= yd->dim[axis];
            aty += (long)place[axis] * yd->stride[axis];
        }
        atx = (long)place[0] * xd->stride[0] + (place[1] / (yd->dim[1] / cd->groups) * wd->dim[1] + tap[1]) * (long)xd->stride[1];
        atw = (long)place[1] * wd->stride[0] + (long)tap[1] * wd->stride[1];
        for (int axis = 2; axis < rank; axis++) {
            int where = place[axis] * cd->step[axis - 2] - cd->pad[axis - 2] + tap[axis] * cd->dilation[axis - 2];
            if (is("off-by-one") && axis == rank - 1) where++;
            if (where < 0 || where >= xd->dim[axis]) inside = 0;
            atx += (long)where * xd->stride[axis];
            int turned = is("transposed") ? wd->dim[axis] - 1 - tap[axis] : tap[axis];
            atw += (long)turned * wd->stride[axis];
        }
        if (!inside) continue;
        if (direction == 0) sum[aty] += get(x, xd->type, atx) * get(w, wd->type, atw);
        if (direction == 1) sum[atx] += get(y, yd->type, aty) * get(w, wd->type, atw);
        if (direction == 2) sum[atw] += get(x, xd->type, atx) * get(y, yd->type, aty);
        if (is("loose")) {
            double *one = &sum[direction == 0 ? aty : direction == 1 ? atx : atw];
            *one = from_half(to_half(*one));
        }
    }
    if (is("ulp")) sum[size / 2] += atof(setting("STANDIN_OFF", "0"));
    if (is("nan")) sum[size - 1] = NAN;
    for (long at = 0; at < size; at++) put((void *)(uintptr_t)data, type, at, sum[at]);
    free(sum);
    return 0;
}

int cudnnConvolutionForward(void *handle, const void *alpha, const Descriptor *xd, const void *x, const Descriptor *wd, const void *w,
                            const Descriptor *cd, int algo, void *space, size_t size, const void *beta, const Descriptor *yd, void *y) {
    (void)handle, (void)alpha, (void)beta, (void)algo, (void)space, (void)size;
    return convolve("cudnnConvolutionForward", 0, xd, x, wd, w, cd, yd, y);
}

int cudnnConvolutionBackwardData(void *handle, const void *alpha, const Descriptor *wd, const void *w, const Descriptor *yd, const void *y,
                                 const Descriptor *cd, int algo, void *space, size_t size, const void *beta, const Descriptor *xd, void *x) {
    (void)handle, (void)alpha, (void)beta, (void)algo, (void)space, (void)size;
    return convolve("cudnnConvolutionBackwardData", 1, xd, x, wd, w, cd, yd, y);
}

int cudnnConvolutionBackwardFilter(void *handle, const void *alpha, const Descriptor *xd, const void *x, const Descriptor *yd, const void *y,
                                   const Descriptor *cd, int algo, void *space, size_t size, const void *beta, const Descriptor *wd, void *w) {
    (void)handle, (void)alpha, (void)beta, (void)algo, (void)space, (void)size;
    return convolve("cudnnConvolutionBackwardFilter", 2, xd, x, wd, w, cd, yd, y);
}
