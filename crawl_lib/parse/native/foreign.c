#include "foreign.h"

bool foreign_inside(const struct foreign *f) { return f->depth && !f->open[f->depth - 1].holds; }

bool foreign_cdata(const struct foreign *f) { return f->depth && !f->open[f->depth - 1].inner; }

/* Back to HTML: to what holds it, or out of all. */
static void leave(struct foreign *f) {
    while (foreign_inside(f)) f->depth--;
}

static void open_one(struct foreign *f, const struct tag *tag, bool math, bool holds) {
    if (f->depth == MAX_FOREIGN) return;
    f->open[f->depth].tag = tag;
    f->open[f->depth].math = math;
    f->open[f->depth].holds = holds;
    f->open[f->depth++].inner = 0;
}

static bool is_root(const struct tag *tag) { return tag->role == ROLE_SVG || tag->role == ROLE_MATH; }

static void start_inside(struct foreign *f, const struct tag *tag, bool html_annotation) {
    bool math = f->open[f->depth - 1].math;
    unsigned holding = math ? MATH_TEXT : SVG_HTML;
    if (is_root(tag)) open_one(f, tag, math, false);
    else if (tag->flags & holding) open_one(f, tag, math, true);
    else if (math && (tag->flags & ANNOTATION)) open_one(f, tag, math, html_annotation);
}

bool foreign_start(struct foreign *f, const struct tag *tag, bool self_closing, bool html_font, bool html_annotation) {
    if (foreign_inside(f) && tag != NULL && ((tag->flags & BREAKOUT) || html_font)) leave(f);
    bool in_annotation = f->depth && tag != NULL && tag->role == ROLE_SVG && (f->open[f->depth - 1].tag->flags & ANNOTATION);
    if (foreign_inside(f) && !in_annotation) {
        if (tag != NULL && !self_closing) start_inside(f, tag, html_annotation);
        return true;
    }
    if (tag != NULL && is_root(tag)) {
        if (!self_closing) open_one(f, tag, tag->role == ROLE_MATH, false);
        return true;
    }
    bool is_void = tag != NULL && (tag->flags & VOID);
    if (f->depth && !is_void) f->open[f->depth - 1].inner++;
    else if (tag != NULL && !is_void) f->around[tag - TAGS]++;
    return false;
}

/* Ends the element of HTML that is open around SVG and MathML, if there is one: then they end with it. */
static bool end_around(struct foreign *f, const struct tag *tag) {
    size_t *around = &f->around[tag - TAGS];
    if (*around == 0 || (tag->flags & STAYS)) return false;
    --*around;
    return true;
}

bool foreign_end(struct foreign *f, const struct tag *tag) {
    size_t *inner = f->depth ? &f->open[f->depth - 1].inner : NULL;
    if (inner != NULL && *inner) {
        if (!(tag != NULL && (tag->flags & VOID))) --*inner;
        return false;
    }
    if (tag == NULL) return f->depth > 0;
    for (size_t i = f->depth; i-- > 0 && !f->open[i].inner;) {
        if (f->open[i].tag != tag) continue;
        f->depth = i;
        return true;
    }
    if (end_around(f, tag) || (tag->flags & ENDS_DRAWING)) leave(f);
    return foreign_inside(f);
}
