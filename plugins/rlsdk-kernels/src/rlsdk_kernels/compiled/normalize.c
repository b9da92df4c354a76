/* Normalization of observations. */
#include "simd.h"

/* (values - mean) / deviation as float32, clipped to +-`bound`, for values [rows, size] and statistics [size]; NaN stays.
 *
 * The difference is computed in float64, so that large offsets with small deviations do not cancel. */
API void normalize(const float *values, int64_t rows, int64_t size, const double *restrict mean,
                   const double *restrict deviation, float bound, float *restrict into) {
    for (int64_t i = 0; i < rows; i++, values += size, into += size)
        for (int64_t j = 0; j < size; j++) {
            float scaled = (float)(((double)values[j] - mean[j]) / deviation[j]);
            scaled = scaled < -bound ? -bound : scaled;
            into[j] = scaled > bound ? bound : scaled;
        }
}
