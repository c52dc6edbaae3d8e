"""The pages of the index, the substitutes of other pages, and the facts about each page.

Each existing page has a row of `judged`, with the reason against the page in the index, if any. Pages without a reason
are candidates. Canonical links and equal texts give each candidate an owner: the page that the index has instead, or
the candidate itself. Texts are read twice: once for the digests that show changes, and once more for changed pages.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha1
from itertools import groupby
from operator import itemgetter
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from crawl_lib.captures import Captures, Row
from crawl_lib.config import IndexConfig
from crawl_lib.crawldb import CRAWLDB_SCHEMA, newest_version
from crawl_lib.duplicates import DUPLICATES
from crawl_lib.errors import DamagedFileError
from crawl_lib.index.boosts import give_boosts, mean_of
from crawl_lib.index.fields import IndexedPage
from crawl_lib.index.pages import PAGES_SCHEMA
from crawl_lib.linkdb import OUTLINKS
from crawl_lib.urls import Chain, Scope, key_of
from crawl_lib.versions import GROUP_ROWS, Version, Versions, VersionWork, columns, numbered

_JUDGED = columns(
    "key bytes, reason text, host text, segment int32, own bytes, content bytes, canonical bytes, language text, "
    "fetched_time time, is_https int32, length_chars int32, unavailable_after time, warc_file text, "
    "warc_offset int64, warc_length int64"
)
_REDIRECTS = columns("key bytes, target bytes")
_LIST = pa.list_(pa.string())
_ANCHORED = columns("key bytes, digest bytes").append(pa.field("anchors", _LIST))
_OWNERS = columns("key bytes, target bytes, owner bytes")
_WANTED = columns(
    "key bytes, own bytes, language text, anchors bytes, boost number, host text, near bytes, unavailable_after time, "
    "segment text, warc_file text, warc_offset int64, warc_length int64"
)
_TEXTS = columns(
    "key bytes, url text, title text, headings text, text text, language text, mime_type text, captured time, "
    "published time"
).append(pa.field("robots", _LIST))
LEFT_OUT_SCHEMA = columns("key key!, reason text!, owner key")
"""Existing pages without a place in the index. `owner`: the page in the index instead."""
_OF_TEXTS = ("text", "headings", "robots", "published", "language")
_PDF = "application/pdf"
"""A PDF's title comes from the column `headings` of texts."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLACE = ("warc_file", "warc_offset", "warc_length")
_MAY_HIDE = ("noarchive", "nosnippet")
DOCUMENT_ROWS = 200


@dataclass
class Wanted:
    """The pages of the next version of an index, as tables of an engine.

    `boosted_by`: the source of boosts; `made_of`: digests of other tables. `counts`: omitted pages by
    reason.
    """

    work: VersionWork
    captures: Captures
    boosted_by: str
    made_of: tuple[str, ...]
    counts: "Counter[str]" = field(default_factory=Counter)

    @classmethod
    def of(cls, work: VersionWork, links: Version) -> "Wanted":
        """Collect the current pages.

        `links`: the newest version of the table of links. Raises InputError before the first segment, ConfigError,
        DamagedFileError, StorageError, StoppedError.
        """
        captures = Captures.of(work, standing=True)
        Versions(work.stores, OUTLINKS).give(links, work.engine, "links")
        near, groups = Versions(work.stores, DUPLICATES), None
        try:
            groups = near.newest()
        except DamagedFileError:
            groups = None  # the first update after `krake duplicates near` folds groups again
        near.give(groups, work.engine, "near")
        if not work.stores.config.order.has_crawldb:
            work.engine.values("crawldb", CRAWLDB_SCHEMA.empty_table())
        work.engine.values("segments", numbered(str(segment) for segment, _ in captures.segments))
        boosted_by = give_boosts(work)
        crawldb = newest_version(work.stores) if work.stores.config.order.has_crawldb else None
        return cls(
            work,
            captures,
            boosted_by,
            tuple(one.digest for one in (groups, crawldb) if one is not None),
        )

    def choose(self) -> None:
        """Read all texts, and make the tables `owners`, `anchored` and `wanted`."""
        engine, work = self.work.engine, self.work
        self._keep_candidates()
        self._keep_redirects()
        engine.keep("ends", "index/ends", "index.redirects")
        self._fold()
        engine.view("rivals", "index/same_texts")
        engine.keep("same", "index/best", "index.duplicates")
        work.ask("owners", _OWNERS, "index/owners", "index.duplicates")
        anchors = engine.rows("index/anchors", "index.anchors")
        work.keep_rows("anchored", _ANCHORED, _anchored(anchors))
        engine.view("said", "index/said")
        engine.keep("languages", "text/languages", "index.languages")
        work.ask("wanted", _WANTED, "index/wanted", "index.pages")

    def _keep_candidates(self) -> None:
        """Read texts, and make the tables `judged` and `candidates`."""
        judge = _Judge(self.work)
        found = self.captures.read(*_OF_TEXTS, query="captures/described")
        rows = (judge.row(page) for pages in found for page in pages)
        self.work.keep_rows("judged", _JUDGED, rows)
        self.work.engine.view("candidates", "index/candidates")

    def _keep_redirects(self) -> None:
        has_crawldb = self.work.stores.config.order.has_crawldb
        query = "index/redirects_known" if has_crawldb else "index/redirects"
        rows = self.work.engine.rows(query, "index.redirects")
        hops = ({"key": row["key"], "target": key_of(row["redirect_url"])} for row in rows)
        self.work.keep_rows("redirects", _REDIRECTS, hops)

    def _fold(self) -> None:
        """Make the table `folded`: where canonical links end."""
        engine = self.work.engine
        if self.work.stores.config.index.canonical == "keep":
            engine.define("folded", "select key, key as target from candidates")
            return
        engine.keep("pointers", "index/pointers", "index.canonical")
        engine.keep("steps", "index/steps", "index.canonical")
        engine.view("rivals", "index/loops")
        engine.keep("loops", "index/best", "index.canonical")
        engine.keep("folded", "index/folded", "index.canonical")

    def pages(self) -> Iterator[pa.Table]:
        """Yield rows of the version's table of pages, in key order."""
        query, engine = "index/wanted_in_order", self.work.engine
        mean = mean_of(engine.stream(query, GROUP_ROWS, "index.pages"))
        for batch in engine.stream(query, GROUP_ROWS, "index.pages"):
            digests = [
                _document_digest(*values) for values in _values(batch, "own", "language", "anchors")
            ]
            boosts = [
                1.0 if boost is None else boost / mean for (boost,) in _values(batch, "boost")
            ]
            table = pa.Table.from_batches([batch]).drop_columns(["boost"])
            table = table.append_column("boost", pa.array(boosts, pa.float32()))
            yield table.append_column("digest", pa.array(digests, pa.binary(20))).select(
                PAGES_SCHEMA.names
            )

    def left_out(self) -> Iterator[pa.Table]:
        """Yield the rows of `LEFT_OUT_SCHEMA`, in order of keys; count them."""
        for batch in self.work.engine.stream("index/left_out", GROUP_ROWS, "index.left_out"):
            self.counts.update(reason for (reason,) in _values(batch, "reason"))
            yield pa.Table.from_batches([batch])

    def documents(self) -> Iterator[IndexedPage]:
        """Yield new and changed pages in key order.

        Their rows in `listed` have no equal row in `indexed`.
        """
        work, options = self.work, self.work.stores.config.index
        found = self.captures.read(*_OF_TEXTS, query="index/fresh")
        rows = (_text_row(page, options) for pages in found for page in pages)
        work.keep("texts", _TEXTS, _tables(rows))
        for batch in work.engine.stream("index/documents", DOCUMENT_ROWS, "index.documents"):
            for row in batch.to_pylist():
                yield _indexed(row)


def _values(batch: pa.RecordBatch, *names: str) -> Iterator[tuple[Any, ...]]:
    """Yield the values of some columns, row by row."""
    return zip(*(batch.column(name).to_pylist() for name in names), strict=True)


def _document_digest(own: bytes, language: str | None, anchors: bytes | None) -> bytes:
    """Return the SHA-1 of all sources of a document."""
    parts = (own, str(language).encode(), anchors or b"")
    return sha1(b"\n".join(parts)).digest()


class _Judge:
    """Decides for each page whether the index may have the page."""

    def __init__(self, work: VersionWork) -> None:
        self.options = work.stores.config.index
        self.chain = Chain(work.stores.config.urls, Scope.INDEX)

    def row(self, page: Row) -> Row:
        """Return the row of a page."""
        reason = self._refusal(page)
        return {"key": page["key"], "reason": reason} if reason else self._candidate(page)

    def _refusal(self, page: Row) -> str:
        """Return the reason against a page in the index, or ""."""
        if not page["text"]:
            return "no_text"
        if self.options.robots == "obey" and is_noindex(page):
            return "noindex"
        return "rules" if not self.chain.is_empty and self.chain.objection(page["url"]) else ""

    def _candidate(self, page: Row) -> Row:
        robots, url = page["robots"] or {}, page["url"]
        until = robots.get("unavailable_after") if self.options.robots == "obey" else None
        return {
            **{name: page[name] for name in ("key", "host", "segment", "language", *_PLACE)},
            "own": _own_digest(page, self.options),
            "content": sha1(page["text"].encode()).digest(),
            "canonical": key_of(page["canonical_url"]) if page["canonical_url"] else None,
            "fetched_time": page["time"],
            "is_https": int(url.startswith("https:")),
            "length_chars": len(unquote(url)),
            "unavailable_after": until,
        }


def is_noindex(page: Row) -> bool:
    """Say whether a page forbids indexes.

    If the text lacks this fact, such as after a killed process, the page's row decides.
    """
    robots = page["robots"]
    if robots is not None:
        return bool(robots["noindex"])
    words = {word.strip() for word in (page["meta_robots"] or "").lower().split(",")}
    return not words.isdisjoint({"noindex", "none"})


def _hidden(page: Row, options: IndexConfig) -> list[str]:
    """Return a page's demands on results that the config obeys."""
    robots = page["robots"] or {}
    return [word for word in _MAY_HIDE if robots.get(word)] if options.robots == "obey" else []


def _own_digest(page: Row, options: IndexConfig) -> bytes:
    """Return the SHA-1 of a document's sources.

    Language and anchors are left out.
    """
    values = [page[name] for name in ("url", "title", "headings", "text", "mime_detected")]
    times = [str(page[name]) for name in ("time", "published")]
    text = json.dumps([*values, *times, _hidden(page, options)])
    return sha1(text.encode()).digest()


def _text_row(page: Row, options: IndexConfig) -> Row:
    return {
        **{name: page[name] for name in ("key", "url", "headings", "text", "published")},
        "title": page["title"] or (page["headings"] if page["mime_detected"] == _PDF else None),
        "language": page["final_language"],
        "mime_type": page["mime_detected"],
        "captured": page["time"],
        "robots": _hidden(page, options),
    }


def _tables(rows: Iterator[Row]) -> Iterator[pa.Table]:
    """Return rows of up to a megabyte as tables of few rows."""
    held: list[Row] = []
    size = 0
    for row in rows:
        held.append(row)
        size += len(row["text"])
        if size >= 1 << 22:
            yield pa.Table.from_pylist(held, _TEXTS)
            held, size = [], 0
    yield pa.Table.from_pylist(held, _TEXTS)


def _anchored(anchors: Iterable[Row]) -> Iterator[Row]:
    """Yield a row for each page with anchors."""
    for owner, found in groupby(anchors, itemgetter("owner")):
        texts = [row["anchor"] for row in found]
        yield {"key": owner, "digest": sha1(json.dumps(texts).encode()).digest(), "anchors": texts}


def _indexed(row: dict[str, Any]) -> IndexedPage:
    published = row["published"]
    return IndexedPage(
        key=row["key"],
        url=row["url"],
        text=row["text"],
        captured_us=_us(row["captured"]),
        title=row["title"] or "",
        headings=row["headings"] or "",
        anchors=tuple(row["anchors"] or ()),
        language=row["language"],
        mime_type=row["mime_type"],
        published_us=None if published is None else _us(published),
        robots=tuple(row["robots"] or ()),
    )


def _us(time: datetime) -> int:
    return round((time - _EPOCH).total_seconds() * 1e6)
