"""What a page says of itself beside its links: headings, robots metas, language, and when it was published.

The scanner (`native/links.c`) finds the facts in one pass; here they are checked and chosen. Strangers wrote them, so
their number and their sizes are limited, and a date counts only where it can be true.
"""

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from crawl_lib.parse.dates import written_date
from crawl_lib.parse.scan import FACTS, XML, scan

MAX_HEADING_BYTES = 4096
_FIRST_FACT = 6
"""Fields of the scanner before the facts."""
_ROBOTS = 3
_MAX_BLOCKS, _MAX_THINGS, _MAX_ITEMS = 32, 500, 100
"""Of JSON-LD: blocks of a page, things that are looked at in a block, and items of a list."""
_NESTED = ("@graph", "mainEntity")
_DATED = frozenset({"WebPage", "Report", "VideoObject", "Product", "Recipe", "Dataset", "Book", "Review", "Event"})
_DATED_ENDS = ("Article", "Posting")
"""Ends of names of schema.org's kinds of articles, such as NewsArticle and BlogPosting."""
_JSON_DATES = ("datePublished", "uploadDate")
_META_DATES = (
    *("article:published_time", "og:article:published_time", "datepublished", "dc.date.issued", "dcterms.issued"),
    *("citation_publication_date", "citation_date", "parsely-pub-date", "sailthru.date"),
    *("pubdate", "publishdate", "publish-date", "dcterms.created", "dc.date.created", "dc.date", "date"),
)
"""Names of metas that have the date of publication, the most certain first."""
_EARLIEST = -2_208_988_800
"""The year 1900. Earlier dates are the defaults of programs."""
_DAY_S = 86_400
_TAG = re.compile(r"\s*([a-z]{2,3})(?:[-_][a-z0-9]{1,8})*\s*", re.IGNORECASE | re.ASCII)
"""A language tag (RFC 5646) whose first part is a code of ISO 639."""
_MAX_TAG_CHARS = 64
_TWO_LETTERS = """
aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el
en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu
ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na
nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn
so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
"""
_CODES = frozenset(_TWO_LETTERS.split())
"""The two-letter codes of ISO 639. Others, such as `jp` and `cn`, name countries."""
_LONG_CODES = {
    "eng": "en",
    "deu": "de",
    "ger": "de",
    "fra": "fr",
    "fre": "fr",
    "spa": "es",
    "ita": "it",
    "por": "pt",
    "rus": "ru",
    "jpn": "ja",
    "zho": "zh",
    "chi": "zh",
    "kor": "ko",
    "tha": "th",
    "nld": "nl",
    "dut": "nl",
}
"""Codes of three letters, which stand in pages for the shorter ones that RFC 5646 asks for."""
_NO_LANGUAGES = frozenset({"und", "mul", "zxx", "mis"})


class Facts(NamedTuple):
    """What a page says of itself. `headings`: the texts of h1, h2 and h3, a line each, at most 4 KB of UTF-8.

    `robots`: the contents of robots metas for all crawlers and for ours, joined by commas. `language`: the declared
    one, as `language_of_tag` returns it. `published`: POSIX seconds. None: the page does not say, or nothing valid.
    """

    headings: str = ""
    robots: str = ""
    language: str | None = None
    published: float | None = None


def read_facts(html: bytes, *, user_agent: str, now: float, is_xml: bool = False) -> Facts:
    """Read the facts of a page. Raises nothing but MemoryError, whatever `html` holds.

    Args:
        html: The page in UTF-8, as `html_to_utf8` returns it.
        user_agent: Our token, for robots metas that bear its name.
        now: POSIX seconds of the visit. A page cannot have been published later.
        is_xml: Whether the page's type is one of XML.

    The language is that of the html element, else of a meta Content-Language
    (https://html.spec.whatwg.org/#language). The date is that of JSON-LD, else of a meta, else of a `time` element.
    Time and memory are linear in `html`.

    """
    fields = scan(html, user_agent.lower().encode(), 0, 0, FACTS + is_xml * XML).fields
    facts = fields[_FIRST_FACT:-2]
    found: dict[str, list[str]] = {}
    for name, value in zip(facts[::2], facts[1::2], strict=True):
        found.setdefault(name, []).append(value)
    tags = [*found.get("l", ()), *found.get("mcontent-language", ())]
    dates = (written_date(text, now) for text in _dates(found))
    return Facts(
        headings="\n".join(found.get("h", ())).encode()[:MAX_HEADING_BYTES].decode("utf-8", "ignore").strip(),
        robots=fields[_ROBOTS],
        language=next(filter(None, map(language_of_tag, tags)), None),
        published=next((date for date in dates if date is not None and _may_be(date, now)), None),
    )


def language_of_tag(tag: str) -> str | None:
    """Return the language of a tag such as `de-AT`, in lower case; None where the tag names no language.

    A code of ISO 639: two letters where the language has such a code, else three.
    """
    found = _TAG.fullmatch(tag[: _MAX_TAG_CHARS + 1])
    if found is None or len(tag) > _MAX_TAG_CHARS:
        return None
    code = found[1].lower()
    code = _LONG_CODES.get(code, code)
    return code if code in _CODES or (len(code) == 3 and code not in _NO_LANGUAGES) else None


def _dates(facts: dict[str, list[str]]) -> Iterator[str]:
    """Yield the texts that may be dates of publication, the most certain first."""
    for thing in _things(facts.get("j", ())):
        for name in _JSON_DATES:
            yield from _texts(thing.get(name))
    for name in _META_DATES:
        yield from facts.get(f"m{name}", ())
    for name in ("tdatepublished", "pdatepublished", "p", "t"):
        yield from facts.get(name, ())


def _things(blocks: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield what JSON-LD describes, in the order of the page, as far as it may have a date of publication."""
    for block in list(blocks)[:_MAX_BLOCKS]:
        try:
            waiting = deque([json.loads(_bare(block), strict=False)])
        except (ValueError, RecursionError):
            continue
        for _ in range(_MAX_THINGS):
            if not waiting:
                break
            thing = waiting.popleft()
            if isinstance(thing, list):
                waiting.extendleft(reversed(thing[:_MAX_ITEMS]))
            elif isinstance(thing, dict):
                if _is_dated(thing.get("@type")):
                    yield thing
                waiting.extend(thing[name] for name in _NESTED if name in thing)


def _bare(text: str) -> str:
    """Return JSON-LD without the comment or the CDATA section that some pages put around it."""
    text = text.strip()
    for mark in ("//", "<!--", "<![CDATA["):
        text = text.removeprefix(mark).lstrip()
    for mark in ("-->", "]]>", "//"):
        text = text.removesuffix(mark).rstrip()
    return text


def _is_dated(kinds: object) -> bool:
    names = (kind.rpartition("/")[2] for kind in _texts(kinds))
    return any(name in _DATED or name.endswith(_DATED_ENDS) for name in names)


def _texts(value: object) -> list[str]:
    """Return the texts of a value of JSON-LD: of itself, or of the first items of a list."""
    values = value[:_MAX_ITEMS] if isinstance(value, list) else [value]
    values = [one.get("@value") if isinstance(one, dict) else one for one in values]
    return [one for one in values if isinstance(one, str)]


def _may_be(date: float, now: float) -> bool:
    """Say whether a page may have been published then: not on the day of clocks that nobody set, nor in the future."""
    return _EARLIEST <= date <= now + _DAY_S and abs(date) >= _DAY_S
