#include "links.h"

#include <stdlib.h>
#include <string.h>

#include "css.h"
#include "foreign.h"
#include "sketch.h"
#include "text.h"

enum { MAX_TITLE = 1000, MAX_DESCRIPTION = 2000, MAX_REL = 200, MAX_CHARSET = 200 };
/* Of facts: characters of a name and of a value, bytes of JSON-LD blocks, characters of headings. */
enum { MAX_FACT_NAME = 100, MAX_FACT = 2000, MAX_JSON = 1 << 18, MAX_HEADINGS = 4096 };
/* Of JSON-LD: levels, values of a page, and the fewest bytes for each value of a block beyond the first FREE_VALUES. */
enum { MAX_DEPTH = 64, MAX_VALUES = 8192, VALUE_BYTES = 16, FREE_VALUES = 256 };

/* Documents in a `srcdoc` that are within each other: each adds a reading of its bytes. */
enum { MAX_SRCDOCS = 3 };

/* Groups of facts, each with a limit of its own, so that many of one group leave room for the others. */
enum group { METAS, BLOCKS, ELEMENTS, RELATIONS, GROUPS };
static const size_t MAX_FACTS[GROUPS] = {256, 32, 64, 64};

/* Links that are facts: by a word of rel, or by the type of an alternate. */
static const struct { const char *name; bool is_type; } RELATION[] = {
    {"icon", false}, {"apple-touch-icon", false}, {"image_src", false},
    {"application/json+oembed", true}, {"text/xml+oembed", true},
};

enum slot { HREF, SRC, DATA, ALT, REL, NAME, CONTENT, HTTP_EQUIV, TYPE, ENCODING, COLOR, FACE, SIZE, CHARSET, PROPERTY,
            ITEMPROP, LANG, XML_LANG, DATETIME, PUBDATE, FACT_SLOTS,
            SRCSET = FACT_SLOTS, POSTER, STYLE, XLINK_HREF, AS, IMAGESRCSET, SRCDOC, BACKGROUND, SLOTS };
static const struct { const char *name; unsigned char length; } SLOT[SLOTS] = {
    {"href", 4}, {"src", 3}, {"data", 4}, {"alt", 3}, {"rel", 3}, {"name", 4}, {"content", 7}, {"http-equiv", 10},
    {"type", 4}, {"encoding", 8}, {"color", 5}, {"face", 4}, {"size", 4}, {"charset", 7},
    {"property", 8}, {"itemprop", 8}, {"lang", 4}, {"xml:lang", 8}, {"datetime", 8}, {"pubdate", 7},
    {"srcset", 6}, {"poster", 6}, {"style", 5}, {"xlink:href", 10}, {"as", 2}, {"imagesrcset", 11},
    {"srcdoc", 6}, {"background", 10},
};

enum said { TITLE, DESCRIPTION, ROBOTS, CANONICAL, BASE, SAID };

/* A part of `reader.text`. */
struct piece {
    size_t from, length;
};

struct link {
    struct piece href, anchor, rel;
    char code;
};

struct reader {
    struct tokenizer tokens;
    struct foreign foreign;
    struct tag_index tags;
    struct span values[SLOTS];
    unsigned seen;  /* a bit for each slot: the tag has that attribute */
    struct span agent;
    size_t max_links, max_anchor_chars, max_requisites;
    int how;  /* KRAKE_CUT, KRAKE_XML, KRAKE_FACTS, kinds of requisites */

    struct buffer text, anchor, robots, charsets, links;
    size_t link_count;
    uint64_t cut;
    struct piece said[SAID];
    bool has[SAID];

    size_t templates;   /* open ones: nothing in them counts */
    bool in_title;
    struct words words;  /* of the title or of the link whose text is read */
    size_t open_link;    /* number of the link whose text is read, and 1; 0: none */
    size_t blocks;       /* blocks that began within it */
    size_t link_depth;   /* of SVG and MathML, where it began */
    struct words_seen seen_words;

    struct buffer facts, headings;
    size_t fact_count[GROUPS], json_left, values_left;
    size_t json_fact, json_from;  /* where in `facts` the open block begins, and where its text does */
    bool in_json, in_heading;
    struct words heading;  /* the one whose text is read */

    struct buffer requisites, css;  /* the latter: text of the `style` element that is open */
    uint64_t requisites_cut;
    enum krake_kind medium;  /* of the video or audio that began last, which `source` and `track` belong to */
    bool in_style;
    int srcdocs;  /* documents around this one, which is the value of a `srcdoc` */
};

static void keep_attribute(void *context, struct span name, struct span value) {
    struct reader *r = context;
    int slots = r->how >> KRAKE_KINDS ? SLOTS : FACT_SLOTS;  /* the others name requisites only */
    for (int slot = 0; slot < slots; slot++) {
        if (!span_equals(name, SLOT[slot].name, SLOT[slot].length)) continue;
        if (!(r->seen & 1u << slot)) r->values[slot] = value;  /* the first of a name counts */
        r->seen |= 1u << slot;
        return;
    }
}

/* `SLOTS` stands for no attribute. */
static bool has(const struct reader *r, enum slot slot) { return slot < SLOTS && (r->seen >> slot & 1); }

static struct span value_of(const struct reader *r, enum slot slot) {
    return has(r, slot) ? r->values[slot] : (struct span){(const unsigned char *)"", 0};
}

static struct span span_of(const struct buffer *b, size_t from) {
    if (b->length == from) return (struct span){(const unsigned char *)"", 0};
    return (struct span){(const unsigned char *)b->bytes + from, b->length - from};
}

static void decode(struct reader *r, struct span raw, int how, text_sink *sink, void *context) {
    r->tokens.steps += raw.length;
    text_decode(raw, how, sink, context);
}

/* The words of an attribute's value, at the end of `out`. */
static void add_words(struct reader *r, struct buffer *out, enum slot slot, size_t max_chars) {
    struct words words;
    words_begin(&words, out, max_chars);
    decode(r, value_of(r, slot), REFERENCES_COUNT | IN_ATTRIBUTE, words_add, &words);
}

static struct piece keep_words(struct reader *r, enum slot slot, size_t max_chars) {
    size_t from = r->text.length;
    add_words(r, &r->text, slot, max_chars);
    return (struct piece){from, r->text.length - from};
}

/* An attribute's value without white space around it. */
static struct piece keep_value(struct reader *r, enum slot slot) {
    size_t from = r->text.length;
    decode(r, value_of(r, slot), REFERENCES_COUNT | IN_ATTRIBUTE, buffer_sink, &r->text);
    struct span kept = span_of(&r->text, from), trimmed = span_trim(kept);
    return (struct piece){from + (size_t)(trimmed.at - kept.at), trimmed.length};
}

static bool value_is(struct reader *r, enum slot slot, const char *name, size_t length, bool trimmed) {
    size_t from = r->text.length;
    decode(r, value_of(r, slot), REFERENCES_COUNT | IN_ATTRIBUTE, buffer_sink, &r->text);
    struct span value = span_of(&r->text, from);
    bool is = span_equals(trimmed ? span_trim(value) : value, name, length);
    r->text.length = from;
    return is;
}

/* Whether `name` is one of the words (separated by one space) of a piece. */
static bool holds_word(const struct reader *r, struct piece words, const char *name) {
    size_t length = strlen(name);
    if (r->text.failed || words.length < length) return false;
    const char *at = r->text.bytes + words.from, *end = at + words.length;
    for (; end - at >= (ptrdiff_t)length; at++) {
        if (memcmp(at, name, length) == 0 && (at + length == end || at[length] == ' ')) return true;
        at = memchr(at, ' ', (size_t)(end - at));
        if (at == NULL) return false;
    }
    return false;
}

static struct piece keep_rel(struct reader *r) {
    if (!has(r, REL)) return (struct piece){0, 0};
    struct piece rel = keep_words(r, REL, MAX_REL);
    if (r->text.failed) return (struct piece){0, 0};
    for (size_t i = 0; i < rel.length; i++)
        r->text.bytes[rel.from + i] = (char)lower((unsigned char)r->text.bytes[rel.from + i]);
    return rel;
}

static struct link *link_at(struct reader *r, size_t index) {
    return (struct link *)(void *)r->links.bytes + index;
}

/* Adds a link; false if it is beyond the limit. */
static bool add_link(struct reader *r, char code, struct piece href, struct piece anchor, struct piece rel) {
    if (holds_word(r, rel, "nofollow")) code = (char)(code - 'a' + 'A');
    struct link link = {href, anchor, rel, code};
    buffer_add(&r->links, &link, sizeof link);
    if (!r->links.failed) r->link_count++;
    return !r->links.failed;
}

static bool has_room(struct reader *r) {
    if (r->link_count < r->max_links) return true;
    r->cut++;
    return false;
}

static void close_link(struct reader *r) {
    if (!r->open_link) return;
    size_t from = r->text.length;
    buffer_add(&r->text, r->anchor.bytes, r->anchor.length);
    link_at(r, r->open_link - 1)->anchor = (struct piece){from, r->text.length - from};
    r->anchor.length = 0;
    r->open_link = 0;
}

static const struct piece NO_PIECE = {0, 0};

static void start_a(struct reader *r) {
    close_link(r);
    if (!has(r, HREF) || !has_room(r)) return;
    struct piece href = keep_value(r, HREF);
    if (!add_link(r, 'a', href, NO_PIECE, keep_rel(r))) return;
    r->open_link = r->link_count;
    r->blocks = 0;
    r->link_depth = r->foreign.depth;
    words_begin(&r->words, &r->anchor, r->max_anchor_chars);
}

/* A link that is one tag. `may_be_empty`: an empty reference counts too. */
static void start_source(struct reader *r, char code, enum slot slot, bool with_alt, bool may_be_empty) {
    if (!has(r, slot) || (!may_be_empty && value_of(r, slot).length == 0) || !has_room(r)) return;
    struct piece href = keep_value(r, slot);
    struct piece alt = with_alt ? keep_words(r, ALT, r->max_anchor_chars) : NO_PIECE;
    add_link(r, code, href, alt, keep_rel(r));
}

static bool wants(const struct reader *r, enum krake_kind kind) { return r->how >> KRAKE_KINDS >> kind & 1; }
static bool wants_any(const struct reader *r) { return r->how >> KRAKE_KINDS; }

/* Whether a reference names nothing to be fetched: it is empty, a part of the page itself, or has its data inside. */
static bool names_nothing(struct span href) {
    struct span scheme = {href.at, 5};
    return href.length == 0 || *href.at == '#' || (href.length >= scheme.length && (span_is(scheme, "data:") || span_is(scheme, "blob:")));
}

/* Adds a requisite, if its kind is wanted. Those beyond the limit are counted. */
static void add_requisite(struct reader *r, enum krake_kind kind, struct link link) {
    if (!wants(r, kind) || r->text.failed) return;
    struct span kept = {(const unsigned char *)r->text.bytes + link.href.from, link.href.length}, href = span_trim(kept);
    if (link.href.length == 0 || names_nothing(href)) return;
    link.href = (struct piece){link.href.from + (size_t)(href.at - kept.at), href.length};
    if (r->requisites.length / sizeof link < r->max_requisites) buffer_add(&r->requisites, &link, sizeof link);
    else r->requisites_cut++;
}

/* A tag whose target is part of the page: a requisite where such are wanted, else a link. */
static void start_part(struct reader *r, char code, enum krake_kind kind, enum slot slot, bool with_alt) {
    if (!wants(r, kind)) {
        start_source(r, code, slot, with_alt, false);
    } else if (has(r, slot)) {
        struct piece href = keep_value(r, slot);
        add_requisite(r, kind, (struct link){href, with_alt ? keep_words(r, ALT, r->max_anchor_chars) : NO_PIECE, NO_PIECE, code});
    }
}

/* A further requisite that an attribute of the tag names. */
static void start_more(struct reader *r, char code, enum krake_kind kind, enum slot slot) {
    if (wants(r, kind) && has(r, slot)) add_requisite(r, kind, (struct link){keep_value(r, slot), NO_PIECE, NO_PIECE, code});
}

/* https://html.spec.whatwg.org/#parse-a-srcset-attribute; every candidate counts, whatever its descriptors say. */
static void start_candidates(struct reader *r, char code, enum slot slot) {
    if (!wants(r, KRAKE_IMAGE) || !has(r, slot)) return;
    struct piece all = keep_value(r, slot);
    if (r->text.failed || all.length == 0) return;
    const char *text = r->text.bytes;
    for (size_t at = all.from, end = all.from + all.length; at < end;) {
        while (at < end && (is_space((unsigned char)text[at]) || text[at] == ',')) at++;
        size_t from = at, to;
        while (at < end && !is_space((unsigned char)text[at])) at++;
        for (to = at; to > from && text[to - 1] == ',';) to--;
        add_requisite(r, KRAKE_IMAGE, (struct link){{from, to - from}, NO_PIECE, NO_PIECE, code});
        bool in_brackets = false;
        for (; to == at && at < end && (in_brackets || text[at] != ','); to = ++at)
            in_brackets = text[at] == '(' || (in_brackets && text[at] != ')');
    }
}

static void add_css_url(void *reader, enum css_place place, struct span url) {
    static const enum krake_kind KINDS[] = {KRAKE_STYLE, KRAKE_FONT, KRAKE_IMAGE};
    struct reader *r = reader;
    struct piece href = {r->text.length, url.length};
    buffer_add(&r->text, url.at, url.length);
    add_requisite(r, KINDS[place], (struct link){href, NO_PIECE, NO_PIECE, place == CSS_IMPORT ? 'q' : 'k'});
}

/* Reads the style sheet in `css`, which is empty then. `is_cut`: its end is missing. */
static void read_css(struct reader *r, bool is_cut) {
    r->tokens.steps += r->css.length;
    if (r->css.failed || !css_urls(span_of(&r->css, 0), is_cut, add_css_url, r)) r->requisites.failed = true;
    r->css.length = 0;
}

static void start_style_attribute(struct reader *r) {
    if (!has(r, STYLE)) return;
    struct buffer text = r->css;  /* an SVG may have attributes within its style */
    r->css = (struct buffer){0};
    decode(r, value_of(r, STYLE), REFERENCES_COUNT | IN_ATTRIBUTE, buffer_sink, &r->css);
    read_css(r, false);
    buffer_free(&r->css);
    r->css = text;
}

static void end_style(struct reader *r, bool is_cut) {
    if (r->in_style) read_css(r, is_cut);
    r->in_style = false;
}

static enum krake_kind kind_of_preload(struct reader *r) {
    static const struct { const char *name; enum krake_kind kind; } KINDS[] = {
        {"style", KRAKE_STYLE}, {"script", KRAKE_SCRIPT}, {"image", KRAKE_IMAGE}, {"font", KRAKE_FONT},
        {"video", KRAKE_VIDEO}, {"audio", KRAKE_AUDIO}, {"track", KRAKE_VIDEO},
    };
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (value_is(r, AS, KINDS[i].name, strlen(KINDS[i].name), false)) return KINDS[i].kind;
    return KRAKE_OTHER;
}

/* Whether a `link` names a requisite that is wanted, and of which kind. */
static bool is_part(struct reader *r, struct piece rel, enum krake_kind *kind) {
    static const struct { const char *name; enum krake_kind kind; } KINDS[] = {
        {"icon", KRAKE_IMAGE}, {"apple-touch-icon", KRAKE_IMAGE}, {"apple-touch-icon-precomposed", KRAKE_IMAGE},
        {"mask-icon", KRAKE_IMAGE}, {"modulepreload", KRAKE_SCRIPT}, {"manifest", KRAKE_OTHER},
    };
    if (!wants_any(r)) return false;
    bool found = holds_word(r, rel, "stylesheet") && !holds_word(r, rel, "alternate");
    *kind = KRAKE_STYLE;
    for (size_t i = 0; !found && i < sizeof KINDS / sizeof *KINDS; i++)
        if ((found = holds_word(r, rel, KINDS[i].name))) *kind = KINDS[i].kind;
    if (!found && (found = holds_word(r, rel, "preload"))) *kind = kind_of_preload(r);
    return found && wants(r, *kind);
}

static void say(struct reader *r, enum said what, struct piece piece) {
    if (r->has[what]) return;
    r->said[what] = piece;
    r->has[what] = true;
}

static bool is_digit(unsigned char c) { return c >= '0' && c <= '9'; }

static const unsigned char *past_spaces(const unsigned char *at, const unsigned char *end) {
    while (at < end && is_space(*at)) at++;
    return at;
}

/* The URL of a refresh: https://html.spec.whatwg.org/#shared-declarative-refresh-steps */
static struct span refresh_target(struct span content) {
    const unsigned char *end = content.at + content.length, *at = past_spaces(content.at, end), *from = at;
    while (at < end && is_digit(*at)) at++;
    if (at == from && (at == end || *at != '.')) return (struct span){end, 0};
    while (at < end && (is_digit(*at) || *at == '.')) at++;
    if (at == end || (*at != ';' && *at != ',' && !is_space(*at))) return (struct span){end, 0};
    at = past_spaces(at, end);
    if (at < end && (*at == ';' || *at == ',')) at++;
    at = past_spaces(at, end);
    struct span first = {at, 3};
    if (end - at >= 3 && span_is(first, "url")) {
        from = past_spaces(at + 3, end);
        if (from < end && *from == '=') at = past_spaces(from + 1, end);
    }
    if (at < end && (*at == '"' || *at == '\'')) {
        const unsigned char *quote = memchr(at + 1, *at, (size_t)(end - at - 1));
        return (struct span){at + 1, (size_t)((quote != NULL ? quote : end) - at - 1)};
    }
    return (struct span){at, (size_t)(end - at)};
}

static void add_refresh(struct reader *r) {
    size_t from = r->text.length;
    struct piece content = keep_value(r, CONTENT);
    struct span whole = {span_of(&r->text, from).at + (content.from - from), content.length};
    struct span target = r->text.failed ? (struct span){whole.at, 0} : span_trim(refresh_target(whole));
    if (target.length && has_room(r)) {
        struct piece href = {content.from + (size_t)(target.at - whole.at), target.length};
        add_link(r, 'm', href, NO_PIECE, NO_PIECE);
    } else {
        r->text.length = from;
    }
}

/* Keeps what a meta says of the charset: a letter for the attribute, then its value. */
static void keep_charset(struct reader *r) {
    if (has(r, CHARSET)) {
        buffer_add(&r->charsets, "c", 1);
        add_words(r, &r->charsets, CHARSET, MAX_CHARSET);
        buffer_add(&r->charsets, "\n", 1);
    }
    if (has(r, CONTENT) && has(r, HTTP_EQUIV) && value_is(r, HTTP_EQUIV, "content-type", sizeof "content-type" - 1, false)) {
        buffer_add(&r->charsets, "h", 1);
        add_words(r, &r->charsets, CONTENT, MAX_CHARSET);
        buffer_add(&r->charsets, "\n", 1);
    }
}

/* Begins a fact by its kind. False if no facts are wanted, or if its group is full. */
static bool begin_fact(struct reader *r, enum group group, char kind) {
    if (!(r->how & KRAKE_FACTS) || r->fact_count[group] == MAX_FACTS[group]) return false;
    r->fact_count[group]++;
    buffer_add(&r->facts, &kind, 1);
    return true;
}

/* Adds a fact whose name, in lower case, and whose value are attributes. */
static void add_fact(struct reader *r, enum group group, char kind, enum slot name, enum slot value) {
    if (!has(r, value) || !begin_fact(r, group, kind)) return;
    size_t from = r->facts.length;
    add_words(r, &r->facts, name, MAX_FACT_NAME);
    for (size_t i = from; i < r->facts.length; i++) r->facts.bytes[i] = (char)lower((unsigned char)r->facts.bytes[i]);
    buffer_add(&r->facts, "", 1);
    add_words(r, &r->facts, value, MAX_FACT);
    buffer_add(&r->facts, "", 1);
}

/* Adds the fact of a link, by the first of its relations. */
static void add_relation(struct reader *r, struct piece href, struct piece rel) {
    if (!(r->how & KRAKE_FACTS)) return;
    if (has(r, ITEMPROP)) add_fact(r, METAS, 'i', ITEMPROP, HREF);
    for (size_t i = 0; i < sizeof RELATION / sizeof *RELATION && !r->text.failed; i++) {
        const char *name = RELATION[i].name;
        if (!holds_word(r, rel, RELATION[i].is_type ? "alternate" : name)) continue;
        if (RELATION[i].is_type && !value_is(r, TYPE, name, strlen(name), true)) continue;
        if (!begin_fact(r, RELATIONS, 'r')) return;
        buffer_add(&r->facts, name, strlen(name) + 1);
        buffer_add(&r->facts, r->text.bytes + href.from, href.length);
        buffer_add(&r->facts, "", 1);
        return;
    }
}

static void start_link(struct reader *r) {
    start_candidates(r, 'l', IMAGESRCSET);
    if (value_of(r, HREF).length == 0) return;
    size_t before = r->text.length;
    struct piece href = keep_value(r, HREF), rel = keep_rel(r);
    add_relation(r, href, rel);
    enum krake_kind kind;
    if (is_part(r, rel, &kind)) {
        add_requisite(r, kind, (struct link){href, NO_PIECE, rel, 'l'});
        return;
    }
    bool canonical = !r->has[CANONICAL] && holds_word(r, rel, "canonical");
    if (canonical) say(r, CANONICAL, href);
    if (has_room(r)) add_link(r, 'l', href, NO_PIECE, rel);
    else if (!canonical) r->text.length = before;
}

static void start_heading(struct reader *r) {
    if (!(r->how & KRAKE_FACTS) || r->headings.length >= MAX_HEADINGS) return;
    if (r->headings.length) buffer_add(&r->headings, "\n", 1);
    r->in_heading = true;
    words_begin(&r->heading, &r->headings, MAX_HEADINGS - r->headings.length);
}

/* Whether a type is that of JSON-LD, perhaps with parameters. */
static bool is_json_ld(struct reader *r) {
    static const char NAME[] = "application/ld+json";
    size_t from = r->text.length, length = sizeof NAME - 1;
    decode(r, value_of(r, TYPE), REFERENCES_COUNT | IN_ATTRIBUTE, buffer_sink, &r->text);
    struct span type = span_trim(span_of(&r->text, from));
    bool is = type.length >= length && span_equals((struct span){type.at, length}, NAME, length) &&
              (type.length == length || type.at[length] == ';' || is_space(type.at[length]));
    r->text.length = from;
    return is;
}

/* Begins the JSON-LD of a script, whose text comes next. */
static void start_json(struct reader *r) {
    r->json_fact = r->facts.length;
    if (!r->json_left || !is_json_ld(r) || !begin_fact(r, BLOCKS, 'j')) return;
    buffer_add(&r->facts, "", 1);
    r->json_from = r->facts.length;
    r->in_json = true;
}

/* Text from its first bracket on: without the start of a comment or of a CDATA section that some pages put around JSON. */
static struct span bare_json(struct span text) {
    static const char CDATA[] = "<![CDATA[";
    size_t at = 0, length = sizeof CDATA - 1;
    while (at < text.length && text.at[at] != '{' && text.at[at] != '[')
        at += text.length - at >= length && memcmp(text.at + at, CDATA, length) == 0 ? length : 1;
    return (struct span){text.at + at, text.length - at};
}

/* Whether JSON is so flat, and has so few values, that a parser reads it in no time. Brackets in texts do not count. */
static bool is_moderate(struct reader *r, struct span json) {
    size_t depth = 0, values = 0;
    bool in_text = false;
    for (size_t i = 0; i < json.length; i++) {
        unsigned char c = json.at[i];
        if (c == '"') in_text = !in_text;
        else if (in_text) i += c == '\\';
        else if (c == '[' || c == '{') values++, depth++;
        else if (c == ',') values++;
        else if ((c == ']' || c == '}') && depth) depth--;
        if (depth > MAX_DEPTH) return false;
    }
    if (values > r->values_left || values > FREE_VALUES + json.length / VALUE_BYTES) return false;
    r->values_left -= values;
    return json.length != 0;
}

static void end_json(struct reader *r) {
    struct span text = span_of(&r->facts, r->json_from), json = bare_json(text);
    r->in_json = false;
    r->tokens.steps += text.length;
    if (!is_moderate(r, json)) {
        r->facts.length = r->json_fact;
        return;
    }
    memmove(r->facts.bytes + r->json_from, json.at, json.length);
    r->facts.length = r->json_from + json.length;
    buffer_add(&r->facts, "", 1);
}

static void end_raw_text(struct reader *r) {
    r->in_title = false;
    if (r->in_json) end_json(r);
}

static void start_meta(struct reader *r) {
    keep_charset(r);
    if (value_of(r, CONTENT).length == 0) return;
    static const enum slot NAMES[] = {PROPERTY, NAME, ITEMPROP, HTTP_EQUIV};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (has(r, NAMES[i])) add_fact(r, METAS, NAMES[i] == ITEMPROP ? 'i' : 'm', NAMES[i], CONTENT);
    if (has(r, NAME)) {
        struct piece name = keep_value(r, NAME);
        struct span given = {span_of(&r->text, 0).at + name.from, name.length};
        bool describes = !r->text.failed && span_is(given, "description");
        bool instructs = !r->text.failed && (span_is(given, "robots") || (r->agent.length && span_equals(given, (const char *)r->agent.at, r->agent.length)));
        r->text.length = name.from;
        if (describes && !r->has[DESCRIPTION]) say(r, DESCRIPTION, keep_words(r, CONTENT, MAX_DESCRIPTION));
        if (instructs) {
            if (r->has[ROBOTS]) buffer_add(&r->robots, ", ", 2);
            r->has[ROBOTS] = true;
            add_words(r, &r->robots, CONTENT, MAX_DESCRIPTION);
        }
    }
    if (has(r, HTTP_EQUIV) && value_is(r, HTTP_EQUIV, "refresh", sizeof "refresh" - 1, true)) add_refresh(r);
}

static void begin(struct reader *r, const char *text, size_t length, size_t max_requisites, int how) {
    r->tokens.at = (const unsigned char *)text;
    r->tokens.end = r->tokens.at + length;
    r->max_requisites = max_requisites;
    r->how = how;
    r->medium = KRAKE_VIDEO;
}

#define BUFFERS(r) {&(r)->text, &(r)->anchor, &(r)->robots, &(r)->charsets, &(r)->links, &(r)->facts, &(r)->headings, &(r)->requisites, &(r)->css}
enum { BUFFER_COUNT = 9 };

static bool has_failed(struct reader *r) {
    const struct buffer *all[BUFFER_COUNT] = BUFFERS(r);
    bool failed = false;
    for (size_t i = 0; i < BUFFER_COUNT; i++) failed = failed || all[i]->failed;
    return failed;
}

static void free_buffers(struct reader *r) {
    struct buffer *all[BUFFER_COUNT] = BUFFERS(r);
    for (size_t i = 0; i < BUFFER_COUNT; i++) buffer_free(all[i]);
}

static void add_requisites_of(struct reader *r, const struct reader *inner) {
    const struct link *link = (const struct link *)(const void *)inner->requisites.bytes;
    size_t from = r->text.length;
    buffer_add(&r->text, inner->text.bytes, inner->text.length);
    for (size_t left = inner->requisites.length / sizeof *link; left--; link++) {
        struct link moved = *link;
        moved.href.from += from;
        moved.anchor.from += from;
        moved.rel.from += from;
        buffer_add(&r->requisites, &moved, sizeof moved);
    }
    r->requisites_cut += inner->requisites_cut;
    r->tokens.steps += inner->tokens.steps;
}

static void read_page(struct reader *r);

/* Reads the document that a `srcdoc` holds: its requisites are those of the page, its links do not count. */
static void start_srcdoc(struct reader *r) {
    if (r->srcdocs == MAX_SRCDOCS) {
        r->requisites_cut++;
        return;
    }
    struct reader inner = {.tags = r->tags, .srcdocs = r->srcdocs + 1};
    struct buffer html = {0};
    decode(r, value_of(r, SRCDOC), REFERENCES_COUNT | IN_ATTRIBUTE, buffer_sink, &html);
    size_t left = r->max_requisites - r->requisites.length / sizeof(struct link);
    begin(&inner, html.bytes, html.length, left, r->how & ~(KRAKE_CUT | KRAKE_XML | KRAKE_FACTS));
    if (html.length) read_page(&inner);
    if (html.failed || has_failed(&inner)) r->requisites.failed = true;
    else add_requisites_of(r, &inner);
    free_buffers(&inner);
    buffer_free(&html);
}

/* A frame is a link in any case, but for a frame in a `srcdoc`. A `srcdoc` counts in place of the `src`. */
static void start_frame(struct reader *r, char code) {
    start_source(r, code, SRC, false, false);
    if (code == 'i' && has(r, SRCDOC)) start_srcdoc(r);
    else start_more(r, r->srcdocs ? 'h' : code, KRAKE_FRAME, SRC);
}

/* A tag with a `src` whose target is no image. */
static void start_src(struct reader *r, char code) {
    switch (code) {
    case 's': start_part(r, code, KRAKE_SCRIPT, SRC, false); break;
    case 'e': start_part(r, code, KRAKE_OBJECT, SRC, false); break;
    case 'u':
    case 'v':
        r->medium = code == 'u' ? KRAKE_AUDIO : KRAKE_VIDEO;
        start_part(r, code, r->medium, SRC, false);
        start_more(r, code, KRAKE_IMAGE, POSTER);
        break;
    case 'o':
    case 't':
        start_part(r, code, r->medium, SRC, false);
        start_candidates(r, code, SRCSET);
        break;
    default: start_frame(r, code);
    }
}

static void start_element(struct reader *r, const struct tag *tag) {
    switch (tag->role) {
    case ROLE_A: start_a(r); break;
    case ROLE_AREA: start_source(r, tag->code, HREF, true, true); break;
    case ROLE_IMG:
        start_part(r, tag->code, KRAKE_IMAGE, SRC, true);
        start_candidates(r, tag->code, SRCSET);
        break;
    case ROLE_SRC: start_src(r, tag->code); break;
    case ROLE_OBJECT: start_part(r, tag->code, KRAKE_OBJECT, DATA, false); break;
    case ROLE_INPUT:
        if (value_is(r, TYPE, "image", sizeof "image" - 1, false)) start_part(r, tag->code, KRAKE_IMAGE, SRC, false);
        break;
    case ROLE_LINK: start_link(r); break;
    case ROLE_META: start_meta(r); break;
    case ROLE_HTML: add_fact(r, ELEMENTS, 'l', SLOTS, has(r, LANG) ? LANG : XML_LANG); break;
    case ROLE_TIME: add_fact(r, ELEMENTS, has(r, PUBDATE) ? 'p' : 't', ITEMPROP, DATETIME); break;
    case ROLE_HEADING: start_heading(r); break;
    case ROLE_BASE:
        if (has(r, HREF) && !r->has[BASE]) say(r, BASE, keep_value(r, HREF));
        break;
    default: break;
    }
}

/* What a tag says about the end of the link that is open. */
static void start_block(struct reader *r, const struct tag *tag) {
    if ((tag->flags & CELL) && !r->blocks) close_link(r);
    if (tag->flags & BLOCK) r->blocks++;
    if (tag->flags & (BLOCK | ENDS_DRAWING)) r->heading.space = r->heading.begun;
}

static void end_block(struct reader *r, const struct tag *tag) {
    if ((tag->flags & (BLOCK | CELL)) && !r->blocks) close_link(r);
    if ((tag->flags & BLOCK) && r->blocks) r->blocks--;
}

static void read_raw(struct reader *r, const struct tag *tag) {
    r->tokens.content = tag->content;
    r->tokens.raw_name = (struct span){(const unsigned char *)tag->name, tag->length};
}

/* What an element of SVG loads: images, parts of other drawings, scripts. All are written with `xlink:href` too. */
static void start_drawing(struct reader *r, struct span name) {
    enum slot slot = has(r, HREF) ? HREF : XLINK_HREF;
    if (span_is(name, "image") || span_is(name, "feimage")) start_more(r, 'z', KRAKE_IMAGE, slot);
    if (span_is(name, "use")) start_more(r, 'w', KRAKE_IMAGE, slot);
    if (span_is(name, "script")) start_more(r, 's', KRAKE_SCRIPT, slot);
}

/* The image behind an element: https://html.spec.whatwg.org/#the-page and #tables-2 name the elements. */
static void start_background(struct reader *r, struct span name) {
    static const char *const NAMES[] = {"body", "table", "thead", "tbody", "tfoot", "tr", "td", "th"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (span_equals(name, NAMES[i], strlen(NAMES[i]))) start_more(r, 'k', KRAKE_IMAGE, BACKGROUND);
}

static void on_start(struct reader *r, struct span name, const struct tag *tag, bool self_closing) {
    bool font = tag != NULL && tag->role == ROLE_FONT && (has(r, COLOR) || has(r, FACE) || has(r, SIZE));
    bool annotation = tag != NULL && (tag->flags & ANNOTATION) &&
                      (value_is(r, ENCODING, "text/html", sizeof "text/html" - 1, false) || value_is(r, ENCODING, "application/xhtml+xml", sizeof "application/xhtml+xml" - 1, false));
    bool foreign = foreign_start(&r->foreign, tag, self_closing, font, annotation);
    if (wants_any(r) && !r->templates) {
        start_style_attribute(r);
        if (foreign) start_drawing(r, name);
        else if (has(r, BACKGROUND)) start_background(r, name);
        if (span_is(name, "style") && !(foreign && self_closing)) {
            end_style(r, false);
            r->in_style = true;
        }
    }
    if (tag == NULL) return;
    bool image = tag->role == ROLE_IMG && tag->name[2] == 'a';  /* `image`: in HTML another name of img */
    if (!r->templates && !(foreign && image)) {
        start_element(r, tag);
        start_block(r, tag);
    }
    if (foreign) return;
    if (self_closing && (r->how & KRAKE_XML)) {
        if (tag->role == ROLE_A && !r->templates) close_link(r);
        return;
    }
    if (tag->role == ROLE_TEMPLATE) r->templates++;
    if (tag->content != CONTENT_DATA) read_raw(r, tag);
    if (tag->content == CONTENT_SCRIPT && !r->templates) start_json(r);
    if (tag->role == ROLE_TITLE && !r->foreign.depth && !r->templates && !r->has[TITLE]) {
        r->in_title = true;
        say(r, TITLE, (struct piece){r->text.length, 0});
    }
}

static void on_end(struct reader *r, const struct tag *tag) {
    r->tokens.steps += r->foreign.depth;
    if (tag != NULL && tag->role == ROLE_A && r->open_link && r->foreign.depth > r->link_depth)
        r->foreign.depth = r->link_depth;  /* an svg that was never closed ends with the link around it */
    bool foreign = foreign_end(&r->foreign, tag);
    if (tag == NULL) return;
    if (r->in_style && strcmp(tag->name, "style") == 0) end_style(r, false);
    if (!foreign && tag->role == ROLE_TEMPLATE && r->templates) r->templates--;
    if (r->templates) return;
    if (tag->role == ROLE_A) close_link(r);
    if (tag->role == ROLE_HEADING) r->in_heading = false;
    end_block(r, tag);
}

static void on_text(struct reader *r, enum token kind, struct span text) {
    int how = kind == TOKEN_TEXT || kind == TOKEN_RCDATA ? REFERENCES_COUNT : 0;
    if (kind == TOKEN_TEXT && !foreign_inside(&r->foreign)) how |= DROP_NUL;
    if (kind != TOKEN_RAW && !r->templates) {
        r->tokens.steps += text.length;
        words_see(&r->seen_words, text, r->tokens.end);
    }
    if (r->in_style) decode(r, text, how, buffer_sink, &r->css);
    if (r->in_json && text.length <= r->json_left) {
        r->json_left -= text.length;
        decode(r, text, how, buffer_sink, &r->facts);
    }
    if (r->in_heading && kind != TOKEN_RAW && !r->templates) decode(r, text, how, words_add, &r->heading);
    if (r->in_title) {
        struct words words;
        words_begin(&words, &r->text, MAX_TITLE);
        decode(r, text, how, words_add, &words);
        r->said[TITLE].length = r->text.length - r->said[TITLE].from;
    }
    if (r->open_link && !r->templates && r->words.left_bytes) decode(r, text, how, words_add, &r->words);
}

static void read_page(struct reader *r) {
    struct span data;
    enum token kind;
    while ((kind = token_next(&r->tokens, &data)) != TOKEN_EOF) {
        if (kind >= TOKEN_TEXT && kind <= TOKEN_CDATA) {
            on_text(r, kind, data);
        } else if (kind == TOKEN_START) {
            const struct tag *tag = tag_named(&r->tags, data);
            bool matters = (tag != NULL && (tag->role != ROLE_NONE || (tag->flags & ANNOTATION))) || wants_any(r), closing;
            r->seen = 0;
            if (!token_attributes(&r->tokens, matters ? keep_attribute : NULL, r, &closing)) break;
            on_start(r, data, tag, closing);
        } else if (kind == TOKEN_END) {
            bool closing;
            end_raw_text(r);
            if (!token_attributes(&r->tokens, NULL, NULL, &closing)) break;
            on_end(r, tag_named(&r->tags, data));
        } else {
            continue;
        }
        r->tokens.cdata = (r->how & KRAKE_XML) || foreign_cdata(&r->foreign);
    }
    if (r->how & KRAKE_CUT) {  /* the end of what is open here is missing */
        if (r->in_title) r->has[TITLE] = false;
        r->anchor.length = 0;
    }
    end_raw_text(r);
    end_style(r, r->how & KRAKE_CUT);
    close_link(r);
}

/* Writes the fields one behind the other; all of them are in memory already. */
static void write_piece(const struct reader *r, struct piece piece, struct buffer *out) {
    if (piece.length) buffer_add(out, r->text.bytes + piece.from, piece.length);
    buffer_add(out, "", 1);
}

static void write_links(const struct reader *r, const struct buffer *links, struct buffer *out) {
    const struct link *link = (const struct link *)(const void *)links->bytes;
    for (size_t left = links->length / sizeof *link; left--; link++) {
        buffer_add(out, &link->code, 1);
        write_piece(r, link->href, out);
        write_piece(r, link->anchor, out);
        write_piece(r, link->rel, out);
    }
}

static void write_page(struct reader *r, struct buffer *out) {
    for (int i = 0; i < SAID; i++) buffer_add(out, r->has[i] ? "1" : "0", 1);
    buffer_add(out, "", 1);
    for (int i = 0; i < SAID; i++) {
        if (i == ROBOTS) buffer_add(out, r->robots.bytes, r->robots.length), buffer_add(out, "", 1);
        else write_piece(r, r->said[i], out);
    }
    buffer_add(out, r->facts.bytes, r->facts.length);
    if (r->headings.length) buffer_add(out, "h", 2), buffer_add(out, r->headings.bytes, r->headings.length), buffer_add(out, "", 1);
    buffer_add(out, r->charsets.bytes, r->charsets.length);
    buffer_add(out, "", 1);
}

#ifndef KRAKE_SOURCES
#define KRAKE_SOURCES 0
#endif
uint64_t krake_sources(void) { return KRAKE_SOURCES; }

/* Writes what was read, and frees the rest. Returns 0, and -1 if memory ran out. */
static int end(struct reader *r, bool is_page, struct krake_page *page) {
    struct buffer out = {0}, links = {0}, requisites = {0};
    bool failed = has_failed(r);
    if (!failed) {
        if (is_page) write_page(r, &out);
        write_links(r, &r->links, &links);
        write_links(r, &r->requisites, &requisites);
    }
    *page = (struct krake_page){out.bytes, links.bytes, requisites.bytes, out.length, links.length, requisites.length,
                                r->cut, r->requisites_cut, r->tokens.steps, words_digest(&r->seen_words)};
    failed = failed || out.failed || links.failed || requisites.failed;
    if (failed) krake_free(page);
    free_buffers(r);
    return failed ? -1 : 0;
}

int krake_links(const char *html, size_t length, const char *agent, size_t agent_length, size_t max_links,
                size_t max_anchor_chars, size_t max_requisites, int how, struct krake_page *page) {
    struct reader r = {0};
    begin(&r, html, length, max_requisites, how);
    r.agent = (struct span){(const unsigned char *)agent, agent_length};
    r.max_links = max_links;
    r.max_anchor_chars = max_anchor_chars;
    r.json_left = MAX_JSON;
    r.values_left = MAX_VALUES;
    r.tokens.cdata = how & KRAKE_XML;
    tags_index(&r.tags);
    read_page(&r);
    return end(&r, true, page);
}

int krake_css(const char *css, size_t length, size_t max_requisites, int how, struct krake_page *page) {
    struct reader r = {0};
    begin(&r, css, length, max_requisites, how);
    r.tokens.steps = length;
    if (!css_urls((struct span){r.tokens.at, length}, how & KRAKE_CUT, add_css_url, &r)) r.css.failed = true;
    return end(&r, false, page);
}

void krake_free(struct krake_page *page) {
    free(page->text);
    free(page->links);
    free(page->requisites);
    page->text = page->links = page->requisites = NULL;
}

/* Whether `word` begins within `reach` bytes of `at`. `*read`: so far no such word begins; no byte is read twice. */
static bool begins_within(const unsigned char **read, const unsigned char *at, const unsigned char *end, size_t reach,
                          struct span word) {
    const unsigned char *stop = (size_t)(end - at) < reach ? end : at + reach;
    if (*read < at) *read = at;
    for (; *read < stop && (size_t)(end - *read) >= word.length; ++*read)
        if (span_equals((struct span){*read, word.length}, (const char *)word.at, word.length)) return true;
    return false;
}

int krake_names_charset(const char *html, size_t length, size_t from, size_t reach) {
    static const struct span META = {(const unsigned char *)"meta", 4}, WORD = {(const unsigned char *)"charset", 7};
    const unsigned char *at = (const unsigned char *)html, *end = at + length, *read = at;
    for (at += from < length ? from : length; (at = memchr(at, '<', (size_t)(end - at))) != NULL;) {
        at++;
        if ((size_t)(end - at) < META.length || !span_equals((struct span){at, META.length}, "meta", META.length)) continue;
        if (begins_within(&read, at, end, reach, WORD)) return 1;
    }
    return 0;
}
