/* The different words of a page, as bits of a fixed size: the order of words and how often each occurs do not count. */
#ifndef KRAKE_SKETCH_H
#define KRAKE_SKETCH_H

#include "tokens.h"

enum { SEEN_NUMBERS = 1 << 10, WORDS_TOLD = 512 };

/* Each word sets three bits (a Bloom filter). After `WORDS_TOLD` words each piece of text between two tags counts as it
   is, byte for byte and as often as it occurs: that is faster, and the pages of traps are short. */
struct words_seen {
    uint64_t bits[SEEN_NUMBERS];
    uint64_t pieces;  /* the sum of their hashes */
    size_t count;
};

/* `end`: of the page, in which the text lies. */
void words_see(struct words_seen *seen, struct span text, const unsigned char *end);

/* 64 bits that are equal where the words are; 0 without words. */
uint64_t words_digest(const struct words_seen *seen);

#endif
