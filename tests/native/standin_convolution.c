/* A libcudnn that computes convolutions on the CPU, compiled with the NUMBER of its release, 90100, 8907 or 7605. It checks what it is
 * given: kinds and shapes of descriptors, types, that every tensor and the workspace lie on the card and are as large as they must be.
 *
 *   STANDIN_CUDNN  works (default) | hang | abort | segfault | a status that the convolutions return
 *                  off-by-one: reads one element too far | transposed: kernel axes exchanged | nan: one result is none
 *                  ulp: one result is off by STANDIN_OFF | no-gradient: leaves the gradient of the weights as it was
 *                  tf32: rounds its factors to ten bits | loose: adds in half precision
 *   STANDIN_RANK   only in convolutions of so many dimensions, batch and channels counted
 *   STANDIN_CREATE a status that cudnnCreate returns
 *   CUDNN_LOGINFO_DBG, CUDNN_LOGDEST_DBG  as the real one obeys them, to a file
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "standin.h"

enum { TENSOR = 0x7e50, FILTER, CONVOLUTION };
typedef struct {
    int kind, type, format, rank, dim[8], stride[8], pad[8], step[8], dilation[8], groups, math;
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

/* A mistake of the caller, with its reason in the log, as the real one has it there. */
static int bad(const char *why) {
    const char *target = getenv("CUDNN_LOGDEST_DBG");
    FILE *file = target ? fopen(target, "a") : NULL;
    if (file) {
        fprintf(file, "e!         Error: CUDNN_STATUS_BAD_PARAM; Reason: %s\n", why);
        fclose(file);
    }
    return NUMBER < 90000 ? 3 : 2000;
}

static int make(Descriptor **descriptor, int kind) {
    *descriptor = calloc(1, sizeof(Descriptor));
    (*descriptor)->kind = kind;
    return 0;
}
int cudnnCreateTensorDescriptor(Descriptor **made) { return make(made, TENSOR); }
int cudnnCreateFilterDescriptor(Descriptor **made) { return make(made, FILTER); }
int cudnnCreateConvolutionDescriptor(Descriptor **made) { return make(made, CONVOLUTION); }
static int drop(Descriptor *descriptor, int kind) {
    if (descriptor->kind != kind) return bad("another kind of descriptor is destroyed");
    free(descriptor);
    return 0;
}
int cudnnDestroyTensorDescriptor(Descriptor *made) { return drop(made, TENSOR); }
int cudnnDestroyFilterDescriptor(Descriptor *made) { return drop(made, FILTER); }
int cudnnDestroyConvolutionDescriptor(Descriptor *made) { return drop(made, CONVOLUTION); }

int cudnnSetTensorNdDescriptor(Descriptor *made, int type, int rank, const int *dim, const int *stride) {
    if (made->kind != TENSOR || rank < 3 || rank > 8) return bad("no tensor of 3 to 8 dimensions");
    made->type = type;
    made->rank = rank;
    memcpy(made->dim, dim, sizeof(int) * (size_t)rank);
    memcpy(made->stride, stride, sizeof(int) * (size_t)rank);
    return 0;
}

int cudnnSetFilterNdDescriptor(Descriptor *made, int type, int format, int rank, const int *dim) {
    int step = 1;
    if (made->kind != FILTER || rank < 3 || rank > 8 || format < 0 || format > 1) return bad("no filter of 3 to 8 dimensions");
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
    if (made->kind != CONVOLUTION || rank < 2 || rank > 6) return bad("no convolution of 2 to 6 dimensions");
    if (mode != 1) return bad("the kernel is not to be turned round");
    for (int axis = 0; axis < rank; axis++)
        if (pad[axis] < 0 || step[axis] < 1 || dilation[axis] < 1) return bad("strides and dilations begin at 1");
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
    made->math = math;
    return math < 0 || math > 3 || (NUMBER < 8000 && math > 2) ? bad("no such type of mathematics") : 0;
}

/* Whether a convolution of that kind there can be: every dimension of one follows from those of the others. */
static int misfit(void *handle, const Descriptor *xd, const Descriptor *wd, const Descriptor *cd, const Descriptor *yd) {
    int rank = xd->rank;
    if (handle != (void *)1) return bad("no handle");
    if (xd->kind != TENSOR || yd->kind != TENSOR || wd->kind != FILTER || cd->kind != CONVOLUTION) return bad("descriptors of other kinds");
    if (wd->rank != rank || yd->rank != rank || cd->rank != rank - 2) return bad("the ranks do not agree");
    if (wd->type != xd->type || yd->type != xd->type) return bad("the types do not agree");
    if (cd->type != (xd->type == 1 ? 1 : 0)) return bad("the type that is computed in");
    if (cd->math == 3 && xd->type != 0) return bad("FMA is said of a type that has nothing else");
    if (NUMBER >= 8000 && xd->type == 0 && cd->math != 3) return bad("TF32 is not forbidden");
    if (xd->dim[0] != yd->dim[0] || wd->dim[0] != yd->dim[1] || wd->dim[1] * cd->groups != xd->dim[1]) return bad("the channels do not agree");
    if (xd->dim[1] % cd->groups || yd->dim[1] % cd->groups) return bad("the groups do not divide the channels");
    if (wd->format == 1 && (xd->stride[1] != 1 || yd->stride[1] != 1)) return bad("the layouts do not agree");
    for (int axis = 2; axis < rank; axis++) {
        int reach = (wd->dim[axis] - 1) * cd->dilation[axis - 2] + 1;
        if (yd->dim[axis] != (xd->dim[axis] + 2 * cd->pad[axis - 2] - reach) / cd->step[axis - 2] + 1) return bad("the sizes do not agree");
    }
    return 0;
}

static int heuristics(int misfit, int count, int *found, Perf *rows) {
    if (misfit) return misfit;
    memset(rows, 0, sizeof(Perf) * (size_t)count);
    rows[0].algo = 0; /* the fastest, which adds in any order */
    rows[1].algo = 3; /* one that does not serve */
    rows[1].status = 9;
    rows[2].algo = 1;
    rows[2].determinism = 1;
    *found = 3;
    return 0;
}
int cudnnGetConvolutionForwardAlgorithm_v7(void *h, void *x, void *w, void *c, void *y, int count, int *found, Perf *rows) {
    return heuristics(misfit(h, x, w, c, y), count, found, rows);
}
int cudnnGetConvolutionBackwardDataAlgorithm_v7(void *h, void *w, void *y, void *c, void *x, int count, int *found, Perf *rows) {
    return heuristics(misfit(h, x, w, c, y), count, found, rows);
}
int cudnnGetConvolutionBackwardFilterAlgorithm_v7(void *h, void *x, void *y, void *c, void *w, int count, int *found, Perf *rows) {
    return heuristics(misfit(h, x, w, c, y), count, found, rows);
}

#define SPACE 256
static int room(int misfit, int algo, size_t *size) {
    if (misfit) return misfit;
    *size = SPACE;
    return algo == 1 ? 0 : (NUMBER < 90000 ? 9 : 3000);
}
int cudnnGetConvolutionForwardWorkspaceSize(void *h, void *x, void *w, void *c, void *y, int algo, size_t *size) {
    return room(misfit(h, x, w, c, y), algo, size);
}
int cudnnGetConvolutionBackwardDataWorkspaceSize(void *h, void *w, void *y, void *c, void *x, int algo, size_t *size) {
    return room(misfit(h, x, w, c, y), algo, size);
}
int cudnnGetConvolutionBackwardFilterWorkspaceSize(void *h, void *x, void *y, void *c, void *w, int algo, size_t *size) {
    return room(misfit(h, x, w, c, y), algo, size);
}

/* What the driver's stand-in knows of an address. */
static size_t on_card(const void *address) {
    static size_t (*asker)(const void *);
    void *driver = asker ? NULL : dlopen("libcuda.so.1", RTLD_NOW);
    if (driver) asker = (size_t (*)(const void *))dlsym(driver, "standin_room");
    return asker ? asker(address) : 0;
}

static int short_of(const Descriptor *one, const void *data) {
    size_t size = one->type == 1 ? 8 : one->type == 2 ? 2 : 4;
    for (int axis = 0; axis < one->rank; axis++) size *= (size_t)one->dim[axis];
    return on_card(data) < size;
}

/* The factor behind a pointer: a double for doubles, a float for everything else. */
static double factor(const Descriptor *one, const void *at) { return one->type == 1 ? *(const double *)at : *(const float *)at; }

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
typedef struct {
    void *handle;
    const void *alpha, *beta, *space;
    int algo;
    size_t size;
} Call;

static int convolve(const char *name, int direction, Call call, const Descriptor *xd, const void *x, const Descriptor *wd, const void *w,
                    const Descriptor *cd, const Descriptor *yd, const void *y) {
    const Descriptor *target = direction == 0 ? yd : direction == 1 ? xd : wd;
    const void *data = direction == 0 ? y : direction == 1 ? x : w;
    long size = 1, products = 1;
    int rank = yd->rank, type = target->type, wrong = misfit(call.handle, xd, wd, cd, yd);
    if (wrong) return wrong;
    if (call.algo != 1) return NUMBER < 90000 ? 9 : 3000;
    if (call.size < SPACE || on_card(call.space) < call.size) return bad("the workspace is too small");
    if (short_of(xd, x) || short_of(wd, w) || short_of(yd, y)) return bad("a tensor is not on the card, or not all of it");
    if (factor(target, call.alpha) != 1 || factor(target, call.beta) != 0) return bad("alpha is not 1, or beta not 0");
    rank_now = rank;
    misbehave(how());
    if (atoi(how())) return atoi(how());
    logged(name);
    for (int axis = 0; axis < rank; axis++) size *= target->dim[axis];
    for (int axis = 0; axis < rank; axis++) products *= yd->dim[axis];
    for (int axis = 1; axis < rank; axis++) products *= wd->dim[axis];
    if (is("no-gradient") && direction == 2) return 0;
    int shifted = is("off-by-one"), mirrored = is("transposed"), loose = is("loose"); /* the environment is asked once, not for each product */
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
            if (shifted && axis == rank - 1) where++;
            if (where < 0 || where >= xd->dim[axis]) inside = 0;
            atx += (long)where * xd->stride[axis];
            int turned = mirrored ? wd->dim[axis] - 1 - tap[axis] : tap[axis];
            atw += (long)turned * wd->stride[axis];
        }
        if (!inside) continue;
        if (direction == 0) sum[aty] += get(x, xd->type, atx) * get(w, wd->type, atw);
        if (direction == 1) sum[atx] += get(y, yd->type, aty) * get(w, wd->type, atw);
        if (direction == 2) sum[atw] += get(x, xd->type, atx) * get(y, yd->type, aty);
        if (loose) {
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
    Call call = {handle, alpha, beta, space, algo, size};
    return convolve("cudnnConvolutionForward", 0, call, xd, x, wd, w, cd, yd, y);
}

int cudnnConvolutionBackwardData(void *handle, const void *alpha, const Descriptor *wd, const void *w, const Descriptor *yd, const void *y,
                                 const Descriptor *cd, int algo, void *space, size_t size, const void *beta, const Descriptor *xd, void *x) {
    Call call = {handle, alpha, beta, space, algo, size};
    return convolve("cudnnConvolutionBackwardData", 1, call, xd, x, wd, w, cd, yd, y);
}

int cudnnConvolutionBackwardFilter(void *handle, const void *alpha, const Descriptor *xd, const void *x, const Descriptor *yd, const void *y,
                                   const Descriptor *cd, int algo, void *space, size_t size, const void *beta, const Descriptor *wd, void *w) {
    Call call = {handle, alpha, beta, space, algo, size};
    return convolve("cudnnConvolutionBackwardFilter", 2, call, xd, x, wd, w, cd, yd, y);
}
