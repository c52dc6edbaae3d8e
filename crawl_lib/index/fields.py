"""The fields of the index, and the document of a page.

Fields for each language of the index, and once for all other languages. The words are stemmed, without stop words,
accents and positions. A page has the fields of its own language only:
* `words_<language>`, `words`: title three times, headings twice, anchors, words of the URL's path, text.
* `title_<language>`, `title_other`; `anchors_<language>`, `anchors_other`: title or anchors alone.

Words as written, in lower case and with positions:
* `text`: text and title. `title_text`: the title alone, each letter of a run a word. `address`: the URL.
* `text_cjk`: a word for each letter of the runs (`runs`) of text, title, headings and anchors.

Whole values, one word each:
* `site`: the host, and each domain above it to the registered one.
* `language`; `type`: the MIME type; `key`: in hex; `robots`: the page's demands on results. These are stored, too.

Fast numbers: `order` (the first 8 bytes of the key), and in microseconds `published`, `captured` and `date`. `date` is
`published` if known, else `captured`.

Stored for results, in UTF-8: `url`, `title`, `body` (the text). The field `text` cannot replace `body`: `text`
separates a run from adjacent words of other scripts. A second value of `body` has headings and anchors as JSON, for
`krake index push` (`pages_with_keys`).
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.metadata import version
from unicodedata import normalize
from urllib.parse import unquote, urlsplit

import tantivy

from crawl_lib.index.languages import OTHER, Analysers
from crawl_lib.index.runs import find_runs, spaced, without_runs
from crawl_lib.urls import budget_domain_of, host_of

REVISION = 2
"""Raise this number when equal pages get other words or fields. From 2 on, documents have headings and anchors."""
TITLE_TIMES, HEADINGS_TIMES = 3, 2
MOST_ANCHOR_TIMES = 10
"""The limit of counted repetitions of an anchor. All pages of a site link to the pages of its menu with the same words.
To count all these links takes half of the time of the index, and improves no result."""


class FieldKind(StrEnum):
    """The kinds of fields of each language."""

    WORDS = "words"
    TITLE = "title"
    ANCHORS = "anchors"


@dataclass(frozen=True)
class IndexedPage:
    """Facts of the index about a page.

    `key`: 20 bytes. `url`: canonical. `text`: the main text. `anchors`: texts of links to the page; a text comes once
    for each page with such a link. `language`: a code of ISO 639, None if unknown. `captured_us`, `published_us`: POSIX
    microseconds. `robots`: the page's demands among `noarchive` and `nosnippet`.
    """

    key: bytes
    url: str
    text: str
    captured_us: int
    title: str = ""
    headings: str = ""
    anchors: tuple[str, ...] = ()
    language: str | None = None
    mime_type: str = "text/html"
    published_us: int | None = None
    robots: tuple[str, ...] = ()


def order_of(key: bytes) -> int:
    """Return the index's order number of a key.

    The number is the key's first 8 bytes, unsigned and big-endian.
    """
    return int.from_bytes(key[:8], "big")


@dataclass(frozen=True)
class FieldSettings:
    """The settings of an index that its manifest records. `tantivy`: the version of the library."""

    revision: int
    languages: list[str]
    tantivy: str


class Fields:
    """The schema of an index with fields for some languages."""

    def __init__(self, languages: Sequence[str]) -> None:
        """Make schema and analysers. `languages`: codes in `LANGUAGES`."""
        self.languages = tuple(languages)
        self.analysers = Analysers(self.languages)
        self.schema = self._schema()

    @property
    def settings(self) -> FieldSettings:
        """Revision and languages of the index.

        After a change of these, an update makes all documents again.
        """
        return FieldSettings(REVISION, list(self.languages), version("tantivy"))

    def index(self, path: str) -> tantivy.Index:
        """Open the index in a folder, or make an empty one.

        Raises ValueError, as Tantivy does, if the folder has a damaged index, or an index with other fields.
        """
        index = tantivy.Index(self.schema, path)
        self.analysers.register(index)
        return index

    def group(self, language: str | None) -> str:
        """Return the language group of a page: a language or `OTHER`."""
        return language if language in self.languages else OTHER

    def name(self, kind: str, group: str) -> str:
        """Return the field of a kind (`FieldKind`) for a language group."""
        return str(kind) if (kind, group) == (FieldKind.WORDS, OTHER) else f"{kind}_{group}"

    def document(self, page: IndexedPage) -> tantivy.Document:
        """Return a page's document, with texts in NFC (Unicode)."""
        page, document = _composed(page), tantivy.Document()
        self._add_words(document, page)
        _add_plain(document, page)
        _add_facts(document, page)
        return document

    def _add_words(self, document: tantivy.Document, page: IndexedPage) -> None:
        group = self.group(page.language)
        repeated = [page.title] * TITLE_TIMES + [page.headings] * HEADINGS_TIMES
        for value in filter(
            None, [*repeated, *page.anchors, unquote(urlsplit(page.url).path), page.text]
        ):
            document.add_text(self.name(FieldKind.WORDS, group), without_runs(value))
        document.add_text(self.name(FieldKind.TITLE, group), spaced(page.title))
        for anchor in page.anchors:
            document.add_text(self.name(FieldKind.ANCHORS, group), spaced(anchor))

    def _schema(self) -> tantivy.Schema:
        builder = tantivy.SchemaBuilder()
        for group in (*self.languages, OTHER):
            for kind in FieldKind:
                builder.add_text_field(
                    self.name(kind, group), tokenizer_name=group, index_option="freq"
                )
        builder.add_text_field("text", tokenizer_name=Analysers.PLAIN)
        builder.add_text_field("title_text", tokenizer_name=Analysers.PLAIN)
        builder.add_text_field("address", tokenizer_name=Analysers.PLAIN)
        builder.add_text_field("text_cjk", tokenizer_name=Analysers.LETTERS)
        builder.add_text_field("site", tokenizer_name=Analysers.RAW, index_option="basic")
        for name in ("language", "type", "key", "robots"):
            builder.add_text_field(
                name, tokenizer_name=Analysers.RAW, index_option="basic", stored=True
            )
        for name in ("url", "title", "body"):
            builder.add_bytes_field(name, stored=True)
        for name in ("published", "captured", "date"):
            builder.add_integer_field(name, fast=True)
        builder.add_unsigned_field("order", fast=True)
        return builder.build()


def pages_with_keys(
    searcher: tantivy.Searcher, schema: tantivy.Schema, keys: Sequence[bytes]
) -> Iterator[IndexedPage]:
    """Read pages back from their documents, in any order.

    Pages without a document are left out. Raises ValueError, as Tantivy does, for damaged files, and for an index of a
    revision before 2.
    """
    query = tantivy.Query.term_set_query(schema, "key", [key.hex() for key in keys])
    addresses = [address for _, address in searcher.search(query, len(keys), count=False).hits]
    times = (searcher.fast_field_values(name, addresses) for name in ("captured", "published"))
    for address, captured, published in zip(addresses, *times, strict=True):
        yield _page_of(searcher.doc(address), captured, published)


def _page_of(document: tantivy.Document, captured_us: int, published_us: int | None) -> IndexedPage:
    url, title, text = (
        bytes(document.get_first(name) or b"").decode() for name in ("url", "title", "body")
    )
    more = json.loads(bytes(document.get_all("body")[-1]))
    return IndexedPage(
        key=bytes.fromhex(str(document.get_first("key"))),
        url=url,
        text=text,
        captured_us=captured_us,
        title=title,
        headings=more["headings"],
        anchors=tuple(Counter(more["anchors"]).elements()),
        language=document.get_first("language"),
        mime_type=str(document.get_first("type")),
        published_us=published_us,
        robots=tuple(document.get_all("robots")),
    )


def sites_of(host: str) -> list[str]:
    """Return a canonical host and its domains, to the registered one."""
    registered, sites = budget_domain_of(host), [host]
    while sites[-1] != registered and "." in sites[-1]:
        sites.append(sites[-1].partition(".")[2])
    return sites


def _composed(page: IndexedPage) -> IndexedPage:
    title, headings, text = (
        normalize("NFC", one) for one in (page.title, page.headings, page.text)
    )
    times = Counter(normalize("NFC", one) for one in page.anchors)
    anchors = tuple(
        one for one, count in times.items() for _ in range(min(count, MOST_ANCHOR_TIMES))
    )
    return replace(page, title=title, headings=headings, text=text, anchors=anchors)


def _add_plain(document: tantivy.Document, page: IndexedPage) -> None:
    for text in (page.text, page.title):
        document.add_text("text", without_runs(text))
    document.add_text("title_text", spaced(page.title))
    # Each run is a value of its own: Tantivy leaves a gap between values, so no phrase crosses two runs.
    for text in (page.text, page.title, page.headings, *page.anchors):
        for run in find_runs(text):
            document.add_text("text_cjk", run)


def _add_facts(document: tantivy.Document, page: IndexedPage) -> None:
    for site in sites_of(host_of(page.url)):
        document.add_text("site", site)
    if page.language:
        document.add_text("language", page.language)
    for word in page.robots:
        document.add_text("robots", word)
    document.add_text("type", page.mime_type)
    document.add_text("address", page.url)
    more = json.dumps(
        {"headings": page.headings, "anchors": Counter(page.anchors)}, ensure_ascii=False
    )
    for name, value in (
        ("url", page.url),
        ("title", page.title),
        ("body", page.text),
        ("body", more),
    ):
        document.add_bytes(name, value.encode())
    document.add_text("key", page.key.hex())
    document.add_unsigned("order", order_of(page.key))
    document.add_integer("captured", page.captured_us)
    if page.published_us is not None:
        document.add_integer("published", page.published_us)
    document.add_integer(
        "date", page.captured_us if page.published_us is None else page.published_us
    )
