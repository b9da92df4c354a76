/* Products of small matrices, of which each tile of the result stays in registers. */
#ifndef RLSDK_PRODUCTS_H
#define RLSDK_PRODUCTS_H

#include "simd.h"
#include "threads.h"

/* A matrix whose element (i, j) is start[i * row + j * column]. */
typedef struct {
    const float *start;
    int64_t row, column;
} Strided;

/* R rows and V registers of `result` = (`bias`, or 0) + left right. Only `columns` of V * WIDTH are stored. */
INLINE void tile(const int R, const int V, Strided left, const float *right, int64_t right_row, int64_t inner,
                 const float *bias, float *result, int64_t result_row, int64_t columns) {
    floats sums[ROWS][VECTORS];
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) sums[r][v] = bias ? load(bias + v * WIDTH) : all(0.0f);
    for (int64_t k = 0; k < inner; k++) {
        const float *factors = left.start + k * left.column;
        floats row[VECTORS];
        for (int v = 0; v < V; v++) row[v] = load(right + k * right_row + v * WIDTH);
        for (int r = 0; r < R; r++) {
            floats factor = all(factors[r * left.row]);
            for (int v = 0; v < V; v++) sums[r][v] = fused(factor, row[v], sums[r][v]);
        }
    }
    for (int r = 0; r < R; r++) {
        if (columns == V * WIDTH) {
            for (int v = 0; v < V; v++) store(result + r * result_row + v * WIDTH, sums[r][v]);
        } else {
            float last[VECTORS * WIDTH]; /* the address of `sums` would force them out of the registers */
            for (int v = 0; v < V; v++) store(last + v * WIDTH, sums[r][v]);
            memcpy(result + r * result_row, last, 4 * columns);
        }
    }
}

#define TILES_OF(V)                                                                                            \
    static void tiles_##V(Strided left, int64_t rows, const float *right, int64_t right_row, int64_t inner,    \
                          const float *bias, float *result, int64_t result_row, int64_t columns) {             \
        for (; rows >= ROWS; rows -= ROWS, left.start += ROWS * left.row, result += ROWS * result_row)         \
            tile(ROWS, V, left, right, right_row, inner, bias, result, result_row, columns);                   \
        switch (rows) {                                                                                        \
            case 5: tile(5, V, left, right, right_row, inner, bias, result, result_row, columns); break;       \
            case 4: tile(4, V, left, right, right_row, inner, bias, result, result_row, columns); break;       \
            case 3: tile(3, V, left, right, right_row, inner, bias, result, result_row, columns); break;       \
            case 2: tile(2, V, left, right, right_row, inner, bias, result, result_row, columns); break;       \
            case 1: tile(1, V, left, right, right_row, inner, bias, result, result_row, columns); break;       \
        }                                                                                                      \
    }

TILES_OF(1)
TILES_OF(2)
#if VECTORS > 2
TILES_OF(3)
TILES_OF(4)
#endif

INLINE int64_t padded(int64_t columns) { return (columns + WIDTH - 1) / WIDTH * WIDTH; }

/* A product of matrices: result [rows, columns] = (bias [padded columns], or 0) + left [rows, inner] right [inner, padded columns]. */
typedef struct {
    Strided left;
    int64_t rows, right_row, inner, columns;
    const float *right, *bias;
    float *result;
} Product;

#define SHARED_ROWS (2 * ROWS) /* the rows of a product that one thread computes together */
#define LARGE 1000000 /* multiplications from which on threads share a product: it takes twenty times as long as sharing it */

static void compute_rows(const Product *p, int64_t first, int64_t rows) {
    Strided left = {p->left.start + first * p->left.row, p->left.row, p->left.column};
    for (int64_t j = 0; j < p->columns; j += VECTORS * WIDTH) {
        int64_t rest = p->columns - j, now = rest < VECTORS * WIDTH ? rest : VECTORS * WIDTH;
        const float *right = p->right + j, *own = p->bias ? p->bias + j : 0;
        float *result = p->result + first * p->columns + j;
        switch (padded(now) / WIDTH) {
            case 1: tiles_1(left, rows, right, p->right_row, p->inner, own, result, p->columns, now); break;
            case 2: tiles_2(left, rows, right, p->right_row, p->inner, own, result, p->columns, now); break;
#if VECTORS > 2
            case 3: tiles_3(left, rows, right, p->right_row, p->inner, own, result, p->columns, now); break;
            case 4: tiles_4(left, rows, right, p->right_row, p->inner, own, result, p->columns, now); break;
#endif
        }
    }
}

static void compute_part(const void *context, int64_t part) {
    const Product *p = context;
    int64_t first = part * SHARED_ROWS, rest = p->rows - first;
    compute_rows(p, first, rest < SHARED_ROWS ? rest : SHARED_ROWS);
}

/* Compute a product. Each number is the same for any number of threads, because one thread adds it up, in one order. */
static void product(Strided left, int64_t rows, const float *right, int64_t right_row, int64_t inner,
                    const float *bias, float *result, int64_t columns) {
    Product whole = {left, rows, right_row, inner, columns, right, bias, result};
    if (threads_in_use() > 1 && rows * inner * columns >= LARGE)
        in_parallel(compute_part, &whole, (rows + SHARED_ROWS - 1) / SHARED_ROWS);
    else compute_rows(&whole, 0, rows);
}

/* Copy [rows, columns] to [rows, padded columns], with zeros at the end of each row. */
static const float *with_padding(const float *matrix, int64_t rows, int64_t columns, float *copy) {
    int64_t width = padded(columns);
    if (width == columns) return matrix;
    for (int64_t i = 0; i < rows; i++) {
        memcpy(copy + i * width, matrix + i * columns, 4 * columns);
        memset(copy + i * width + columns, 0, 4 * (width - columns));
    }
    return copy;
}

typedef float four __attribute__((vector_size(16)));
typedef float unaligned_four __attribute__((vector_size(16), aligned(4), may_alias));
#if defined(__clang__) || __GNUC__ >= 12
#define picked(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int32_t places __attribute__((vector_size(16)));
#define picked(a, b, ...) __builtin_shuffle(a, b, (places){__VA_ARGS__})
#endif

/* Copy [4, 4] to its transpose. `row` and `copy_row` are the distances between rows. */
INLINE void transpose_block(const float *matrix, int64_t row, float *copy, int64_t copy_row) {
    four a = *(const unaligned_four *)matrix, b = *(const unaligned_four *)(matrix + row);
    four c = *(const unaligned_four *)(matrix + 2 * row), d = *(const unaligned_four *)(matrix + 3 * row);
    four ab = picked(a, b, 0, 4, 1, 5), cd = picked(c, d, 0, 4, 1, 5);
    four ab_high = picked(a, b, 2, 6, 3, 7), cd_high = picked(c, d, 2, 6, 3, 7);
    *(unaligned_four *)copy = picked(ab, cd, 0, 1, 4, 5);
    *(unaligned_four *)(copy + copy_row) = picked(ab, cd, 2, 3, 6, 7);
    *(unaligned_four *)(copy + 2 * copy_row) = picked(ab_high, cd_high, 0, 1, 4, 5);
    *(unaligned_four *)(copy + 3 * copy_row) = picked(ab_high, cd_high, 2, 3, 6, 7);
}

/* Copy [rows, columns] to its transpose [columns, padded rows], with zeros at the end of each row. */
static void transpose(const float *matrix, int64_t rows, int64_t columns, float *copy) {
    int64_t width = padded(rows), blocks = rows / 4 * 4, whole = columns / 4 * 4;
    if (width != rows) memset(copy, 0, 4 * columns * width);
    for (int64_t j = 0; j < whole; j += 4)
        for (int64_t i = 0; i < blocks; i += 4) transpose_block(matrix + i * columns + j, columns, copy + j * width + i, width);
    for (int64_t j = 0; j < columns; j++)
        for (int64_t i = j < whole ? blocks : 0; i < rows; i++) copy[j * width + i] = matrix[i * columns + j];
}

/* result [rows, outputs] = inputs [rows, inner] weight^T + bias, as dot products: for few rows or outputs. */
static void dot_products(const float *inputs, int64_t rows, const float *weight, int64_t inner, const float *bias,
                         float *result, int64_t outputs) {
    int64_t whole = inner / WIDTH * WIDTH;
    for (int64_t o = 0; o < outputs; o++) {
        const float *own = weight + o * inner;
        for (int64_t i = 0; i < rows; i++) {
            const float *row = inputs + i * inner;
            floats sums = all(0.0f);
            for (int64_t k = 0; k < whole; k += WIDTH) sums = fused(load(row + k), load(own + k), sums);
            float sum = whole ? sum_of(sums) : 0.0f;
            for (int64_t k = whole; k < inner; k++) sum += row[k] * own[k];
            result[i * outputs + o] = sum + bias[o];
        }
    }
}

#endif
