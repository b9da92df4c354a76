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

/* Apply the activation, or its derivative, to `rows` and `columns` of the result, after its last block has been added. */
static void finish(const Product *p, Place at, int64_t rows, int64_t columns) {
    if (p->activation == IDENTITY) return;
    for (int64_t place = at.row * p->columns + at.column; rows > 0; rows--, place += p->columns) {
        float *result = p->result + place;
        if (p->outputs) derive(result, p->outputs + place, columns, p->activation, result);
        else activate(result, columns, p->activation);
    }
}

#endif
