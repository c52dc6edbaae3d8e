/* The links of a page and what it says of itself, in one pass over its tokens. docs/links.md says what is one. */
#ifndef KRAKE_LINKS_H
#define KRAKE_LINKS_H

#include <stddef.h>
#include <stdint.h>

struct krake_page {
    /* Fields, each ended by a NUL, which none holds; bytes that are no UTF-8 are left as they are in the page:
       a 0 or 1 for each of the next five (whether the page has it); title; description; robots metas; href of the
       canonical link; href of the base; what metas say of the charset, a line each: `c` and the attribute charset, or
       `h` and the content of a meta Content-Type.
       With KRAKE_FACTS there are more fields before that of the charset, a name and a value for each fact: `m` and the
       name or property of a meta in lower case, its content; `i` and the itemprop of a meta or of a link, its content or href;
       `r` and a relation of a link (links.c has a list), its href; `l`, the lang of html; `t` and the itemprop of a time,
       its datetime; `p` in place of `t` where the time has the attribute pubdate; `j`, the text of a JSON-LD block, unless
       the block is nested too deeply, or has too many values; `h`, the headings, a line each. */
    char *text;
    /* Each link: a letter for its element (a capital one: rel holds nofollow) before its href, its anchor text, its rel. */
    char *links;
    /* Requisites of the kinds that were asked for, in the same form: images, style sheets, scripts, fonts... */
    char *requisites;
    size_t length, links_length, requisites_length;
    uint64_t cut, requisites_cut;  /* links and requisites beyond the limits */
    uint64_t steps;  /* bytes looked at: the work that was done */
    uint64_t words;  /* digest of the page's words: see sketch.h */
};

/* The digest of the sources that this was compiled from (`sources_digest` in compile.py), 0 if it was not given. */
uint64_t krake_sources(void);

/* KRAKE_CUT: the end of the page is missing, so a title or a link that is open there has no text. KRAKE_XML: the page is
   XHTML, where `<script/>` is closed and `<![CDATA[` opens a section. KRAKE_FACTS: facts are wanted too. */
enum { KRAKE_CUT = 1, KRAKE_XML = 2, KRAKE_FACTS = 4 };

/* The kinds of requisites. Each that is wanted adds `1 << (KRAKE_KINDS + kind)` to `how`. */
enum { KRAKE_KINDS = 8 };
enum krake_kind { KRAKE_STYLE, KRAKE_SCRIPT, KRAKE_IMAGE, KRAKE_FONT, KRAKE_VIDEO, KRAKE_AUDIO, KRAKE_OBJECT, KRAKE_FRAME, KRAKE_OTHER };

/* Reads a page in UTF-8. `agent`: a name of robots metas other than `robots`, lower case; `how`: a sum of these.
   Returns 0, and -1 if memory ran out. Its texts are given back by `krake_free`. */
int krake_links(const char *html, size_t length, const char *agent, size_t agent_length, size_t max_links,
                size_t max_anchor_chars, size_t max_requisites, int how, struct krake_page *page);

/* Reads the requisites of a style sheet in UTF-8, and nothing else; see `krake_links`. */
int krake_css(const char *css, size_t length, size_t max_requisites, int how, struct krake_page *page);

void krake_free(struct krake_page *page);

/* Whether a `<meta` behind byte `from` has the word `charset` within the next `reach` bytes, in letters of any case. */
int krake_names_charset(const char *html, size_t length, size_t from, size_t reach);

#endif
