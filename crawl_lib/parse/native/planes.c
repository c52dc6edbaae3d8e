/* On which side of random hyperplanes a weighted set of words lies: sets with a high cosine have many bits in common
   (M. S. Charikar: Similarity estimation techniques from rounding algorithms, 2002). */
#include <stddef.h>
#include <stdint.h>

enum { PLANES = 1200, NIBBLES = PLANES / 4, BITS_OF_HASH = 64 };

/* The sign of each bit of a nibble. A multiplication by one of them is exact, so each machine gets the same sums. */
static const float SIGNS[16][4] = {
    {-1, -1, -1, -1}, {1, -1, -1, -1}, {-1, 1, -1, -1}, {1, 1, -1, -1}, {-1, -1, 1, -1}, {1, -1, 1, -1},
    {-1, 1, 1, -1},   {1, 1, 1, -1},   {-1, -1, -1, 1}, {1, -1, -1, 1}, {-1, 1, -1, 1},  {1, 1, -1, 1},
    {-1, -1, 1, 1},   {1, -1, 1, 1},   {-1, 1, 1, 1},   {1, 1, 1, 1},
};

/* The next number of SplitMix64 (G. L. Steele, D. Lea, C. H. Flood, 2014). */
static uint64_t next_number(uint64_t *state) {
    uint64_t number = *state += 0x9e3779b97f4a7c15u;
    number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9u;
    number = (number ^ number >> 27) * 0x94d049bb133111ebu;
    return number ^ number >> 31;
}

/* Adds the weight of a word to the sum of each plane, or takes it away, by the random numbers that begin at the word. */
static void add_word(uint64_t word, float weight, float *sums) {
    for (int nibble = 0; nibble < NIBBLES;) {
        uint64_t signs = next_number(&word);
        for (int bits = 0; bits < BITS_OF_HASH && nibble < NIBBLES; bits += 4, nibble++, signs >>= 4)
            for (int lane = 0; lane < 4; lane++) sums[4 * nibble + lane] += weight * SIGNS[signs & 15][lane];
    }
}

/* Row i has the words from starts[i] to before starts[i + 1]. Its PLANES bits are written as bytes of 0 and 1. */
void krake_planes(const int64_t *starts, size_t rows, const uint64_t *words, const float *weights, uint8_t *bits) {
    for (size_t row = 0; row < rows; row++) {
        float sums[PLANES] = {0};
        for (int64_t at = starts[row]; at < starts[row + 1]; at++) add_word(words[at], weights[at], sums);
        for (int plane = 0; plane < PLANES; plane++) bits[row * PLANES + plane] = sums[plane] > 0;
    }
}
