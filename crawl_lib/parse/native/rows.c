#include "rows.h"

#include <stdlib.h>
#include <string.h>

#include "tags.h"

enum { NONE = UINT32_MAX, LASTS = UINT32_MAX, FIRST_SLOTS = 1 << 12, HASHED_BYTES = 7 };
/* The text of an entry is a canonical URL, a folder, a hop of a page, or a reference in the folder of that number. */
enum { URLS, FOLDERS, HOPS, FIRST_FOLDER };

struct entry {
    uint32_t hash, text, length, kind;
    uint32_t target;  /* number of its target, or of the folder */
    uint32_t page;    /* the page for which the target is asked for or known, or LASTS */
};

struct target {
    int64_t sent;  /* the least position from which its URL was handed on; INT64_MAX: none */
    uint32_t url, length, rule;  /* without a URL the rule says why */
    uint32_t judged;  /* the page for which its verdict is asked for or known, or LASTS */
    unsigned char key[KRAKE_KEY];
    bool followed;
};

struct link {
    struct span href, anchor, rel;
    uint32_t number;  /* of its entry, then of its target */
    unsigned char code, bar;
    bool is_hop;
};

struct krake_rows {
    size_t most_bytes;
    uint64_t secret;
    uint32_t *slots, slot_count, folders, page;
    bool requisites;  /* the links of the page are requisites */
    struct buffer names, entries, targets, rules, links, asks;
};

enum { PAGE = 1, BY_REL = 2, HOP = 4, ONLY_FOLLOWED = 8 };
struct element {
    const char *name;
    int flags;  /* its target may be a page, or rel says so; it is a hop; it is a row only if it is followed */
};
/* By the letters of tags.c, and of sitemap.py. The second one is unknown; `h` is a frame in a `srcdoc`. */
static const struct element ELEMENTS[LETTERS] = {
    {"a", PAGE}, {"", 0}, {"loc", PAGE}, {"item", PAGE}, {"embed", 0}, {"frame", PAGE}, {"img", 0}, {"srcdoc", 0}, {"iframe", PAGE},
    {"object", 0}, {"style", 0}, {"link", BY_REL}, {"meta", PAGE | HOP}, {"input", 0}, {"source", 0}, {"sitemap", PAGE | HOP},
    {"import", 0}, {"area", PAGE}, {"script", 0}, {"track", 0}, {"audio", 0}, {"video", 0}, {"use", 0},
    {"robots", PAGE | ONLY_FOLLOWED}, {"entry", BY_REL}, {"image", 0},
};
/* The words of rel that make the target of a `link` a page to follow. */
static const char *const FOLLOWED_RELS[] = {"next", "prev", "index", "contents", "start", "alternate", "canonical", "author", "copyright", "help", "search", "license"};

static const struct element *element_of(unsigned char code) { return &ELEMENTS[is_letter(code) ? lower(code) - 'a' : 1]; }
static struct entry *entry_at(const struct krake_rows *r, uint32_t number) { return (struct entry *)(void *)r->entries.bytes + number; }
static struct target *target_at(const struct krake_rows *r, uint32_t number) { return (struct target *)(void *)r->targets.bytes + number; }
static struct link *links_of(const struct krake_rows *r) { return (struct link *)(void *)r->links.bytes; }
static size_t link_count(const struct krake_rows *r) { return r->links.length / sizeof(struct link); }

static int64_t ask_count(const struct krake_rows *r) { return r->asks.failed ? -1 : (int64_t)(r->asks.length / sizeof(struct krake_ask)); }
const struct krake_ask *krake_rows_asks(const struct krake_rows *r) { return (const struct krake_ask *)(const void *)r->asks.bytes; }
const struct krake_rule *krake_rows_rules(const struct krake_rows *r) { return (const struct krake_rule *)(const void *)r->rules.bytes; }

/* A polynomial modulo 2^61 - 1 at a secret point: strangers choose the texts, and cannot make many of them collide. */
static uint32_t hash_of(const struct krake_rows *r, struct span text, uint32_t kind) {
    const uint64_t prime = (UINT64_C(1) << 61) - 1;
    uint64_t hash = kind, word = text.length;
    for (size_t size = 0;; text.at += size, text.length -= size) {
        unsigned __int128 product = (unsigned __int128)hash * r->secret + word;
        hash = ((uint64_t)product & prime) + (uint64_t)(product >> 61);
        if (hash >= prime) hash -= prime;
        if (text.length == 0) return (uint32_t)hash;
        size = text.length < HASHED_BYTES ? text.length : HASHED_BYTES;
        word = 0;
        memcpy(&word, text.at, size);
    }
}

/* Slots are numbers of entries, and 1. Their count is a power of two; at most half of them are used. */
static bool make_slots(struct krake_rows *r, uint32_t count) {
    uint32_t *slots = calloc(count, sizeof *slots);
    if (slots == NULL) return false;
    for (uint32_t i = 0, slot; i < r->entries.length / sizeof(struct entry); slots[slot] = ++i)
        for (slot = entry_at(r, i)->hash & (count - 1); slots[slot];) slot = (slot + 1) & (count - 1);
    free(r->slots);
    r->slots = slots;
    r->slot_count = count;
    return true;
}

/* The number of an entry, which is made if it is not there; NONE if memory ran out. */
static uint32_t entry_of(struct krake_rows *r, struct span text, uint32_t kind) {
    uint32_t hash = hash_of(r, text, kind), count = (uint32_t)(r->entries.length / sizeof(struct entry)), slot;
    if (count >= r->slot_count / 2 && (r->slot_count > UINT32_MAX / 4 || !make_slots(r, r->slot_count * 2))) return NONE;
    for (slot = hash & (r->slot_count - 1); r->slots[slot]; slot = (slot + 1) & (r->slot_count - 1)) {
        const struct entry *entry = entry_at(r, r->slots[slot] - 1);
        if (entry->hash == hash && entry->kind == kind && entry->length == text.length && (!text.length || !memcmp(r->names.bytes + entry->text, text.at, text.length)))
            return r->slots[slot] - 1;
    }
    if (text.length > UINT32_MAX - r->names.length) return NONE;
    struct entry made = {hash, (uint32_t)r->names.length, (uint32_t)text.length, kind, NONE, 0};
    buffer_add(&r->names, text.at, text.length);
    buffer_add(&r->entries, &made, sizeof made);
    if (r->names.failed || r->entries.failed) return NONE;
    r->slots[slot] = count + 1;
    return count;
}

/* Has an entry lead to a new target: to its own text, a URL, or without a key nowhere. */
static void add_target(struct krake_rows *r, uint32_t number, const char *key, uint32_t rule) {
    struct entry *entry = entry_at(r, number);
    struct target target = {INT64_MAX, entry->text, key != NULL ? entry->length : 0, rule, 0, {0}, false};
    if (key != NULL) memcpy(target.key, key, KRAKE_KEY);
    entry->target = (uint32_t)(r->targets.length / sizeof target);
    buffer_add(&r->targets, &target, sizeof target);
}

/* Before a page: forgets all if there is too much of it. */
static void make_room(struct krake_rows *r) {
    if (r->names.length + r->entries.length + r->targets.length + r->slot_count * sizeof *r->slots > r->most_bytes || r->page + 1 == LASTS) {
        r->names.length = r->entries.length = r->targets.length = r->folders = r->page = 0;
        memset(r->slots, 0, r->slot_count * sizeof *r->slots);
    }
    r->page++;
}

struct krake_rows *krake_rows_new(size_t most_bytes, uint64_t secret) {
    struct krake_rows *r = calloc(1, sizeof *r);
    if (r == NULL) return NULL;
    r->most_bytes = most_bytes;
    r->secret = secret >> 4 | 1;  /* less than the prime */
    if (make_slots(r, FIRST_SLOTS)) return r;
    free(r);
    return NULL;
}

void krake_rows_free(struct krake_rows *r) {
    struct buffer *all[] = {&r->names, &r->entries, &r->targets, &r->rules, &r->links, &r->asks};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buffer_free(all[i]);
    free(r->slots);
    free(r);
}

int64_t krake_rows_rule(struct krake_rows *r, const char *name, size_t length) {
    struct krake_rule rule = {name, (uint32_t)length, 0};
    buffer_add(&r->rules, &rule, sizeof rule);
    return r->rules.failed ? -1 : (int64_t)(r->rules.length / sizeof rule) - 1;
}

static bool next_text(const unsigned char **at, const unsigned char *end, struct span *text) {
    const unsigned char *stop = memchr(*at, 0, (size_t)(end - *at));
    if (stop == NULL) return false;
    *text = (struct span){*at, (size_t)(stop - *at)};
    *at = stop + 1;
    return true;
}

/* Returns whether a link is a hop. */
static bool read_links(struct krake_rows *r, const unsigned char *at, const unsigned char *end) {
    bool hops = false;
    for (struct link link = {0}; at < end; hops = hops || link.is_hop) {
        if (!next_text(&at, end, &link.href) || !next_text(&at, end, &link.anchor) || !next_text(&at, end, &link.rel)) break;
        if (link.href.length == 0) break;
        link.code = *link.href.at++;
        link.href.length--;
        link.is_hop = element_of(link.code)->flags & HOP;
        buffer_add(&r->links, &link, sizeof link);
    }
    return hops;
}

/* A link to the same place as a hop is a hop too: for readers who do not want to wait. */
static bool find_hops(struct krake_rows *r) {
    for (int pass = 0; pass < 2; pass++) {
        for (struct link *link = links_of(r), *end = link + link_count(r); link < end; link++) {
            uint32_t number = entry_of(r, link->href, HOPS);
            if (number == NONE) return false;
            if (link->is_hop) entry_at(r, number)->page = r->page;
            if (pass) link->is_hop = entry_at(r, number)->page == r->page;
        }
    }
    return true;
}

static bool is_followed(struct span rel) {
    const unsigned char *at = rel.at, *end = at + rel.length, *stop;
    for (; at < end; at = stop + 1) {
        stop = memchr(at, ' ', (size_t)(end - at));
        if (stop == NULL) stop = end;
        for (size_t i = 0; i < sizeof FOLLOWED_RELS / sizeof *FOLLOWED_RELS; i++)
            if (span_equals((struct span){at, (size_t)(stop - at)}, FOLLOWED_RELS[i], strlen(FOLLOWED_RELS[i]))) return true;
    }
    return false;
}

static enum krake_bar bar_of(const struct link *link, int how) {
    int flags = element_of(link->code)->flags;
    if (how & KRAKE_REQUISITES) return KRAKE_FREE;
    bool says_nofollow = (how & KRAKE_SAYS_NOFOLLOW) || (link->code >= 'A' && link->code <= 'Z');
    if (!(flags & PAGE) && !((flags & BY_REL) && is_followed(link->rel))) return KRAKE_ELEMENT;
    if (says_nofollow && !(how & KRAKE_FOLLOWS_ALL)) return KRAKE_NOFOLLOW;
    if (link->is_hop && (how & KRAKE_NO_HOP)) return KRAKE_REDIRECT_LIMIT;
    if (how & KRAKE_IS_REQUISITE) return KRAKE_ON_REQUISITE;
    return how & KRAKE_IS_SIMILAR ? KRAKE_SIMILAR : KRAKE_FREE;
}

/* A space before the fragment is part of the path; at the end of a reference it would not be. */
static struct span without_fragment(struct span href) {
    const unsigned char *sharp = memchr(href.at, '#', href.length);
    if (sharp == NULL || (sharp > href.at && sharp[-1] <= ' ')) return href;
    return (struct span){href.at, (size_t)(sharp - href.at)};
}

int64_t krake_rows_look(struct krake_rows *r, const unsigned char *links, size_t length, const char *folder, size_t folder_length, int how) {
    make_room(r);
    r->links.length = r->asks.length = 0;
    r->requisites = how & KRAKE_REQUISITES;
    bool hops = read_links(r, links, links + length);
    uint32_t number = entry_of(r, (struct span){(const unsigned char *)folder, folder_length}, FOLDERS);
    if (length > UINT32_MAX || r->links.failed || number == NONE || (hops && !find_hops(r))) return -1;
    if (entry_at(r, number)->target == NONE) entry_at(r, number)->target = FIRST_FOLDER + r->folders++;
    uint32_t kind = entry_at(r, number)->target;
    struct link *all = links_of(r);
    for (size_t i = 0; i < link_count(r); i++) {
        struct span text = without_fragment(all[i].href);
        all[i].bar = (unsigned char)bar_of(&all[i], how);
        if ((all[i].number = entry_of(r, text, kind)) == NONE) return -1;
        struct entry *entry = entry_at(r, all[i].number);
        if (entry->page == LASTS || entry->page == r->page) continue;
        entry->page = r->page;
        entry->target = NONE;
        struct krake_ask ask = {(uint32_t)i, all[i].number, (uint32_t)text.length, false, text.at, {0}};
        buffer_add(&r->asks, &ask, sizeof ask);
    }
    return ask_count(r);
}

int64_t krake_rows_learn(struct krake_rows *r, int64_t number, const char *url, size_t length, const char *key, uint32_t rule, int lasts) {
    uint32_t of_url = length ? entry_of(r, (struct span){(const unsigned char *)url, length}, URLS) : (uint32_t)number;
    if (of_url == NONE) return -1;
    if (entry_at(r, of_url)->target == NONE) add_target(r, of_url, length ? key : NULL, rule);
    if (number >= 0) entry_at(r, (uint32_t)number)->target = entry_at(r, of_url)->target;
    if (number >= 0 && lasts) entry_at(r, (uint32_t)number)->page = LASTS;
    return r->targets.failed ? -1 : (int64_t)entry_at(r, of_url)->target;
}

int64_t krake_rows_unjudged(struct krake_rows *r, int64_t position) {
    struct link *all = links_of(r);
    r->asks.length = 0;
    for (size_t i = 0; i < link_count(r); i++) {
        if ((all[i].number = entry_at(r, all[i].number)->target) == NONE) return -1;
        struct target *target = target_at(r, all[i].number);
        bool lasts = target->judged == LASTS && (!target->followed || target->sent <= position);
        if (all[i].bar != KRAKE_FREE || target->length == 0 || target->judged == r->page || lasts) continue;
        target->judged = r->page;
        struct krake_ask ask = {(uint32_t)i, all[i].number, target->length, all[i].is_hop, (const unsigned char *)r->names.bytes + target->url, {0}};
        memcpy(ask.key, target->key, sizeof ask.key);
        buffer_add(&r->asks, &ask, sizeof ask);
    }
    return ask_count(r);
}

void krake_rows_judge(struct krake_rows *r, int64_t number, int followed, uint32_t rule, int lasts) {
    struct target *target = target_at(r, (uint32_t)number);
    target->followed = followed;
    target->rule = rule;
    if (lasts) target->judged = LASTS;
}

int krake_rows_send(struct krake_rows *r, int64_t number, int64_t position) {
    struct target *target = target_at(r, (uint32_t)number);
    if (target->sent <= position) return 0;
    target->sent = position;
    return 1;
}

static void add_text(struct krake_block *block, enum krake_column column, const void *at, size_t length) {
    if (block->rows == 0) buffer_add(&block->columns[column], &(int32_t){0}, sizeof(int32_t));
    buffer_add(&block->columns[column + 1], at, length);
    buffer_add(&block->columns[column], &(int32_t){(int32_t)block->columns[column + 1].length}, sizeof(int32_t));
}

static void add_row(const struct krake_rows *r, struct krake_block *block, const char *source, const struct link *link, bool followed, const struct krake_rule *rule) {
    const struct target *target = target_at(r, link->number);
    const char *element = element_of(link->code)->name;
    struct buffer *bits = &block->columns[FOLLOWED];
    buffer_add(&block->columns[SOURCE], source, KRAKE_KEY);
    buffer_add(&block->columns[TARGET], target->key, KRAKE_KEY);
    add_text(block, URL, r->names.bytes + target->url, target->length);
    add_text(block, ANCHOR, link->anchor.at, link->anchor.length);
    add_text(block, REL, link->rel.at, link->rel.length);
    add_text(block, ELEMENT, element, strlen(element));
    add_text(block, RULE, rule->name, rule->length);
    if (block->rows % 8 == 0) buffer_add(bits, "", 1);
    if (followed && !bits->failed) bits->bytes[bits->length - 1] |= (char)(1 << block->rows % 8);
    block->rows++;
}

int64_t krake_rows_write(struct krake_rows *r, struct krake_block *block, const char *source) {
    struct krake_rule *rules = (struct krake_rule *)(void *)r->rules.bytes;
    size_t rule_count = r->rules.length / sizeof *rules;
    for (size_t i = 0; i < rule_count; i++) rules[i].rejected = 0;
    for (const struct link *link = links_of(r), *end = link + link_count(r); link < end; link++) {
        const struct target *target = target_at(r, link->number);
        int flags = element_of(link->code)->flags;
        bool followed = link->bar == KRAKE_FREE && target->length && target->followed;
        if (r->requisites && (flags & PAGE) && !followed) continue;  /* its row is that of the link, which counts it */
        struct krake_rule *rule = &rules[target->length && link->bar != KRAKE_FREE ? link->bar : target->rule];
        rule->rejected += !followed;
        if (target->length && (followed || !(flags & ONLY_FOLLOWED))) add_row(r, block, source, link, followed && !r->requisites, rule);
    }
    r->links.length = 0;
    int64_t bytes = 0;
    for (int i = 0; i < COLUMNS; i++) {
        if (block->columns[i].failed || block->columns[i].length > INT32_MAX) return -1;
        bytes += (int64_t)block->columns[i].length;
    }
    return bytes;
}

void krake_block_free(struct krake_block *block) {
    for (int i = 0; i < COLUMNS; i++) buffer_free(&block->columns[i]);
    block->rows = 0;
}
