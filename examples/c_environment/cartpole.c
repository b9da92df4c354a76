/* The CartPole of gymnasium (Barto, Sutton and Anderson 1983) for many poles at once, which writes into the caller's arrays.
   rlsdk_envs.c_vector describes the functions.

   cc -O2 -shared -fPIC -o cartpole.so cartpole.c -lm */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

enum { NUMBERS = 4, LIMIT = 500 };

typedef struct {
    double state[NUMBERS]; /* position, velocity, angle, angular velocity */
    uint64_t random;
    int32_t steps;
    uint8_t over;
} Pole;

typedef struct {
    int64_t count;
    float *observations; /* [count, 4] */
    const int64_t *actions;
    float *rewards;
    uint8_t *terminated, *truncated;
    Pole poles[];
} Poles;

static float uniform(Pole *pole) /* from -0.05 to 0.05, by splitmix64 */
{
    uint64_t z = (pole->random += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (float)((double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0 * 0.1 - 0.05);
}

static void observe(const Pole *pole, float *observation)
{
    for (int i = 0; i < NUMBERS; i++)
        observation[i] = (float)pole->state[i];
}

static void begin(Pole *pole, float *observation)
{
    for (int i = 0; i < NUMBERS; i++)
        pole->state[i] = uniform(pole);
    pole->steps = 0;
    pole->over = 0;
    observe(pole, observation);
}

static void move(Pole *pole, int64_t action)
{
    double *s = pole->state, force = action == 1 ? 10.0 : -10.0, cosine = cos(s[2]), sine = sin(s[2]);
    double push = (force + 0.05 * s[3] * s[3] * sine) / 1.1;
    double turn = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * cosine * cosine / 1.1));
    double acceleration = push - 0.05 * turn * cosine / 1.1;
    s[0] += 0.02 * s[1];
    s[1] += 0.02 * acceleration;
    s[2] += 0.02 * s[3];
    s[3] += 0.02 * turn;
    pole->steps++;
}

void vec_sizes(int64_t *observation, int64_t *action)
{
    *observation = NUMBERS * sizeof(float);
    *action = sizeof(int64_t);
}

void *vec_init(int64_t count, void *observations, const void *actions, float *rewards, uint8_t *terminated, uint8_t *truncated)
{
    Poles *all = calloc(1, sizeof(Poles) + (size_t)count * sizeof(Pole));
    if (all) {
        Poles given = {count, observations, actions, rewards, terminated, truncated};
        *all = given;
    }
    return all;
}

void vec_reset(void *environments, int64_t seed)
{
    Poles *all = environments;
    for (int64_t i = 0; i < all->count; i++) {
        if (seed >= 0) /* a stream of its own for each */
            all->poles[i].random = (uint64_t)seed * 0x9E3779B97F4A7C15u ^ (uint64_t)(i + 1) * 0xD1342543DE82EF95u;
        begin(&all->poles[i], all->observations + i * NUMBERS);
    }
}

void vec_step(void *environments)
{
    Poles *all = environments;
    for (int64_t i = 0; i < all->count; i++) {
        Pole *pole = &all->poles[i];
        float *observation = all->observations + i * NUMBERS;
        all->rewards[i] = 0.0f;
        all->terminated[i] = all->truncated[i] = 0;
        if (pole->over) { /* its episode ended with the last step */
            begin(pole, observation);
            continue;
        }
        move(pole, all->actions[i]);
        observe(pole, observation);
        all->rewards[i] = 1.0f;
        all->terminated[i] = fabs(pole->state[0]) > 2.4 || fabs(pole->state[2]) > 12.0 * 2.0 * 3.141592653589793 / 360.0;
        all->truncated[i] = pole->steps == LIMIT; /* a time limit is not a termination */
        pole->over = all->terminated[i] || all->truncated[i];
    }
}

void vec_close(void *environments)
{
    free(environments);
}
