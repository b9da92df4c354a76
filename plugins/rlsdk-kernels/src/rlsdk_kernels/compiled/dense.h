/* The layers of dense networks. */
#ifndef RLSDK_DENSE_H
#define RLSDK_DENSE_H

#include "simd.h"

/* A layer, y = activation(x weight^T + bias), with weight [outputs, inputs] and bias [outputs]. If it is `by_inputs`, as in an
 * ensemble, the transpose is stored, [inputs, outputs]. */
typedef struct {
    const float *weight, *bias;
    int64_t inputs, outputs, activation, by_inputs;
} Layer;

/* A network with its gradients, [2 * count]. */
typedef struct {
    const Layer *layers;
    int64_t count;
    float *const *grads;
} Network;

/* The number of outputs of all layers but the last, for one row. */
INLINE int64_t trace_size(Network network) {
    int64_t size = 0;
    for (int64_t i = 0; i < network.count - 1; i++) size += network.layers[i].outputs;
    return size;
}

API int dense_forward(const Layer *layers, int64_t members, int64_t count, const float *inputs, int64_t rows, float *trace,
                      float *outputs);
API int dense_outputs(const Layer *layers, int64_t count, const float *inputs, int64_t rows, float *outputs);
API int dense_backward(const Layer *layers, int64_t members, int64_t count, const float *inputs, int64_t rows,
                       const float *trace, const float *outputs, const float *grad, float *const *into,
                       float *input_grad);

#endif
