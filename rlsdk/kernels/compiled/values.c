/* Values of discrete actions [rows, all, entries], where `all` is the sum of the `sizes` of all choices of an action. */
#include <math.h>

#include "simd.h"

static int64_t sum_of_sizes(const int64_t *sizes, int64_t choices) {
    int64_t sum = 0;
    for (int64_t c = 0; c < choices; c++) sum += sizes[c];
    return sum;
}

/* The value whose entries have the largest sum, of `size` values [size, entries]; the first one if none is allowed. A NaN
 * counts as the largest, as in torch. `mask` [size] may be NULL. */
static int64_t greedy_value(const float *values, const uint8_t *mask, int64_t size, int64_t entries) {
    float best = -INFINITY;
    int64_t found = 0, any = 0;
    for (int64_t j = 0; j < size; j++, values += entries) {
        if (mask && !mask[j]) continue;
        float sum = values[0];
        for (int64_t k = 1; k < entries; k++) sum += values[k];
        if (sum != sum) return j;
        if (!any || sum > best) best = sum, found = j, any = 1;
    }
    return found;
}

/* The targets [choices, rows, entries]: reward + discount * the values of the greedy action of each choice. `selector` [rows,
 * all, entries] selects the action, `mask` [rows, all] may be NULL. */
API void greedy_targets(const float *values, const float *selector, const uint8_t *mask, const float *reward,
                        const float *discount, const int64_t *sizes, int64_t choices, int64_t rows, int64_t entries,
                        float *target) {
    int64_t all = sum_of_sizes(sizes, choices), first = 0;
    for (int64_t c = 0; c < choices; first += sizes[c++])
        for (int64_t i = 0; i < rows; i++) {
            int64_t place = i * all + first;
            place += greedy_value(selector + place * entries, mask ? mask + place : 0, sizes[c], entries);
            for (int64_t k = 0; k < entries; k++) *target++ = reward[i] + discount[i] * values[place * entries + k];
        }
}

/* The values [choices, rows, entries] of the `action` [rows, choices] taken, which is counted from 0. Returns 1 if an action
 * is none of the choices. */
API int values_taken(const float *values, const int64_t *action, const int64_t *sizes, int64_t choices, int64_t rows,
                     int64_t entries, float *taken) {
    int64_t all = sum_of_sizes(sizes, choices), first = 0;
    for (int64_t c = 0; c < choices; first += sizes[c++])
        for (int64_t i = 0; i < rows; i++) {
            int64_t chosen = action[i * choices + c];
            if (chosen < 0 || chosen >= sizes[c]) return 1;
            for (int64_t k = 0; k < entries; k++) *taken++ = values[(i * all + first + chosen) * entries + k];
        }
    return 0;
}

/* The gradient with respect to all values [rows, all, entries], given that of the values taken [choices, rows, entries]. */
API int values_taken_vjp(const float *grad, const int64_t *action, const int64_t *sizes, int64_t choices, int64_t rows,
                         int64_t entries, float *all_grads) {
    int64_t all = sum_of_sizes(sizes, choices), first = 0;
    for (int64_t i = 0; i < rows * all * entries; i++) all_grads[i] = 0.0f;
    for (int64_t c = 0; c < choices; first += sizes[c++])
        for (int64_t i = 0; i < rows; i++) {
            int64_t chosen = action[i * choices + c];
            if (chosen < 0 || chosen >= sizes[c]) return 1; /* the caller may have changed it */
            for (int64_t k = 0; k < entries; k++) all_grads[(i * all + first + chosen) * entries + k] = *grad++;
        }
    return 0;
}

/* The mean of the Huber losses of value - target, [choices, rows, entries] each, and the gradient. The losses of a row are
 * multiplied by its `weight` [rows], which may be NULL. */
API void smooth_l1(const float *value, const float *target, const float *weight, int64_t choices, int64_t rows,
                   int64_t entries, float *mean, float *grad) {
    int64_t size = choices * rows * entries;
    double sum = 0.0;
    for (int64_t i = 0; i < size; i++) {
        float own = weight ? weight[i / entries % rows] : 1.0f, error = value[i] - target[i];
        float clipped = error < -1.0f ? -1.0f : error > 1.0f ? 1.0f : error; /* a NaN stays */
        sum += clipped * (error - 0.5f * clipped) * own;
        grad[i] = clipped / (float)size * own;
    }
    *mean = (float)(sum / (double)size);
}
