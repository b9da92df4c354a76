/* The layers of dense networks. */
#ifndef RLSDK_DENSE_H
#define RLSDK_DENSE_H

#include "simd.h"

/* A layer, y = activation(x weight^T + bias), with weight [outputs, inputs] and bias [outputs]. If it is `by_inputs`, as in an
 * ensemble, the transpose is stored, [inputs, outputs].
 *
 * If `scale` is not NULL, layer normalization is computed before the activation, with scale and shift [outputs]. The last layer
 * of a network has none, and neither have those of an ensemble. */
typedef struct {
    const float *weight, *bias;
    int64_t inputs, outputs, activation, by_inputs;
    const float *scale, *shift;
    float eps;
} Layer;

/* A network with its gradients: of weight and bias of each layer, [2 * count], then of scale and shift of each normalized one. */
typedef struct {
    const Layer *layers;
    int64_t count;
    float *const *grads;
} Network;

/* The floats that a layer leaves in a trace for each row: its outputs and, with normalization, the numbers before scale and
 * shift, and 1 / deviation. */
INLINE int64_t traced(Layer layer) { return layer.scale ? 2 * layer.outputs + 1 : layer.outputs; }

/* The same for all layers but the last, whose outputs are not in the trace. */
INLINE int64_t trace_size(Network network) {
    int64_t size = 0;
    for (int64_t i = 0; i < network.count - 1; i++) size += traced(network.layers[i]);
    return size;
}

API int dense_forward(const Layer *layers, int64_t members, int64_t count, const float *inputs, int64_t rows, float *trace,
                      float *outputs);
API int dense_outputs(const Layer *layers, int64_t count, const float *inputs, int64_t rows, float *outputs);
API int dense_backward(const Layer *layers, int64_t members, int64_t count, const float *inputs, int64_t rows,
                       const float *trace, const float *outputs, const float *grad, float *const *into,
                       float *input_grad);

#endif
