/* Products whose left matrix has many zeros, as the outputs of ReLU and the gradients through it. Factors that are 0 are left out.
 *
 * Numbers are added up in the same order as in other products, so results are the same, if the right matrix is finite. */
#ifndef RLSDK_SPARSE_PRODUCTS_H
#define RLSDK_SPARSE_PRODUCTS_H

#include <unistd.h>

#include "product.h"

#if defined(__AVX512F__)
#define SPARSE_VECTORS 16 /* registers of the result that are added up together */
#define LARGEST_DENSITY 0.6f /* with more factors other than 0, leaving the others out takes longer */
#else
#define SPARSE_VECTORS 12
#define LARGEST_DENSITY 0.7f
#endif
#define SPARSE_LEAST 6 /* with fewer registers, the processor waits for sums */
#define FACTORS 64 /* at most so many rows of the right matrix are used together */
#define PANEL 8192 /* at most so many of its numbers, which stay in the first cache */
#define SPARSE_ROWS 256 /* rows of the result that one thread computes together, which stay in the second cache */
#define SAMPLES 8

/* The numbers of a panel, seven tenths of the first cache: FACTORS rows of eleven registers in 32 KiB. */
static int64_t panel_size(void) {
    static _Atomic int64_t known;
    int64_t size = known;
    if (size) return size;
#if defined(_SC_LEVEL1_DCACHE_SIZE)
    size = smaller(sysconf(_SC_LEVEL1_DCACHE_SIZE) * 7 / 40, PANEL);
#endif
    return known = size > PANEL / 2 ? size : PANEL / 2;
}

/* Bit k of bits[i], for `rows` rows: whether the factor in row at.row + i and column at.inner + k is not 0. */
static void find_factors(const Product *p, Place at, int64_t rows, int64_t count, uint64_t *bits) {
    const float *left = p->left.start + at.row * p->left.row + at.inner * p->left.column;
    if (p->left.column == 1) {
        for (int64_t i = 0; i < rows; i++, left += p->left.row) {
            bits[i] = 0;
            for (int64_t k = 0; k < count; k += WIDTH)
                bits[i] |= (uint64_t)nonzero(load_first(left + k, smaller(count - k, WIDTH))) << k;
        }
        return;
    }
    for (int64_t i = 0; i < rows; i += WIDTH, left += WIDTH) {
        int64_t now = smaller(rows - i, WIDTH);
        ints low = {0}, high = {0};
        for (int64_t k = 0; k < smaller(count, 32); k++) low |= (load_first(left + k * p->left.column, now) != 0.0f) & (int32_t)(1u << k);
        for (int64_t k = 32; k < count; k++) high |= (load_first(left + k * p->left.column, now) != 0.0f) & (int32_t)(1u << (k - 32));
        for (int64_t lane = 0; lane < now; lane++) bits[i + lane] = (uint32_t)low[lane] | (uint64_t)(uint32_t)high[lane] << 32;
    }
}

/* Add the factors of `bits` to V registers of a row of the result, of which `columns` numbers are in the matrix. If this row is
 * `complete` then, apply the activation or its derivative. */
INLINE void add_factors(const int V, const Product *p, Place at, uint64_t bits, const float *panel, int64_t columns, int complete) {
    const float *left = p->left.start + at.row * p->left.row + at.inner * p->left.column;
    int64_t left_column = p->left.column, last = columns - (V - 1) * WIDTH, place = at.row * p->columns + at.column;
    float *result = p->result + place;
    floats sums[SPARSE_VECTORS];
    start_row(V, at.inner ? result : p->bias ? p->bias + at.column : 0, last, sums);
    int64_t k = bits ? __builtin_ctzll(bits) : 0;
    for (float next = left[k * left_column]; bits;) {
        floats factor = all(next);
        const float *row = panel + k * V * WIDTH;
        bits &= bits - 1;
        k = bits ? __builtin_ctzll(bits) : k;
        next = left[k * left_column]; /* before the sums, because it may have to come from the second cache */
        for (int v = 0; v < V; v++) sums[v] = fused(factor, load(row + v * WIDTH), sums[v]);
    }
    if (complete) complete_row(V, p, at, last, sums);
    store_row(V, result, last, sums);
    if (complete && p->activation == TANH) finish(p, at, 1, columns);
}

/* Add `count` factors, of which `bits` [rows] has those that are not 0, to `rows` of the result. */
#define SPARSE_ROWS_OF(V)                                                                                              \
    static void sparse_rows_##V(const Product *p, Place at, int64_t rows, int64_t columns, int64_t count, const uint64_t *bits) { \
        float panel[PANEL] __attribute__((aligned(64)));                                                               \
        int64_t right_row = padded(p->columns);                                                                        \
        const float *right = p->right + at.inner * right_row + at.column;                                              \
        for (int64_t k = 0; k < count; k++)                                                                            \
            for (int v = 0; v < V; v++) store(panel + (k * V + v) * WIDTH, load(right + k * right_row + v * WIDTH));   \
        int complete = at.inner + count == p->inner;                                                                   \
        for (int64_t i = 0; i < rows; i++, at.row++) add_factors(V, p, at, bits[i], panel, columns, complete);         \
    }

SPARSE_ROWS_OF(6)
SPARSE_ROWS_OF(7)
SPARSE_ROWS_OF(8)
SPARSE_ROWS_OF(9)
SPARSE_ROWS_OF(10)
SPARSE_ROWS_OF(11)
SPARSE_ROWS_OF(12)
#if SPARSE_VECTORS > 12
SPARSE_ROWS_OF(13)
SPARSE_ROWS_OF(14)
SPARSE_ROWS_OF(15)
SPARSE_ROWS_OF(16)
#endif

/* Add factors to `rows` of the result from at.row on, in the `columns` from at.column on. */
static void add_sparse(const Product *p, Place at, int64_t rows, int64_t columns, int64_t count, const uint64_t *bits) {
    switch (padded(columns) / WIDTH) {
        case 6: sparse_rows_6(p, at, rows, columns, count, bits); break;
        case 7: sparse_rows_7(p, at, rows, columns, count, bits); break;
        case 8: sparse_rows_8(p, at, rows, columns, count, bits); break;
        case 9: sparse_rows_9(p, at, rows, columns, count, bits); break;
        case 10: sparse_rows_10(p, at, rows, columns, count, bits); break;
        case 11: sparse_rows_11(p, at, rows, columns, count, bits); break;
        case 12: sparse_rows_12(p, at, rows, columns, count, bits); break;
#if SPARSE_VECTORS > 12
        case 13: sparse_rows_13(p, at, rows, columns, count, bits); break;
        case 14: sparse_rows_14(p, at, rows, columns, count, bits); break;
        case 15: sparse_rows_15(p, at, rows, columns, count, bits); break;
        case 16: sparse_rows_16(p, at, rows, columns, count, bits); break;
#endif
    }
}

/* Compute `rows` of the result from row `first` on. */
static void compute_sparse_rows(const Product *p, int64_t first, int64_t rows) {
    int64_t registers = padded(p->columns) / WIDTH, groups = (registers + SPARSE_VECTORS - 1) / SPARSE_VECTORS;
    int64_t widest = (registers + groups - 1) / groups, most = smaller(FACTORS, panel_size() / (widest * WIDTH));
    uint64_t bits[SPARSE_ROWS];
    for (int64_t end = first + rows; first < end; first += SPARSE_ROWS) {
        Place at = {first, 0, 0};
        int64_t now = smaller(end - first, SPARSE_ROWS);
        for (; at.inner < p->inner; at.inner += most) {
            int64_t count = smaller(most, p->inner - at.inner);
            find_factors(p, (Place){first, 0, at.inner}, now, count, bits);
            for (int64_t group = 0; group < groups; group++) { /* groups of columns whose sizes differ by one register at most */
                int64_t next = (group + 1) * registers / groups * WIDTH;
                at.column = group * registers / groups * WIDTH;
                add_sparse(p, at, now, smaller(next, p->columns) - at.column, count, bits);
            }
        }
    }
}

/* Whether leaving out zeros is faster, judged from samples of the left matrix. */
static int is_sparse(const Product *p) {
    if (p->columns <= (SPARSE_LEAST - 1) * WIDTH || p->rows < SPARSE_ROWS / 4 || p->inner < FACTORS / 2) return 0;
    uint64_t bits[WIDTH];
    int64_t found = 0, seen = 0, count = FACTORS / 2;
    for (int64_t i = 0; i < SAMPLES; i++) {
        Place at = {i * p->rows / SAMPLES, 0, i * (p->inner / count) / SAMPLES * count};
        int64_t rows = smaller(p->rows - at.row, WIDTH);
        find_factors(p, at, rows, count, bits);
        for (int64_t row = 0; row < rows; row++) found += __builtin_popcountll(bits[row]);
        seen += rows * count;
    }
    return found < LARGEST_DENSITY * seen;
}

#endif
