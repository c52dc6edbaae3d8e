/* SVG and MathML: where a page is in them, as far as this changes what its text and its tags mean. */
#ifndef KRAKE_FOREIGN_H
#define KRAKE_FOREIGN_H

#include "tags.h"

enum { MAX_FOREIGN = 64 };  /* deeper ones count as part of the 64th, so that an end tag costs at most 64 looks */

/* The open elements that count: each `svg` and `math`, and those within them that hold HTML again. */
struct foreign {
    struct {
        const struct tag *tag;
        bool math;      /* of MathML, not of SVG */
        bool holds;     /* holds HTML */
        size_t inner;   /* elements of HTML that are open within it */
    } open[MAX_FOREIGN];
    size_t depth;
    size_t around[TAG_COUNT];  /* elements of HTML that are open around all that */
};

/* Whether a tag that comes now is one of SVG or MathML, unless its name says otherwise. */
bool foreign_inside(const struct foreign *f);

/* Whether `<![CDATA[` opens a section now. */
bool foreign_cdata(const struct foreign *f);

/* Takes a start tag in; true if it is one of SVG or MathML. `html_font`: a `font` with color, face or size;
   `html_annotation`: an annotation-xml whose encoding is HTML. */
bool foreign_start(struct foreign *f, const struct tag *tag, bool self_closing, bool html_font, bool html_annotation);

/* Takes an end tag in; true if it was one of SVG or MathML. */
bool foreign_end(struct foreign *f, const struct tag *tag);

#endif
