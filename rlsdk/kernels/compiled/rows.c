/* Copies rows between the columns of a replay buffer and batches. */
#include <string.h>

#include "simd.h"

/* One column: where rows are read, where they are written, and bytes. */
typedef struct {
    const char *source;
    char *target;
    int64_t bytes;
} Copy;

/* Copy `bytes` of each column. */
API void copy_columns(const Copy *columns, int64_t count) {
    for (int64_t c = 0; c < count; c++) memcpy(columns[c].target, columns[c].source, (size_t)columns[c].bytes);
}

/* Copy the rows of `bytes` each at the positions `index` [rows]. Returns 1 if a position is not below `limit`. */
API int take_rows(const Copy *columns, int64_t count, const int64_t *index, int64_t rows, int64_t limit) {
    for (int64_t i = 0; i < rows; i++)
        if (index[i] < 0 || index[i] >= limit) return 1;
    for (int64_t c = 0; c < count; c++) {
        const char *source = columns[c].source;
        char *target = columns[c].target;
        int64_t bytes = columns[c].bytes;
        if (bytes == 4) /* a copy of a constant size is a single instruction */
            for (int64_t i = 0; i < rows; i++) memcpy(target + 4 * i, source + 4 * index[i], 4);
        else
            for (int64_t i = 0; i < rows; i++) memcpy(target + bytes * i, source + bytes * index[i], (size_t)bytes);
    }
    return 0;
}
