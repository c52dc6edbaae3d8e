"""Bad habits of pages: markup that parsers are slow at, bombs, floods of links, names and rules. See `hostile`.

All numbers are in the path, so that the server keeps no state: `/formatting/<tags>/<seed>`. Bodies are made once.
"""

import gzip
import zlib
from collections.abc import Callable
from functools import cache, partial
from random import Random

from tests.web.hostile import HABITS, Habit, Talk, say, say_on

HTML = b"Content-Type: text/html\r\n"
FORMATTING = (
    "a",
    "b",
    "big",
    "code",
    "em",
    "font",
    "i",
    "nobr",
    "s",
    "small",
    "strike",
    "strong",
    "tt",
    "u",
)
BLOCKS = ("div", "p", "section", "article", "li", "blockquote", "td", "center", "address", "h2")
INLINE = ("span", "ruby", "x-y", "abbr", "sub", "q", "label", "svg", "math", "select")
NAMES = [
    first + second + third
    for first in "abcdefghijklmn"
    for second in "opqrstuvwxyz"
    for third in "0123456789abc"
]
BEGINNINGS = (
    "<!--",
    "<!",
    "<?",
    "</",
    "<a href='",
    '<a x="',
    "<script>",
    "<title>",
    "<![CDATA[",
    "<textarea>",
    "&#x",
)
REFERENCES = (
    "&amp;",
    "&#38;",
    "&notit;",
    "&CounterClockwiseContourIntegral",
    "&#xFFFFFFFFFFFF;",
    "&",
)
BASES = (
    "<base href=/%d/>",
    "<meta http-equiv=refresh content='%d;url=/r'>",
    "<link rel=next href=%d>",
)
RULES = ("disallow: /%x*%x$", "allow: /%x/%x", "disallow: /*%x*%x*")
BLOCK = 1 << 20


def formatting(tags: int, seed: int) -> bytes:
    """Formatting elements that HTML opens again in every block: a tree that is quadratic."""
    rng = Random(seed)
    tag, block = rng.choice(FORMATTING), rng.choice(BLOCKS)
    opened = "".join(f"<{tag} id={number}>" for number in range(tags))
    return f"<{block}>{opened}</{block}>".encode() + f"<{block}>x</{block}>".encode() * tags


def end_tags(opened: int, ends: int, seed: int) -> bytes:
    """Open elements, and end tags that close none: each is looked for on the whole stack."""
    rng = Random(seed)
    tag, end = rng.choice(INLINE), rng.choice(("x", "b2", "nothing", "o:p"))
    return f"<{tag}>".encode() * opened + f"</{end}>".encode() * ends


def attributes(tags: int, each: int, seed: int) -> bytes:
    """Tags of very many attributes, in which a name may be once."""
    rng = Random(seed)
    names = " ".join(rng.sample(NAMES, min(each, len(NAMES))))
    return f"<{rng.choice((*BLOCKS, *INLINE))} {names}>".encode() * tags


def nesting(depth: int, seed: int) -> bytes:
    """Elements inside of each other, some of which may not be."""
    rng = Random(seed)
    tags = (*BLOCKS, *INLINE, *FORMATTING, "table", "template", "form", "option")
    unit = "".join(f"<{rng.choice(tags)}>" for _ in range(3))
    return unit.encode() * depth + b"<a href=/deep>deep</a>"


def anchors(count: int, seed: int) -> bytes:
    """Links that never end, each inside of the last one."""
    rng = Random(seed)
    inside = rng.choice(("", "<option>", "<td>", "<svg>", "<template>", "<button>"))
    return b"".join(b"<a href=/n/%d>%s" % (number, inside.encode()) for number in range(count))


def unended(size: int, seed: int) -> bytes:
    """Something that begins and does not end, again and again."""
    unit = Random(seed).choice(BEGINNINGS)
    return b"<p>" + unit.encode() * (size // len(unit))


def references(size: int, seed: int) -> bytes:
    """Character references, in text and in the value of an attribute."""
    unit = Random(seed).choice(REFERENCES)
    text = unit.encode() * (size // 2 // len(unit))
    return b"<a href='/?" + text + b"'>" + text + b"</a>"


def bases(count: int, seed: int) -> bytes:
    """Many bases and refreshes, of which one counts."""
    tag = Random(seed).choice(BASES)
    return b"".join((tag % number).encode() for number in range(count))


def tables(count: int, seed: int) -> bytes:
    """Text and links inside of tables, which belong before them."""
    inside = Random(seed).choice(("<a href=/t>t</a>", "text", "<b>", "<table>", "<tr><td><table>"))
    return b"<table>" + (inside.encode() + b"<tr>") * count


def links(count: int, seed: int) -> bytes:
    """A page of links and nothing else."""
    rng = Random(seed)
    form = rng.choice(
        ("<a href=/l/%d>%d</a>", "<a href='http://h%d.invalid/'>%d</a>", "<area href=?%d alt=%d>")
    )
    return b"".join((form % (number, number)).encode() for number in range(count))


def port_links(count: int, port: int) -> bytes:
    """Links to a port of this host on which no web server is."""
    return b"".join(
        b"<a href='http://127.90.0.1:%d/%d'>mail</a>" % (port, number) for number in range(count)
    )


MARKUP: dict[str, Callable[..., bytes]] = {
    "anchors": anchors,
    "attributes": attributes,
    "bases": bases,
    "end-tags": end_tags,
    "formatting": formatting,
    "links": links,
    "nesting": nesting,
    "port-links": port_links,
    "references": references,
    "tables": tables,
    "unended": unended,
}
"""Each takes the numbers of its path."""


@cache
def _markup(kind: str, numbers: tuple[int, ...]) -> tuple[bytes, bytes]:
    """Headers and body of a page; one that is large and compresses well is sent so, which costs an attacker less."""
    body = MARKUP[kind](*numbers)
    if len(body) < BLOCK:
        return HTML, body
    return HTML + b"Content-Encoding: gzip\r\n", gzip.compress(body, 1)


def _page(kind: str, talk: Talk) -> bool:
    headers, body = _markup(kind, tuple(map(int, talk.args)))
    return talk.reply(headers=headers, body=body)


_WRAPPERS: dict[str, int] = {"gzip": 31, "x-gzip": 31, "deflate": 15, "raw": -15}


@cache
def _deflated(coding: str, mib: int, seed: int) -> bytes:
    """So many MiB of the same short text, compressed."""
    unit = Random(seed).choice((b"\0", b"<p>text ", b"<a href=/b>b</a>", b"<i>", b"&lt;", b" "))
    packer = zlib.compressobj(1, zlib.DEFLATED, _WRAPPERS[coding])
    block = unit * (BLOCK // len(unit))
    return b"".join(packer.compress(block) for _ in range(mib)) + packer.flush()


def _inflate(talk: Talk) -> bool:
    """/inflate/<coding>/<mebibytes>/<seed>: a body that becomes so large; `raw` is deflate without zlib's header."""
    coding, mib, seed = talk.args
    body = _deflated(coding, int(mib), int(seed))
    name = "deflate" if coding == "raw" else coding
    return talk.reply(headers=HTML + b"Content-Encoding: %s\r\n" % name.encode(), body=body)


def _nested(talk: Talk) -> bool:
    """/nested/<codings>/<mebibytes>/<seed>: gzip in gzip in gzip..."""
    times = int(talk.args[0])
    body = _deflated("gzip", int(talk.args[1]), int(talk.args[2]))
    for _ in range(times - 1):
        body = gzip.compress(body, 1)
    return talk.reply(
        headers=HTML + b"Content-Encoding: %s\r\n" % b", ".join([b"gzip"] * times), body=body
    )


def _members(talk: Talk) -> bool:
    """/members/<count>: a gzip body of so many members."""
    return talk.reply(
        headers=HTML + b"Content-Encoding: gzip\r\n", body=gzip.compress(b"<p>") * int(talk.args[0])
    )


def _not_gzip(talk: Talk) -> bool:
    return talk.reply(headers=HTML + b"Content-Encoding: gzip\r\n")


def _cut_gzip(talk: Talk) -> bool:
    body = gzip.compress(Random(1).randbytes(9000))[:5000]
    return talk.reply(headers=HTML + b"Content-Encoding: gzip\r\n", body=body)


def _to(talk: Talk) -> bool:
    """/to/<place>: a redirect to a place that `PLACES` names."""
    place = PLACES[talk.args[0]].replace(
        b"SELF", talk.seen.host.encode("latin-1").partition(b":")[0]
    )
    return talk.reply("302 Found", b"Location: " + place + b"\r\n", b"")


PLACES = {
    "mail": b"http://SELF:25/",
    "irc": b"http://SELF:6667/",
    "ssh": b"https://SELF:22/",
    "inner": b"http://10.1.2.3/",
    "cloud": b"http://169.254.169.254/latest/meta-data/",
    "mapped": b"http://[::ffff:10.1.2.3]/",
    "hidden": b"http://127.99.0.1/",
    "decimal": b"http://2130706433/",
    "script": b"javascript:alert(1)",
    "file": b"file:///etc/passwd",
    "long": b"/" + b"l" * 9000,
    "nowhere": b"http://[",
}
"""Where redirects lead that a crawler must not follow. SELF: the host that was asked."""


@cache
def _rules(size: int, seed: int) -> bytes:
    rng = Random(seed)
    lines = [rng.choice(RULES) % (number, number) for number in range(size // 20)]
    return "\n".join(["user-agent: *", "disallow: /denied", *lines]).encode()


def _robots(talk: Talk) -> bool:
    """/rules/<bytes>/<seed>: a robots.txt that denies /denied, and has so many rules more."""
    return talk.reply(
        headers=b"Content-Type: text/plain\r\n", body=_rules(int(talk.args[0]), int(talk.args[1]))
    )


ATTACKS: dict[str, Habit] = {
    **{kind: partial(_page, kind) for kind in MARKUP},
    "cut-gzip": _cut_gzip,
    "endless-chunks": say_on(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"2000\r\n" + b"c" * 0x2000 + b"\r\n",
    ),
    "endless-head": say_on(b"HTTP/1.1 200 OK\r\n", b"X-More: and more\r\n" * 500),
    "endless-line": say_on(b"HTTP/1.1 200 OK\r\nX-Long: ", b"y" * 8192),
    "endless-trailers": say_on(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\n0\r\n",
        b"X-Trailer: 1\r\n" * 500,
    ),
    "huge-chunk": say(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\ngood"
    ),
    "inflate": _inflate,
    "members": _members,
    "nested": _nested,
    "not-gzip": _not_gzip,
    "rules": _robots,
    "to": _to,
    "two-lengths": say(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 9\r\n\r\ngood"),
}
ALL = {**HABITS, **ATTACKS}
"""Every habit there is, by the first part of a path."""
