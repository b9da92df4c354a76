/* Gradient steps of actor-critic methods: one call evaluates the network on minibatches, and makes a step for each. */
#include <stdlib.h>

#include "dense.h"
#include "optimizers.h"
#include "policy.h"

enum { DONE, NO_MEMORY, WRONG_ACTION, WRONG_ORDER };

/* An actor and a critic. `log_std` and its gradient are NULL if actions are choices. */
typedef struct {
    Network actor, critic;
    const float *log_std;
    float *log_std_grad;
    float forbidden; /* the log-probability of choices that a mask forbids */
} Policy;

/* All rows of a rollout. `action` is int64 [rows] or float [rows, outputs]. `mask` [rows, outputs], `weight`, `old_log_prob` and
 * `old_value` may be NULL. */
typedef struct {
    const float *inputs;
    const void *action;
    const uint8_t *mask;
    const float *weight, *advantage, *old_log_prob, *old_value, *target;
    int64_t rows;
} Rows;

/* The rows at the indices in `order` [epochs, chosen]. Each epoch is divided into minibatches of `size`; the last one may be
 * smaller. If `order` is NULL, all rows are one minibatch, `chosen` and `size` are their number, and there is one epoch. */
typedef struct {
    const int64_t *order;
    int64_t epochs, chosen, size;
    double largest_kl; /* a minibatch above it makes no step and is the last one */
} Minibatches;

/* Memory for one minibatch. */
typedef struct {
    float *inputs, *action, *columns, *actor_trace, *critic_trace, *outputs, *found, *grads;
    uint8_t *mask;
} Memory;

static int64_t outputs_of(const Policy *policy) { return policy->actor.layers[policy->actor.count - 1].outputs; }

static int64_t action_bytes(const Policy *policy) { return policy->log_std ? 4 * outputs_of(policy) : 8; }

/* Divide one allocation among the arrays of a minibatch of `size` rows; NULL if memory is exhausted. */
static char *allocated(const Policy *policy, int64_t size, Memory *memory) {
    int64_t wide = outputs_of(policy), in = policy->actor.layers[0].inputs;
    int64_t bytes[] = {4 * in, action_bytes(policy), 4 * 5, 4 * trace_size(policy->actor), 4 * trace_size(policy->critic),
                       4 * 2 * wide, 4 * 3, 4 * (3 + wide), wide};
    void **places[] = {(void **)&memory->inputs, (void **)&memory->action, (void **)&memory->columns,
                       (void **)&memory->actor_trace, (void **)&memory->critic_trace, (void **)&memory->outputs,
                       (void **)&memory->found, (void **)&memory->grads, (void **)&memory->mask};
    int64_t total = 0, count = sizeof bytes / sizeof *bytes;
    for (int64_t i = 0; i < count; i++) total += (bytes[i] * size + 63) / 64 * 64;
    char *start = malloc(total + 64), *next = start;
    for (int64_t i = 0; start && i < count; i++) {
        *places[i] = next;
        next += (bytes[i] * size + 63) / 64 * 64;
    }
    return start;
}

/* Copy elements of some `bytes` at the indices `order` [count] to `to`; NULL stays NULL. */
static const void *gathered(const void *from, const int64_t *order, int64_t count, int64_t bytes, void *to) {
    if (!from) return 0;
    const char *source = from;
    char *target = to;
    if (bytes == 4) /* a constant size needs no call */
        for (int64_t i = 0; i < count; i++) memcpy(target + i * 4, source + order[i] * 4, 4);
    else
        for (int64_t i = 0; i < count; i++) memcpy(target + i * bytes, source + order[i] * bytes, bytes);
    return to;
}

/* The rows at `order` [count]. */
static Rows chosen_rows(const Policy *policy, const Rows *all, const int64_t *order, int64_t count, Memory m) {
    float *columns = m.columns;
    return (Rows){
        gathered(all->inputs, order, count, 4 * policy->actor.layers[0].inputs, m.inputs),
        gathered(all->action, order, count, action_bytes(policy), m.action),
        gathered(all->mask, order, count, outputs_of(policy), m.mask),
        gathered(all->weight, order, count, 4, columns),
        gathered(all->advantage, order, count, 4, columns + count),
        gathered(all->old_log_prob, order, count, 4, columns + 2 * count),
        gathered(all->old_value, order, count, 4, columns + 3 * count),
        gathered(all->target, order, count, 4, columns + 4 * count),
        count,
    };
}

/* Compute the means [6] of a minibatch and the gradients of the loss with respect to all outputs, then of all parameters. */
static int gradients(const Policy *policy, const Rows *r, const Terms *terms, Memory m, float *means, double largest_kl) {
    Network actor = policy->actor, critic = policy->critic;
    int64_t rows = r->rows, wide = outputs_of(policy);
    float *raw = m.outputs, *further = raw + rows * wide, *value = m.found, *log_prob = value + rows, *entropy = log_prob + rows;
    float *of_value = m.grads, *of_log_prob = of_value + rows, *of_entropy = of_log_prob + rows, *of_raw = of_entropy + rows;
    if (dense_forward(actor.layers, 1, actor.count, r->inputs, rows, m.actor_trace, raw)) return NO_MEMORY;
    if (dense_forward(critic.layers, 1, critic.count, r->inputs, rows, m.critic_trace, value)) return NO_MEMORY;
    if (policy->log_std) vectors_taken(raw, policy->log_std, r->action, rows, wide, further, log_prob, entropy);
    else if (choices_taken(raw, r->mask, r->action, rows, wide, policy->forbidden, further, log_prob, entropy))
        return WRONG_ACTION;
    Columns columns = {r->weight, r->advantage, r->old_log_prob, r->old_value, r->target, log_prob, entropy, value};
    if (terms->entropy == 0.0f) of_entropy = 0;
    policy_loss(&columns, rows, terms, means, of_log_prob, of_entropy, of_value);
    if ((double)means[3] > largest_kl) return DONE;
    if (policy->log_std)
        vectors_vjp(further, policy->log_std, rows, wide, of_log_prob, of_entropy, of_raw, policy->log_std_grad);
    else choices_vjp(further, entropy, r->action, rows, wide, of_log_prob, of_entropy, of_raw);
    if (dense_backward(actor.layers, 1, actor.count, r->inputs, rows, m.actor_trace, raw, of_raw, actor.grads, 0))
        return NO_MEMORY;
    return dense_backward(critic.layers, 1, critic.count, r->inputs, rows, m.critic_trace, value, of_value, critic.grads, 0)
               ? NO_MEMORY : DONE;
}

/* Make a gradient step for every minibatch. `count` is the number of steps so far, to which every step adds 1.
 *
 * Adds the means of every minibatch to `totals` [6]. Writes the number of minibatches evaluated and of steps made to `made` [2];
 * they differ if the last minibatch was above the largest KL divergence. Returns DONE or what was wrong. */
API int policy_steps(const Policy *policy, const Rows *rows, const Minibatches *minibatches, const Terms *terms,
                     const Optimizer *optimizer, float *count, float *totals, int64_t *made) {
    Minibatches b = *minibatches;
    Memory memory;
    int64_t size = b.size < b.chosen ? b.size : b.chosen;
    for (int64_t i = 0; b.order && i < b.epochs * b.chosen; i++)
        if (b.order[i] < 0 || b.order[i] >= rows->rows) return WRONG_ORDER;
    char *start = allocated(policy, size, &memory);
    if (!start) return NO_MEMORY;
    int found = DONE, is_last = 0;
    int64_t epoch = 0, first = 0;
    while (epoch < b.epochs && first < b.chosen && !is_last) {
        float means[6];
        int64_t rest = b.chosen - first, length = rest < size ? rest : size;
        Rows now = b.order ? chosen_rows(policy, rows, b.order + epoch * b.chosen + first, length, memory) : *rows;
        if ((found = gradients(policy, &now, terms, memory, means, b.largest_kl))) break;
        made[0]++;
        for (int i = 0; i < 6; i++) totals[i] += means[i];
        is_last = (double)means[3] > b.largest_kl;
        if (!is_last) counted_step(optimizer, count), made[1]++;
        if ((first += length) == b.chosen) epoch++, first = 0;
    }
    free(start);
    return found;
}
