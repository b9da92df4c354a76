/* Dense networks with batch renormalization of the inputs of every layer. Source: Ioffe 2017, arXiv:1702.03275.
 *
 * For one feature, y = scale f (x - mean + shift) + bias, with f = 1 / sqrt(variance / r^2 + eps) and
 * shift = d sqrt(variance) / r. That is slope x + intercept, so the layer after it computes x W' + b', where row k of W' is
 * slope[k] times that of W. Zeros in x, the outputs of ReLU, then stay zeros, which products leave out. */
#include <math.h>
#include <stdlib.h>

#include "activations.h"
#include "dense.h"

#define LARGEST_SCALE 3.0f
#define LARGEST_SHIFT 5.0f
#define LEAST 1e-12f /* the root of a smaller variance is that of this number */

/* The normalization of the inputs of a layer, [inputs] each. `passes` counts the batches whose statistics were used. */
typedef struct {
    const float *scale, *bias;
    float *mean, *variance;
    int64_t *passes;
    int64_t warm_up;
    float momentum, eps;
} Norm;

/* What the forward pass leaves of one normalization, [inputs] each: the mean that is subtracted from x while the network is
 * evaluated, the variance, and the corrections r and d. */
typedef struct {
    float *mean, *variance, *r, *d;
} Statistics;

enum { STATISTICS = 4 };

/* f and the shift of feature k. */
INLINE float factor_of(const Norm *norm, Statistics s, int64_t k) {
    return 1.0f / sqrtf(s.variance[k] / (s.r[k] * s.r[k]) + norm->eps);
}

INLINE float shift_of(Statistics s, int64_t k) {
    return s.d[k] * sqrtf(s.variance[k] > LEAST ? s.variance[k] : LEAST) / s.r[k];
}

/* Write slope and intercept, [size] each, to `lines`. */
static void write_lines(const Norm *norm, Statistics s, int64_t size, float *lines) {
    for (int64_t k = 0; k < size; k++) {
        lines[k] = norm->scale[k] * factor_of(norm, s, k);
        lines[size + k] = norm->bias[k] + (shift_of(s, k) - s.mean[k]) * lines[k];
    }
}

/* The floats in the trace of one network: the inputs [rows, inputs] of every layer, and their statistics. */
static int64_t numbers(const Layer *layers, int64_t count, int64_t rows) {
    int64_t size = 0;
    for (int64_t i = 0; i < count; i++) size += layers[i].inputs * (rows + STATISTICS);
    return size;
}

static Statistics statistics_at(float *trace, int64_t inputs, int64_t rows) {
    float *first = trace + rows * inputs;
    return (Statistics){first, first + inputs, first + 2 * inputs, first + 3 * inputs};
}

/* Write mean and variance of x [rows, size] (rows - 1 in the denominator). */
static void find_statistics(const float *restrict x, int64_t rows, int64_t size, float *restrict mean,
                            float *restrict variance) {
    memset(mean, 0, 4 * size);
    memset(variance, 0, 4 * size);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < size; k++) mean[k] += x[i * size + k];
    for (int64_t k = 0; k < size; k++) mean[k] /= (float)rows;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < size; k++) variance[k] += (x[i * size + k] - mean[k]) * (x[i * size + k] - mean[k]);
    for (int64_t k = 0; k < size; k++) variance[k] /= (float)(rows - 1);
}

INLINE float between(float least, float x, float most) { return x < least ? least : x > most ? most : x; }

/* Use the statistics of x, corrected towards the running ones after the warm-up, and move the running ones towards them. */
static void of_batch(const float *x, int64_t rows, int64_t size, const Norm *norm, Statistics s) {
    int corrected = *norm->passes > norm->warm_up;
    find_statistics(x, rows, size, s.mean, s.variance);
    for (int64_t k = 0; k < size; k++) {
        float *mean = norm->mean + k, *variance = norm->variance + k, deviation = sqrtf(*variance + norm->eps);
        float r = sqrtf(s.variance[k] + norm->eps) / deviation, d = (s.mean[k] - *mean) / deviation;
        s.r[k] = corrected ? between(1.0f / LARGEST_SCALE, r, LARGEST_SCALE) : 1.0f;
        s.d[k] = corrected ? between(-LARGEST_SHIFT, d, LARGEST_SHIFT) : 0.0f;
        *mean += norm->momentum * (s.mean[k] - *mean);
        *variance += norm->momentum * (s.variance[k] - *variance);
    }
}

static void of_running(int64_t size, const Norm *norm, Statistics s) {
    memcpy(s.mean, norm->mean, 4 * size);
    memcpy(s.variance, norm->variance, 4 * size);
    for (int64_t k = 0; k < size; k++) s.r[k] = 1.0f, s.d[k] = 0.0f;
}

/* Write the layer with W' and b' to `memory`, (inputs + 1) * outputs floats, given slopes and intercepts. */
static Layer folded(Layer layer, const float *restrict lines, float *restrict memory) {
    int64_t in = layer.inputs, out = layer.outputs;
    const float *restrict weight = layer.weight, *intercept = lines + in;
    float *restrict bias = memory + in * out;
    memcpy(bias, layer.bias, 4 * out);
    for (int64_t k = 0; layer.by_inputs && k < in; k++)
        for (int64_t o = 0; o < out; o++) {
            memory[k * out + o] = lines[k] * weight[k * out + o];
            bias[o] += intercept[k] * weight[k * out + o];
        }
    for (int64_t o = 0; !layer.by_inputs && o < out; o++) {
        float sum = 0.0f;
        for (int64_t k = 0; k < in; k++) {
            memory[o * in + k] = lines[k] * weight[o * in + k];
            sum += intercept[k] * weight[o * in + k];
        }
        bias[o] += sum;
    }
    layer.weight = memory, layer.bias = bias;
    return layer;
}

/* Evaluate one network. `memory` holds the largest folded layer; `lines` holds slopes and intercepts. */
static int forward(const Layer *layers, const Norm *norms, int64_t count, const float *inputs, int64_t rows, int in_batch,
                   float *trace, float *outputs, float *memory, float *lines) {
    for (int64_t i = 0; i < count; i++) {
        int64_t in = layers[i].inputs;
        Statistics s = statistics_at(trace, in, rows);
        if (in_batch) of_batch(i ? trace : inputs, rows, in, norms + i, s);
        else of_running(in, norms + i, s);
        if (!i) { /* observations with large means and small deviations would lose digits in x W' + b' */
            for (int64_t row = 0; row < rows; row++)
                for (int64_t k = 0; k < in; k++) trace[row * in + k] = inputs[row * in + k] - s.mean[k];
            memset(s.mean, 0, 4 * in);
        }
        float *next = trace + in * (rows + STATISTICS);
        write_lines(norms + i, s, in, lines);
        Layer layer = folded(layers[i], lines, memory);
        if (dense_forward(&layer, 1, 1, trace, rows, 0, i == count - 1 ? outputs : next)) return 1;
        trace = next;
    }
    return 0;
}

/* The largest number of inputs of a layer; with `weights`, of floats of a layer. */
static int64_t largest(const Layer *layers, int64_t count, int weights) {
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t size = weights ? (layers[i].inputs + 1) * layers[i].outputs : layers[i].inputs;
        if (size > found) found = size;
    }
    return found;
}

/* Write the outputs [members, rows, outputs] of an ensemble, whose members have `count` layers each, for `inputs` [rows, I].
 *
 * `in_batch`: statistics of the batch are used, and move the running ones; else running ones are used. `trace` has room for the
 * inputs and statistics of each member. Returns 1 if memory is exhausted, as the function below does. */
API int renorm_forward(const Layer *layers, const Norm *norms, int64_t members, int64_t count, const float *inputs,
                       int64_t rows, int64_t in_batch, float *trace, float *outputs) {
    int64_t outs = rows * layers[count - 1].outputs, each = numbers(layers, count, rows), size = largest(layers, count, 1);
    /* beginning with a cache line, because rows of the weight are loaded often */
    float *memory = aligned_alloc(64, ((size + 2 * largest(layers, count, 0)) / 16 + 1) * 64);
    int failed = !memory;
    for (int64_t m = 0; m < members && !failed; m++)
        failed = forward(layers + m * count, norms + m * count, count, inputs, rows, in_batch, trace + m * each,
                         outputs + m * outs, memory, memory + size);
    for (int64_t i = 0; in_batch && i < count; i++) ++*norms[i].passes; /* the members share them */
    free(memory);
    return failed;
}

/* Complete the gradient of a weight: y = slope x + intercept was multiplied with it, and `weight` is that for x. */
static void of_normalized(Layer layer, const float *restrict lines, float *restrict weight, const float *restrict bias) {
    int64_t in = layer.inputs, out = layer.outputs;
    const float *intercept = lines + in;
    for (int64_t k = 0; layer.by_inputs && k < in; k++)
        for (int64_t o = 0; o < out; o++) weight[k * out + o] = lines[k] * weight[k * out + o] + intercept[k] * bias[o];
    for (int64_t o = 0; !layer.by_inputs && o < out; o++)
        for (int64_t k = 0; k < in; k++) weight[o * in + k] = lines[k] * weight[o * in + k] + intercept[k] * bias[o];
}

/* The sums over rows of `grad` and of `grad` (x - mean), [size] each. Subtracting afterwards would lose digits. */
static void sums_of(const float *restrict grad, const float *restrict x, const float *restrict mean, int64_t rows, int64_t size,
                    float *restrict sum, float *restrict product) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < size; k++) {
            float own = grad[i * size + k];
            sum[k] += own, product[k] += own * (x[i * size + k] - mean[k]);
        }
}

/* Change `grad` [rows, size] from that with respect to y to that with respect to x. Write the gradients of scale and bias to
 * `into`, unless it is NULL. `memory` has 5 * size floats, which begin with the slopes. */
static void through(const Norm *norm, Statistics s, const float *restrict x, int64_t rows, int64_t size, int in_batch,
                    float *restrict grad, float *const *into, float *restrict memory) {
    const float *mean = s.mean;
    float *slope = memory, *of_x = slope + size, *rest = of_x + size, *sum = rest + size, *product = sum + size;
    memset(of_x, 0, 4 * 4 * size);
    if (into || in_batch) sums_of(grad, x, s.mean, rows, size, sum, product);
    for (int64_t k = 0; k < size; k++) {
        float f = factor_of(norm, s, k), around = product[k] + shift_of(s, k) * sum[k], r = s.r[k], variance = s.variance[k];
        if (into) into[0][k] = f * around, into[1][k] = sum[k];
        if (!in_batch) continue;
        float of_variance = -0.5f * norm->scale[k] * around * f * f * f / (r * r);
        if (variance >= LEAST) of_variance += slope[k] * sum[k] * s.d[k] / (2.0f * r * sqrtf(variance));
        of_x[k] = 2.0f * of_variance / (float)(rows - 1);
        rest[k] = -slope[k] * sum[k] / (float)rows;
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < size; k++)
            grad[i * size + k] = slope[k] * grad[i * size + k] + of_x[k] * (x[i * size + k] - mean[k]) + rest[k];
}

/* Backpropagate `grad` [rows, outputs] through one network. `memory` has 2 * `width` * rows + 5 * `width` floats. */
static int backward(const Layer *layers, const Norm *norms, int64_t count, int64_t rows, int in_batch, float *trace,
                    const float *grad, float *const *into, float *const *into_norms, float *input_grad, float *memory,
                    int64_t width) {
    float *used = memory, *next = memory + width * rows, *lines = memory + 2 * width * rows;
    trace += numbers(layers, count, rows);
    for (int64_t i = count - 1; i >= 0; i--) {
        Layer layer = layers[i];
        int64_t in = layer.inputs;
        trace -= in * (rows + STATISTICS);
        Statistics s = statistics_at(trace, in, rows);
        layer.activation = IDENTITY; /* `grad` is already multiplied by the derivative */
        float *found = !i && input_grad ? input_grad : next;
        write_lines(norms + i, s, in, lines);
        if (dense_backward(&layer, 1, 1, trace, rows, 0, 0, grad, into ? into + 2 * i : 0, found)) return 1;
        if (into) of_normalized(layer, lines, into[2 * i], into[2 * i + 1]);
        through(norms + i, s, trace, rows, in, in_batch, found, into ? into_norms + 2 * i : 0, lines);
        if (i && layers[i - 1].activation != IDENTITY) derive(found, trace, rows * in, layers[i - 1].activation, found);
        grad = next;
        next = used;
        used = (float *)grad;
    }
    return 0;
}

/* Backpropagate `grad` [members, rows, outputs] through an ensemble, with the trace of `renorm_forward`.
 *
 * The gradients of weights and biases are written to `into` [members, 2 * count], and those of scales and biases of
 * normalizations to `into_norms` [members, 2 * count], unless both are NULL. Those with respect to the inputs are written to
 * `input_grad` [members, rows, I], unless it is NULL. The last layer has no activation. */
API int renorm_backward(const Layer *layers, const Norm *norms, int64_t members, int64_t count, int64_t rows, int64_t in_batch,
                        float *trace, const float *grad, float *const *into, float *const *into_norms, float *input_grad) {
    int64_t outs = rows * layers[count - 1].outputs, each = numbers(layers, count, rows), width = largest(layers, count, 0);
    float *memory = malloc(4 * (2 * width * rows + 5 * width));
    int failed = !memory;
    for (int64_t m = 0; m < members && !failed; m++)
        failed = backward(layers + m * count, norms + m * count, count, rows, in_batch, trace + m * each, grad + m * outs,
                          into ? into + m * 2 * count : 0, into ? into_norms + m * 2 * count : 0,
                          input_grad ? input_grad + m * rows * layers[0].inputs : 0, memory, width);
    free(memory);
    return failed;
}
