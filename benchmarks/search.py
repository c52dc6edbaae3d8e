"""Search: how good answers are on two documentation sites, and what queries cost on a million made-up texts."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from statistics import mean, quantiles

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.known import (
    ERLANG,
    POSTGRESQL,
    PYTHON,
    Docs,
    read_entries,
    read_web,
    reciprocal_rank,
)
from benchmarks.report import Row, measure
from crawl_lib.index import PAGES_SCHEMA, Fields, IndexedPage
from crawl_lib.search import OpenIndex, SearchOptions, Sites, answer, open_index, ranked
from crawl_lib.search.opened import PAGES_FILE
from crawl_lib.text.extract import ExtractOptions, page_text
from crawl_lib.urls import host_of, key_of
from crawl_lib.versions import GROUP_ROWS
from tests.export.crawls import PLAIN_HEAD, member

LANGUAGES = ("en", "de", "fr", "es", "it", "pt", "ru")
ENTRIES, QUERIES, TEXTS, TEXT_WORDS = 600, 500, 1_000_000, 120
VOCABULARY, EXPONENT, SEED = 200_000, 1.07, 36
PACKAGES = (POSTGRESQL, PYTHON, ERLANG)
READ_SHARE, MOST_TEXT_MS = 10, 0.15
"""Of so many pages of docs the text of one is read."""
FLOORS = {POSTGRESQL: 0.66, PYTHON: 0.84}
NO_SITES = Sites({})


@dataclass(frozen=True)
class Written:
    """An index that was written. `texts_bytes`: of its texts. `cpu_s`: without the making of its pages."""

    texts_bytes: int
    cpu_s: float
    index_bytes: int

    def rows(self, what: str) -> list[Row]:
        """Say how fast the index was made, and how large it is. The budgets are those of real texts."""
        rate, share = self.texts_bytes / self.cpu_s / 1e6, self.index_bytes / self.texts_bytes
        return [
            Row(
                f"search: {what}, indexed a CPU second",
                f"{rate:.1f} MB",
                "at least 5 MB",
                rate >= 5,
            ),
            Row(
                f"search: {what}, the index against the texts",
                f"{share:.2f}",
                "at most 1.0",
                share <= 1,
            ),
        ]


def run(directory: Path) -> list[Row]:
    """Measure both; `SEARCH_TEXTS` in the environment is another number of texts.

    The large index is made in one process and asked in another, so the memory is that of answers alone.
    """
    count = int(os.environ.get("SEARCH_TEXTS", TEXTS))
    docs: list[Row] = []
    if all(one.is_there for one in PACKAGES):
        docs = [measure(_texts_of_docs).result, *measure(_on_docs, directory / "docs").result]
    made = measure(_make_texts, directory / "texts", count)
    asked = measure(_on_texts, directory / "texts", count)
    rows: list[Row] = [replace(row, budget="", met=None) for row in made.result.rows(_what(count))]
    return [
        *docs,
        *rows,
        Row("search: peak memory of making that index", f"{made.peak_mb:.0f} MB"),
        *asked.result,
    ]


def write_index(folder: Path, pages: Iterable[tuple[IndexedPage, float]]) -> Written:
    """Write an index of pages with their boosts, and the table next to it."""
    folder.mkdir()
    fields, facts, size = Fields(LANGUAGES), {}, 0
    begun_s, making = time.process_time(), _Timed(pages)
    writer = fields.index(str(folder)).writer(256 << 20, 1)
    for page, boost in making:
        writer.add_document(fields.document(page))
        size += len(page.text.encode())
        facts[page.key] = (boost, host_of(page.url))
    writer.commit()
    writer.wait_merging_threads()
    spent_s = time.process_time() - begun_s - making.cpu_s
    _write_pages(folder / PAGES_FILE, facts)
    return Written(size, spent_s, sum(file.stat().st_size for file in folder.iterdir()))


def _write_pages(path: Path, facts: Mapping[bytes, tuple[float, str]]) -> None:
    """Write the table next to an index. `facts`: boost and host by key."""
    place = {
        "segment": "",
        "warc_file": "",
        "warc_offset": 0,
        "warc_length": 0,
        "digest": bytes(20),
    }
    keys = sorted(facts)
    with pq.ParquetWriter(path, PAGES_SCHEMA) as file:
        for start in range(0, len(keys), GROUP_ROWS):
            some = [(key, *facts[key]) for key in keys[start : start + GROUP_ROWS]]
            rows = [
                {**place, "key": key, "boost": boost, "host": host} for key, boost, host in some
            ]
            file.write_table(pa.Table.from_pylist(rows, PAGES_SCHEMA))


class _Timed:
    """The pages of an index while it is made. `cpu_s`: what it cost to make the pages."""

    def __init__(self, pages: Iterable[tuple[IndexedPage, float]]) -> None:
        """Make no page yet."""
        self._pages, self.cpu_s = iter(pages), 0.0

    def __iter__(self) -> Iterator[tuple[IndexedPage, float]]:
        """Give page after page."""
        while True:
            begun_s = time.thread_time()
            page = next(self._pages, None)
            self.cpu_s += time.thread_time() - begun_s
            if page is None:
                return
            yield page


def mean_reciprocal_rank(
    index: OpenIndex,
    docs: Docs,
    urls: dict[bytes, str],
    count: int,
    wanted: SearchOptions | None = None,
) -> float:
    """Return how good the answers to so many entries of an index are; all entries where there are not so many."""
    entries = read_entries(docs)
    chosen = entries[:: max(1, len(entries) // count)]
    found = (
        [urls[one.fact.key] for one in ranked(index, entry.text, NO_SITES, wanted)[:10]]
        for entry in chosen
    )
    return mean(
        reciprocal_rank(results, entry) for results, entry in zip(found, chosen, strict=True)
    )


def _texts_of_docs() -> Row:
    """Read pages as the text stage does, from records."""
    files = [
        file for docs in PACKAGES for file in sorted(docs.folder.rglob("*.html"))[::READ_SHARE]
    ]
    records = [member("", PLAIN_HEAD + file.read_bytes()) for file in files]
    kilobytes, asked = (
        sum(file.stat().st_size for file in files) / 1000,
        ExtractOptions(1 << 22, 1 << 22),
    )
    begun_s = time.process_time()
    for record in records:
        page_text(record, "h", asked)
    each_ms = 1000 * (time.process_time() - begun_s) / kilobytes
    what = f"search: texts of {len(files):,} pages of docs, CPU a KB of HTML"
    return Row(what, f"{each_ms:.3f} ms", f"at most {MOST_TEXT_MS}", each_ms <= MOST_TEXT_MS)


def _on_docs(folder: Path) -> list[Row]:
    web = read_web(PACKAGES)
    pages, boosts = web.linked(), web.boosts()
    rows = write_index(folder, ((page, boosts[page.url]) for page in pages)).rows(
        f"{len(pages):,} pages of docs"
    )
    index, urls = open_index(folder, 1, LANGUAGES), {page.key: page.url for page in pages}
    for docs, floor in FLOORS.items():
        value = mean_reciprocal_rank(index, docs, urls, ENTRIES)
        what = f"search: mean reciprocal rank, {ENTRIES} entries of {docs.host}"
        rows.append(Row(what, f"{value:.3f}", f"at least {floor}", value >= floor))
    entries = [entry.text for docs in FLOORS for entry in read_entries(docs)[::20]][:QUERIES]
    return [*rows, *_answers(index, f"{len(pages):,} pages of docs", entries)]


def _what(count: int) -> str:
    return f"{count:,} texts of {TEXT_WORDS} Zipf words"


def _make_texts(folder: Path, count: int) -> Written:
    return write_index(folder, ((page, 1.0) for page in _texts(count)))


def _on_texts(folder: Path, count: int) -> list[Row]:
    before = _private_bytes()
    index, chosen, what = open_index(folder, 1, LANGUAGES), random.Random(SEED), _what(count)
    words = [text.split() for text in zipf_texts(chosen, QUERIES)]
    queries, phrases = (
        [" ".join(one[:3]) for one in words],
        [f'"{" ".join(one[:2])}"' for one in words],
    )
    rows = _spent(f"ranking of {what}", queries, lambda text: ranked(index, text, NO_SITES), 15, 50)
    rows += _spent(
        f"phrases of {what}", phrases, lambda text: ranked(index, text, NO_SITES), None, 250
    )
    rows += _answers(index, what, queries)
    private = (_private_bytes() - before) / 1e6
    return [
        *rows,
        Row(
            "search: private memory for those answers",
            f"{private:.0f} MB",
            "under 500",
            private < 500,
        ),
    ]


def _answers(index: OpenIndex, what: str, queries: list[str]) -> list[Row]:
    name = f"whole answers with ten snippets of {what}"
    return _spent(name, queries, lambda text: answer(index, text, NO_SITES), 25, 80)


def _private_bytes() -> int:
    """Return the memory of this process without mapped files, whose pages the kernel may drop."""
    status = Path("/proc/self/status").read_text()
    return next(
        int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("RssAnon:")
    )


def _spent(
    what: str, queries: list[str], ask: Callable[[str], object], p50_ms: int | None, p99_ms: int
) -> list[Row]:
    spent = []
    for query in queries:
        begun_s = time.process_time()
        ask(query)
        spent.append(1000 * (time.process_time() - begun_s))
    cuts = quantiles(spent, n=100)
    budget = f"p99 under {p99_ms}" if p50_ms is None else f"p50 under {p50_ms}, p99 under {p99_ms}"
    is_met = cuts[98] < p99_ms and (p50_ms is None or cuts[49] < p50_ms)
    return [
        Row(f"search: {what}, CPU", f"p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms", budget, is_met)
    ]


def zipf_texts(chosen: random.Random, count: int) -> Iterator[str]:
    """Give texts whose words are as frequent as the words of a language are (Zipf)."""
    weights = list(accumulate(1 / rank**EXPONENT for rank in range(1, VOCABULARY + 1)))
    for _ in range(count):
        yield " ".join(
            f"w{one}x"
            for one in chosen.choices(range(VOCABULARY), cum_weights=weights, k=TEXT_WORDS)
        )


def _texts(count: int) -> Iterator[IndexedPage]:
    for number, text in enumerate(zipf_texts(random.Random(SEED + 1), count)):
        url = f"http://h{number % 20_000}.example/{number}"
        yield IndexedPage(key_of(url), url, text, 0, language="en")
