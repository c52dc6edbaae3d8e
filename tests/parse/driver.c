/* Reads pages on standard input and writes what the scanner makes of them: for tests, which compile it with sanitizers.

   A page: a line `MODE LENGTH STATE NAME`, then LENGTH bytes. MODE `tokens`: its tokens, beginning in the tokenizer's
   state STATE (`enum content`) behind a start tag NAME (`-`: none). MODE `links`: its links (STATE: how many at most; NAME: KRAKE_CUT, KRAKE_XML and kinds, their sum, or 0), then its requisites.
   MODE `css`: the requisites of a style sheet, as `links` has them.
   MODE `rows`: the bytes are links, of a page in the folder NAME (STATE: `how` of rows.h), and so on from page to page.
   An answer: a line `STATUS LENGTH CUT STEPS`, then LENGTH bytes. Each page lies in memory of its own size, so that
   a look beyond its end is found. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "links.h"
#include "rows.h"
#include "text.h"

static void put_number(struct buffer *out, size_t number) {
    uint32_t four = (uint32_t)number;
    buffer_add(out, &four, sizeof four);
}

static void put_text(struct buffer *out, struct span raw, int how) {
    struct buffer text = {0};
    text_decode(raw, how, buffer_sink, &text);
    put_number(out, text.length);
    buffer_add(out, text.bytes, text.length);
    buffer_free(&text);
}

static void put_name(struct buffer *out, struct span name) {
    size_t at = out->length + sizeof(uint32_t);
    put_text(out, name, 0);
    for (; at < out->length; at++) out->bytes[at] = (char)lower((unsigned char)out->bytes[at]);
}

static void put_attribute(void *out, struct span name, struct span value) {
    buffer_add(out, "A", 1);
    put_name(out, name);
    put_text(out, value, REFERENCES_COUNT | IN_ATTRIBUTE);
}

static void put_tag(struct tokenizer *t, struct span name, bool start, struct buffer *out) {
    bool closing;
    size_t before = out->length;
    buffer_add(out, start ? "S" : "E", 1);
    put_name(out, name);
    if (!token_attributes(t, start ? put_attribute : NULL, out, &closing)) out->length = before;
    else buffer_add(out, closing ? "/" : ">", 1);
}

static void put_tokens(struct tokenizer *t, struct buffer *out) {
    struct span data;
    enum token kind;
    while ((kind = token_next(t, &data)) != TOKEN_EOF) {
        if (kind == TOKEN_START || kind == TOKEN_END) {
            put_tag(t, data, kind == TOKEN_START, out);
        } else if (kind == TOKEN_COMMENT) {
            buffer_add(out, "C", 1);
            put_text(out, data, 0);
        } else if (kind == TOKEN_DOCTYPE) {
            buffer_add(out, "D", 1);
        } else if (kind != TOKEN_NOTHING) {
            int how = kind == TOKEN_TEXT || kind == TOKEN_RCDATA ? REFERENCES_COUNT : 0;
            if (kind == TOKEN_TEXT || kind == TOKEN_CDATA) how |= KEEP_NUL;
            buffer_add(out, "T", 1);
            put_text(out, data, how);
        }
    }
}

static void tokens(const char *html, size_t length, int state, const char *name) {
    struct buffer out = {0};
    struct tokenizer t = {0};
    t.at = (const unsigned char *)html;
    t.end = t.at + length;
    t.content = (enum content)state;
    t.raw_name = (struct span){(const unsigned char *)name, name[0] == '-' ? 0 : strlen(name)};
    put_tokens(&t, &out);
    printf("0 %zu 0 %llu\n", out.length, (unsigned long long)t.steps);
    if (out.length) fwrite(out.bytes, 1, out.length, stdout);
    buffer_free(&out);
}

static void links(const char *html, size_t length, int most, int how, bool is_css) {
    struct krake_page page;
    int status = is_css ? krake_css(html, length, (size_t)most, how, &page)
                        : krake_links(html, length, "krake", 5, (size_t)most, 200, (size_t)most, how, &page);
    printf("%d %zu %llu %llu\n", status, page.length + page.links_length + page.requisites_length, (unsigned long long)page.cut, (unsigned long long)page.steps);
    if (page.length) fwrite(page.text, 1, page.length, stdout);
    if (page.links_length) fwrite(page.links, 1, page.links_length, stdout);
    if (page.requisites_length) fwrite(page.requisites, 1, page.requisites_length, stdout);
    krake_free(&page);
}

/* A resolver and a filter that know no URLs: a reference beginning with `!` is none, one with `/` is its own URL. */
static void learn(struct krake_rows *r, const struct krake_ask *ask, const char *folder) {
    char url[1 << 12], key[KRAKE_KEY] = {0};
    size_t length = 0;
    if (ask->length == 0 || ask->text[0] != '/') length = strlen(folder);
    memcpy(url, folder, length);
    for (uint32_t i = 0; i < ask->length && length < sizeof url; i++) url[length++] = (char)ask->text[i];
    bool rejected = ask->length && ask->text[0] == '!';
    memcpy(key, url, length < sizeof key ? length : sizeof key);
    if (krake_rows_learn(r, ask->number, url, rejected ? 0 : length, rejected ? NULL : key, 6, ask->length % 3 != 0) < 0) exit(4);
}

static void judge(struct krake_rows *r, const struct krake_ask *ask, int64_t position, struct buffer *out) {
    unsigned sum = 0;
    for (uint32_t i = 0; i < ask->length; i++) sum += ask->text[i];
    krake_rows_judge(r, ask->number, sum % 2, 7 + sum % 2, sum % 5 != 0);
    if (sum % 2 == 0 || !krake_rows_send(r, ask->number, position)) return;
    put_number(out, ask->link);
    put_number(out, ask->is_hop);
    put_number(out, ask->length);
    buffer_add(out, ask->text, ask->length);
}

static struct krake_rows *new_rows(void) {
    struct krake_rows *r = krake_rows_new(1 << 16, 0x123456789abcdef);
    static const char *const RULES[] = {"", "element", "nofollow", "redirect_limit", "similar", "on_requisite", "invalid", "scope", "accepted"};
    for (size_t i = 0; r != NULL && i < sizeof RULES / sizeof *RULES; i++)
        if (krake_rows_rule(r, RULES[i], strlen(RULES[i])) < 0) exit(4);
    return r;
}

/* Answers with what is handed on, a NUL number, the columns one behind the other, and the rejected links by rule. */
static void rows(const char *links, size_t length, int how, const char *folder) {
    static struct krake_rows *r;
    static int64_t page;
    if (r == NULL && (r = new_rows()) == NULL) exit(4);
    struct buffer out = {0};
    struct krake_block block = {0};
    int64_t count = krake_rows_look(r, (const unsigned char *)links, length, folder, strlen(folder), how);
    for (int64_t i = 0; i < count; i++) learn(r, &krake_rows_asks(r)[i], folder);
    page++;
    int64_t position = page ^ 3;  /* not in turn */
    if (count < 0 || (count = krake_rows_unjudged(r, position)) < 0) exit(4);
    for (int64_t i = 0; i < count; i++) judge(r, &krake_rows_asks(r)[i], position, &out);
    put_number(&out, UINT32_MAX);
    if (krake_rows_write(r, &block, "source of 20 bytes..") < 0) exit(4);
    put_number(&out, block.rows);
    for (int i = 0; i < COLUMNS; i++) buffer_add(&out, block.columns[i].bytes, block.columns[i].length);
    for (int i = 0; i < 9; i++) put_number(&out, krake_rows_rules(r)[i].rejected);
    krake_block_free(&block);
    printf("0 %zu 0 0\n", out.length);
    if (out.length) fwrite(out.bytes, 1, out.length, stdout);
    buffer_free(&out);
}

int main(void) {
    char mode[8], name[32];
    size_t length;
    int state;
    while (scanf("%7s %zu %d %31s", mode, &length, &state, name) == 4) {
        char *html = malloc(length ? length : 1);
        if (getchar() != '\n' || html == NULL || fread(html, 1, length, stdin) != length) return 2;
        if (strcmp(mode, "tokens") == 0) tokens(html, length, state, name);
        else if (strcmp(mode, "rows") == 0) rows(html, length, state, name);
        else links(html, length, state, atoi(name), strcmp(mode, "css") == 0);
        free(html);
    }
    return feof(stdin) ? 0 : 3;
}
