/* Steps of optimisers for one vector of parameters [size], with torch's operations. */
#include <math.h>

#include "simd.h"

/* a b + c, rounded once like torch's vectors where the processor can. */
INLINE float fused_one(float a, float b, float c) {
#if defined(__FMA__)
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

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

typedef struct {
    float rate, alpha, complement, eps; /* complement: 1 - alpha, rounded from double */
} Rmsprop;

API void rmsprop_step(float *value, const float *grad, float *square, int64_t size, const Rmsprop *options) {
    Rmsprop o = *options;
    for (int64_t i = 0; i < size; i++) {
        float g = grad[i], s = fused_one(o.complement * g, g, square[i] * o.alpha);
        square[i] = s;
        value[i] += -o.rate * g / (sqrtf(s) + o.eps);
    }
}
