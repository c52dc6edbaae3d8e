#include "text.h"

#include <stdlib.h>
#include <string.h>

#include "references.h"

void buffer_add(struct buffer *b, const void *bytes, size_t length) {
    if (b->failed || length == 0) return;
    if (length > b->capacity - b->length) {
        size_t capacity = b->capacity ? b->capacity : 1024;
        while (capacity - b->length < length) {
            if (capacity > SIZE_MAX / 2) {
                b->failed = true;
                return;
            }
            capacity *= 2;
        }
        char *grown = realloc(b->bytes, capacity);
        if (grown == NULL) {
            b->failed = true;
            return;
        }
        b->bytes = grown;
        b->capacity = capacity;
    }
    memcpy(b->bytes + b->length, bytes, length);
    b->length += length;
}

void buffer_free(struct buffer *b) {
    free(b->bytes);
    *b = (struct buffer){0};
}

void buffer_sink(void *buffer, const unsigned char *bytes, size_t length) { buffer_add(buffer, bytes, length); }

/* The length of the white space that `at` begins with, 0 if it does not: what `str.isspace` of Python says. */
static size_t space_at(const unsigned char *at, const unsigned char *end) {
    unsigned char c = *at;
    if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f);
    if (c == 0xC2) return end - at > 1 && (at[1] == 0x85 || at[1] == 0xA0) ? 2 : 0;
    if ((c != 0xE1 && c != 0xE2 && c != 0xE3) || end - at < 3) return 0;
    unsigned code = (unsigned)at[0] << 16 | (unsigned)at[1] << 8 | at[2];
    bool is = code == 0xE19A80 || (code >= 0xE28080 && code <= 0xE2808A) || code == 0xE280A8 || code == 0xE280A9 ||
              code == 0xE280AF || code == 0xE2819F || code == 0xE38080;
    return is ? 3 : 0;
}

struct span span_trim(struct span s) {
    const unsigned char *at = s.at, *end = s.at + s.length;
    size_t width;
    while (at < end && (width = space_at(at, end)) > 0) at += width;
    while (at < end) {
        size_t left = (size_t)(end - at);
        if (end[-1] < 0x80) width = 1;
        else if (left >= 2 && end[-2] == 0xC2) width = 2;
        else width = 3;
        if (left < width || space_at(end - width, end) != width) break;
        end -= width;
    }
    return (struct span){at, (size_t)(end - at)};
}

void words_begin(struct words *w, struct buffer *out, size_t max_chars) {
    *w = (struct words){out, max_chars, max_chars <= SIZE_MAX / UTF8_BYTES ? max_chars * UTF8_BYTES : SIZE_MAX, false, false};
}

void words_add(void *words, const unsigned char *bytes, size_t length) {
    struct words *w = words;
    const unsigned char *at = bytes, *end = bytes + length, *from = at;
    while (at < end && w->left_bytes) {
        size_t width = *at > ' ' && *at < 0x80 ? 0 : space_at(at, end);
        if (width) {
            buffer_add(w->out, from, (size_t)(at - from));
            w->space = w->begun;
            from = at += width;
            continue;
        }
        bool begins = (*at & 0xC0) != 0x80;
        if (w->space && w->left) {
            buffer_add(w->out, " ", 1);
            w->space = false;
            w->left--;
            w->left_bytes--;
        }
        if ((begins && w->left == 0) || w->left_bytes == 0) {
            w->left_bytes = 0;
            break;
        }
        w->left -= begins;
        w->left_bytes--;
        w->begun = true;
        at++;
    }
    buffer_add(w->out, from, (size_t)(at - from));
}

size_t put_utf8(unsigned char *out, unsigned code) {
    if (code < 0x80) {
        out[0] = (unsigned char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (unsigned char)(0xC0 | code >> 6);
        out[1] = (unsigned char)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (unsigned char)(0xE0 | code >> 12);
        out[1] = (unsigned char)(0x80 | (code >> 6 & 0x3F));
        out[2] = (unsigned char)(0x80 | (code & 0x3F));
        return 3;
    }
    out[0] = (unsigned char)(0xF0 | code >> 18);
    out[1] = (unsigned char)(0x80 | (code >> 12 & 0x3F));
    out[2] = (unsigned char)(0x80 | (code >> 6 & 0x3F));
    out[3] = (unsigned char)(0x80 | (code & 0x3F));
    return 4;
}

int digit_of(unsigned char c, unsigned base) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return base == 16 && c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* What a number means: https://html.spec.whatwg.org/#numeric-character-reference-end-state */
static unsigned meant(unsigned code) {
    static const unsigned short windows[32] = {
        0x20AC, 0x81, 0x201A, 0x192, 0x201E, 0x2026, 0x2020, 0x2021, 0x2C6, 0x2030, 0x160, 0x2039, 0x152, 0x8D, 0x17D, 0x8F,
        0x90, 0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014, 0x2DC, 0x2122, 0x161, 0x203A, 0x153, 0x9D, 0x17E, 0x178,
    };
    if (code == 0 || code > MAX_CODE || (code >= 0xD800 && code <= 0xDFFF)) return REPLACEMENT;
    return code >= 0x80 && code < 0xA0 ? windows[code - 0x80] : code;
}

/* `at`: behind `&#`. The end of the reference, `at` itself if it is none. */
static const unsigned char *numeric(const unsigned char *at, const unsigned char *end, text_sink *sink, void *context) {
    const unsigned char *digits = at;
    unsigned base = 10, code = 0;
    if (digits < end && (*digits | 0x20) == 'x') {
        base = 16;
        digits++;
    }
    const unsigned char *from = digits;
    int digit;
    for (; digits < end && (digit = digit_of(*digits, base)) >= 0; digits++)
        if (code <= MAX_CODE) code = code * base + (unsigned)digit;
    if (digits == from) return at;
    unsigned char utf8[UTF8_BYTES];
    sink(context, utf8, put_utf8(utf8, meant(code)));
    return digits < end && *digits == ';' ? digits + 1 : digits;
}

/* The longest name of the table that `at` begins with: its index, -1 if none; `length`: its bytes. */
static int longest_name(const unsigned char *at, const unsigned char *end, size_t *length) {
    if (at == end || !is_letter(*at)) return -1;
    size_t low = REFERENCES_FROM[*at - 'A'], high = REFERENCES_FROM[*at - 'A' + 1];
    int found = -1;
    for (size_t depth = 1; low < high; depth++) {
        /* All names from `low` to `high` begin with the `depth` bytes at `at`; a name that ends there is the first. */
        if (REFERENCES[low].name[depth] == '\0') {
            found = (int)low;
            *length = depth;
        }
        if (at + depth == end) break;
        unsigned char c = at[depth];
        size_t from = low, to = high;
        while (from < to) {
            size_t middle = (from + to) / 2;
            if ((unsigned char)REFERENCES[middle].name[depth] < c) from = middle + 1;
            else to = middle;
        }
        low = from;
        to = high;
        while (from < to) {
            size_t middle = (from + to) / 2;
            if ((unsigned char)REFERENCES[middle].name[depth] <= c) from = middle + 1;
            else to = middle;
        }
        high = c == '\0' ? low : from;
    }
    return found;
}

/* `at`: behind `&`. The end of the reference, `at` itself if it is none. */
static const unsigned char *reference(const unsigned char *at, const unsigned char *end, int how, text_sink *sink, void *context) {
    if (at < end && *at == '#') {
        const unsigned char *past = numeric(at + 1, end, sink, context);
        return past == at + 1 ? at : past;
    }
    size_t length = 0;
    int index = longest_name(at, end, &length);
    if (index < 0) return at;
    const unsigned char *past = at + length;
    if ((how & IN_ATTRIBUTE) && past[-1] != ';' && past < end &&
        (*past == '=' || is_letter(*past) || (*past >= '0' && *past <= '9')))
        return at;
    const char *text = REFERENCES[index].text;
    sink(context, (const unsigned char *)text, strlen(text));
    return past;
}

void text_decode(struct span raw, int how, text_sink *sink, void *context) {
    const unsigned char *at = raw.at, *end = raw.at + raw.length, *from = at;
    while (at < end) {
        unsigned char c = *at;
        if (c > '&' || (c != '\0' && c != '\r' && (c != '&' || !(how & REFERENCES_COUNT))) || (c == '\0' && (how & KEEP_NUL))) {
            at++;
            continue;
        }
        const unsigned char *special = at++;
        if (special > from && c != '&') sink(context, from, (size_t)(special - from));
        if (c == '\r') {
            sink(context, (const unsigned char *)"\n", 1);
            if (at < end && *at == '\n') at++;
        } else if (c == '\0') {
            if (!(how & DROP_NUL)) sink(context, (const unsigned char *)"\xEF\xBF\xBD", 3);
        } else {
            /* The text before a reference is given first: whether it is one shows only when it was given too. */
            if (special > from) sink(context, from, (size_t)(special - from));
            const unsigned char *past = reference(at, end, how, sink, context);
            if (past == at) {
                from = special;
                continue;
            }
            at = past;
        }
        from = at;
    }
    if (end > from) sink(context, from, (size_t)(end - from));
}
