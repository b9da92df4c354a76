/* Activations of layers and their derivatives. */
#ifndef RLSDK_ACTIVATIONS_H
#define RLSDK_ACTIVATIONS_H

#include "simd.h"

enum { IDENTITY, RELU, TANH };

INLINE floats activated(floats x, int64_t activation) { return activation == TANH ? tanh_of(x) : either(x < 0.0f, all(0.0f), x); }

/* grad times the derivative of the activation with the outputs y. */
INLINE floats derived(floats grad, floats y, int64_t activation) {
    return activation == TANH ? grad * (1.0f - y * y) : either(y <= 0.0f, all(0.0f), grad);
}

static void activate(float *values, int64_t count, int64_t activation) {
    if (activation == IDENTITY) return;
    int64_t i = 0;
    for (; i + WIDTH <= count; i += WIDTH) store(values + i, activated(load(values + i), activation));
    if (i < count) store_first(values + i, activated(load_first(values + i, count - i), activation), count - i);
}

/* changed [count] = grad [count] times the derivative of the activation with the outputs `y` [count]. */
static void derive(const float *grad, const float *y, int64_t count, int64_t activation, float *changed) {
    int64_t i = 0, rest = count % WIDTH;
    for (; i + WIDTH <= count; i += WIDTH) store(changed + i, derived(load(grad + i), load(y + i), activation));
    if (rest) store_first(changed + i, derived(load_first(grad + i, rest), load_first(y + i, rest), activation), rest);
}

#endif
