/* Gaussians squashed by tanh, and networks that compute them. Matrices are [rows, size]; log standard deviations are limited to
 * the range from low to high. */
#include <stdlib.h>

#include "dense.h"

#define LOG_TWO 0.6931471806f
#define HALF_LOG_TWO_PI 0.9189385332f

/* Up to WIDTH samples for standard normal `noise`, and their log-densities. */
INLINE floats sample(floats mean, floats log_std, floats noise, float low, float high, floats *action) {
    floats spread = either(log_std < low, all(low), either(log_std > high, all(high), log_std));
    floats raw = fused(exp_of(spread), noise, mean), distance = either(raw < 0.0f, -raw, raw);
    *action = tanh_of(raw);
    floats log_jacobian = 2.0f * (LOG_TWO - distance - log1p_of(exp_of(-2.0f * distance))); /* log(1 - tanh(raw)^2) */
    return -0.5f * noise * noise - spread - HALF_LOG_TWO_PI - log_jacobian;
}

/* The samples for standard normal `noise`, and their log-densities [rows]. */
API void squashed_sample(const float *mean, const float *log_std, const float *noise, int64_t rows, int64_t size, float low,
                         float high, float *action, float *log_prob) {
    int64_t count = rows * size, row = 0, column = 0;
    for (int64_t i = 0; i < rows; i++) log_prob[i] = 0.0f;
    for (int64_t i = 0; i < count; i += WIDTH) {
        int64_t now = smaller(count - i, WIDTH);
        floats found;
        float densities[WIDTH];
        store(densities, sample(load_first(mean + i, now), load_first(log_std + i, now), load_first(noise + i, now), low, high, &found));
        store_first(action + i, found, now);
        for (int64_t k = 0; k < now; k++) {
            log_prob[row] += densities[k];
            if (++column == size) column = 0, row++;
        }
    }
}

/* The gradients with respect to mean and log standard deviation, given those with respect to the results above. */
API void squashed_vjp(const float *log_std, const float *noise, const float *action, const float *grad_action,
                      const float *grad_log_prob, int64_t rows, int64_t size, float low, float high, float *grad_mean,
                      float *grad_log_std) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < size; j += WIDTH) {
            int64_t k = i * size + j, now = smaller(size - j, WIDTH);
            floats taken = load_first(action + k, now), spread = load_first(log_std + k, now), own = all(grad_log_prob[i]);
            floats grad = (1.0f - taken * taken) * load_first(grad_action + k, now) + 2.0f * own * taken;
            floats of_spread = grad * exp_of(spread) * load_first(noise + k, now) - own;
            store_first(grad_mean + k, grad, now);
            store_first(grad_log_std + k, either((spread >= low) & (spread <= high), of_spread, all(0.0f)), now);
        }
}

/* A network whose last layers, with one layer each, compute mean and log standard deviation from the outputs of `body`. */
typedef struct {
    Network body, mean, log_std;
    float low, high;
} Squashed;

/* The arrays of a trace: the hidden layers of `body`, its outputs, means and log standard deviations, one after another. */
typedef struct {
    float *hidden, *latent, *mean, *log_std;
    int64_t width, size;
} Trace;

static Trace divided(const Squashed *network, int64_t rows, float *memory) {
    int64_t width = network->mean.layers->inputs, size = network->mean.layers->outputs;
    float *latent = memory + rows * trace_size(network->body), *mean = latent + rows * width;
    return (Trace){memory, latent, mean, mean + rows * size, width, size};
}

/* Write samples [rows, size] for standard normal `noise`, and their log-densities [rows]. Returns 1 if memory is exhausted, like
 * the functions below. */
API int squashed_forward(const Squashed *network, const float *inputs, const float *noise, int64_t rows, float *trace,
                         float *action, float *log_prob) {
    Trace t = divided(network, rows, trace);
    if (dense_forward(network->body.layers, 1, network->body.count, inputs, rows, t.hidden, t.latent)) return 1;
    if (dense_forward(network->mean.layers, 1, 1, t.latent, rows, 0, t.mean)) return 1;
    if (dense_forward(network->log_std.layers, 1, 1, t.latent, rows, 0, t.log_std)) return 1;
    squashed_sample(t.mean, t.log_std, noise, rows, t.size, network->low, network->high, action, log_prob);
    return 0;
}

/* Replace standard normal `noise` [rows, size] by samples. */
API int squashed_act(const Squashed *network, const float *inputs, int64_t rows, float *noise) {
    Trace t = divided(network, rows, 0);
    int64_t size = rows * (trace_size(network->body) + t.width + 2 * t.size);
    float *memory = malloc(4 * (size + rows + 1));
    int failed = !memory || squashed_forward(network, inputs, noise, rows, memory, noise, memory + size);
    free(memory);
    return failed;
}

/* Write the gradients of all parameters, given those with respect to the results above. */
API int squashed_backward(const Squashed *network, const float *inputs, const float *noise, int64_t rows, float *trace,
                          const float *action, const float *grad_action, const float *grad_log_prob) {
    Trace t = divided(network, rows, trace);
    int64_t whole = rows * t.size, wide = rows * t.width;
    float *memory = malloc(4 * (2 * whole + 2 * wide + 1));
    if (!memory) return 1;
    float *grad_mean = memory, *grad_log_std = memory + whole, *grad = memory + 2 * whole, *other = grad + wide;
    squashed_vjp(t.log_std, noise, action, grad_action, grad_log_prob, rows, t.size, network->low, network->high, grad_mean,
                 grad_log_std);
    int failed = dense_backward(network->mean.layers, 1, 1, t.latent, rows, 0, t.mean, grad_mean, network->mean.grads, grad) ||
                 dense_backward(network->log_std.layers, 1, 1, t.latent, rows, 0, t.log_std, grad_log_std,
                                network->log_std.grads, other);
    for (int64_t i = 0; !failed && i < wide; i++) grad[i] += other[i];
    failed = failed || dense_backward(network->body.layers, 1, network->body.count, inputs, rows, t.hidden, t.latent, grad,
                                      network->body.grads, 0);
    free(memory);
    return failed;
}
