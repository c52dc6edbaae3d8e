/* The tokens of HTML, as the HTML Standard's tokenizer makes them (https://html.spec.whatwg.org/#tokenization).

   Nothing is copied and nothing allocated: tokens are spans of the page. Each byte is looked at a bounded number of
   times, whatever it is. */
#ifndef KRAKE_TOKENS_H
#define KRAKE_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct span {
    const unsigned char *at;
    size_t length;
};

enum token {
    TOKEN_EOF,
    TOKEN_NOTHING,  /* markup that says nothing: `</>` */
    TOKEN_TEXT,     /* character references count */
    TOKEN_RCDATA,   /* text of title and textarea: character references count */
    TOKEN_RAW,      /* text of script, style...: no references */
    TOKEN_CDATA,    /* text of a CDATA section: no references */
    TOKEN_START,    /* the name of a start tag; `token_attributes` must be called next */
    TOKEN_END,      /* the name of an end tag; `token_attributes` must be called next */
    TOKEN_COMMENT,
    TOKEN_DOCTYPE,
};

/* How the text that follows is read: the tokenizer's states between tags. */
enum content { CONTENT_DATA, CONTENT_RCDATA, CONTENT_RAWTEXT, CONTENT_SCRIPT, CONTENT_PLAINTEXT, CONTENT_CDATA };

struct tokenizer {
    const unsigned char *at, *end;
    enum content content;
    struct span raw_name;  /* lower case: the element whose end tag ends RCDATA, RAWTEXT and script */
    bool cdata;            /* the adjusted current node is not of HTML: `<![CDATA[` opens a section */
    uint64_t steps;        /* bytes looked at, each as often as it was */
};

typedef void attribute_sink(void *context, struct span name, struct span value);

/* The next token; `data`: its text, name, or comment. */
enum token token_next(struct tokenizer *t, struct span *data);

/* Reads the rest of a tag. False at the end of the page: then the tag counts as not there. `sink` may be NULL. */
bool token_attributes(struct tokenizer *t, attribute_sink *sink, void *context, bool *self_closing);

static inline bool is_space(unsigned char c) { return c <= ' ' && (c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\f'); }

static inline bool is_letter(unsigned char c) { return (unsigned char)((c | 0x20) - 'a') < 26; }

static inline unsigned char lower(unsigned char c) { return (unsigned char)(c - 'A') < 26 ? c | 0x20 : c; }

/* Whether `s` is `name` (lower case, `length` bytes) in any case of ASCII. */
static inline bool span_equals(struct span s, const char *name, size_t length) {
    if (s.length != length) return false;
    for (size_t i = 0; i < length; i++)
        if (lower(s.at[i]) != (unsigned char)name[i]) return false;
    return true;
}

#define span_is(s, name) span_equals(s, name, sizeof(name) - 1)

#endif
