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

#define PAIR_LANES (2 * WIDTH) /* quantiles whose pairs are visited together, so that additions need not wait for each other */
#define ATOMS 32 /* atoms that are added up before their sum joins the total: rounding errors grow with the number of additions */

/* Add the pairs of up to PAIR_LANES quantiles `z` with all atoms `y` [atoms]: sums of w to `grad`, of w e to `loss`. For a pair,
 * d = y - z, c is d limited to [-1, 1], e = d - c / 2 and w = c + asymmetry |c|. */
static void add_pairs(const float *z, const float *asymmetry, const float *y, int64_t atoms, float *grad, float *loss) {
    floats total[2] = {{0}}, lost[2] = {{0}}, products[2] = {{0}}, at[2], slope[2];
    for (int k = 0; k < 2; k++) at[k] = load(z + k * WIDTH), slope[k] = load(asymmetry + k * WIDTH);
    for (int64_t j = 0; j < atoms;) {
        floats sums[2] = {{0}};
        for (int64_t end = smaller(j + ATOMS, atoms); j < end; j++)
            for (int k = 0; k < 2; k++) {
                floats d = all(y[j]) - at[k], c = limited_to(d, 1.0f);
                floats w = fused(slope[k], (floats)((ints)c & 0x7fffffff), c);
                sums[k] += w;
                products[k] = fused(w, fused(all(-0.5f), c, d), products[k]);
            }
        for (int k = 0; k < 2; k++) { /* Kahan's sum: what rounding takes away is added to the next block */
            floats own = sums[k] - lost[k], next = total[k] + own;
            lost[k] = (next - total[k]) - own;
            total[k] = next;
        }
    }
    for (int k = 0; k < 2; k++) store(grad + k * WIDTH, total[k]), store(loss + k * WIDTH, products[k]);
}

/* The sum of w e over all pairs of `current` [members, rows, quantiles] and the atoms of its row, times the row's weight.
 *
 * Members have the same atoms `target` [rows, atoms], or, if they are `apart`, their own, [members, rows, atoms]. Writes the sums
 * of w over the atoms to `grad`, which is shaped like `current`. `weight` [rows] may be NULL. */
API double pairwise_huber(const float *current, const float *target, const float *asymmetry, const float *weight,
                          int64_t members, int64_t rows, int64_t quantiles, int64_t atoms, int64_t apart, float *grad) {
    double total = 0.0;
    for (int64_t r = 0; r < members * rows; r++, current += quantiles, grad += quantiles) {
        const float *y = target + (apart ? r : r % rows) * atoms;
        float factor = weight ? weight[r % rows] : 1.0f;
        for (int64_t i = 0; i < quantiles; i += PAIR_LANES) {
            int64_t count = quantiles - i < PAIR_LANES ? quantiles - i : PAIR_LANES;
            float z[PAIR_LANES] = {0}, slope[PAIR_LANES] = {0}, sums[PAIR_LANES], products[PAIR_LANES];
            memcpy(z, current + i, 4 * count);
            memcpy(slope, asymmetry + i, 4 * count);
            add_pairs(z, slope, y, atoms, sums, products);
            for (int64_t k = 0; k < count; k++) grad[i + k] = factor * sums[k], total += factor * products[k];
        }
    }
    return total;
}
