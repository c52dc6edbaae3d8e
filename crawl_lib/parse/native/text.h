/* Text of a page: its character references, its white space, and where it is kept. */
#ifndef KRAKE_TEXT_H
#define KRAKE_TEXT_H

#include "tokens.h"

/* Bytes that grow by doubling. `failed`: memory ran out; whatever is added then is lost. */
struct buffer {
    char *bytes;
    size_t length, capacity;
    bool failed;
};

void buffer_add(struct buffer *b, const void *bytes, size_t length);
void buffer_free(struct buffer *b);

typedef void text_sink(void *context, const unsigned char *bytes, size_t length);

enum { REFERENCES_COUNT = 1, IN_ATTRIBUTE = 2, KEEP_NUL = 4, DROP_NUL = 8 };

/* Gives the text of `raw` to `sink` in pieces: references by their characters, carriage returns as newlines, NUL as
   U+FFFD unless told otherwise. Bytes that are no UTF-8 are given as they are. */
void text_decode(struct span raw, int how, text_sink *sink, void *context);

/* A sink that writes words with one space between them, at most `left` characters of them. */
struct words {
    struct buffer *out;
    size_t left, left_bytes;
    bool begun, space;
};

void words_begin(struct words *w, struct buffer *out, size_t max_chars);
void words_add(void *words, const unsigned char *bytes, size_t length);

enum { MAX_CODE = 0x10FFFF, REPLACEMENT = 0xFFFD, UTF8_BYTES = 4 };

/* Writes a character in UTF-8, at most UTF8_BYTES; returns their number. */
size_t put_utf8(unsigned char *out, unsigned code);

/* The value of a digit of base 10 or 16, -1 if the byte is none. */
int digit_of(unsigned char c, unsigned base);

/* A sink that appends to a buffer. */
void buffer_sink(void *buffer, const unsigned char *bytes, size_t length);

/* `s` without white space around it: that of Unicode, as Python's `str.strip` sees it. */
struct span span_trim(struct span s);

#endif
