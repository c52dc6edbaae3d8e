/* What ranks of graphs are made of: sums over the neighbours of each node. */
#include <stddef.h>
#include <stdint.h>

enum { AHEAD = 32 }; /* neighbours whose values are fetched while those before them are added up */

/* Row i has the columns from columns[starts[i]] to before columns[starts[i + 1]]; sums[i] becomes the sum of their
   values, in this order, on which a sum of floats depends. `length`: of `columns`. */
void krake_sums(const int64_t *starts, size_t rows, const int32_t *columns, int64_t length, const double *values,
                double *sums) {
    for (size_t row = 0; row < rows; row++) {
        double sum = 0;
        for (int64_t at = starts[row]; at < starts[row + 1]; at++) {
            if (at + AHEAD < length) __builtin_prefetch(&values[columns[at + AHEAD]]);
            sum += values[columns[at]];
        }
        sums[row] = sum;
    }
}

/* Ball i, which is `width` bytes of `balls`, becomes its union with the balls in `before` of those columns of row i that
   `changed` marks: the larger of each two bytes. Returns how many balls were taken in. */
uint64_t krake_unions(const int64_t *starts, size_t rows, const int32_t *columns, const uint8_t *changed, size_t width,
                      const uint8_t *before, uint8_t *balls) {
    uint64_t taken = 0;
    for (size_t row = 0; row < rows; row++) {
        uint8_t *ball = balls + row * width;
        for (int64_t at = starts[row]; at < starts[row + 1]; at++) {
            if (!changed[columns[at]]) continue;
            const uint8_t *other = before + (size_t)columns[at] * width;
            for (size_t byte = 0; byte < width; byte++) ball[byte] = ball[byte] > other[byte] ? ball[byte] : other[byte];
            taken++;
        }
    }
    return taken;
}
