/* Steps of optimizers for one vector of parameters [size], with torch's operations. */
#include <math.h>

#include "optimizers.h"

/* Scale a gradient down to the norm `largest`. A NaN spreads to all entries. */
API void clip_norm(float *grad, int64_t size, float largest) {
    double sums[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= size; i += 8)
        for (int j = 0; j < 8; j++) sums[j] += (double)grad[i + j] * (double)grad[i + j];
    for (; i < size; i++) sums[0] += (double)grad[i] * (double)grad[i];
    for (int j = 1; j < 8; j++) sums[0] += sums[j];
    float scale = 1.0f / ((float)sqrt(sums[0]) + 1e-6f) * largest;
    if (scale >= 1.0f) return;
    for (i = 0; i < size; i++) grad[i] *= scale;
}

/* The step of torch's fused Adam, the one with the number `steps`. Source: Kingma and Ba 2015, algorithm 1. */
static void adam_step(const Optimizer *o, int64_t steps) {
    double first_correction = 1.0 - pow(o->alpha, (double)steps), second_correction = 1.0 - pow(o->beta, (double)steps);
    float rest = (float)(1.0 - o->alpha), beta = (float)o->beta, complement = (float)(1.0 - o->beta);
    float rate = (float)(o->rate / first_correction), eps = (float)o->eps, decay = (float)o->decay;
    float deviation = (float)sqrt(second_correction);
    float *restrict value = o->value, *restrict first = o->first, *restrict second = o->second;
    const float *restrict grad = o->grad;
    for (int64_t i = 0; i < o->size; i++) {
        float g = decay != 0.0f ? fused_one(value[i], decay, grad[i]) : grad[i];
        float m = fused_one(rest, g - first[i], first[i]);
        float v = fused_one(complement * g, g, second[i] * beta);
        first[i] = m, second[i] = v;
        value[i] += -rate * m / (sqrtf(v) / deviation + eps);
    }
}

/* The step of torch's RMSprop. */
static void rmsprop_step(const Optimizer *o) {
    float rate = (float)o->rate, alpha = (float)o->alpha, complement = (float)(1.0 - o->alpha), eps = (float)o->eps;
    float *restrict value = o->value, *restrict square = o->second;
    const float *restrict grad = o->grad;
    for (int64_t i = 0; i < o->size; i++) {
        float g = grad[i], s = fused_one(complement * g, g, square[i] * alpha);
        square[i] = s;
        value[i] += -rate * g / (sqrtf(s) + eps);
    }
}

/* Set small moments to 0, with which processors calculate slowly once they are subnormal. */
static void clear_decayed(float *moments, int64_t size, float smallest) {
    for (int64_t i = 0; i < size; i++)
        if (fabsf(moments[i]) < smallest) moments[i] = 0.0f;
}

/* Scale the gradient down, and make the step with the number `steps`, counted from 1. */
API void optimizer_step(const Optimizer *optimizer, int64_t steps) {
    Optimizer o = *optimizer;
    if (o.largest_norm >= 0.0f) clip_norm(o.grad, o.size, o.largest_norm);
    if (o.kind == ADAM) adam_step(optimizer, steps);
    else rmsprop_step(optimizer);
    if (steps % o.clear_every) return;
    clear_decayed(o.first, o.size, o.smallest);
    clear_decayed(o.second, o.size, o.smallest);
}

/* The step of torch's RAdam with the number `steps`. Source: Liu et al. 2020, arXiv:1908.03265, algorithm 2. */
API void radam_step(float *restrict value, const float *restrict grad, float *restrict first, float *restrict second, int64_t size,
                    double rate, double alpha, double beta, double eps, int64_t steps) {
    double decayed = pow(beta, (double)steps), correction = 1.0 - decayed, longest = 2.0 / (1.0 - beta) - 1.0;
    double length = longest - 2.0 * (double)steps * decayed / correction; /* of the average of squares */
    double ratio = (length - 4.0) * (length - 2.0) * longest / ((longest - 4.0) * (longest - 2.0) * length);
    int divides = length > 5.0; /* the variance of a shorter average is too large */
    float own_rate = (float)(rate / (1.0 - pow(alpha, (double)steps))), scale = divides ? (float)sqrt(correction * ratio) : 1.0f;
    float rest = (float)(1.0 - alpha), kept = (float)beta, complement = (float)(1.0 - beta), least = (float)eps;
    for (int64_t i = 0; i < size; i++) {
        float g = grad[i], m = fused_one(rest, g - first[i], first[i]), v = fused_one(complement * g, g, second[i] * kept);
        first[i] = m, second[i] = v;
        value[i] -= own_rate * m * (divides ? scale / (sqrtf(v) + least) : 1.0f);
    }
}

/* Make a step, and add 1 to the number of steps so far. */
API void counted_step(const Optimizer *optimizer, float *count) {
    *count += 1.0f;
    optimizer_step(optimizer, (int64_t)*count);
}
