/* Threads that share the parts of a computation. Those of torch are used, because further ones would need cores of their own. */
#include <stdatomic.h>

#include "threads.h"

typedef struct {
    Work work;
    const void *context;
    int64_t parts;
    atomic_long next; /* the next part that no thread has begun */
} Job;

static atomic_long count_in_use = 1;
static _Atomic(Parallel) parallel_in_use;

/* Whether this thread computes a part. Its own work is not shared again. */
static _Thread_local int is_computing;

static void compute_parts(void *data) {
    Job *job = data;
    is_computing = 1;
    for (int64_t part; (part = atomic_fetch_add(&job->next, 1)) < job->parts;) job->work(job->context, part);
    is_computing = 0;
}

void in_parallel(Work work, const void *context, int64_t parts) {
    Job job = {work, context, parts, 0};
    long count = atomic_load(&count_in_use);
    Parallel parallel = atomic_load(&parallel_in_use);
    if (count > 1 && parallel) parallel(compute_parts, &job, (unsigned)count, 0);
    else compute_parts(&job);
}

int64_t threads_in_use(void) { return is_computing ? 1 : atomic_load(&count_in_use); }

API void use_threads(int64_t count, Parallel parallel) {
    atomic_store(&parallel_in_use, parallel);
    atomic_store(&count_in_use, count);
}
