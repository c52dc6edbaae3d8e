"""Search: how good answers are on two documentation sites, and what queries cost on a million made-up texts."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from pathlib import Path
from statistics import mean, quantiles

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.known import ERLANG, POSTGRESQL, PYTHON, Docs, read_entries, read_web, reciprocal_rank
from benchmarks.report import Row, measure
from crawl_lib.index import PAGES_SCHEMA, Fields, IndexedPage
from crawl_lib.search import OpenIndex, Sites, answer, open_index, ranked
from crawl_lib.search.opened import PAGES_FILE
from crawl_lib.urls import host_of, key_of

LANGUAGES = ("en", "de", "fr", "es", "it", "pt", "ru")
ENTRIES, QUERIES, TEXTS, TEXT_WORDS = 600, 500, 1_000_000, 120
VOCABULARY, EXPONENT, SEED = 200_000, 1.07, 36
PACKAGES = (POSTGRESQL, PYTHON, ERLANG)
FLOORS = {POSTGRESQL: 0.66, PYTHON: 0.84}
NO_SITES, NO_DIGEST = Sites({}), bytes(20)


def run(directory: Path) -> list[Row]:
    """Measure both; `SEARCH_TEXTS` in the environment is another number of texts."""
    count = int(os.environ.get("SEARCH_TEXTS", TEXTS))
    rows: list[Row] = measure(_on_docs, directory / "docs").result if all(one.is_there for one in PACKAGES) else []
    return [*rows, *measure(_on_texts, directory / "texts", count).result]


def write_index(folder: Path, pages: Iterable[tuple[IndexedPage, float]]) -> int:
    """Write an index of pages with their boosts, and the table next to it; returns the bytes of its texts."""
    folder.mkdir()
    fields, facts, size = Fields(LANGUAGES), [], 0
    writer = fields.index(str(folder)).writer(256 << 20, 1)
    for page, boost in pages:
        writer.add_document(fields.document(page))
        size += len(page.text.encode())
        facts.append({"key": page.key, "boost": boost, "host": host_of(page.url), "digest": NO_DIGEST})
    writer.commit()
    writer.wait_merging_threads()
    facts.sort(key=lambda fact: fact["key"])
    place = {"segment": "", "warc_file": "", "warc_offset": 0, "warc_length": 0}
    pq.write_table(pa.Table.from_pylist([{**place, **fact} for fact in facts], PAGES_SCHEMA), folder / PAGES_FILE)
    return size


def mean_reciprocal_rank(index: OpenIndex, docs: Docs, urls: dict[bytes, str], count: int) -> float:
    """Return how good the answers to so many entries of an index are; all entries where there are not so many."""
    entries = read_entries(docs)
    chosen = entries[:: max(1, len(entries) // count)]
    found = ([urls[one.fact.key] for one in ranked(index, entry.text, NO_SITES)[:10]] for entry in chosen)
    return mean(reciprocal_rank(results, entry) for results, entry in zip(found, chosen, strict=True))


def _on_docs(folder: Path) -> list[Row]:
    web = read_web(PACKAGES)
    pages, boosts = web.linked(), web.boosts()
    begun_s = time.process_time()
    size = write_index(folder, ((page, boosts[page.url]) for page in pages))
    spent_s = time.process_time() - begun_s
    on_disk = sum(file.stat().st_size for file in folder.iterdir())
    index, urls = open_index(folder, 1, LANGUAGES), {page.key: page.url for page in pages}
    rate, share = size / spent_s / 1e6, on_disk / size
    rows = [
        Row("search: texts indexed a CPU second", f"{rate:.1f} MB", "at least 5 MB", rate >= 5),
        Row("search: index, stored texts included, against the texts", f"{share:.2f}", "at most 1.0", share <= 1),
    ]
    for docs, floor in FLOORS.items():
        value = mean_reciprocal_rank(index, docs, urls, ENTRIES)
        what = f"search: mean reciprocal rank, {ENTRIES} entries of {docs.host}"
        rows.append(Row(what, f"{value:.3f}", f"at least {floor}", value >= floor))
    entries = [entry.text for docs in FLOORS for entry in read_entries(docs)[::20]][:QUERIES]
    return [
        *rows,
        *_spent("whole answers with ten snippets", entries, lambda text: answer(index, text, NO_SITES), 25, 80),
    ]


def _on_texts(folder: Path, count: int) -> list[Row]:
    write_index(folder, ((page, 1.0) for page in _texts(count)))
    before = psutil.Process().memory_full_info().uss
    index, chosen = open_index(folder, 1, LANGUAGES), random.Random(SEED)
    words = [text.split() for text in zipf_texts(chosen, QUERIES)]
    queries, phrases = ([" ".join(one[:3]) for one in words], [f'"{" ".join(one[:2])}"' for one in words])
    what = f"of {count:,} texts of {TEXT_WORDS} Zipf words"
    rows = _spent(f"ranking {what}", queries, lambda text: ranked(index, text, NO_SITES), 15, 50)
    rows += _spent(f"phrases {what}", phrases, lambda text: ranked(index, text, NO_SITES), None, 250)
    private = (psutil.Process().memory_full_info().uss - before) / 1e6
    return [*rows, Row("search: private memory for that", f"{private:.0f} MB", "under 500", private < 500)]


def _spent(what: str, queries: list[str], ask: Callable[[str], object], p50_ms: int | None, p99_ms: int) -> list[Row]:
    spent = []
    for query in queries:
        begun_s = time.process_time()
        ask(query)
        spent.append(1000 * (time.process_time() - begun_s))
    cuts = quantiles(spent, n=100)
    budget = f"p99 under {p99_ms}" if p50_ms is None else f"p50 under {p50_ms}, p99 under {p99_ms}"
    is_met = cuts[98] < p99_ms and (p50_ms is None or cuts[49] < p50_ms)
    return [Row(f"search: {what}, CPU", f"p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms", budget, is_met)]


def zipf_texts(chosen: random.Random, count: int) -> Iterator[str]:
    """Give texts whose words are as frequent as the words of a language are (Zipf)."""
    weights = list(accumulate(1 / rank**EXPONENT for rank in range(1, VOCABULARY + 1)))
    for _ in range(count):
        yield " ".join(f"w{one}x" for one in chosen.choices(range(VOCABULARY), cum_weights=weights, k=TEXT_WORDS))


def _texts(count: int) -> Iterator[IndexedPage]:
    for number, text in enumerate(zipf_texts(random.Random(SEED + 1), count)):
        url = f"http://h{number % 20_000}.example/{number}"
        yield IndexedPage(key_of(url), url, text, 0, language="en")
