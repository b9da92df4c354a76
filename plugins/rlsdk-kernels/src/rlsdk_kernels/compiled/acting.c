/* Acting: the outputs of a network and the actions that follow from them, in one call.
 *
 * All functions take the `count` layers of a network and `inputs` [rows, I]. They return 1 if memory is exhausted, and 2 if no
 * action can be chosen: the largest output of a row is NaN or infinite. */
#include <math.h>
#include <stdlib.h>

#include "dense.h"

enum { DIVERGED = 2 };

/* The outputs [rows, O] of the last layer, which the caller frees; NULL if memory is exhausted. */
static float *outputs_of(const Layer *layers, int64_t count, const float *inputs, int64_t rows) {
    float *outputs = malloc(4 * (rows * layers[count - 1].outputs + 1));
    if (!outputs || !dense_outputs(layers, count, inputs, rows, outputs)) return outputs;
    free(outputs);
    return 0;
}

/* The actions [rows] with the largest sum of `entries` values each; the outputs are values [rows, actions, entries].
 *
 * With `epsilon` not NULL, an action is that in `other` [rows] where `random` [rows] is below it. */
API int act_greedily(const Layer *layers, int64_t count, const float *inputs, int64_t rows, int64_t entries,
                     const float *epsilon, const float *random, const int64_t *other, int64_t *found) {
    float *outputs = outputs_of(layers, count, inputs, rows);
    if (!outputs) return 1;
    const float *values = outputs;
    int failed = 0;
    for (int64_t i = 0; i < rows; i++) {
        float best = -INFINITY;
        found[i] = 0;
        for (int64_t j = 0; j < layers[count - 1].outputs / entries; j++, values += entries) {
            float sum = values[0];
            for (int64_t k = 1; k < entries; k++) sum += values[k];
            if (sum > best) best = sum, found[i] = j;
            failed |= !(sum < INFINITY); /* also if NaN */
        }
        failed |= best == -INFINITY;
        if (epsilon && random[i] < *epsilon) found[i] = other[i];
    }
    free(outputs);
    return failed ? DIVERGED : 0;
}

/* Samples of categorical distributions [rows]: the index of the largest sum of logit and Gumbel noise, -log of `drawn`
 * exponential numbers. The outputs are the logits.
 *
 * `mask` [rows, choices] may be NULL. Choices that it forbids are left out; if it forbids all of a row, the first one is taken.
 * `drawn` is [rows, choices]. */
API int act_by_choice(const Layer *layers, int64_t count, const float *inputs, int64_t rows, const uint8_t *mask,
                      const float *drawn, float smallest, int64_t *found) {
    float *logits = outputs_of(layers, count, inputs, rows);
    if (!logits) return 1;
    int64_t choices = layers[count - 1].outputs, place = 0;
    int failed = 0;
    for (int64_t i = 0; i < rows; i++) {
        float best = -INFINITY;
        int any = 0;
        found[i] = 0;
        for (int64_t j = 0; j < choices; j++, place++) {
            if (mask && !mask[place]) continue;
            float sum = logits[place] - logf(drawn[place] > smallest ? drawn[place] : smallest);
            if (sum > best) best = sum, found[i] = j;
            failed |= !(sum < INFINITY); /* also if NaN */
            any = 1;
        }
        failed |= any && best == -INFINITY;
    }
    free(logits);
    return failed ? DIVERGED : 0;
}

/* Samples of Gaussians with the outputs as means: replaces `noise` [rows, A] by mean + exp(log_std) noise. */
API int act_by_noise(const Layer *layers, int64_t count, const float *inputs, int64_t rows, const float *log_std,
                     float *noise) {
    float *means = outputs_of(layers, count, inputs, rows);
    if (!means) return 1;
    int64_t size = layers[count - 1].outputs;
    for (int64_t j = 0; j < size; j++) {
        float std = expf(log_std[j]);
        for (int64_t i = j; i < rows * size; i += size) noise[i] = means[i] + std * noise[i];
    }
    free(means);
    return 0;
}
