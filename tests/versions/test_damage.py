"""A flipped bit in a derived table: who reads it gives the same rows, or an error that names the file and a remedy."""

from __future__ import annotations

import gzip
import io
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crawl_lib.ask import (
    best_rows,
    crawldb_stats,
    dump_crawldb,
    dump_hosts,
    dump_links,
    explain,
    explain_listing,
    find_page,
    inlinks_of,
    look_up_listing,
    newest_rows,
    read_answer,
    row_of_url,
)
from crawl_lib.captures import PLACES, update_captures
from crawl_lib.config import from_mapping
from crawl_lib.crawldb import CRAWLDB, filter_crawldb, generate, update
from crawl_lib.duplicates import (
    DUPLICATES,
    find_mirrors,
    find_near,
    find_templates,
    mark_duplicates,
)
from crawl_lib.errors import KrakeError
from crawl_lib.index import INDEX, PAGES_FILE, update_index
from crawl_lib.linkdb import LINKDB, OUTLINKS, update_linkdb, update_outlinks
from crawl_lib.ranks import LINKRANK, update_linkrank, update_score_by_links
from crawl_lib.repair import fsck, repair_crawl, sweep
from crawl_lib.search import IndexReader, IndexVersions, OpenIndex, Sites
from crawl_lib.search import answer as search_answer
from crawl_lib.segment import Manifest
from crawl_lib.storage import open_storage
from crawl_lib.stores import Stores
from crawl_lib.terms import TERMS, search_terms, update_terms
from crawl_lib.text import TEXT_SCHEMA, text_table
from crawl_lib.urls import key_of
from crawl_lib.versions import Family, Version, Versions, write_version
from tests.crawldb.crawls import Crawl, Visit
from tests.crawldb.test_update import DAY, NOW, T
from tests.duplicates.web import lines, row_of, text_of
from tests.harms import flip_bit
from tests.stores import rows_of, stores_on

FAMILIES = (CRAWLDB, OUTLINKS, LINKDB, LINKRANK, DUPLICATES, TERMS, INDEX, PLACES)
URLS = [f"http://{host}.example/{number}" for host in "abcd" for number in range(40)]
WORDS = ("word1", "word2 word3")
FLIPS = 2
Asked = Callable[[Stores], Any]


def stores_of(root: Path) -> Stores:
    """The stores of a crawl whose DFS is that folder."""
    options = {
        "servers": ["node-a"],
        "dfs_primary": str(root),
        "frontier": {"order": "crawldb"},
        "crawldb": {"signature": "text"},
        "duplicates": {"near": True},
        "urls": {"scope": "any"},
        "scratch": {"directory": str(root.with_name(f"{root.name}-scratch"))},
    }
    config = from_mapping(options, root)
    return stores_on(open_storage(config), config)


def add_segment(crawl: Crawl, folder: int, seed: int) -> None:
    """A segment with digests of its tables, and its table of texts."""
    rng, stores = random.Random(seed), crawl.stores
    shared = [text_of(rng) for _ in range(20)]
    texts = {url: lines(rng.choice(shared)) for url in URLS}
    more = {"mime_detected": "text/html"}
    crawl.segment(
        folder,
        [
            Visit(url, body=text, links=rng.sample(URLS, 3), more=more)
            for url, text in texts.items()
        ],
    )
    place = crawl.root / str(folder) / "node-a"
    where = place / "manifest.json"
    files = [Manifest.entry_of(place / f"{name}.parquet") for name in ("pages", "links")]
    where.write_bytes(replace(Manifest.from_bytes(where.read_bytes(), ""), files=files).to_bytes())
    [segment] = [one for one in stores.crawl.segments() if one.folder == str(folder)]
    path = Path(stores.config.dfs_primary) / text_table(stores, segment)
    path.parent.mkdir(parents=True)
    table = pa.Table.from_pylist(
        [row_of(url, text, folder + 10) for url, text in texts.items()], TEXT_SCHEMA
    )
    pq.write_table(table, path, compression="zstd", write_page_checksum=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A crawl with every derived table, and a segment that none of them has taken in."""
    root = tmp_path_factory.mktemp("made") / "dfs"
    root.mkdir()
    stores = stores_of(root)
    crawl = Crawl(stores)
    crawl.seeds(URLS[0])
    add_segment(crawl, T, 1)
    update(stores, now=NOW)
    update_score_by_links(stores, now=NOW)
    update_linkdb(stores, now=NOW)
    find_near(stores, now=NOW)
    update_terms(stores, now=NOW)
    update_index(stores, now=NOW)
    update_captures(stores, now=NOW)
    generate(stores, "one", 1, now=NOW, batch_size=20)
    add_segment(crawl, T + DAY, 2)
    return root


def made_by(family: Family, make: Callable[..., Version]) -> Asked:
    return lambda stores: rows_of(stores, make(stores, now=NOW))


def written(write: Callable[..., Any], *more: Any, **options: Any) -> Asked:
    def ask(stores: Stores) -> str:
        out = io.StringIO()
        write(stores, *more, out, **options)
        return out.getvalue()

    return ask


def listed(stores: Stores) -> Any:
    found = generate(stores, "two", 1, now=NOW, batch_size=20)
    return found.listed, found.counts


def explained(stores: Stores) -> Any:
    return explain_listing(stores, URLS[3])


def looked_up(stores: Stores) -> Any:
    return [look_up_listing(stores, url) for url in URLS[:9]]


def indexed(stores: Stores) -> Any:
    """The rows of the table of pages next to the index: other files differ from run to run."""
    version = update_index(stores, now=NOW)
    return pq.read_table(Path(stores.config.dfs_primary) / version.path / PAGES_FILE).to_pylist()


def searched(stores: Stores) -> Any:
    """What a program that compares digests finds."""
    source = IndexVersions(stores)
    if number := source.newest(frozenset()):
        source.verify(number)
    reader = IndexReader(source, background=None)
    return [reader.ask(lambda index, word=word: ranked_urls(index, word)) for word in WORDS]


def ranked_urls(index: OpenIndex, word: str) -> list[str]:
    return [one.url for one in search_answer(index, word, Sites({})).results]


UPDATE = made_by(CRAWLDB, update)
MARK = made_by(CRAWLDB, mark_duplicates)
SCORE = made_by(CRAWLDB, update_score_by_links)
NEAR = made_by(DUPLICATES, find_near)
OUTLINKED = made_by(OUTLINKS, update_outlinks)
TERMED = made_by(TERMS, update_terms)
CRAWLDB_READERS: dict[str, Asked] = {
    "update": UPDATE,
    "filter": made_by(CRAWLDB, filter_crawldb),
    "generate": listed,
    "stats": lambda stores: crawldb_stats(stores, now=NOW),
    "dump": written(dump_crawldb, as_csv=True),
    "top": lambda stores: best_rows(stores, 5),
    "hosts": written(dump_hosts, now=NOW, as_csv=False),
    "get": lambda stores: [row_of_url(stores, url) for url in URLS[:9]],
    "explain": explained,
    "why": looked_up,
    "mark": MARK,
    "score": SCORE,
    "near": NEAR,
}
READERS: dict[str, dict[str, Asked]] = {
    "crawl/crawldb/*/part-*": CRAWLDB_READERS,
    "crawl/outlinks/*/part-*": {
        "update": OUTLINKED,
        "linkdb": made_by(LINKDB, update_linkdb),
        "rank": made_by(LINKRANK, update_linkrank),
        "dump": written(dump_links, "outlinks", as_csv=True),
    },
    "crawl/linkdb/*/part-*": {
        "get": lambda stores: [inlinks_of(stores, url) for url in URLS[:9]],
        "dump": written(dump_links, "inlinks", as_csv=True),
    },
    "crawl/linkrank/*/part-*": {
        "score": SCORE,
        "dump": written(dump_links, "ranks", as_csv=False),
    },
    "crawl/duplicates/*/part-*": {"mark": MARK, "index": indexed},
    "crawl/index/*/*": {"update": indexed, "search": searched},
    "crawl/terms/*/part-*": {"search": lambda stores: search_terms(stores, WORDS)},
    "crawl/captures/*/part-*": {
        "update": made_by(PLACES, update_captures),
        "show": lambda stores: newest_rows(stores, [key_of(url) for url in URLS]),
    },
    "text/**/text-*": {
        "update": UPDATE,
        "near": NEAR,
        "index": indexed,
        "terms": TERMED,
        "mirrors": find_mirrors,
        "templates": find_templates,
    },
    "crawl/lists/*/listed.parquet": {
        "generate": listed,
        "explain": explained,
        "why": looked_up,
    },
    "crawl/[0-9]*/*/pages.parquet": {
        "update": UPDATE,
        "linkdb": OUTLINKED,
        "hosts": written(dump_hosts, now=NOW, as_csv=True),
        "near": NEAR,
    },
    "crawl/[0-9]*/*/links.parquet": {
        "update": UPDATE,
        "linkdb": OUTLINKED,
    },
}
"""Who reads which files of a crawl, with what is asked of them."""


def answer(stores: Stores, ask: Asked) -> Any:
    """What is answered, or the error."""
    try:
        return ask(stores)
    except KrakeError as error:
        return error


@pytest.fixture(scope="module")
def answers() -> dict[Asked, Any]:
    """What was answered without damage, for the tests that ask the same again."""
    return {}


@pytest.mark.parametrize(
    ("files", "reader"),
    [(files, reader) for files, readers in READERS.items() for reader in readers],
)
def test_a_flipped_bit_gives_no_other_rows(
    files: str, reader: str, made: Path, answers: dict[Asked, Any], tmp_path: Path
) -> None:
    ask, rng = READERS[files][reader], random.Random(f"{files} {reader}")
    if ask not in answers:
        answers[ask] = ask(stores_of(shutil.copytree(made, tmp_path / "whole")))
    for number in range(FLIPS):
        root = shutil.copytree(made, tmp_path / str(number))
        file = rng.choice(sorted(root.glob(files)))
        flip_bit(file, rng)
        found = answer(stores_of(root), ask)
        if isinstance(found, KrakeError):
            assert str(file.relative_to(root)) in str(found)
            assert "`krake fsck --repair`" in str(found) or "move it away" in str(found)
        else:
            assert found == answers[ask]


LOOK_UPS: dict[str, tuple[str, Callable[[Stores, str], Any]]] = {
    "show": ("crawl/[0-9]*/*/pages.parquet", find_page),
    "why": ("crawl/crawldb/*/part-*", explain),
    "cat": (
        "crawl/[0-9]*/*/pages.parquet",
        lambda stores, url: read_answer(stores, find_page(stores, url)),
    ),
    "crawldb get": ("crawl/crawldb/*/part-*", row_of_url),
    "linkdb get": ("crawl/linkdb/*/part-*", inlinks_of),
}
"""Commands that look one URL up, each with the files that have its rows, and with what it asks."""
FEW = 8


def in_small_groups(root: Path, found: str) -> None:
    """Write the tables again with `FEW` rows in a group, and a WARC record for the URL `found`."""
    stores = stores_of(root)
    for versions in (Versions(stores, CRAWLDB), Versions(stores, LINKDB)):
        for version in map(versions.read, versions.numbers()):
            table = pa.concat_tables([pq.read_table(root / path) for path in version.paths])
            shutil.rmtree(root / version.path)
            write_version(
                versions, version.number, table.combine_chunks().to_batches(FEW), version.manifest
            )
    block = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntext"
    head = f"WARC/1.1\r\nWARC-Type: response\r\nContent-Length: {len(block)}\r\n\r\n".encode()
    record, before = gzip.compress(head + block + b"\r\n\r\n"), b"damaged" * 99
    for path in root.glob("crawl/[0-9]*/*/pages.parquet"):
        path.with_name("0.warc.gz").write_bytes(before + record + before)
        rows = pq.read_table(path).to_pylist()
        for row in rows:
            if row["url"] == found:
                row |= {"warc_offset": len(before), "warc_length": len(record)}
        table = pa.Table.from_pylist(rows, pq.read_schema(path))
        pq.write_table(table, path, row_group_size=FEW, write_page_checksum=True)


def flip_groups(path: Path, key: bytes, *, own: bool) -> int:
    """Flip a bit of each column but `key` in groups with a key, or in all other ones; returns how many groups."""
    file, data, count = pq.ParquetFile(path), bytearray(path.read_bytes()), 0
    for number in range(file.num_row_groups):
        if (key in file.read_row_group(number, ["key"]).column(0).to_pylist()) is own:
            group, count = file.metadata.row_group(number), count + 1
            for place in range(group.num_columns):
                column = group.column(place)
                if column.path_in_schema != "key":
                    data[column.data_page_offset + column.total_compressed_size // 3] ^= 1
    path.write_bytes(data)
    return count


@pytest.mark.parametrize("command", LOOK_UPS)
def test_a_look_up_reads_no_other_row_groups(command: str, made: Path, tmp_path: Path) -> None:
    root, (files, ask) = shutil.copytree(made, tmp_path / "dfs"), LOOK_UPS[command]
    url = next(
        row["url"] for row in pq.read_table(next(root.glob("crawl/linkdb/*/part-*"))).to_pylist()
    )
    in_small_groups(root, url)
    wanted = ask(stores_of(root), url)
    assert wanted
    assert all(flip_groups(path, key_of(url), own=False) for path in root.glob(files))
    assert ask(stores_of(root), url) == wanted
    assert sum(flip_groups(path, key_of(url), own=True) for path in root.glob(files))
    found = answer(stores_of(root), lambda stores: ask(stores, url))
    said = " ".join(found["notes"]) if command == "why" else str(found)
    assert any(str(path.relative_to(root)) in said for path in root.glob(files))
    assert "`krake fsck" in said


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: str(family.folder))
def test_a_repair_sets_a_damaged_version_aside(family: Family, made: Path, tmp_path: Path) -> None:
    stores = stores_of(shutil.copytree(made, tmp_path / "crawl"))
    before = Versions(stores, family).newest()
    assert before is not None
    shutil.copytree(
        tmp_path / "crawl" / before.path, tmp_path / "crawl" / Versions(stores, family).path(99)
    )
    path = (
        tmp_path
        / "crawl"
        / Versions(stores, family).path(99)
        / before.manifest["parts"][-1]["name"]
    )
    path.write_bytes(path.read_bytes()[::-1])
    assert [one.where for one in fsck(stores).findings if one.name.endswith("_damaged")] == [
        f"crawl/{family.folder}/99"
    ]
    report = repair_crawl(stores)
    assert not [one for one in report.findings if one.name.endswith("_damaged")]
    newest = Versions(stores, family).newest()
    assert newest is not None
    assert newest.number == before.number
    assert Versions(stores, family).next_number() == 100
    [aside] = Versions(stores, family).aside()
    assert f"crawl/{family.folder}/{aside}" in sweep(stores, damaged=True).deleted
    assert Versions(stores, family).aside() == []


@pytest.mark.parametrize("family", [CRAWLDB, OUTLINKS], ids=lambda family: str(family.folder))
def test_the_last_version_is_left_to_people(family: Family, made: Path, tmp_path: Path) -> None:
    stores = stores_of(shutil.copytree(made, tmp_path / "crawl"))
    for number in Versions(stores, family).numbers():
        path = tmp_path / "crawl" / Versions(stores, family).path(number) / "part-00000.parquet"
        path.write_bytes(path.read_bytes()[::-1])
    found = [one for one in repair_crawl(stores).findings if one.name.endswith("_damaged")]
    assert [one.where for one in found] == [
        Versions(stores, family).path(n) for n in Versions(stores, family).numbers()
    ]
    assert all(family.rebuilt.partition(":")[0].split()[0] in one.repair for one in found)
