/* Vectors of floats in the compiler's own notation, which it translates for each processor. */
#ifndef RLSDK_SIMD_H
#define RLSDK_SIMD_H

#include <stdint.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define API __attribute__((visibility("default")))
#define INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)
#define WIDTH 16 /* floats in a register */
#define VECTORS 4 /* a tile has up to ROWS x VECTORS registers */
#elif defined(__AVX2__)
#define WIDTH 8
#define VECTORS 2
#else
#define WIDTH 4
#define VECTORS 2
#endif
#define ROWS 6

typedef float floats __attribute__((vector_size(4 * WIDTH)));
typedef int32_t ints __attribute__((vector_size(4 * WIDTH)));
typedef float unaligned __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));

INLINE floats load(const float *from) { return *(const unaligned *)from; }
INLINE void store(float *to, floats values) { *(unaligned *)to = values; }
INLINE floats all(float value) { return (floats){0} + value; }

/* a b + c, rounded once where the processor can. */
INLINE floats fused(floats a, floats b, floats c) {
#if defined(__AVX512F__)
    return (floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
    return (floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

INLINE floats either(ints condition, floats yes, floats no) {
    return (floats)((condition & (ints)yes) | (~condition & (ints)no));
}

INLINE float sum_of(floats values) {
    float lanes[WIDTH], total = 0.0f;
    store(lanes, values);
    for (int i = 0; i < WIDTH; i++) total += lanes[i];
    return total;
}

/* exp of numbers between -87 and 88: 2^n times a polynomial on [-ln(2)/2, ln(2)/2]. */
INLINE floats exp_of(floats x) {
    const floats rounding = all(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
    floats n = x * 1.44269504f + rounding - rounding;
    floats r = fused(n, all(2.12194440e-4f), x - n * 0.693359375f); /* ln(2) in two parts */
    floats p = fused(all(1.0f / 720.0f), r, all(1.0f / 120.0f));
    p = fused(p, r, all(1.0f / 24.0f));
    p = fused(p, r, all(1.0f / 6.0f));
    p = fused(p, r, all(0.5f));
    p = fused(p, r, all(1.0f));
    p = fused(p, r, all(1.0f));
    return (floats)((ints)p + (__builtin_convertvector(n, ints) << 23));
}

/* tanh: 1 - 2 / (exp(2 |x|) + 1), and its series where this difference would lose digits. */
INLINE floats tanh_of(floats x) {
    floats size = (floats)((ints)x & 0x7fffffff);
    floats bounded = either(size < 10.0f, size, all(10.0f));
    floats far = 1.0f - 2.0f / (exp_of(2.0f * bounded) + 1.0f);
    floats square = x * x;
    floats series = all(-0.005704986862838268f); /* of (tanh(x) / x - 1) / x^2 up to 0.625, fitted to an error of 4e-9 */
    series = fused(series, square, all(0.02063908614218235f));
    series = fused(series, square, all(-0.05373971536755562f));
    series = fused(series, square, all(0.13331441581249237f));
    series = fused(series, square, all(-0.3333328068256378f));
    floats near = fused(size * square, series, size);
    floats found = either(size < 0.625f, near, far);
    found = (floats)((ints)found | ((ints)x & (int32_t)0x80000000));
    return either(x == x, found, x); /* NaN stays NaN */
}

#endif
