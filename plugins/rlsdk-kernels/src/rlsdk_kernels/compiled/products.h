/* Products of small matrices, of which each tile of the result stays in registers. */
#ifndef RLSDK_PRODUCTS_H
#define RLSDK_PRODUCTS_H

#include "sparse_products.h"
#include "threads.h"

/* Numbers are added up in blocks, whose factors stay in the caches. The sums between two blocks are stored in the result. */
#define INNER_BLOCK 256
#define ROW_BLOCK (16 * ROWS)

/* Add a block to R rows and V registers of the result, of which `columns` numbers are in the matrix. If they are `complete` then,
 * apply the activation or its derivative. */
INLINE void tile(const int R, const int V, const Product *p, Place at, int64_t columns, int complete) {
    const float *left = p->left.start + at.row * p->left.row, *right = p->right + at.column;
    float *result = p->result + at.row * p->columns + at.column;
    int64_t end = smaller(at.inner + INNER_BLOCK, p->inner), left_row = p->left.row, row_size = p->columns;
    int64_t right_row = padded(row_size), last = columns - (V - 1) * WIDTH; /* numbers in the last register */
    floats sums[ROWS][VECTORS];
    UNROLLED for (int r = 0; r < R; r++) {
        const float *before = at.inner ? result + r * row_size : p->bias ? p->bias + at.column : 0;
        start_row(V, before, last, sums[r]);
    }
    for (int64_t k = at.inner; k < end; k++) {
        const float *factors = left + k * p->left.column;
        floats row[VECTORS];
        UNROLLED for (int v = 0; v < V; v++) row[v] = load(right + k * right_row + v * WIDTH);
        UNROLLED for (int r = 0; r < R; r++) {
            floats factor = all(factors[r * left_row]);
            UNROLLED for (int v = 0; v < V; v++) sums[r][v] = fused(factor, row[v], sums[r][v]);
        }
    }
    UNROLLED for (int r = 0; r < R; r++) {
        if (complete) complete_row(V, p, (Place){at.row + r, at.column, 0}, last, sums[r]);
        store_row(V, result + r * row_size, last, sums[r]);
    }
    if (complete && p->activation == TANH) finish(p, at, R, columns);
}

#define TILES_OF(V)                                                                           \
    static void tiles_##V(const Product *p, Place at, int64_t rows, int64_t columns) {        \
        int whole = at.inner + INNER_BLOCK >= p->inner;                                       \
        for (; rows >= ROWS; rows -= ROWS, at.row += ROWS) tile(ROWS, V, p, at, columns, whole); \
        switch (rows) {                                                                       \
            case 5: tile(5, V, p, at, columns, whole); break;                                 \
            case 4: tile(4, V, p, at, columns, whole); break;                                 \
            case 3: tile(3, V, p, at, columns, whole); break;                                 \
            case 2: tile(2, V, p, at, columns, whole); break;                                 \
            case 1: tile(1, V, p, at, columns, whole); break;                                 \
        }                                                                                     \
    }

TILES_OF(1)
TILES_OF(2)
#if VECTORS > 2
TILES_OF(3)
TILES_OF(4)
#endif

#define SHARED_ROWS (2 * ROWS) /* the rows of a product that one thread computes together */
#define LARGE 1000000 /* multiplications from which on threads share a product: it takes twenty times as long as sharing it */

/* Add a block to `rows` of the result, all columns. */
static void compute_block(const Product *p, Place at, int64_t rows) {
    for (; at.column < p->columns; at.column += VECTORS * WIDTH) {
        int64_t columns = smaller(p->columns - at.column, VECTORS * WIDTH);
        switch (padded(columns) / WIDTH) {
            case 1: tiles_1(p, at, rows, columns); break;
            case 2: tiles_2(p, at, rows, columns); break;
#if VECTORS > 2
            case 3: tiles_3(p, at, rows, columns); break;
            case 4: tiles_4(p, at, rows, columns); break;
#endif
        }
    }
}

static void compute_rows(const Product *p, int64_t first, int64_t rows) {
    int64_t inner = 0;
    do {
        for (int64_t i = 0; i < rows; i += ROW_BLOCK)
            compute_block(p, (Place){first + i, 0, inner}, smaller(rows - i, ROW_BLOCK));
        inner += INNER_BLOCK;
    } while (inner < p->inner);
}

/* A product and the number of rows in each of its parts. */
typedef struct {
    const Product *product;
    int64_t rows;
    void (*compute)(const Product *p, int64_t first, int64_t rows);
} Parts;

static void compute_part(const void *context, int64_t part) {
    const Parts *parts = context;
    int64_t first = part * parts->rows;
    parts->compute(parts->product, first, smaller(parts->product->rows - first, parts->rows));
}

/* Compute a product. Each number is the same for any number of threads, because one thread adds it up, in one order. */
static void multiply(const Product *p) {
    int sparse = is_sparse(p);
    int64_t threads = threads_in_use(), share = (p->rows + threads - 1) / threads;
    Parts parts = {p, sparse ? smaller(share, SPARSE_ROWS) : SHARED_ROWS, sparse ? compute_sparse_rows : compute_rows};
    if (threads > 1 && p->rows * p->inner * p->columns >= LARGE) in_parallel(compute_part, &parts, (p->rows + parts.rows - 1) / parts.rows);
    else parts.compute(p, 0, p->rows);
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
    for (int64_t line = 0; line < whole; line += 16) /* the columns of one cache line together */
        for (int64_t i = 0; i < blocks; i += 4)
            for (int64_t j = line; j < smaller(line + 16, whole); j += 4)
                transpose_block(matrix + i * columns + j, columns, copy + j * width + i, width);
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
