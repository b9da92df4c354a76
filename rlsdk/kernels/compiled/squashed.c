/* Gaussians squashed by tanh. Matrices are [rows, size]; log standard deviations are limited to the range from low to high. */
#include "simd.h"

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
    memset(log_prob, 0, 4 * rows);
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
