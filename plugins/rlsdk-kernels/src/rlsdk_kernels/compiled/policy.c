/* Distributions of actions taken, the loss of actor-critic methods and discounted sums. */
#include <float.h>
#include <math.h>

#include "policy.h"

#define HALF_LOG_TWO_PI 0.91893853320467274f

/* Log-probabilities and entropies [rows] of the `action` [rows] taken, given `logits` [rows, choices].
 *
 * `mask` [rows, choices] may be NULL; then forbidden choices get the log-probability `forbidden`, and no other one is below it. Also
 * writes all log-probabilities [rows, choices]. Returns 1 if an action is not a choice. */
API int choices_taken(const float *logits, const uint8_t *mask, const int64_t *action, int64_t rows, int64_t choices,
                      float forbidden, float *log_probs, float *log_prob, float *entropy) {
    for (int64_t i = 0; i < rows; i++, logits += choices, log_probs += choices) {
        if (action[i] < 0 || action[i] >= choices) return 1;
        float largest = -INFINITY, total = 0.0f, sum = 0.0f;
        for (int64_t j = 0; j < choices; j++) {
            log_probs[j] = mask && !mask[i * choices + j] ? -FLT_MAX : logits[j];
            if (!(log_probs[j] <= largest)) largest = log_probs[j]; /* a NaN stays */
        }
        for (int64_t j = 0; j < choices; j++) {
            log_probs[j] -= largest;
            total += expf(log_probs[j]);
        }
        float log_total = logf(total);
        for (int64_t j = 0; j < choices; j++) {
            log_probs[j] -= log_total;
            if (mask && log_probs[j] < forbidden) log_probs[j] = forbidden;
            sum += expf(log_probs[j]) * log_probs[j];
        }
        log_prob[i] = log_probs[action[i]];
        entropy[i] = -sum;
    }
    return 0;
}

/* The gradient with respect to logits [rows, choices]: that of a log-probability is onehot(a) - p, that of an entropy
 * -p (log p + H). `grad_entropy` [rows] may be NULL. */
API void choices_vjp(const float *log_probs, const float *entropy, const int64_t *action, int64_t rows, int64_t choices,
                     const float *grad_log_prob, const float *grad_entropy, float *grad) {
    for (int64_t i = 0; i < rows; i++, log_probs += choices, grad += choices) {
        float of_entropy = grad_entropy ? grad_entropy[i] : 0.0f;
        for (int64_t j = 0; j < choices; j++)
            grad[j] = -expf(log_probs[j]) * (grad_log_prob[i] + of_entropy * (log_probs[j] + entropy[i]));
        if (action[i] >= 0 && action[i] < choices) grad[action[i]] += grad_log_prob[i]; /* the caller may have changed it */
    }
}

/* Log-probabilities and entropies [rows] of the `action` [rows, size] taken under a Gaussian with the given mean [rows, size]
 * and log std [size]. Also writes (action - mean) / std [rows, size]. */
API void vectors_taken(const float *mean, const float *log_std, const float *action, int64_t rows, int64_t size,
                       float *standardized, float *log_prob, float *entropy) {
    float spread = HALF_LOG_TWO_PI * (float)size;
    for (int64_t j = 0; j < size; j++) {
        float precision = expf(-log_std[j]);
        spread += log_std[j];
        for (int64_t i = 0; i < rows; i++)
            standardized[i * size + j] = (action[i * size + j] - mean[i * size + j]) * precision;
    }
    for (int64_t i = 0; i < rows; i++) {
        float squares = 0.0f;
        for (int64_t j = 0; j < size; j++) squares += standardized[i * size + j] * standardized[i * size + j];
        log_prob[i] = -0.5f * squares - spread;
        entropy[i] = spread + 0.5f * (float)size;
    }
}

/* The gradients with respect to the mean [rows, size] and log std [size]. With z = (a - mean) / std, those of a
 * log-probability are z / std and z^2 - 1, those of an entropy 0 and 1. `grad_entropy` [rows] may be NULL. */
API void vectors_vjp(const float *standardized, const float *log_std, int64_t rows, int64_t size,
                     const float *grad_log_prob, const float *grad_entropy, float *grad_mean, float *grad_log_std) {
    double of_entropies = 0.0;
    if (grad_entropy)
        for (int64_t i = 0; i < rows; i++) of_entropies += grad_entropy[i];
    for (int64_t j = 0; j < size; j++) {
        float precision = expf(-log_std[j]);
        double own = of_entropies;
        for (int64_t i = 0; i < rows; i++) {
            float z = standardized[i * size + j];
            grad_mean[i * size + j] = z * precision * grad_log_prob[i];
            own += grad_log_prob[i] * (z * z - 1.0f);
        }
        grad_log_std[j] = (float)own;
    }
}

static void normalization(const Columns *columns, int64_t rows, float *mean, float *scale) {
    double sum = 0.0, squares = 0.0;
    int64_t count = 0;
    for (int64_t i = 0; i < rows; i++)
        if (!columns->weight || columns->weight[i] > 0.0f) sum += columns->advantage[i], count++;
    *mean = 0.0f, *scale = 1.0f;
    if (count < 2) return;
    *mean = (float)(sum / (double)count);
    for (int64_t i = 0; i < rows; i++)
        if (!columns->weight || columns->weight[i] > 0.0f) {
            double centered = columns->advantage[i] - *mean;
            squares += centered * centered;
        }
    *scale = 1.0f / ((float)sqrt(squares / (double)(count - 1)) + 1e-8f);
}

static inline float limited(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

/* The means [6]: policy loss, squared error of values, negative entropy, KL, clipped share, loss. Writes the gradients
 * [rows] with respect to log-probabilities, entropies (NULL: not wanted) and values. */
API void policy_loss(const Columns *columns, int64_t rows, const Terms *terms, float *means, float *grad_log_prob,
                     float *grad_entropy, float *grad_value) {
    Columns c = *columns;
    float mean = 0.0f, scale = 1.0f;
    double total = 0.0, policy = 0.0, values = 0.0, entropy = 0.0, kl = 0.0, outside = 0.0;
    if (terms->normalize_advantage) normalization(columns, rows, &mean, &scale);
    if (c.weight)
        for (int64_t i = 0; i < rows; i++) total += c.weight[i];
    float equal = (float)(1.0 / (double)rows);
    for (int64_t i = 0; i < rows; i++) {
        float share = c.weight ? (float)(c.weight[i] / total) : equal;
        float advantage = (c.advantage[i] - mean) * scale;
        if (terms->clip < 0.0f) {
            policy -= share * advantage * c.log_prob[i];
            grad_log_prob[i] = -advantage * share;
        } else {
            float log_ratio = c.log_prob[i] - c.old_log_prob[i], ratio = expf(log_ratio), moved = ratio * advantage;
            float bounded = limited(ratio, 1.0f - terms->clip, 1.0f + terms->clip) * advantage;
            policy -= share * (bounded < moved ? bounded : moved);
            kl += share * (ratio - 1.0f - log_ratio);
            if (fabsf(ratio - 1.0f) > terms->clip) outside += share;
            grad_log_prob[i] = moved <= bounded ? -moved * share : moved != moved ? NAN : 0.0f;
        }
        float step = c.value[i] - (terms->clip_value < 0.0f ? 0.0f : c.old_value[i]), error = c.value[i] - c.target[i];
        int free_to_move = 1;
        if (terms->clip_value >= 0.0f) {
            error = c.old_value[i] + limited(step, -terms->clip_value, terms->clip_value) - c.target[i];
            free_to_move = fabsf(step) <= terms->clip_value;
        }
        values += share * error * error;
        grad_value[i] = free_to_move ? 2.0f * terms->value * share * error : 0.0f;
        entropy += share * c.entropy[i];
        if (grad_entropy) grad_entropy[i] = -terms->entropy * share;
    }
    double loss = policy - terms->entropy * entropy + terms->value * values;
    const double found[6] = {policy, values, -entropy, kl, outside, loss};
    for (int i = 0; i < 6; i++) means[i] = (float)found[i];
}

/* The sums S_t = value_t + weight_t S_{t+1}, backwards from S_T = 0; all [steps, copies]. One function for each type. */
#define DISCOUNTED_SUMS(name, number)                                                                                     \
    API void name(const number *value, const number *weight, int64_t steps, int64_t copies, number *sums) {               \
        for (int64_t first = 0; first < copies; first += WIDTH) {                                                         \
            int64_t columns = copies - first < WIDTH ? copies - first : WIDTH;                                            \
            double following[WIDTH] = {0};                                                                                \
            for (int64_t t = steps - 1; t >= 0; t--)                                                                      \
                for (int64_t j = 0; j < columns; j++) {                                                                   \
                    int64_t place = t * copies + first + j;                                                               \
                    following[j] = (double)value[place] + (double)weight[place] * following[j];                           \
                    sums[place] = (number)following[j];                                                                   \
                }                                                                                                         \
        }                                                                                                                 \
    }
DISCOUNTED_SUMS(discounted_sums, float)
DISCOUNTED_SUMS(discounted_sums_double, double)

/* The generalized advantages of steps, arXiv:1506.02438, equation 16, and the regression targets of their values, [copies, steps]
 * each. `trace` is gamma * lambda. Returns whether all steps are valid. */
API int advantages(const Steps *s, int64_t steps, int64_t copies, float gamma, float trace, float *advantage, float *target) {
    int whole = 1;
    for (int64_t i = 0; i < steps * copies; i++) whole &= s->valid[i];
    for (int64_t first = 0; first < copies; first += WIDTH) {
        int64_t columns = copies - first < WIDTH ? copies - first : WIDTH;
        double following[WIDTH] = {0};
        for (int64_t t = steps - 1; t >= 0; t--)
            for (int64_t j = 0; j < columns; j++) {
                int64_t place = t * copies + first + j, row = (first + j) * steps + t;
                int goes_on = !(s->terminated[place] | s->truncated[place]) && s->valid[place];
                if (t + 1 < steps) goes_on = goes_on && s->valid[place + copies];
                float discount = s->terminated[place] ? 0.0f : gamma, weight = goes_on ? trace : 0.0f;
                float error = fused_one(discount, s->next_value[place], s->reward[place]) - s->value[place];
                following[j] = (double)error + (double)weight * following[j];
                advantage[row] = (float)following[j];
                target[row] = advantage[row] + s->value[place];
            }
    }
    return whole;
}

/* 1 - Var(target - prediction) / Var(target), [rows] each; 0 if the target is constant. */
API double explained_variance(const float *prediction, const float *target, int64_t rows) {
    double mean = 0.0, mean_error = 0.0, spread = 0.0, rest = 0.0;
    for (int64_t i = 0; i < rows; i++) mean += target[i], mean_error += target[i] - prediction[i];
    mean /= (double)rows, mean_error /= (double)rows;
    for (int64_t i = 0; i < rows; i++) {
        double own = target[i] - mean, error = (target[i] - prediction[i]) - mean_error;
        spread += own * own, rest += error * error;
    }
    return spread > 0.0 ? 1.0 - rest / spread : spread == spread ? 0.0 : spread;
}
