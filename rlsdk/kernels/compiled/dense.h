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

API int dense_forward(const Layer *layers, int64_t members, int64_t count, const float *inputs, int64_t rows, float *trace,
                      float *outputs);
API int dense_outputs(const Layer *layers, int64_t count, const float *inputs, int64_t rows, float *outputs);
API int dense_backward(const Layer *layers, int64_t members, int64_t count, const float *inputs, int64_t rows,
                       const float *trace, const float *outputs, const float *grad, float *const *into,
                       float *input_grad);

#endif
