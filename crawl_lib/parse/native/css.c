#include "css.h"

enum { MOST_DIGITS = 6 };

struct css {
    const unsigned char *at, *end;
    struct buffer value;  /* of the name, string or URL that was read last, its escapes undone */
    css_sink *sink;
    void *context;
    enum { RULE_ANY, RULE_IMPORT, RULE_FONT, RULE_WITHOUT_URLS } rule;  /* whose prelude is read */
    size_t braces, font_braces;    /* open ones; those that were with the block of a `@font-face` */
    size_t brackets, set_brackets; /* the same of round ones, and of `image-set(` */
    bool is_cut;
};

static bool is_newline(unsigned char c) { return c == '\n' || c == '\r' || c == '\f'; }
static bool is_digit(unsigned char c) { return c >= '0' && c <= '9'; }
static bool is_hidden(unsigned char c) { return (c && c < '\t') || c == '\v' || (c >= 0xE && c < ' ') || c == 0x7F; }
static bool begins_name(unsigned char c) { return is_letter(c) || c == '_' || c >= 0x80 || c == '\0'; }

static bool at_byte(const struct css *c, size_t ahead, unsigned char byte) {
    return (size_t)(c->end - c->at) > ahead && c->at[ahead] == byte;
}

static bool at_escape(const struct css *c, size_t ahead) {
    return at_byte(c, ahead, '\\') && !((size_t)(c->end - c->at) > ahead + 1 && is_newline(c->at[ahead + 1]));
}

static bool at_name(const struct css *c) {
    size_t ahead = at_byte(c, 0, '-');
    if (ahead && at_byte(c, 1, '-')) return true;
    return at_escape(c, ahead) || ((size_t)(c->end - c->at) > ahead && begins_name(c->at[ahead]));
}

static bool at_digit(const struct css *c, size_t ahead) {
    return (size_t)(c->end - c->at) > ahead && is_digit(c->at[ahead]);
}

static bool at_number(const struct css *c) {
    size_t sign = at_byte(c, 0, '+') || at_byte(c, 0, '-');
    return at_digit(c, sign) || (at_byte(c, sign, '.') && at_digit(c, sign + 1));
}

static void add_code(struct css *c, unsigned code) {
    unsigned char utf8[UTF8_BYTES];
    if (code == 0 || code > MAX_CODE || (code >= 0xD800 && code <= 0xDFFF)) code = REPLACEMENT;
    buffer_add(&c->value, utf8, put_utf8(utf8, code));
}

/* Adds the byte that comes next; a NUL counts as U+FFFD. */
static void add_byte(struct css *c) {
    if (*c->at == '\0') add_code(c, 0);
    else buffer_add(&c->value, c->at, 1);
    c->at++;
}

static void skip_spaces(struct css *c) {
    while (c->at < c->end && is_space(*c->at)) c->at++;
}

/* One white space; a carriage return with its newline is one. */
static void skip_space(struct css *c) {
    if (at_byte(c, 0, '\r') && at_byte(c, 1, '\n')) c->at++;
    if (c->at < c->end && is_space(*c->at)) c->at++;
}

/* https://www.w3.org/TR/css-syntax-3/#consume-escaped-code-point */
static void read_escape(struct css *c) {
    unsigned code = 0;
    int digit, digits = 0;
    c->at++;
    for (; digits < MOST_DIGITS && c->at < c->end && (digit = digit_of(*c->at, 16)) >= 0; digits++, c->at++)
        code = code * 16 + (unsigned)digit;
    if (digits) skip_space(c);
    if (digits || c->at == c->end) add_code(c, code);
    else add_byte(c);
}

static void read_name(struct css *c) {
    c->value.length = 0;
    while (c->at < c->end) {
        if (at_escape(c, 0)) read_escape(c);
        else if (begins_name(*c->at) || is_digit(*c->at) || *c->at == '-') add_byte(c);
        else break;
    }
}

/* A number with its unit, whose name is no function. */
static void read_number(struct css *c) {
    if (!at_digit(c, 0) && *c->at != '.') c->at++;
    while (at_digit(c, 0)) c->at++;
    if (at_byte(c, 0, '.') && at_digit(c, 1))
        for (c->at++; at_digit(c, 0);) c->at++;
    if (c->at < c->end && lower(*c->at) == 'e') {
        size_t sign = at_byte(c, 1, '+') || at_byte(c, 1, '-');
        if (at_digit(c, 1 + sign))
            for (c->at += 1 + sign; at_digit(c, 0);) c->at++;
    }
    if (at_name(c)) read_name(c);
}

/* False: a newline ends it, or the end of the sheet is missing, so it is none. */
static bool read_string(struct css *c) {
    unsigned char quote = *c->at++;
    c->value.length = 0;
    while (c->at < c->end && *c->at != quote) {
        if (is_newline(*c->at)) return false;
        if (at_escape(c, 0)) {
            if (c->at + 1 == c->end) c->at++;
            else read_escape(c);
        } else if (*c->at == '\\') {
            c->at++;
            skip_space(c);
        } else {
            add_byte(c);
        }
    }
    bool is_closed = c->at < c->end;
    c->at += is_closed;
    return is_closed || !c->is_cut;
}

/* The URL of a `url(` without quotes; false if it is a bad one, which is passed over. */
static bool read_url(struct css *c) {
    c->value.length = 0;
    while (c->at < c->end && *c->at != ')' && !is_space(*c->at)) {
        if (at_escape(c, 0)) read_escape(c);
        else if (*c->at == '"' || *c->at == '\'' || *c->at == '(' || *c->at == '\\' || is_hidden(*c->at)) break;
        else add_byte(c);
    }
    skip_spaces(c);
    bool is_good = c->at == c->end ? !c->is_cut : *c->at == ')';
    while (c->at < c->end && *c->at != ')') {
        if (at_escape(c, 0)) read_escape(c);
        else c->at++;
    }
    if (c->at < c->end) c->at++;
    return is_good;
}

static struct span value_of(const struct css *c) {
    return (struct span){(const unsigned char *)(c->value.length ? c->value.bytes : ""), c->value.length};
}

static void give(struct css *c) {
    enum css_place place = c->rule == RULE_IMPORT ? CSS_IMPORT : c->font_braces ? CSS_FONT : CSS_OTHER;
    if (c->rule != RULE_WITHOUT_URLS && !c->value.failed) c->sink(c->context, place, value_of(c));
    if (c->rule == RULE_IMPORT) c->rule = RULE_WITHOUT_URLS;  /* conditions follow */
}

static void read_function(struct css *c) {
    struct span name = value_of(c);
    if (span_is(name, "image-set") || span_is(name, "-webkit-image-set")) c->set_brackets = c->brackets + 1;
    if (!span_is(name, "url")) return;
    c->at++;
    skip_spaces(c);
    if (at_byte(c, 0, '"') || at_byte(c, 0, '\'')) {
        c->brackets++;
        if (read_string(c)) give(c);
    } else if (read_url(c)) {
        give(c);
    }
}

static void read_at_rule(struct css *c) {
    c->at++;
    if (!at_name(c)) return;
    read_name(c);
    struct span name = value_of(c);
    c->rule = RULE_ANY;
    if (span_is(name, "import")) c->rule = RULE_IMPORT;
    if (span_is(name, "font-face")) c->rule = RULE_FONT;
    if (span_is(name, "namespace")) c->rule = RULE_WITHOUT_URLS;
}

static void skip_comment(struct css *c) {
    for (c->at += 2; c->at < c->end && !(*c->at == '*' && at_byte(c, 1, '/'));) c->at++;
    c->at = c->end - c->at > 2 ? c->at + 2 : c->end;
}

static void read_mark(struct css *c) {
    unsigned char mark = *c->at++;
    if (mark == '(') {
        c->brackets++;
    } else if (mark == ')') {
        if (c->brackets == c->set_brackets) c->set_brackets = 0;
        c->brackets -= c->brackets > 0;
    } else if (mark == '{' || mark == '}' || mark == ';') {
        if (mark == '{') c->braces++;
        if (mark == '{' && c->rule == RULE_FONT) c->font_braces = c->braces;
        if (mark == '}' && c->braces == c->font_braces) c->font_braces = 0;
        if (mark == '}') c->braces -= c->braces > 0;
        c->rule = RULE_ANY;
        c->brackets = c->set_brackets = 0;
    }
}

static void read_token(struct css *c) {
    if (at_byte(c, 0, '/') && at_byte(c, 1, '*')) {
        skip_comment(c);
    } else if (*c->at == '"' || *c->at == '\'') {
        bool wanted = c->rule == RULE_IMPORT || (c->set_brackets && c->brackets == c->set_brackets);
        if (read_string(c) && wanted) give(c);
    } else if (*c->at == '@') {
        read_at_rule(c);
    } else if (*c->at == '#') {
        c->at++;
        read_name(c);
    } else if (at_number(c)) {
        read_number(c);
    } else if (at_byte(c, 0, '-') && at_byte(c, 1, '-') && at_byte(c, 2, '>')) {
        c->at += 3;
    } else if (at_byte(c, 0, '<') && at_byte(c, 1, '!') && at_byte(c, 2, '-') && at_byte(c, 3, '-')) {
        c->at += 4;
    } else if (at_name(c)) {
        read_name(c);
        if (at_byte(c, 0, '(')) read_function(c);
    } else {
        read_mark(c);
    }
}

bool css_urls(struct span css, bool is_cut, css_sink *sink, void *context) {
    struct css c = {.at = css.at, .end = css.at + css.length, .sink = sink, .context = context, .is_cut = is_cut};
    while (c.at < c.end) read_token(&c);
    bool done = !c.value.failed;
    buffer_free(&c.value);
    return done;
}
