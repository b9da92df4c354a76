/* Distributions of actions taken, and the loss of actor-critic methods. */
#ifndef RLSDK_POLICY_H
#define RLSDK_POLICY_H

#include "simd.h"

/* The columns of a minibatch, [rows] each. `weight` is NULL if all rows count equally. */
typedef struct {
    const float *weight, *advantage, *old_log_prob, *old_value, *target, *log_prob, *entropy, *value;
} Columns;

/* The coefficients of the loss; ranges are negative if there is no limit. */
typedef struct {
    float clip, clip_value, entropy, value;
    int32_t normalize_advantage;
} Terms;

/* The steps of a rollout and the values before and after each, [steps, copies]. */
typedef struct {
    const float *value, *reward, *next_value;
    const uint8_t *terminated, *truncated, *valid;
} Steps;

API int choices_taken(const float *logits, const uint8_t *mask, const int64_t *action, int64_t rows, int64_t choices,
                      float forbidden, float *log_probs, float *log_prob, float *entropy);
API void choices_vjp(const float *log_probs, const float *entropy, const int64_t *action, int64_t rows, int64_t choices,
                     const float *grad_log_prob, const float *grad_entropy, float *grad);
API void vectors_taken(const float *mean, const float *log_std, const float *action, int64_t rows, int64_t size,
                       float *standardized, float *log_prob, float *entropy);
API void vectors_vjp(const float *standardized, const float *log_std, int64_t rows, int64_t size,
                     const float *grad_log_prob, const float *grad_entropy, float *grad_mean, float *grad_log_std);
API void policy_loss(const Columns *columns, int64_t rows, const Terms *terms, float *means, float *grad_log_prob,
                     float *grad_entropy, float *grad_value);

#endif
