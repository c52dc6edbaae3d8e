/* What a page's words are, in few bytes: pages that have nearly the same words have nearly the same bytes. */
#include "sketch.h"

#include <string.h>

#include "tags.h"

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

enum { CHUNK = 64 };

/* Eight bytes, the first of them as the lowest bits. */
static uint64_t load(const unsigned char *at) {
    uint64_t bytes;
    memcpy(&bytes, at, sizeof bytes);
    return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? __builtin_bswap64(bytes) : bytes;
}

/* A bit for each byte of a chunk: whether it is part of a word. Compilers make wide instructions of the first loop. */
static uint64_t word_bits(const unsigned char *chunk) {
    unsigned char is[CHUNK];
    uint64_t bits = 0;
    for (int i = 0; i < CHUNK; i++)
        is[i] = (unsigned char)((chunk[i] | 0x20) - 'a') < 26 || (unsigned char)(chunk[i] - '0') < 10 || chunk[i] >= 0x80;
    for (int i = 0; i < CHUNK; i += 8) bits |= (load(is + i) * 0x0102040810204080u >> 56) << i;
    return bits;
}

/* Eight bytes of a word, ASCII letters in lower case, of which the first `length` count: all from 8 on, none below 1. */
static uint64_t letters(const unsigned char *at, int length) {
    static const uint64_t COUNT[] = {
        0, 0xff, 0xffff, 0xffffff, 0xffffffff, 0xffffffffff, 0xffffffffffff, 0xffffffffffffff, UINT64_MAX,
    };
    uint64_t bytes = load(at);
    return (bytes | (~bytes & 0x8080808080808080u) >> 2) & COUNT[length < 0 ? 0 : length > 8 ? 8 : length];
}

/* The hash of a word, or of a part of one of a chunk's length. Most words end within the first step. */
static uint64_t word_hash(const unsigned char *at, int length) {
    uint64_t hash = 0;
    do {
        hash = (hash ^ letters(at, length)) * 0xc4ceb9fe1a85ec53u;
        hash = (hash ^ hash >> 29 ^ letters(at + 8, length - 8)) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
        at += 16, length -= 16;
    } while (length > 0);
    return hash * 0x9e3779b97f4a7c15u;
}

static void see(struct words_seen *seen, uint64_t hash) {
    seen->count++;
    for (int i = 0; i < 3; i++, hash <<= 16)
        seen->bits[hash >> 54] |= UINT64_C(1) << (hash >> 48 & 63);
}

/* The words of a chunk, of which `length` bytes count; returns where the next chunk begins. */
static size_t see_chunk(struct words_seen *seen, const unsigned char *chunk, size_t length, bool is_last) {
    uint64_t bits = word_bits(chunk);
    if (length < CHUNK) bits &= (UINT64_C(1) << length) - 1;
    uint64_t edges = bits ^ bits << 1;  /* where words begin, and behind their ends */
    while (edges) {
        int from = __builtin_ctzll(edges);
        edges &= edges - 1;
        int to = edges ? __builtin_ctzll(edges) : CHUNK;
        edges &= edges - 1;
        if (to == CHUNK && from && !is_last) return (size_t)from;  /* it may go on */
        see(seen, word_hash(chunk + from, to - from));
    }
    return length;
}

/* A piece of text as it is, all bytes of it. Its last eight bytes may be read twice. `end`: of the page. */
static uint64_t piece_hash(struct span text, const unsigned char *end) {
    const unsigned char *at = text.at;
    uint64_t hash = text.length * 0x9e3779b97f4a7c15u;
    for (size_t left = text.length; left > 8; at += 8, left -= 8)
        hash = ((hash ^ load(at)) * 0xc4ceb9fe1a85ec53u) ^ hash >> 32;
    if (text.length >= 8) return mixed(hash ^ load(text.at + text.length - 8));
    if (end - at >= 8) return mixed(hash ^ (load(at) & ~(UINT64_MAX << 8 * text.length)));
    unsigned char last[8] = {0};
    memcpy(last, at, text.length);
    return mixed(hash ^ load(last));
}

void words_see(struct words_seen *seen, struct span text, const unsigned char *end) {
    unsigned char copy[2 * CHUNK];
    const unsigned char *at = text.at, *stop = at + text.length;
    while (at < stop && seen->count < WORDS_TOLD) {
        size_t left = (size_t)(stop - at), length = left < CHUNK ? left : CHUNK;
        bool whole = (size_t)(end - at) >= sizeof copy;
        if (!whole) memcpy(memset(copy, 0, sizeof copy), at, length);
        at += see_chunk(seen, whole ? at : copy, length, length == left);
    }
    if (at == stop) return;
    seen->pieces += piece_hash((struct span){at, (size_t)(stop - at)}, end);
}

uint64_t words_digest(const struct words_seen *seen) {
    uint64_t sum = seen->pieces;
    for (uint64_t i = 0; i < SEEN_NUMBERS; i++) sum += mixed(seen->bits[i] + i * 0x9e3779b97f4a7c15u);
    return seen->count ? mixed(sum) : 0;
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
