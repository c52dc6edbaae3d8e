#include "tokens.h"

#include <string.h>

static const unsigned char *find(struct tokenizer *t, const unsigned char *from, int byte) {
    const unsigned char *hit = from < t->end ? memchr(from, byte, (size_t)(t->end - from)) : NULL;
    if (hit == NULL) hit = t->end;
    t->steps += (uint64_t)(hit - from) + 1;
    return hit;
}

static struct span between(const unsigned char *from, const unsigned char *to) {
    return (struct span){from, (size_t)(to - from)};
}

/* What ends the name of a tag (1), and of an attribute (1 or 2). */
static const unsigned char ENDS[256] = {
    ['\t'] = 1, ['\n'] = 1, ['\f'] = 1, ['\r'] = 1, [' '] = 1, ['/'] = 1, ['>'] = 1, ['='] = 2,
};

static bool ends_name(unsigned char c) { return ENDS[c] == 1; }

/* Whether `name` (lower case) is at `at`, and then a byte that ends the name of a tag. */
static bool named(const struct tokenizer *t, const unsigned char *at, struct span name) {
    if ((size_t)(t->end - at) <= name.length) return false;
    for (size_t i = 0; i < name.length; i++)
        if (lower(at[i]) != name.at[i]) return false;
    return ends_name(at[name.length]);
}

static enum token read_until(struct tokenizer *t, const unsigned char *from, struct span *data, enum token kind) {
    const unsigned char *end = find(t, from, '>');
    *data = between(from, end);
    t->at = end < t->end ? end + 1 : end;
    return kind;
}

/* `from`: behind `<!--`. Its states keep no more than the dashes they saw. */
static enum token read_comment(struct tokenizer *t, const unsigned char *from, struct span *data) {
    const unsigned char *at = from, *end = t->end, *stop = end;
    if (at < end && *at == '>') goto closed;
    if (end - at > 1 && at[0] == '-' && at[1] == '>') {
        at++;
        *data = between(from, from);
        t->at = at + 1;
        return TOKEN_COMMENT;
    }
    for (;;) {
        at = find(t, at, '-');
        if (at == end) goto open;
        if (at + 1 == end) {
            stop = at;
            goto open;
        }
        at++;
        if (*at != '-') continue;
        while (at < end && *at == '-') at++, t->steps++;
        stop = at - 2;
        if (at == end || (*at == '!' && at + 1 == end)) goto open;
        if (*at == '!' && at[1] == '>') at++;
        if (*at == '>') {
            *data = between(from, stop);
            t->at = at + 1;
            return TOKEN_COMMENT;
        }
        stop = end;
    }
closed:
    *data = between(from, from);
    t->at = at + 1;
    return TOKEN_COMMENT;
open:
    *data = between(from, stop);
    t->at = end;
    return TOKEN_COMMENT;
}

static enum token read_cdata(struct tokenizer *t, struct span *data) {
    const unsigned char *from = t->at, *at = from;
    t->content = CONTENT_DATA;
    for (;;) {
        at = find(t, at, ']');
        if (t->end - at < 3) {
            at = t->at = t->end;
            break;
        }
        if (at[1] == ']' && at[2] == '>') {
            t->at = at + 3;
            break;
        }
        at++;
    }
    *data = between(from, at);
    return TOKEN_CDATA;
}

/* `from`: behind `<!`. */
static enum token read_declaration(struct tokenizer *t, const unsigned char *from, struct span *data) {
    size_t left = (size_t)(t->end - from);
    if (left >= 2 && from[0] == '-' && from[1] == '-') return read_comment(t, from + 2, data);
    struct span first = {from, 7};
    if (left >= 7 && span_is(first, "doctype"))
        return read_until(t, from + 7, data, TOKEN_DOCTYPE);  /* `>` ends it in every state, within quotes too */
    if (t->cdata && left >= 7 && memcmp(from, "[CDATA[", 7) == 0) {
        t->at = from + 7;
        return read_cdata(t, data);
    }
    return read_until(t, from, data, TOKEN_COMMENT);
}

static enum token read_name(struct tokenizer *t, const unsigned char *from, struct span *data, enum token kind) {
    const unsigned char *at = from;
    while (at < t->end && !ends_name(*at)) at++;
    t->steps += (uint64_t)(at - from);
    *data = between(from, at);
    t->at = at;
    return kind;
}

/* `t->at`: a `<` that begins markup. */
static enum token read_markup(struct tokenizer *t, struct span *data) {
    const unsigned char *at = t->at + 1;
    if (is_letter(*at)) return read_name(t, at, data, TOKEN_START);
    if (*at == '!') return read_declaration(t, at + 1, data);
    if (*at == '?') return read_until(t, at, data, TOKEN_COMMENT);
    at++;
    if (is_letter(*at)) return read_name(t, at, data, TOKEN_END);
    if (*at == '>') {
        t->at = at + 1;
        return TOKEN_NOTHING;
    }
    return read_until(t, at, data, TOKEN_COMMENT);
}

static enum token next_in_data(struct tokenizer *t, struct span *data) {
    const unsigned char *from = t->at, *at = from;
    for (;; at++) {
        at = find(t, at, '<');
        size_t left = (size_t)(t->end - at);
        if (left < 2) {
            at = t->end;
            break;
        }
        if (is_letter(at[1]) || at[1] == '!' || at[1] == '?' || (at[1] == '/' && left > 2)) break;
    }
    if (at == from) return read_markup(t, data);
    *data = between(from, at);
    t->at = at;
    return TOKEN_TEXT;
}

static bool is_end_tag(const struct tokenizer *t, const unsigned char *at) {
    return t->raw_name.length && t->end - at > 2 && at[1] == '/' && named(t, at + 2, t->raw_name);
}

static const unsigned char *raw_end(struct tokenizer *t) {
    const unsigned char *at = find(t, t->at, '<');
    while (at < t->end && !is_end_tag(t, at)) at = find(t, at + 1, '<');
    return at;
}

/* The end tag of a script. Within `<!--` and `-->` a further `<script` hides one end tag. */
static const unsigned char *script_end(struct tokenizer *t) {
    static const struct span script = {(const unsigned char *)"script", 6};
    enum { PLAIN, ESCAPED, DOUBLE_ESCAPED } state = PLAIN;
    size_t dashes = 0;
    const unsigned char *at = t->at, *end = t->end;
    for (;; at++) {
        if (state == PLAIN) at = find(t, at, '<');
        if (at >= end) return end;
        t->steps++;
        if (*at == '-') {
            dashes++;
            continue;
        }
        if (*at == '>' && dashes >= 2) state = PLAIN;
        dashes = 0;
        if (*at != '<') continue;
        if (state != DOUBLE_ESCAPED && is_end_tag(t, at)) return at;
        if (state == PLAIN) {
            if (end - at > 3 && memcmp(at, "<!--", 4) == 0) {
                state = ESCAPED;
                dashes = 2;
                at += 3;
            }
        } else if (state == ESCAPED) {
            if (named(t, at + 1, script)) state = DOUBLE_ESCAPED;
        } else if (end - at > 2 && at[1] == '/' && named(t, at + 2, script)) {
            state = ESCAPED;
        }
    }
}

static enum token next_in_raw(struct tokenizer *t, struct span *data) {
    const unsigned char *from = t->at, *at = t->content == CONTENT_SCRIPT ? script_end(t) : raw_end(t);
    enum token kind = t->content == CONTENT_RCDATA ? TOKEN_RCDATA : TOKEN_RAW;
    if (at < t->end && at == from) {
        t->content = CONTENT_DATA;
        return read_name(t, at + 2, data, TOKEN_END);
    }
    *data = between(from, at);
    t->at = at;
    return kind;
}

enum token token_next(struct tokenizer *t, struct span *data) {
    *data = between(t->at, t->at);
    t->steps++;
    if (t->at == t->end) return TOKEN_EOF;
    switch (t->content) {
    case CONTENT_DATA:
        return next_in_data(t, data);
    case CONTENT_CDATA:
        return read_cdata(t, data);
    case CONTENT_PLAINTEXT:
        *data = between(t->at, t->end);
        t->at = t->end;
        return TOKEN_RAW;
    default:
        return next_in_raw(t, data);
    }
}

static const unsigned char *skip_space(const unsigned char *at, const unsigned char *end) {
    while (at < end && is_space(*at)) at++;
    return at;
}

/* The value behind a `=`; NULL at the end of the page. */
static const unsigned char *read_value(const unsigned char *at, const unsigned char *end, struct span *value) {
    at = skip_space(at, end);
    if (at == end) return NULL;
    if (*at == '"' || *at == '\'') {
        const unsigned char *quote = memchr(at + 1, *at, (size_t)(end - at - 1));
        if (quote == NULL) return NULL;
        *value = between(at + 1, quote);
        return quote + 1;
    }
    const unsigned char *from = at;
    while (at < end && !is_space(*at) && *at != '>') at++;
    *value = between(from, at);
    return at;
}

bool token_attributes(struct tokenizer *t, attribute_sink *sink, void *context, bool *self_closing) {
    const unsigned char *from = t->at, *at = from, *end = t->end;
    bool whole = false;
    *self_closing = false;
    while ((at = skip_space(at, end)) < end) {
        if (*at == '>' || (*at == '/' && end - at > 1 && at[1] == '>')) {
            *self_closing = *at == '/';
            at += *self_closing ? 2 : 1;
            whole = true;
            break;
        }
        if (*at == '/') {
            at++;
            continue;
        }
        struct span name = {at++, 1}, value;
        while (at < end && !ENDS[*at]) at++;
        name.length = (size_t)(at - name.at);
        value = between(at, at);
        at = skip_space(at, end);
        if (at < end && *at == '=' && (at = read_value(at + 1, end, &value)) == NULL) break;
        if (sink != NULL) sink(context, name, value);
    }
    t->at = whole ? at : end;
    t->steps += (uint64_t)(t->at - from) + 1;
    return whole;
}
