/* The URLs that a style sheet names, in one pass over its tokens: CSS Syntax Level 3, https://www.w3.org/TR/css-syntax-3/ */
#ifndef KRAKE_CSS_H
#define KRAKE_CSS_H

#include "text.h"

/* Where a URL stands: behind `@import`, within `@font-face`, anywhere else. */
enum css_place { CSS_IMPORT, CSS_FONT, CSS_OTHER };

/* `url`: its escapes are undone; the bytes are there until the sink returns. */
typedef void css_sink(void *context, enum css_place place, struct span url);

/* Gives each URL of a sheet, or of a `style` attribute, to `sink`: of `url()`, of `@import "..."`, and strings of
   `image-set()`. `@namespace` names none. `is_cut`: the end of the sheet is missing, so a URL that is open there does
   not count. Each byte is read a bounded number of times. False if memory ran out. */
bool css_urls(struct span css, bool is_cut, css_sink *sink, void *context);

#endif
