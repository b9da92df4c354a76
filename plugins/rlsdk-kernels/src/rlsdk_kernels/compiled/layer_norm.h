/* Layer normalization of the rows of a matrix. Source: Ba et al. 2016, arXiv:1607.06450. */
#ifndef RLSDK_LAYER_NORM_H
#define RLSDK_LAYER_NORM_H

#include <math.h>

#include "dense.h"

/* The sum of x [size]. Compilers do not reorder sums, so their registers are written out, here and below. */
INLINE float total(const float *x, int64_t size) {
    floats sums = all(0.0f);
    int64_t whole = size / WIDTH * WIDTH;
    for (int64_t j = 0; j < whole; j += WIDTH) sums += load(x + j);
    if (whole < size) sums += load_first(x + whole, size - whole);
    return sum_of(sums);
}

/* The sum of x y, [size] each. */
INLINE float total_of_products(const float *x, const float *y, int64_t size) {
    floats sums = all(0.0f);
    int64_t whole = size / WIDTH * WIDTH;
    for (int64_t j = 0; j < whole; j += WIDTH) sums = fused(load(x + j), load(y + j), sums);
    if (whole < size) sums = fused(load_first(x + whole, size - whole), load_first(y + whole, size - whole), sums);
    return sum_of(sums);
}

/* values [rows, outputs] = scale (x - mean) / deviation + shift, given x in `values`.
 *
 * (x - mean) / deviation is written to `normalized` [rows, outputs], and 1 / deviation to `inverse` [rows], if they are not
 * NULL. */
static void normalize_rows(Layer layer, int64_t rows, float *restrict values, float *restrict normalized, float *restrict inverse) {
    int64_t size = layer.outputs;
    for (int64_t i = 0; i < rows; i++, values += size) {
        float mean = total(values, size) / (float)size;
        for (int64_t j = 0; j < size; j++) values[j] -= mean;
        float factor = 1.0f / sqrtf(total_of_products(values, values, size) / (float)size + layer.eps);
        if (normalized) {
            for (int64_t j = 0; j < size; j++) normalized[i * size + j] = values[j] * factor;
            inverse[i] = factor;
        }
        for (int64_t j = 0; j < size; j++) values[j] = values[j] * factor * layer.scale[j] + layer.shift[j];
    }
}

/* Change `grad` [rows, outputs] from that with respect to the results above to that with respect to x. Write the gradients of scale
 * and shift to `into`, unless it is NULL. */
static void normalize_rows_vjp(Layer layer, int64_t rows, const float *restrict normalized, const float *restrict inverse,
                               float *restrict grad, float *const *into) {
    int64_t size = layer.outputs;
    if (into) {
        float *restrict of_scale = into[0], *restrict of_shift = into[1];
        memset(of_scale, 0, 4 * size);
        memset(of_shift, 0, 4 * size);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < size; j++) {
                of_scale[j] += grad[i * size + j] * normalized[i * size + j];
                of_shift[j] += grad[i * size + j];
            }
    }
    for (int64_t i = 0; i < rows; i++, grad += size, normalized += size) {
        for (int64_t j = 0; j < size; j++) grad[j] *= layer.scale[j];
        float mean = total(grad, size) / (float)size, along = total_of_products(grad, normalized, size) / (float)size;
        for (int64_t j = 0; j < size; j++) grad[j] = inverse[i] * (grad[j] - mean - normalized[j] * along);
    }
}

#endif
