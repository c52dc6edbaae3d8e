/* The elements that matter to links: which hold one, which change how text is read, which end a link's text. */
#ifndef KRAKE_TAGS_H
#define KRAKE_TAGS_H

#include "tokens.h"

enum role {
    ROLE_NONE, ROLE_A, ROLE_AREA, ROLE_SRC, ROLE_IMG, ROLE_INPUT, ROLE_OBJECT, ROLE_LINK, ROLE_META, ROLE_BASE,
    ROLE_TITLE, ROLE_TEMPLATE, ROLE_SVG, ROLE_MATH, ROLE_FONT, ROLE_HTML, ROLE_HEADING, ROLE_TIME,
};

enum {
    VOID = 1,           /* has no end tag */
    BLOCK = 2,          /* its end tag ends a link that began before it */
    CELL = 4,           /* part of a table: its start and its end end a link that began outside */
    BREAKOUT = 8,       /* its start tag ends SVG and MathML */
    SVG_HTML = 16,      /* within it SVG holds HTML again */
    MATH_TEXT = 32,     /* within it MathML holds HTML again */
    ANNOTATION = 64,    /* within it MathML may hold HTML or SVG */
    STAYS = 128,        /* its end tag ends no drawing */
    ENDS_DRAWING = 256, /* its end tag ends SVG and MathML, whether it is open or not */
};

struct tag {
    char name[15];
    unsigned char length;
    enum role role;
    char code;  /* of its links in the answer */
    unsigned flags;
    enum content content;  /* what its start tag makes of the text behind it */
};

enum { TAG_COUNT = 112, LETTERS = 26 };

/* Sorted by the first letter. */
extern const struct tag TAGS[TAG_COUNT];

/* Where in TAGS each letter begins, and the end. */
struct tag_index {
    unsigned char from[LETTERS + 1];
};

void tags_index(struct tag_index *index);

/* The tag of a name that begins with a letter, in any case; NULL if it does not matter. */
const struct tag *tag_named(const struct tag_index *index, struct span name);

#endif
