/* What a page's words are, in few bytes: pages that have nearly the same words have nearly the same bytes. */
#include "tags.h"
#include "tokens.h"

enum { SLOT_BITS = 6, SLOTS = 1 << SLOT_BITS };

static bool is_word(unsigned char c) { return is_letter(c) || (unsigned char)(c - '0') < 10 || c >= 0x80; }

/* All bits of the hash depend on all of the word (the end of MurmurHash3). */
static uint64_t mixed(uint64_t hash) {
    hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccdu;
    hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53u;
    return hash ^ hash >> 33;
}

/* The words of a text, hashed (FNV-1a), in lower case. */
static void add_words(struct span text, uint64_t *least) {
    const unsigned char *at = text.at, *end = at + text.length;
    while (at < end) {
        while (at < end && !is_word(*at)) at++;
        if (at == end) return;
        uint64_t hash = 0xcbf29ce484222325u;
        for (; at < end && is_word(*at); at++) hash = (hash ^ lower(*at)) * 0x100000001b3u;
        hash = mixed(hash);
        uint64_t *slot = least + (hash >> (64 - SLOT_BITS)), rest = hash << SLOT_BITS;
        if (rest < *slot) *slot = rest;
    }
}

/* How the text behind a start tag is read; what an end tag must be called to end it. */
static void read_raw(struct tokenizer *t, const struct tag *tag) {
    t->content = tag->content;
    t->raw_name = (struct span){(const unsigned char *)tag->name, tag->length};
}

/* Fills `slots` by one permutation hashing (Li, Owen, Zhang, 2012): each different word of the text falls into a slot,
   and a slot keeps 8 bits of the smallest hash; 0 where it has none. */
void krake_sketch(const char *html, size_t length, unsigned char *slots) {
    struct tokenizer t = {.at = (const unsigned char *)html, .end = (const unsigned char *)html + length};
    struct tag_index index;
    struct span data;
    enum token kind;
    bool closing;
    uint64_t least[SLOTS];
    for (int i = 0; i < SLOTS; i++) least[i] = UINT64_MAX;
    tags_index(&index);
    while ((kind = token_next(&t, &data)) != TOKEN_EOF) {
        if (kind == TOKEN_TEXT || kind == TOKEN_RCDATA || kind == TOKEN_CDATA) {
            add_words(data, least);
        } else if (kind == TOKEN_START || kind == TOKEN_END) {
            const struct tag *tag = kind == TOKEN_START ? tag_named(&index, data) : NULL;
            if (!token_attributes(&t, NULL, NULL, &closing)) break;
            if (tag != NULL && tag->content != CONTENT_DATA) read_raw(&t, tag);
        }
    }
    for (int i = 0; i < SLOTS; i++) slots[i] = least[i] == UINT64_MAX ? 0 : 1 + (least[i] >> SLOT_BITS) % 255;
}
