#include "tags.h"

#define TAG(name, role, code, flags, content) {name, sizeof name - 1, role, code, flags, content}
#define PLAIN(name, flags) TAG(name, ROLE_NONE, 0, flags, CONTENT_DATA)

const struct tag TAGS[TAG_COUNT] = {
    TAG("a", ROLE_A, 'a', STAYS, CONTENT_DATA),  /* links.c knows whether it ends */
    TAG("area", ROLE_AREA, 'r', VOID, CONTENT_DATA),
    TAG("audio", ROLE_SRC, 'u', 0, CONTENT_DATA),
    PLAIN("address", BLOCK), PLAIN("applet", BLOCK), PLAIN("article", BLOCK), PLAIN("aside", BLOCK),
    PLAIN("annotation-xml", ANNOTATION),
    TAG("base", ROLE_BASE, 0, VOID, CONTENT_DATA),
    PLAIN("b", BREAKOUT), PLAIN("big", BREAKOUT), PLAIN("blockquote", BLOCK | BREAKOUT), PLAIN("body", BREAKOUT | STAYS),
    PLAIN("br", VOID | BREAKOUT | ENDS_DRAWING), PLAIN("button", BLOCK),
    PLAIN("caption", CELL), PLAIN("center", BLOCK | BREAKOUT), PLAIN("code", BREAKOUT), PLAIN("col", VOID),
    PLAIN("dd", BLOCK | BREAKOUT), PLAIN("desc", SVG_HTML), PLAIN("details", BLOCK), PLAIN("dialog", BLOCK),
    PLAIN("dir", BLOCK), PLAIN("div", BLOCK | BREAKOUT), PLAIN("dl", BLOCK | BREAKOUT), PLAIN("dt", BLOCK | BREAKOUT),
    TAG("embed", ROLE_SRC, 'e', VOID | BREAKOUT, CONTENT_DATA),
    PLAIN("em", BREAKOUT),
    TAG("frame", ROLE_SRC, 'f', VOID, CONTENT_DATA),
    TAG("font", ROLE_FONT, 0, 0, CONTENT_DATA),
    PLAIN("fieldset", BLOCK), PLAIN("figcaption", BLOCK), PLAIN("figure", BLOCK), PLAIN("footer", BLOCK),
    PLAIN("foreignobject", SVG_HTML), PLAIN("form", BLOCK),
    TAG("h1", ROLE_HEADING, 0, BLOCK | BREAKOUT, CONTENT_DATA), TAG("h2", ROLE_HEADING, 0, BLOCK | BREAKOUT, CONTENT_DATA),
    TAG("h3", ROLE_HEADING, 0, BLOCK | BREAKOUT, CONTENT_DATA),
    PLAIN("h4", BLOCK | BREAKOUT), PLAIN("h5", BLOCK | BREAKOUT), PLAIN("h6", BLOCK | BREAKOUT),
    PLAIN("head", BREAKOUT | STAYS), PLAIN("header", BLOCK), PLAIN("hgroup", BLOCK), PLAIN("hr", VOID | BREAKOUT),
    TAG("html", ROLE_HTML, 0, STAYS, CONTENT_DATA),
    TAG("img", ROLE_IMG, 'g', VOID | BREAKOUT, CONTENT_DATA),
    TAG("iframe", ROLE_SRC, 'i', 0, CONTENT_RAWTEXT),
    TAG("input", ROLE_INPUT, 'n', VOID, CONTENT_DATA),
    TAG("image", ROLE_IMG, 'g', VOID, CONTENT_DATA),
    PLAIN("i", BREAKOUT),
    TAG("link", ROLE_LINK, 'l', VOID, CONTENT_DATA),
    PLAIN("li", BLOCK | BREAKOUT), PLAIN("listing", BLOCK | BREAKOUT),
    TAG("meta", ROLE_META, 'm', VOID | BREAKOUT, CONTENT_DATA),
    TAG("math", ROLE_MATH, 0, 0, CONTENT_DATA),
    PLAIN("main", BLOCK), PLAIN("malignmark", VOID), PLAIN("marquee", BLOCK), PLAIN("menu", BLOCK | BREAKOUT),
    PLAIN("mglyph", VOID), PLAIN("mi", MATH_TEXT), PLAIN("mn", MATH_TEXT), PLAIN("mo", MATH_TEXT),
    PLAIN("ms", MATH_TEXT), PLAIN("mtext", MATH_TEXT),
    PLAIN("nav", BLOCK), PLAIN("nobr", BREAKOUT),
    TAG("noembed", ROLE_NONE, 0, 0, CONTENT_RAWTEXT),
    TAG("noframes", ROLE_NONE, 0, 0, CONTENT_RAWTEXT),
    TAG("object", ROLE_OBJECT, 'j', BLOCK, CONTENT_DATA),
    PLAIN("ol", BLOCK | BREAKOUT),
    TAG("plaintext", ROLE_NONE, 0, BLOCK, CONTENT_PLAINTEXT),
    PLAIN("p", BLOCK | BREAKOUT | ENDS_DRAWING), PLAIN("param", VOID), PLAIN("pre", BLOCK | BREAKOUT),
    PLAIN("ruby", BREAKOUT),
    TAG("script", ROLE_SRC, 's', 0, CONTENT_SCRIPT),
    TAG("source", ROLE_SRC, 'o', VOID, CONTENT_DATA),
    TAG("style", ROLE_NONE, 0, 0, CONTENT_RAWTEXT),
    TAG("svg", ROLE_SVG, 0, 0, CONTENT_DATA),
    PLAIN("s", BREAKOUT), PLAIN("search", BLOCK), PLAIN("section", BLOCK), PLAIN("small", BREAKOUT),
    PLAIN("span", BREAKOUT), PLAIN("strike", BREAKOUT), PLAIN("strong", BREAKOUT), PLAIN("sub", BREAKOUT),
    PLAIN("summary", BLOCK), PLAIN("sup", BREAKOUT),
    TAG("title", ROLE_TITLE, 0, SVG_HTML, CONTENT_RCDATA),
    TAG("template", ROLE_TEMPLATE, 0, 0, CONTENT_DATA),
    TAG("textarea", ROLE_NONE, 0, 0, CONTENT_RCDATA),
    TAG("time", ROLE_TIME, 0, 0, CONTENT_DATA),
    TAG("track", ROLE_SRC, 't', VOID, CONTENT_DATA),
    PLAIN("table", BLOCK | BREAKOUT), PLAIN("tbody", CELL), PLAIN("td", CELL), PLAIN("tfoot", CELL), PLAIN("th", CELL),
    PLAIN("thead", CELL), PLAIN("tr", CELL), PLAIN("tt", BREAKOUT),
    PLAIN("u", BREAKOUT), PLAIN("ul", BLOCK | BREAKOUT),
    TAG("video", ROLE_SRC, 'v', 0, CONTENT_DATA),
    PLAIN("var", BREAKOUT),
    PLAIN("wbr", VOID),
    TAG("xmp", ROLE_NONE, 0, BLOCK, CONTENT_RAWTEXT),
};

_Static_assert(sizeof "annotation-xml" <= sizeof TAGS->name, "the longest name fits");

void tags_index(struct tag_index *index) {
    size_t i = 0;
    for (int letter = 0; letter <= LETTERS; letter++) {
        index->from[letter] = (unsigned char)i;
        while (i < TAG_COUNT && TAGS[i].name[0] == 'a' + letter) i++;
    }
}

const struct tag *tag_named(const struct tag_index *index, struct span name) {
    size_t letter = (size_t)(lower(name.at[0]) - 'a');
    for (size_t i = index->from[letter]; i < index->from[letter + 1]; i++)
        if (span_equals(name, TAGS[i].name, TAGS[i].length)) return &TAGS[i];
    return NULL;
}
