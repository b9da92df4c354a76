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
/* Before a loop whose length is known: its registers are not stored between two passes. */
#if defined(__clang__)
#define UNROLLED _Pragma("clang loop unroll(full)")
#else
#define UNROLLED _Pragma("GCC unroll 16")
#endif

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

INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

typedef float floats __attribute__((vector_size(4 * WIDTH)));
typedef int32_t ints __attribute__((vector_size(4 * WIDTH)));
typedef float unaligned __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));

INLINE floats load(const float *from) { return *(const unaligned *)from; }
INLINE void store(float *to, floats values) { *(unaligned *)to = values; }
#if defined(__AVX2__) && !defined(__AVX512F__)
INLINE __m256i first_lanes(int64_t count) { return (__m256i)((ints){0, 1, 2, 3, 4, 5, 6, 7} < (int32_t)count); }
#endif

/* The first `count` floats, 1 to WIDTH; the others are not read, and 0. */
INLINE floats load_first(const float *from, int64_t count) {
#if defined(__AVX512F__)
    return (floats)_mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), from);
#elif defined(__AVX2__)
    return (floats)_mm256_maskload_ps(from, first_lanes(count));
#else
    if (count == WIDTH) return load(from);
    float copy[WIDTH] = {0};
    memcpy(copy, from, 4 * count);
    return load(copy);
#endif
}

INLINE void store_first(float *to, floats values, int64_t count) {
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << count) - 1), (__m512)values);
#elif defined(__AVX2__)
    if (count == WIDTH) store(to, values); /* a masked store takes longer */
    else _mm256_maskstore_ps(to, first_lanes(count), (__m256)values);
#else
    if (count == WIDTH) {
        store(to, values);
        return;
    }
    float copy[WIDTH];
    store(copy, values);
    memcpy(to, copy, 4 * count);
#endif
}

/* Subtracting 0 changes no number, not even -0, so compilers leave it out. Adding 0 would take an instruction. */
INLINE floats all(float value) { return value - (floats){0}; }

/* Bit i: whether number i is not 0. */
INLINE uint32_t nonzero(floats values) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask((__m512)values, _mm512_setzero_ps(), _CMP_NEQ_UQ);
#elif defined(__AVX2__)
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps((__m256)values, _mm256_setzero_ps(), _CMP_NEQ_UQ));
#else
    uint32_t bits = 0;
    for (int i = 0; i < WIDTH; i++) bits |= (uint32_t)(values[i] != 0.0f) << i;
    return bits;
#endif
}

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

/* The same for single numbers, as torch's vectors are rounded. */
INLINE float fused_one(float a, float b, float c) {
#if defined(__FMA__)
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

/* 1 / x, for x between 1 and 1000. */
INLINE floats inverse(floats x) {
#if defined(__AVX512F__)
    floats estimate = (floats)_mm512_rcp14_ps((__m512)x); /* 14 bits, and 28 after a step of Newton's method */
    return fused(estimate, fused(-x, estimate, all(1.0f)), estimate);
#else
    return 1.0f / x;
#endif
}

INLINE floats either(ints condition, floats yes, floats no) {
    return (floats)((condition & (ints)yes) | (~condition & (ints)no));
}

INLINE float sum_of(floats values) {
    float lanes[WIDTH];
    store(lanes, values);
    for (int half = WIDTH / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
    return lanes[0];
}

/* x limited to the range from -bound to bound; NaN stays NaN. */
INLINE floats limited_to(floats x, float bound) {
#if defined(__AVX512F__)
    return (floats)_mm512_max_ps((__m512)all(-bound), _mm512_min_ps((__m512)all(bound), (__m512)x));
#elif defined(__AVX2__)
    return (floats)_mm256_max_ps((__m256)all(-bound), _mm256_min_ps((__m256)all(bound), (__m256)x));
#else
    return either(x < -bound, all(-bound), either(x > bound, all(bound), x));
#endif
}

/* tanh: x times a quotient of two polynomials of x^2, fitted between -8 and 8 to a relative error of 7e-9. Rounding adds up to
 * 4e-7. Beyond 8.4 the quotient exceeds 1, so that it is limited to 1, with an error of 1e-7. */
INLINE floats tanh_of(floats x) {
    x = limited_to(x, 9.0f);
    floats square = x * x;
    floats above = fused(square, all(1.5230405e-8f), all(2.1894653e-5f));
    above = fused(above, square, all(3.5715974e-3f));
    above = fused(above, square, all(0.13444498f));
    above = fused(above, square, all(1.0f));
    floats below = fused(square, all(8.522441e-7f), all(3.4112911e-4f));
    below = fused(below, square, all(0.02616444f));
    below = fused(below, square, all(0.46777824f));
    below = fused(below, square, all(1.0f));
    return limited_to(x * above * inverse(below), 1.0f);
}

/* exp, between exp(-87) and exp(88): 2^n exp(r) with |r| < log(2) / 2, from a polynomial that was fitted to 3e-9. */
INLINE floats exp_of(floats x) {
    floats exponent = either(x < -87.0f, all(-87.0f), either(x > 88.0f, all(88.0f), x));
    floats shifted = fused(exponent, all(1.4426950409f), all(12582912.0f)), n = shifted - 12582912.0f; /* 1.5 * 2^23 */
    floats r = fused(n, all(2.1219444e-4f), fused(n, all(-0.693359375f), exponent));
    floats rest = fused(r, all(1.3814465e-3f), all(8.3687806e-3f));
    rest = fused(rest, r, all(4.1668394e-2f));
    rest = fused(rest, r, all(0.16666520f));
    rest = fused(rest, r, all(0.49999993f));
    floats value = fused(r * r, rest, r) + 1.0f;
    ints power = ((ints)shifted - 0x4B400000) << 23;
    return either(x == x, (floats)((ints)value + power), x); /* NaN stays NaN */
}

/* log(1 + x) for x between 0 and 1: 2 artanh(s) with s = x / (2 + x), from a polynomial of s^2 that was fitted to 5e-9. */
INLINE floats log1p_of(floats x) {
    floats s = x / (2.0f + x), square = s * s;
    floats rest = fused(square, all(0.14012574f), all(0.13999506f));
    rest = fused(rest, square, all(0.20010853f));
    rest = fused(rest, square, all(0.33333207f));
    return 2.0f * fused(s * square, rest, s);
}

#endif
