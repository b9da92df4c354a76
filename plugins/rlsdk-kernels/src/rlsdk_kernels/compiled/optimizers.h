/* Steps of optimizers for one vector of parameters. */
#ifndef RLSDK_OPTIMIZERS_H
#define RLSDK_OPTIMIZERS_H

#include "simd.h"

enum { ADAM, RMSPROP };

/* A vector of parameters [size] with its gradient and moments. For Adam, `alpha` and `beta` are the decay rates of the first
 * and second moment. For RMSprop, `alpha` is that of the squares, and both moments are the squares. */
typedef struct {
    int64_t kind, size, clear_every;
    float *value, *grad, *first, *second;
    double rate, alpha, beta, eps, decay; /* decay: of weights, added to the gradient */
    float smallest; /* moments below it become 0 after every `clear_every` steps */
    float largest_norm; /* of the gradient; negative: no limit */
} Optimizer;

API void clip_norm(float *grad, int64_t size, float largest);
API void optimizer_step(const Optimizer *optimizer, int64_t steps);
API void counted_step(const Optimizer *optimizer, float *count);

#endif
