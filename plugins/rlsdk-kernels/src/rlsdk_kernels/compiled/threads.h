/* Threads that share the parts of a computation: those of torch. */
#ifndef RLSDK_THREADS_H
#define RLSDK_THREADS_H

#include "simd.h"

/* Computes one part of the work that `context` describes. */
typedef void (*Work)(const void *context, int64_t part);

/* The function `GOMP_parallel` of OpenMP: call `function` with `data` in each of `threads` threads. */
typedef void (*Parallel)(void (*function)(void *), void *data, unsigned threads, unsigned flags);

/* Compute all parts, 0 to parts - 1. Results must not depend on which thread computes a part. */
void in_parallel(Work work, const void *context, int64_t parts);

/* The number of threads that share the work of this one. */
int64_t threads_in_use(void);

/* Let `count` threads share work, which `parallel` calls. It may be NULL if `count` is 1. */
API void use_threads(int64_t count, Parallel parallel);

#endif
