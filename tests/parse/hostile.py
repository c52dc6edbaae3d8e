"""A generator of hostile markup: pages drawn by seed, made to cost much. By hand, for hours:

    python -m tests.parse.hostile --seeds 100000 [--first 0] [--kilobytes 64]

Each page is read by the scanner with sanitizers and by `parse_html`. Neither may fail, and the work (bytes looked at)
and the answer must stay within a multiple of the page's size. Prints the dearest page at the end, and the seed of one
that broke a rule.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from crawl_lib.config import ParseConfig
from crawl_lib.parse import Metadata, ParsedPage, count_links, parse_html
from crawl_lib.parse.scan import FACTS
from tests.parse.driver import SANITIZERS, Answer, Driver, compiled
from tests.parse.links import columns

MOST_STEPS_A_BYTE = 24  # an end tag of four bytes may look at 64 open elements of SVG and MathML
MOST_BYTES_A_BYTE = 4  # a byte that is no UTF-8 becomes one of three; each link has four bytes of its own in the answer
MOST_BYTES_WITH_FACTS = (
    8  # a meta with four names is four facts, and perhaps a robots meta and a hop
)
ALLOWANCE = 1000
MOST_VALUE_BYTES = 20_000

NAMES = """
a abbr address annotation-xml area article audio b base big blockquote body br button caption center code col dd
desc details div dl dt em embed fieldset font foreignObject form frame frameset g h1 h6 head html i iframe image
img input keygen li link listing main malignmark map marquee math menu meta mglyph mi mo mtext nav nobr noembed
noframes noscript object ol optgroup option p param path plaintext pre ruby s script section select small source
span style sub summary svg table tbody td template textarea tfoot th title tr track tt u ul use var video wbr x
xmp y-z
""".split()  # noqa: SIM905
ATTRIBUTES = """
href src rel alt data name content http-equiv type color encoding class id x property itemprop lang datetime pubdate
srcset style poster xlink:href as imagesrcset srcdoc background
""".split()  # noqa: SIM905
VALUES = (
    b"x", b"", b"a b  c", b"&amp;&lt;&notit;", b"&#x10FFFF;&#0;&#150;", b"&CounterClockwiseContourIntegral",
    b"nofollow NOFOLLOW next", b"refresh", b"0;url=x", b"robots", b"none", b"image", b"\xc2\xa0y\xc2\xa0", b"\0\r\n\t",
    b"\xf0\x9f\x98\x80", b"\xff\xfe\xe2\x80", b"javascript:x", b"text/html", b"?q=\xe6\x97\xa5", b"'", b"`=<",
    b"og:image og:title twitter:image", b"datePublished", b"2026-02-30",
    b"application/ld+json", b"alternate icon image_src", b"application/json+oembed", b"de-DE-u-co-phonebk",
    b"a 1x,b 2x(,),,c", b"a:url(x)url( 'y' )\\", b"stylesheet", b"preload", b"data:,", b"#x",
    b"<img src=a><iframe srcdoc=&lt;svg&gt;&lt;use/href=b&gt;><p style=c:url(d)",
)  # fmt: skip
PIECES = (
    b"<", b">", b"</", b"<!", b"<!-", b"<!--", b"-->", b"--!>", b"<!-->", b"<!--->", b"-", b"<![CDATA[", b"]]>", b"]]",
    b"<!doctype", b"<!doctype html '", b"<?", b"<?xml ", b"&", b"&#", b"&#x", b"&a", b"&amp", b"&am", b"&#1114112;",
    b"&NotNestedGreaterGreater", b"</script", b"</script>", b"<script><!--<script>", b"</style ", b"</title/", b"</>",
    b"<a href=", b"<a href='", b'<a href="', b"<a/", b"<a =", b"\0", b"\r", b"\xff", b"\xe3\x80\x80", b" ", b"\n",
    b"text ", b"\xe6\x97\xa5\xe6\x9c\xac", b"<meta charset=", b"<base href=//", b"</x>", b"'", b'"', b"=", b"/>",
)  # fmt: skip


def tag(rng: Random, name: str | None = None) -> bytes:
    """A start tag with a few attributes."""
    name = name or rng.choice(NAMES)
    name = name.upper() if rng.random() < 0.1 else name
    parts = [b"<" + name.encode()]
    for _ in range(rng.choice((0, 0, 1, 1, 2, 5))):
        quote = rng.choice((b"'", b'"', b""))
        parts.append(
            b" " + rng.choice(ATTRIBUTES).encode() + b"=" + quote + rng.choice(VALUES) + quote
        )
    return b"".join(parts) + rng.choice((b">", b">", b">", b"/>", b" ", b""))


def end_tag(rng: Random, name: str | None = None) -> bytes:
    return f"</{name or rng.choice(NAMES)}>".encode()


def unit(rng: Random) -> bytes:
    """A few bytes of markup, to be said many times."""
    kinds: tuple[Callable[[], bytes], ...] = (
        lambda: tag(rng),
        lambda: tag(rng),
        lambda: end_tag(rng),
        lambda: rng.choice(PIECES),
        lambda: rng.choice(PIECES) + rng.choice(PIECES),
        lambda: b"<a href=u>" + rng.choice((b"", b"t", b"</a>")),
        lambda: rng.randbytes(3),
    )
    return b"".join(rng.choice(kinds)() for _ in range(rng.choice((1, 1, 2, 3))))


def repeated(rng: Random, size: int) -> bytes:
    one = unit(rng)
    return one * (size // len(one) + 1)


def numbered(rng: Random, size: int) -> bytes:
    """The same element with a different attribute each time: formatting elements are opened again in each block."""
    name = rng.choice(("b", "font", "nobr", "a", "i", "u", rng.choice(NAMES)))
    names = [f"<{name} id={number}>".encode() for number in range(size // 12 + 1)]
    return b"".join(names)


def nested(rng: Random, size: int) -> bytes:
    names = rng.choices(NAMES, k=rng.choice((1, 1, 2, 4)))
    count = size // (12 * len(names)) + 1
    opening = b"".join(tag(rng, name) for name in names) * count
    closing = b"".join(
        end_tag(rng, name) for name in rng.choice((names, names[::-1], rng.choices(NAMES, k=2)))
    )
    return opening + b"<a href=u>t" + closing * count


def attributes(rng: Random, size: int) -> bytes:
    """Tags of many attributes: of one name, of many, without values, with references."""
    each = rng.choice((20, 2000, 10**9))
    shape = rng.choice(
        (
            b"a%d=1 ",
            b"a%d ",
            b"href=%d ",
            b"a%d=''",
            b"a%d='&amp;&gt' ",
            b"=%d ",
            b"/%d",
            b"rel=nofollow%d ",
        )
    )
    parts, length = [], 0
    for number in range(size):
        if length >= size:
            break
        start = b"<%b " % rng.choice(NAMES).encode() if number % each == 0 else b""
        parts.append((b">" + start if start and number else start) + shape % number)
        length += len(parts[-1])
    return b"".join(parts) + rng.choice((b">", b" href=u>t</a>", b""))


def value(rng: Random, size: int) -> bytes:
    """One huge value, or one huge text."""
    filling = rng.choice(
        (*VALUES[1:], b" ", b"x", b"&amp;", b"a ", b",", b"=", b";", b"--", b"]]", b"</")
    )
    opening, closing = rng.choice(
        (
            (b"<a href='", b"'>t</a>"),
            (b"<a rel='", b"' href=x>"),
            (b"<img src=x alt='", b"'>"),
            (b"<meta name=robots content='", b"'>"),
            (b"<meta name=description content='", b"'>"),
            (b"<meta http-equiv=refresh content='", b"'>"),
            (b"<meta name='", b"' content=x>"),
            (b"<base href='", b"'>"),
            (b"<link rel=canonical href='", b"'>"),
            (b"<title>", b"</title>"),
            (b"<a href=x>", b"</a>"),
            (b"<script>", b"</script>"),
            (b"<script><!--", b"--></script>"),
            (b"<!--", b"-->"),
            (b"<svg><![CDATA[", b"]]></svg>"),
            (b"<!doctype ", b">"),
            (b"<textarea>", b""),
        )
    )
    return (
        opening
        + filling * (size // max(1, len(filling)) + 1)
        + (closing if rng.random() < 0.7 else b"")
    )


def soup(rng: Random, size: int) -> bytes:
    parts, length = [], 0
    while length < size:
        parts.append(unit(rng))
        length += len(parts[-1])
    return b"".join(parts)


FACT_NAMES = (
    *(
        b"og:image",
        b"og:image:width",
        b"og:title",
        b"article:published_time",
        b"article:author",
        b"twitter:image",
    ),
    *(
        b"og:locale",
        b"og:url",
        b"author",
        b"date",
        b"og:title og:image og:url og:locale og:type",
        b"x" * 300,
        b"",
    ),
)
FACT_VALUES = (
    b"http://[x", b"x:", b"/a b", b"//h/\xff", b"Tue, 05 Mar 2031 00:00:00 GMT", b"2026-02-30T25:61:00+99:99", b"de-",
    b"9" * 100, b"&amp;" * 600, b"\xf0\x9f\x98\x80" * 2500, b"http://h/" + b"x" * 1990, b" ", b"@x",
)  # fmt: skip


def metas(rng: Random, size: int) -> bytes:
    """Metas, times and links that say what the page is."""
    parts, length = [], 0
    while length < size:
        name, text = rng.choice(FACT_NAMES), rng.choice(FACT_VALUES)
        shape = rng.choice(
            (
                b"<meta property='%b' content='%b'>",
                b"<meta name='%b' content='%b'>",
                b"<meta itemprop='%b' content='%b'>",
                b"<time itemprop='%b' datetime='%b'>",
                b"<link rel=icon itemprop='%b' href='%b'>",
            )
        )
        parts.append(shape % (name, text))
        length += len(parts[-1])
    return b"".join(parts)


LD = b"<script type=application/ld+json>"
JSON_ENDS = (
    (b"[", b"1]"),
    (b"", b""),
    (b'{"@type":"Article","author":[', b"1]}"),
    (b"<!--[", b"1]-->"),
)
JSON_UNITS = (
    b"[", b'{"@graph":[', b'{"mainEntity":', b"[],", b"{},", b"1,", b"1.5e300,", b'"\\ud800",', b"9", b" ", b"//",
    b"/*", b"<!--", b"<![CDATA[", b'"', b"\\", b'{"@type":"Article"},', b'{"@type":"Article","headline":1},', b"\0",
    b'{"@type":"Article","author":{"@id":"#a"},"image":[{"@id":"#a"}]},', b'{"@id":"#a","name":{"@id":"#a"}},',
    b'{"@type":["Article","Article"],"image":[{"url":["x:","x:"],"width":1}]},', b'{"@type":"WebSite","name":{}},',
    b'["' + b"a" * 40 + b'"],', b"[" * 60 + b"]" * 60 + b" " * 1000 + b",", b"\xff",
)  # fmt: skip


def json_ld(rng: Random, size: int) -> bytes:
    """Blocks of JSON-LD, deep or wide, whole or broken."""
    parts, left = [], size
    while left > 0:
        count = rng.choice((1, 20, 2000, 10**6))
        units = rng.choices(JSON_UNITS, k=rng.choice((1, 1, 2, 4)))
        text = b"".join(units) * max(1, min(count, left // sum(map(len, units))))
        opening, closing = rng.choice(JSON_ENDS)
        parts.append(LD + opening + text + closing + b"</script>")
        left -= len(parts[-1])
    return b"".join(parts)


Shape = Callable[[Random, int], bytes]
SHAPES: tuple[Shape, ...] = (
    *(repeated, repeated, numbered, nested, nested, attributes, value, soup, soup),
    *(metas, json_ld),
)


def page(seed: int, size: int) -> bytes:
    """The page of a seed, about `size` bytes. What costs a tree builder most are two shapes in a row."""
    rng = Random(seed)
    shapes = rng.choices(SHAPES, k=rng.choice((1, 2, 2, 3, 5)))
    start = rng.choice(
        (
            b"",
            b"",
            b"<!doctype html>",
            b"<svg>",
            b"<math>",
            b"<table>",
            b"<a href=x>",
            b"<template>",
        )
    )
    return start + b"".join(shape(rng, size // len(shapes)) for shape in shapes)


def issue_pages(scale: int = 1) -> Iterator[tuple[str, bytes]]:
    """Pages that were seen to hold a crawl up, in their full size at `scale` 1."""
    yield (
        "formatting",
        b"<div>%b</div>%b"
        % (
            b"".join(b"<b id=%d>" % number for number in range(2500 // scale)),
            b"<div>x</div>" * (2500 // scale),
        ),
    )
    yield "end tags of nothing", b"<span>" * (7900 // scale) + b"</x>" * (1_000_000 // scale)
    many = b"".join(b" a%d=1" % number for number in range(2000 // scale))
    yield "attributes", (b"<b" + many + b">") * (2000 // scale)
    yield "options", b"<select><option><a href=x>" * (8000 // scale)
    yield "titles", b"<title>" * (500_000 // scale)
    yield "closed titles", b"<title></title>" * (300_000 // scale)
    yield "scripts", b"<script>" * (500_000 // scale)
    yield "escaped scripts", b"<script><!--" + b"<script></script>" * (200_000 // scale)
    yield "comments", b"<!--" * (1_000_000 // scale)
    yield "dashes", b"<!--" + b"-" * (4_000_000 // scale)
    yield "CDATA", b"<svg><![CDATA[" + b"]]" * (1_000_000 // scale)
    yield "foreign", b"<svg><desc>" * (200_000 // scale) + b"</svg>" * (200_000 // scale)
    yield "foreign end tags", b"<svg><desc>" * 40 + b"</a>" * (1_000_000 // scale)
    yield "quotes", b"<a href='" * (400_000 // scale)
    yield "doctypes", b"<!doctype " * (400_000 // scale)
    yield "references", b"<a href=x>" + b"&CounterClockwiseContourIntegra" * (120_000 // scale)
    yield "metas", b"<meta property=og:image content=x:>" * (120_000 // scale)
    yield "JSON-LD in depth", LD + b'{"@graph":[' * (23_000 // scale) + b"</script>"
    yield "JSON-LD in width", LD + b"[" + b"[]," * (80_000 // scale) + b"1]</script>"
    yield (
        "JSON-LD of articles",
        (LD + b'[{"@type":"Article","author":{"@id":"#a"}}]</script>') * (60_000 // scale),
    )


def check_metadata(metadata: Metadata | None) -> None:
    """Fail if a value is none that a table and a reader of JSON can have."""
    assert metadata is not None
    texts = [value[0] for value in metadata if value is not None]
    assert all(
        text and "\0" not in text and len(text.encode()) <= MOST_VALUE_BYTES for text in texts
    )
    urls = (metadata.image, metadata.icon, metadata.canonical_url, metadata.oembed)
    assert all(found is None or found[0].startswith(("http://", "https://")) for found in urls)


def check(html: bytes, answer: Answer, with_facts: Answer) -> float:
    """Fail if a page broke a rule; returns its steps a byte. `with_facts`: the answer with its facts."""
    for one, most_bytes in ((answer, MOST_BYTES_A_BYTE), (with_facts, MOST_BYTES_WITH_FACTS)):
        assert one.status == 0
        assert one.steps <= MOST_STEPS_A_BYTE * len(html) + ALLOWANCE
        assert len(one.data) <= most_bytes * len(html) + ALLOWANCE
    config = ParseConfig(max_links_per_page=1000, max_anchor_chars=50)
    read = parse_html(
        html,
        url="http://a.b/c",
        header_charset="utf-8",
        config=config,
        user_agent="krake",
        facts_at=2e9,
    )
    assert ParsedPage.from_json(read.to_json()) == read
    check_metadata(read.metadata)
    assert count_links(read.links) <= 1000
    assert all(len(anchor) <= 50 for anchor in columns(read.links).anchors)
    assert len(read.title or "") <= 1000
    assert len(read.description or "") <= 2000
    return answer.steps / (len(html) + 1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1000, help="how many pages")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--kilobytes", type=int, default=64, help="size of a page")
    options = parser.parse_args()
    dearest = (0.0, 0)
    with tempfile.TemporaryDirectory() as folder:
        driver = Driver(compiled(Path(folder), *SANITIZERS))
        for seed in range(options.first, options.first + options.seeds):
            html = page(seed, options.kilobytes * 1024)
            try:
                answers = driver.links([html])[0], driver.links([html], how=FACTS)[0]
                dearest = max(dearest, (check(html, *answers), seed))
            except AssertionError:
                print(f"seed {seed} with --kilobytes {options.kilobytes} broke a rule")
                raise
    print(
        f"{options.seeds} pages read; the dearest was seed {dearest[1]}: {dearest[0]:.1f} steps a byte"
    )


if __name__ == "__main__":
    main()
