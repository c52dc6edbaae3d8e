"""Metadata, headings, robots metas and the language of a page: all facts except links.

The scanner (`native/links.c`) finds the facts in one pass; here they are checked and chosen. `ORDER` says which source
counts first, and docs/metadata.md has the same table. Strangers wrote the facts, so their number and their sizes are
limited, and a value counts only where it is valid.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from crawl_lib.errors import UrlError
from crawl_lib.parse.dates import WrittenDate, read_date
from crawl_lib.parse.jsonld import JsonLd, is_subject, kinds_of
from crawl_lib.parse.languages import language_of_tag, language_tag
from crawl_lib.parse.scan import FACTS, XML, scan
from crawl_lib.urls import resolve

MAX_HEADING_BYTES = 4096
FIRST_FACT = 6
"""Fields of the scanner before the facts."""
_TITLE, _ROBOTS, _CANONICAL = 1, 3, 4
ORDER: dict[str, tuple[str, ...]] = {
    "title": (
        *(
            "og:title",
            "twitter:title",
            "json-ld headline",
            "json-ld name",
            "itemprop headline",
            "html title",
        ),
        *("itemprop name", "dc.title", "dcterms.title"),
    ),
    "description": (
        *(
            "og:description",
            "twitter:description",
            "json-ld description",
            "itemprop description",
            "description",
        ),
        *("dc.description", "dcterms.description"),
    ),
    "image": (
        *("og:image", "twitter:image", "json-ld image", "json-ld thumbnailUrl", "itemprop image"),
        *("itemprop thumbnailUrl", "link image_src"),
    ),
    "author": (
        *(
            "article:author",
            "json-ld author",
            "itemprop author",
            "author",
            "dc.creator",
            "dcterms.creator",
        ),
        *("citation_author", "parsely-author"),
    ),
    "published": (
        *(
            "article:published_time",
            "og:article:published_time",
            "json-ld datePublished",
            "json-ld uploadDate",
        ),
        *(
            "itemprop datePublished",
            "datepublished",
            "dc.date.issued",
            "dcterms.issued",
            "citation_publication_date",
        ),
        *(
            "citation_date",
            "parsely-pub-date",
            "sailthru.date",
            "pubdate",
            "publishdate",
            "publish-date",
        ),
        *("dcterms.created", "dc.date.created", "dc.date", "date"),
        *("time datePublished", "time pubdate", "time datetime"),
    ),
    "modified": (
        *(
            "article:modified_time",
            "og:article:modified_time",
            "og:updated_time",
            "json-ld dateModified",
        ),
        *(
            "itemprop dateModified",
            "datemodified",
            "dcterms.modified",
            "dc.date.modified",
            "last-modified",
        ),
        "time dateModified",
    ),
    "language": (
        *(
            "html lang",
            "content-language",
            "og:locale",
            "json-ld inLanguage",
            "itemprop inLanguage",
        ),
        *("dc.language", "dcterms.language"),
    ),
    "site": ("og:site_name", "json-ld WebSite", "json-ld publisher", "application-name"),
    "type": ("og:type", "json-ld @type"),
    "icon": ("link icon", "link apple-touch-icon"),
    "canonical_url": ("link canonical", "og:url", "json-ld url"),
    "oembed": ("link application/json+oembed", "link text/xml+oembed"),
}
"""For each field of `Metadata` the sources of its value, the first one first.

A source of one word is a meta, by its `name`, `property` or `http-equiv`.
"""
_KINDS = {"itemprop": "i", "link": "r", "html": "l", "time": "t"}
"""The scanner's letter of each kind of source; `m`: metas."""
_STRUCTURED = ("og:image", "twitter:image")
_IMAGE_URLS = (":secure_url", ":url", "", ":src")
"""Ends of the properties that have the URL of an image (https://ogp.me/#structured), the first one first."""
_SIZES = ("width", "height")
_MAX_TRIED, _MAX_TRIED_OF_SOURCE, _MAX_NAMES = 32, 8, 4
"""Values that are looked at for a field, and of one source; names of an attribute that count."""
_MAX_CHARS = {"title": 1000, "description": 2000}
_MAX_OTHER_CHARS = 500
_MAX_URL_CHARS = 1999
"""The scanner cuts values of metas at 2,000 characters, and half a URL is another URL."""
_NAMES_OF_TEXTS = {"url": ("@id", "url"), "inLanguage": ("@value", "alternateName", "name")}
"""Properties with the text of a thing of JSON-LD, by the property whose value the thing is."""
_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a character: JSON may have one alone, an encoding may not."""
_NO_NAMES = ("http://", "https://", "/", "@")
"""Starts of addresses of profiles, and of names that a service gives."""
_MAX_PIXELS = 1_000_000
_EARLIEST = -2_208_988_800
"""The year 1900. Earlier dates are the defaults of programs."""
_DAY_S = 86_400


class Value(NamedTuple):
    """A value of a page's metadata. `source`: where the page has it, as `ORDER` names sources."""

    text: str
    source: str


class Image(NamedTuple):
    """The picture that a page names for itself.

    `width`, `height`: pixels, where the page says so. `source`: as `Value` has it.
    """

    url: str
    source: str
    width: int | None = None
    height: int | None = None


class Metadata(NamedTuple):
    """What a page says of itself. None: nothing valid. URLs are canonical ones of http and https.

    `author`: names, joined by commas. `published`, `modified`: dates by ISO 8601, as exact as the page has them.
    `language`: a tag of BCP 47. `type`: of Open Graph or schema.org. `oembed`: the address of the page's oEmbed.
    """

    title: Value | None = None
    description: Value | None = None
    image: Image | None = None
    author: Value | None = None
    published: Value | None = None
    modified: Value | None = None
    language: Value | None = None
    site: Value | None = None
    type: Value | None = None
    icon: Value | None = None
    canonical_url: Value | None = None
    oembed: Value | None = None

    @classmethod
    def from_json(cls, values: Iterable[Sequence[Any] | None]) -> "Metadata":
        """Return the metadata that JSON has as lists."""
        kinds = (Image if name == "image" else Value for name in cls._fields)
        return cls._make(value and kind(*value) for kind, value in zip(kinds, values, strict=True))


class Facts(NamedTuple):
    """What a page says of itself. `headings`: the texts of h1, h2 and h3, a line each, at most 4 KB of UTF-8.

    `robots`: the contents of robots metas for all crawlers and for ours, joined by commas. `language`: the declared
    one, as `language_of_tag` returns it. `published`: POSIX seconds. None: the page does not say, or nothing valid.
    """

    headings: str = ""
    robots: str = ""
    language: str | None = None
    published: float | None = None

    @classmethod
    def of(cls, html: bytes, *, user_agent: str, now: float, is_xml: bool = False) -> "Facts":
        """Read the facts of a page.

        Raises nothing but MemoryError, whatever `html` holds.

        Args:
            html: The page in UTF-8, as `html_to_utf8` returns it.
            user_agent: Our token, for robots metas that bear its name.
            now: POSIX seconds of the visit. A page cannot have been published later.
            is_xml: Whether the page's type is one of XML.

        Language and date are those of `metadata_of`. Time and memory are linear in `html`.
        """
        fields = scan(html, user_agent.lower().encode(), 0, 0, FACTS + is_xml * XML).fields
        page = _Page(fields, "", now)
        language, published = page.first("language", language_of_tag), page.date("published")
        headings = "\n".join(page.found.get("h", ())).encode()
        return cls(
            headings=headings[:MAX_HEADING_BYTES].decode("utf-8", "ignore").strip(),
            robots=fields[_ROBOTS],
            language=language and language.text,
            published=published and published[0].seconds,
        )


def metadata_of(fields: Sequence[str], base: str, now: float) -> Metadata:
    """Choose the metadata of a page that was scanned with `FACTS`.

    Args:
        fields: The scanner's, as `Scanned.fields` has them.
        base: The canonical URL that addresses in the page are relative to.
        now: POSIX seconds of the visit. A date more than a day later is invalid.

    """
    page = _Page(fields, base, now)
    texts = {
        name: page.first(name, _text_reader(name))
        for name in ("title", "description", "site", "type")
    }
    urls = {name: page.first(name, page.url) for name in ("icon", "canonical_url", "oembed")}
    dates = {name: page.date(name) for name in ("published", "modified")}
    return Metadata(
        image=page.image(),
        author=page.author(),
        language=page.first("language", language_tag),
        **{name: found and Value(found[0].iso, found[1]) for name, found in dates.items()},
        **texts,
        **urls,
    )


class _Page:
    """The facts of one page, by their names. `found`: values by the scanner's letter and the fact's name."""

    def __init__(self, fields: Sequence[str], base: str, now: float) -> None:
        self._base, self._now = base, now
        keys, values = fields[FIRST_FACT:-2:2], fields[FIRST_FACT + 1 : -2 : 2]
        self._facts = [
            (name, value)
            for key, value in zip(keys, values, strict=True)
            for name in _names_of(key)
        ]
        self.found: dict[str, list[str]] = {}
        for name, value in self._facts:
            self.found.setdefault(name, []).append(value)
        for name, field in (("ltitle", _TITLE), ("rcanonical", _CANONICAL)):
            self.found[name] = [fields[field]] if fields[0][field - 1] == "1" else []
        self._json_ld = JsonLd(self.found.get("j", ()))

    def first(self, field: str, read: Callable[[str], str | None]) -> Value | None:
        """Return the first valid value of a field.

        `read`: returns the meaning of a text, None for an invalid text.
        """
        for text, source in self._candidates(field):
            value = read(text)
            if value:
                return Value(value, source)
        return None

    def date(self, field: str) -> tuple[WrittenDate, str] | None:
        """Return the first valid date of a field, and its source."""
        for text, source in self._candidates(field):
            found = read_date(text, self._now)
            if found is not None and _may_be(found.seconds, self._now):
                return found, source
        return None

    def author(self) -> Value | None:
        """Return the names of the first source with names.

        An address, as of a profile, is not a name.
        """
        read = _text_reader("author")
        for source in ORDER["author"]:
            names = [read(text) for text in islice(self._texts(source), _MAX_TRIED_OF_SOURCE)]
            known = [name for name in names if name and not name.lower().startswith(_NO_NAMES)]
            if known:
                return Value(", ".join(dict.fromkeys(known)), source)
        return None

    def image(self) -> Image | None:
        """Return the first image with a valid URL."""
        for source in ORDER["image"]:
            for urls, sizes in islice(self._images(source), _MAX_TRIED_OF_SOURCE):
                url = next(filter(None, map(self.url, urls)), None)
                if url is not None:
                    return Image(url, source, *map(_pixels, sizes))
        return None

    def url(self, text: str) -> str | None:
        """Return the canonical form of an http or https address.

        None: the text is no such address.
        """
        text = text.strip()
        if not text or len(text) > _MAX_URL_CHARS:
            return None
        try:
            return resolve(self._base, text)
        except UrlError:
            return None

    def _candidates(self, field: str) -> Iterator[tuple[str, str]]:
        sources = ORDER[field]
        found = (
            (text, source)
            for source in sources
            for text in islice(self._texts(source), _MAX_TRIED_OF_SOURCE)
        )
        return islice(found, _MAX_TRIED)

    def _texts(self, source: str) -> Iterable[str]:
        kind, _, name = source.rpartition(" ")
        if kind == "json-ld":
            return _texts_of_json_ld(self._json_ld, name)
        return self.found.get(f"{_KINDS.get(kind, 'm')}{name.lower()}", [])

    def _images(self, source: str) -> Iterator[tuple[Sequence[str], Sequence[object]]]:
        """Yield a source's images, each with its URLs and sizes.

        The first URL is the preferred one.
        """
        kind, _, name = source.rpartition(" ")
        if source in _STRUCTURED:
            yield from self._structured(source)
        elif kind == "json-ld":
            for thing in self._json_ld.subjects:
                yield from _images_of_json_ld(self._json_ld, thing.get(name))
        else:
            yield from (((text,), ()) for text in self._texts(source))

    def _structured(self, root: str) -> Iterator[tuple[Sequence[str], Sequence[object]]]:
        """Yield the images of metas.

        A property belongs to the image before it (https://ogp.me/#array).
        """
        images: list[dict[str, str]] = []
        for name, value in self._facts:
            end = name.removeprefix(f"m{root}")
            if end == name:
                continue
            if end in _IMAGE_URLS and (not end or not images or end in images[-1]):
                images.append({})
            if images:
                images[-1].setdefault(end, value)
        for one in images:
            yield (
                [one[end] for end in _IMAGE_URLS if end in one],
                [one.get(f":{size}") for size in _SIZES],
            )


def _names_of(key: str) -> Iterable[str]:
    """Return the names of a fact, each with its kind's letter.

    An attribute may have several names.
    """
    kind, names = key[:1], key[1:].split(maxsplit=_MAX_NAMES)[:_MAX_NAMES]
    if kind == "p":
        return ["tpubdate", *(f"t{name}" for name in names)]
    if kind == "t" and not names:
        return ["tdatetime"]
    if kind == "l":
        return ["llang"]
    return [f"{kind}{name}" for name in names] or [kind]


def _texts_of_json_ld(json_ld: JsonLd, name: str) -> Iterator[str]:
    if name == "@type":
        return (kind for thing in json_ld.subjects for kind in kinds_of(thing) if is_subject(kind))
    things, name = (json_ld.sites, "name") if name == "WebSite" else (json_ld.subjects, name)
    found = (
        json_ld.texts(thing.get(name), *_NAMES_OF_TEXTS.get(name, ("@value", "name")))
        for thing in things
    )
    if name == "author":  # all authors of one thing
        return iter(next(filter(None, found), []))
    return (text for texts in found for text in texts)


def _images_of_json_ld(
    json_ld: JsonLd, value: object
) -> Iterator[tuple[Sequence[str], Sequence[object]]]:
    for item in json_ld.items(value):
        if isinstance(item, str):
            yield (item,), ()
        elif isinstance(item, dict):
            urls = [
                text
                for name in ("url", "contentUrl", "@value")
                for text in json_ld.texts(item.get(name), "@id")
            ]
            yield urls[:_MAX_TRIED_OF_SOURCE], [item.get(size) for size in _SIZES]


def _pixels(size: object) -> int | None:
    """Return a number of pixels, such as `"1200"`, `1200` or `"1200px"`.

    schema.org's QuantitativeValue is read too.
    """
    size = size.get("value") if isinstance(size, dict) else size
    text = str(size).strip().removesuffix("px") if isinstance(size, str | int) else ""
    if not (text.isascii() and text.isdecimal() and len(text) < len(str(_MAX_PIXELS))):
        return None
    return int(text) or None


def _text_reader(field: str) -> Callable[[str], str | None]:
    """Return the reader of a field's text.

    Words get one space between them; the field's limit cuts the text.
    """
    most = _MAX_CHARS.get(field, _MAX_OTHER_CHARS)

    def read(text: str) -> str:
        words = " ".join(text[: 4 * most].replace("\0", "\ufffd").split())
        return _SURROGATE.sub("\ufffd", words[:most].rstrip())

    return read


def _may_be(date: float, now: float) -> bool:
    """Say whether a page may have that date.

    The epoch of unset clocks and future dates are refused.
    """
    return _EARLIEST <= date <= now + _DAY_S and abs(date) >= _DAY_S
