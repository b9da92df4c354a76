/* The product of two matrices, which `products.h` and `sparse_products.h` compute. */
#ifndef RLSDK_PRODUCT_H
#define RLSDK_PRODUCT_H

#include "activations.h"

/* A matrix whose element (i, j) is start[i * row + j * column]. */
typedef struct {
    const float *start;
    int64_t row, column;
} Strided;

INLINE int64_t padded(int64_t columns) { return (columns + WIDTH - 1) / WIDTH * WIDTH; }

/* A product of matrices: result [rows, columns] = activation((bias [padded columns], or 0) + left [rows, inner] right).
 *
 * right is [inner, padded columns]. If `outputs` [rows, columns] is not NULL, the result is instead the product, multiplied by the
 * derivative of the activation that has these outputs. */
typedef struct {
    Strided left;
    int64_t rows, inner, columns, activation;
    const float *right, *bias, *outputs;
    float *result;
} Product;

/* The part of a product whose results start at (row, column), from the factor `inner` to the end of its block. */
typedef struct {
    int64_t row, column, inner;
} Place;

/* The V registers from which the sums of a row begin: `before`, or 0 if it is NULL. `last` numbers of the last one are in the
 * matrix, here and below. */
INLINE void start_row(const int V, const float *before, int64_t last, floats *sums) {
    UNROLLED for (int v = 0; v < V - 1; v++) sums[v] = before ? load(before + v * WIDTH) : all(0.0f);
    sums[V - 1] = before ? load_first(before + (V - 1) * WIDTH, last) : all(0.0f);
}

INLINE void store_row(const int V, float *result, int64_t last, const floats *sums) {
    UNROLLED for (int v = 0; v < V - 1; v++) store(result + v * WIDTH, sums[v]);
    store_first(result + (V - 1) * WIDTH, sums[V - 1], last);
}

/* Apply ReLU, or its derivative, to the V registers of a row after its last block has been added. tanh takes more registers than
 * are free: `finish` applies it to what has been stored. */
INLINE void complete_row(const int V, const Product *p, Place at, int64_t last, floats *sums) {
    if (p->activation != RELU) return;
    if (!p->outputs) {
        UNROLLED for (int v = 0; v < V; v++) sums[v] = activated(sums[v], RELU);
        return;
    }
    const float *outputs = p->outputs + at.row * p->columns + at.column;
    UNROLLED for (int v = 0; v < V - 1; v++) sums[v] = derived(sums[v], load(outputs + v * WIDTH), RELU);
    sums[V - 1] = derived(sums[V - 1], load_first(outputs + (V - 1) * WIDTH, last), RELU);
}

/* Apply the activation, or its derivative, to `rows` and `columns` of the result, after its last block has been added. */
static void finish(const Product *p, Place at, int64_t rows, int64_t columns) {
    for (int64_t place = at.row * p->columns + at.column; rows > 0; rows--, place += p->columns) {
        float *result = p->result + place;
        if (p->outputs) derive(result, p->outputs + place, columns, p->activation, result);
        else activate(result, columns, p->activation);
    }
}

#endif
