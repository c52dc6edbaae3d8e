"""Links of tokens against links of a tree: lexbor builds it as browsers do.

Equal in everything: well-nested pages, whatever their tags, attributes, references, comments and drawings are, and the
documentation of Debian. In markup that is wrongly nested the same links are found; where the tree moves or copies an
element their order, number and text may differ. docs/links.md lists what differs, and `DIVERGENCES` has a case of each.
"""

from __future__ import annotations

import random
from pathlib import Path
from random import Random

import pytest

from crawl_lib.parse.charset import to_utf8
from crawl_lib.parse.scan import FACTS, scan
from tests.parse import oracle
from tests.parse.links import read_links

INLINE = (
    "b",
    "i",
    "em",
    "span",
    "font",
    "code",
    "u",
    "small",
    "strong",
    "label",
    "x-y",
    "ruby",
    "noscript",
)
BLOCKS = (
    "div",
    "section",
    "blockquote",
    "center",
    "article",
    "fieldset",
    "details",
    "h2",
    "object",
    "video",
    "form",
)
RAW = ("script", "style", "textarea", "iframe", "noembed", "noframes")
TEXTS = (
    "text", " two  words ", "&amp;", "&lt;b&gt;", "&notit;", "&notin", "&#x41;&#150;&#0;", "&nbsp;", "日本", "é", "😀",
    "&", "&copy=", "&#xD800;", "a\r\nb", "<", "< b", "&fjlig;", "&#55;7", "&acE;", "\u3000", "-->", "]]>", "'",
    '"', "&#x110000;",
)  # fmt: skip
COMMENTS = (
    "<!-- <a href=c> -->", "<![CDATA[<a href=d>]]>", "<!-->", "<!--->", "<!---->", "<!-- --!>", "<!-- - -- -->",
    "<?php a ?>", "</ x>", "<!x>",
)  # fmt: skip
SCRIPTS = (
    "", "'<a href=s>'", "<!--", "<!-- <script> </script> -->", "<!-- x -->", "</scrip", "<!--<script>--></scripty>",
)  # fmt: skip
META_NAMES = (
    "og:title",
    "OG:Image  twitter:image",
    "Autor\u212a",
    "date",
    "",
    "n" * 150,
    "a&amp;b",
    "\u00c4",
)
RELATIONS = (
    "icon",
    "Shortcut ICON",
    "apple-touch-icon",
    "mask-icon",
    "image_src",
    "alternate",
    "alternate icon",
    "",
)
JSON = (
    "", "{}", ' <!-- {"a": "]"} --> ', "//<![CDATA[\n[{}]\n//]]>", "[" * 64 + "]" * 64, "[" * 65 + "]" * 65,
    "<![CDATA[", '["\\"[[["]', "[" + "1," * 300 + "1]", "[" + "1," * 255, '["' + "x" * 900 + '"' + ",1" * 300 + "]",
    "text", '"[', '["[',
)  # fmt: skip
REFRESHES = ("0;url=r", "5", "1, x", "0 URL= &quot;q&quot;")


def attribute(rng: Random, name: str, value: str) -> str:
    quote = rng.choice(("'", '"', ""))
    if quote == "" and (value == "" or set(value) & set(" \t\r\n\f\"'<>=`/\u3000")):
        quote = '"'
    name = name.upper() if rng.random() < 0.2 else name
    space, equals = rng.choice((" ", "  ", "\n")), rng.choice(("=", " = ", "="))
    return f"{space}{name}{equals}{quote}{value.replace(quote or '~', '')}{quote}"


class Page:
    """A page drawn by seed, whose elements are well nested."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.count = 0

    def href(self) -> str:
        self.count += 1
        return (
            self.rng.choice(
                (
                    "p%d",
                    "/p%d?a=1&amp;b=2",
                    "?a&copy=%d",
                    "%d.html#&lt;",
                    " /s%d ",
                    "日%d",
                    "x%d&amp",
                )
            )
            % self.count
        )

    def attributes(self, *wanted: tuple[str, str]) -> str:
        rng = self.rng
        extra = [("class", "c"), ("title", "a > b"), ("data-x", rng.choice(TEXTS)), ("href2", "x")]
        chosen = [*wanted, *rng.sample(extra, rng.choice((0, 0, 1, 2)))]
        if wanted and rng.random() < 0.2:
            chosen.append((wanted[0][0], "second"))
        return "".join(attribute(rng, *pair) for pair in chosen)

    def rel(self) -> tuple[tuple[str, str], ...]:
        rel = self.rng.choice(("nofollow", "External  NOFOLLOW", "next", "", "canonical"))
        return (("rel", rel),) if self.rng.random() < 0.3 else ()

    def void(self) -> str:
        rng = self.rng
        name, source = rng.choice(
            (
                ("img", "src"),
                ("input", "src"),
                ("area", "href"),
                ("source", "src"),
                ("embed", "src"),
                ("br", "x"),
            )
        )
        wanted = [(source, self.href())]
        if name == "input":
            wanted.append(("type", rng.choice(("image", "IMAGE", "text"))))
        if name in ("img", "area"):
            wanted.append(("alt", rng.choice(TEXTS)))
        rng.shuffle(wanted)
        return f"<{name}{self.attributes(*wanted)}{rng.choice(('>', '/>', ' />'))}"

    def raw(self) -> str:
        name = self.rng.choice(RAW)
        text = (
            self.rng.choice(SCRIPTS)
            if name == "script"
            else self.rng.choice(("", "<a href=r>", "x &amp; y", "</b>", "<!--"))
        )
        wanted = (
            (("src", self.href()),)
            if name in ("script", "iframe") and self.rng.random() < 0.5
            else ()
        )
        return f"<{name}{self.attributes(*wanted)}>{text}</{name}{self.rng.choice(('', ' ', chr(10), ' x=y'))}>"

    def drawing(self) -> str:
        inner = self.rng.choice(
            (
                "<g><path d='x'/></g>",
                "<title>drawn</title>",
                "<text>t<![CDATA[<a href=c>]]></text>",
                "<foreignObject><p>html</p></foreignObject>",
                f"<a{self.attributes(('href', self.href()))}><text>s</text></a>",
                "<style>a > b { }</style>",
                "<use href='#x'/><image href='y'/>",
                "<desc><b>d</b></desc>",
            )
        )
        return (
            f"<svg>{inner}</svg>"
            if self.rng.random() < 0.8
            else "<math><mi>x</mi><mo>&lt;</mo></math>"
        )

    def inline(self, depth: int, within_link: bool) -> str:
        rng = self.rng
        kind = rng.random()
        if depth == 0 or kind < 0.35:
            return rng.choice(TEXTS)
        if kind < 0.5:
            return self.void()
        if kind < 0.54:
            return rng.choice(COMMENTS)
        if kind < 0.55:
            return self.time()
        if kind < 0.6:
            return self.raw()
        if kind < 0.65 and not within_link:
            return self.drawing()
        content = "".join(self.inline(depth - 1, True) for _ in range(rng.randrange(4)))
        if kind < 0.85 and not within_link:
            wanted = (
                (("href", self.href()), *self.rel()) if rng.random() < 0.9 else (("name", "x"),)
            )
            return f"<a{self.attributes(*wanted)}>{content}</a>"
        name = rng.choice(INLINE)
        return f"<{name}{self.attributes()}>{content}</{name}>"

    def block(self, depth: int) -> str:
        rng = self.rng
        content = "".join(self.inline(3, False) for _ in range(rng.randrange(4)))
        if depth == 0:
            return content
        below = "".join(self.block(depth - 1) for _ in range(rng.randrange(3)))
        kind = rng.random()
        if kind < 0.2:
            return f"<table><tr><td>{content}<td>{content and below}</table>"
        if kind < 0.3:
            return f"<ul><li>{content}<li>{below}</ul><p>{content}</p>"
        if kind < 0.36:
            return f"<template>{content}{below}</template>"
        if kind < 0.44:
            text, more = rng.choice(TEXTS), rng.choice(TEXTS)
            return f"<a{self.attributes(('href', self.href()))}><div>{text}<p>{more}</p></div></a>"
        name = rng.choice(BLOCKS)
        return f"<{name}{self.attributes()}>{content}{below}</{name}>"

    def head(self) -> str:
        rng, name = self.rng, self.rng.choice(("description", "ROBOTS", "krake", "x"))
        parts = [
            f"<title>{''.join(rng.choices(TEXTS, k=2))}</title>",
            f"<meta{self.attributes(('name', name), ('content', rng.choice(TEXTS)))}>",
            f"<meta{self.attributes(('http-equiv', 'refresh'), ('content', rng.choice(REFRESHES)))}>",
            f"<link{self.attributes(('href', self.href()), *self.rel())}>",
            f"<base{self.attributes(('href', self.href()))}>",
            "<base target=x>",
            f"<script{self.attributes()}>{rng.choice(SCRIPTS)}</script>",
            rng.choice(COMMENTS),
            self.meta(),
            self.meta(),
            self.relation(),
            self.json_ld(),
        ]
        return "".join(rng.sample(parts, rng.randrange(len(parts))))

    def meta(self) -> str:
        rng = self.rng
        names = rng.sample(("property", "name", "itemprop", "http-equiv"), rng.choice((1, 1, 2)))
        wanted = [(name, rng.choice(META_NAMES)) for name in names]
        return f"<meta{self.attributes(*wanted, ('content', rng.choice((*TEXTS, 'x' * 3000))))}>"

    def relation(self) -> str:
        rel, kind = (
            self.rng.choice(RELATIONS),
            self.rng.choice(("application/json+oembed", " Text/XML+oembed", "x")),
        )
        return f"<link{self.attributes(('href', self.href()), ('rel', rel), ('type', kind), ('itemprop', 'Image'))}>"

    def json_ld(self) -> str:
        kind = self.rng.choice(
            ("application/ld+json", " Application/LD+JSON; a=b", "application/ld+jsonp", "text/x")
        )
        return f"<script{self.attributes(('type', kind))}>{self.rng.choice(JSON)}</script>"

    def time(self) -> str:
        wanted = [
            ("datetime", self.rng.choice(TEXTS)),
            ("itemprop", "datePublished"),
            ("pubdate", ""),
        ]
        return (
            f"<time{self.attributes(*self.rng.sample(wanted, self.rng.randrange(1, 4)))}>t</time>"
        )

    def text(self) -> str:
        start = self.rng.choice(("", "<!doctype html>", "<!DOCTYPE html PUBLIC 'a>", "\ufeff"))
        lang = self.attributes(
            (self.rng.choice(("lang", "xml:lang")), self.rng.choice((*TEXTS, "de-AT")))
        )
        return f"{start}<html{lang}><head>{self.head()}</head><body>{''.join(self.block(3) for _ in range(3))}"


def read(html: bytes) -> oracle.Seen:
    """What the scanner sees, in the oracle's form."""
    fields, found, *_ = scan(html, b"krake", 10**6, 10**6, FACTS)
    said = [
        text if flag == "1" else None for flag, text in zip(fields[0], fields[1:6], strict=True)
    ]
    links = [(link.element, link.href, link.anchor, link.rel) for link in read_links(found)]
    facts = [
        (name, value)
        for name, value in zip(fields[6:-2:2], fields[7:-2:2], strict=True)
        if name != "h"
    ]
    return oracle.Seen(links, said[0], said[1], said[2], said[4], facts)


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_well_nested_pages_are_read_as_by_a_tree(first: int) -> None:
    for seed in range(first, first + 50):
        html = Page(seed).text().encode()
        assert read(html) == oracle.read(html, "krake"), (seed, html)


# Not among them: frames (a tree takes them in a frameset only), and template and plaintext, whose unclosed links a tree
# copies out of them.
SOUP = """a abbr annotation-xml b big blockquote body br button caption center code dd desc div dl dt em fieldset font
foreignObject form g head h1 html i iframe label li math mi mo mtext nobr noembed noframes noscript object ol optgroup
option p path pre ruby script section select span strong style svg table tbody td text textarea th title tr tt u ul
x-y xmp""".split()  # noqa: SIM905


def soup(seed: int) -> bytes:
    """Start and end tags in no order, each link with a reference of its own."""
    page, parts = Page(seed), []
    rng = page.rng
    for _ in range(rng.randrange(60)):
        kind = rng.random()
        if kind < 0.4:
            parts.append(f"<{rng.choice(SOUP)}{page.attributes()}>")
        elif kind < 0.7:
            parts.append(f"</{rng.choice(SOUP)}>")
        elif kind < 0.85:
            parts.append(
                f"<{rng.choice(('a', 'area'))}{page.attributes(('href', page.href()), *page.rel())}>"
            )
        elif kind < 0.9:
            parts.append(rng.choice(COMMENTS))
        else:
            parts.append(page.void() if rng.random() < 0.6 else rng.choice(TEXTS))
    return "".join(parts).encode()


def references(seen: oracle.Seen) -> set[tuple[str, str, str]]:
    return {(element, href, rel) for element, href, _, rel in seen.links}


@pytest.mark.parametrize("first", range(0, 2000, 500))
def test_wrongly_nested_pages_have_the_same_links(first: int) -> None:
    for seed in range(first, first + 500):
        html = soup(seed)
        assert references(read(html)) == references(oracle.read(html)), (seed, html)


# What a page is read as, and by a tree: (element, href, anchor) of each link.
DIVERGENCES = {
    "an unclosed link is one; a tree copies it into each block that follows": (
        "<div><a href=x>t</div>rest",
        [("a", "x", "t")],
        [("a", "x", "t"), ("a", "x", "rest")],
    ),
    "so is one that crosses the end of another element": (
        "<p><a href=x>1<p>2</a>",
        [("a", "x", "12")],
        [("a", "x", "1"), ("a", "x", "2")],
    ),
    "a link ends where another begins, in a table within it too": (
        "<a href=x>1<table><tr><td><a href=y>2</a></table>3</a>",
        [("a", "x", "1"), ("a", "y", "2")],
        [("a", "x", "123"), ("a", "y", "2")],
    ),
    "and in a drawing within it": (
        "<a href=x>1<svg><a href=y>2</a></svg>3</a>",
        [("a", "x", "1"), ("a", "y", "2")],
        [("a", "x", "123"), ("a", "y", "2")],
    ),
    "frames count wherever they are": ("<p><frame src=x>", [("frame", "x", "")], []),
    "and so do links in a frameset": (
        "<frameset><a href=x>t</a></frameset>",
        [("a", "x", "t")],
        [],
    ),
    "order is that of the page; a tree moves what is between cells": (
        "<table><tr><td><img src=x></td><img src=y></table>",
        [("img", "x", ""), ("img", "y", "")],
        [("img", "y", ""), ("img", "x", "")],
    ),
    "a line end right behind the start of a textarea is white space": (
        "<a href=x>1<textarea>\n2</textarea></a>",
        [("a", "x", "1 2")],
        [("a", "x", "12")],
    ),
    "an end tag ends a drawing though its element, which was never closed, ended with one around it": (
        "<ol><ruby></ol><math></ruby><script><area href=x>",
        [],
        [("area", "x", "")],
    ),
    "an unclosed link in a template stays there": (
        "<template><a href=x><object></template>t",
        [],
        [("a", "x", "t")],
    ),
}


@pytest.mark.parametrize("name", DIVERGENCES)
def test_divergences(name: str) -> None:
    html, ours, of_a_tree = DIVERGENCES[name]
    assert [link[:3] for link in read(html.encode()).links] == ours
    assert [link[:3] for link in oracle.read(html.encode()).links] == of_a_tree


def test_a_title_in_mathml_is_none_of_the_page() -> None:
    html = b"<math><title>t</title></math>"
    assert (read(html).title, oracle.read(html).title) == (None, "t")


DOCS = Path("/usr/share/doc")


@pytest.mark.parametrize("package", ["python3.11-doc", "postgresql-doc-15"])
def test_documentation_is_read_as_by_a_tree(package: str) -> None:
    pages = sorted(
        path
        for path in (DOCS / package / "html").resolve().rglob("*.html")
        if path.stat().st_size < 300_000
    )
    if not pages:
        pytest.skip(f"Debian's {package} is not installed")
    for path in random.Random(7).sample(pages, 100):
        html, _ = to_utf8(path.read_bytes(), None)
        assert read(html) == oracle.read(html, "krake"), path
