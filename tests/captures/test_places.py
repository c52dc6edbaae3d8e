"""The table of captures: a look-up says the same with the table as without, and reads a few keys in place of all."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow.parquet as pq
import pytest

from crawl_lib.ask import newest_rows, why
from crawl_lib.captures import PLACES, KnownCaptures, places, update_captures
from crawl_lib.config import Config
from crawl_lib.errors import InputError
from crawl_lib.parquet import ParquetTable
from crawl_lib.segment import Manifest
from crawl_lib.storage import LocalStorage
from crawl_lib.stores import Stores
from crawl_lib.versions import Version, Versions
from tests.export.crawls import Capture, CrawlMaker, key
from tests.stores import stores_on

NOW = datetime(2026, 1, 1, tzinfo=UTC)
UNKNOWN = key("http://nowhere.example/")


class CountingStorage(LocalStorage):
    """Counts the bytes that are read of each kind of file."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.read: dict[str, int] = {}

    def open_read(self, path: str, offset: int = 0, length: int | None = None) -> BinaryIO:
        return self._counted(path, super().open_read(path, offset, length))

    def open_seekable(self, path: str) -> BinaryIO:
        return self._counted(path, super().open_seekable(path))

    def _counted(self, path: str, file: BinaryIO) -> BinaryIO:
        inner, counts = file.read, self.read

        class Counted:
            def read(self, size: int = -1) -> bytes:
                data = inner(size)
                counts[path] = counts.get(path, 0) + len(data)
                return data

            def __getattr__(self, name: str) -> Any:
                return getattr(file, name)

            def __enter__(self) -> Any:
                return self

            def __exit__(self, *exception: object) -> None:
                file.close()

            def __iter__(self) -> Iterator[bytes]:
                return iter(file)

        return Counted()  # type: ignore[return-value]


@pytest.fixture
def storage(config: Config, tmp_path: Path) -> CountingStorage:
    root = tmp_path / "dfs"
    root.mkdir()
    return CountingStorage(root)


@pytest.fixture
def stores(storage: CountingStorage, config: Config) -> Stores:
    return stores_on(storage, config)


@pytest.fixture
def crawl(storage: CountingStorage) -> CrawlMaker:
    return CrawlMaker(storage.root)


def update(stores: Stores) -> Version:
    return update_captures(stores, now=NOW)


def rows_of(stores: Stores, version: Version) -> list[dict[str, Any]]:
    root = Path(stores.storage.local_path(""))  # type: ignore[arg-type]
    return [row for path in version.paths for row in pq.read_table(root / path).to_pylist()]


def without_table(stores: Stores, keys: list[bytes]) -> dict[bytes, dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KnownCaptures, "of", lambda stores: None)
        return newest_rows(stores, keys)


def test_before_the_first_segment_there_is_nothing_to_make(stores: Stores) -> None:
    with pytest.raises(InputError, match="no segment yet"):
        update(stores)


def test_a_row_says_where_the_newest_capture_is(stores: Stores, crawl: CrawlMaker) -> None:
    crawl.segment(
        "100",
        "node-a",
        [Capture("http://a/", time=100), Capture("http://b/", time=101, status=None)],
    )
    crawl.segment("200", "node-b", [Capture("http://a/", time=200, status=404, file=1)])
    version = update(stores)
    rows = rows_of(stores, version)
    assert [row["key"] for row in rows] == sorted([key("http://a/"), key("http://b/")])
    by_key = {row["key"]: row for row in rows}
    newest, failed = by_key[key("http://a/")], by_key[key("http://b/")]
    assert (newest["folder"], newest["node"], newest["status"]) == (200, "node-b", 404)
    assert (failed["folder"], failed["node"], failed["status"]) == (100, "node-a", None)
    [page] = pq.read_table(crawl.root / f"crawl/200/node-b/{Manifest.PAGES_NAME}").to_pylist()
    assert {name: newest[name] for name in ("time", "warc_file", "warc_offset", "warc_length")} == {
        name: page[name] for name in ("time", "warc_file", "warc_offset", "warc_length")
    }


def test_it_is_made_again_only_for_new_segments(stores: Stores, crawl: CrawlMaker) -> None:
    crawl.segment("100", "node-a", [Capture("http://a/", time=100)])
    first = update(stores)
    assert update(stores).number == first.number
    crawl.segment("200", "node-a", [Capture("http://b/", time=200)])
    second = update(stores)
    assert (second.manifest["parent"], second.manifest["rows"]) == (first.number, 2)


@pytest.mark.parametrize("rows", [3, 1 << 20])
def test_the_grouping_of_segments_into_updates_does_not_matter(
    stores: Stores, crawl: CrawlMaker, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """Late segments, repeated captures and equal times: an update after each segment ends like one update of all.

    `rows`: how many are sorted at once.
    """
    monkeypatch.setattr(places, "SHARE_ROWS", rows)
    rng = random.Random(1)
    urls = [f"http://h/{number}" for number in range(20)]
    places_of = [(folder, node) for folder in (100, 200, 300) for node in ("node-a", "node-b")]
    rng.shuffle(places_of)
    for folder, node in places_of:
        some = rng.sample(urls, 12)
        crawl.segment(
            str(folder), node, [Capture(url, time=folder + rng.choice((1, 2))) for url in some]
        )
        version = update(stores)
    rows = rows_of(stores, version)
    keys = [*map(key, urls), UNKNOWN]
    expected = without_table(stores, keys)
    assert newest_rows(stores, keys) == expected
    found = {row["key"]: f"crawl/{row['folder']}/{row['node']}" for row in rows}
    assert found == {one: row["segment_path"] for one, row in expected.items()}
    for number in Versions(stores, PLACES).numbers():
        stores.storage.delete(Versions(stores, PLACES).path(number))
    assert rows_of(stores, update(stores)) == rows


def test_segments_that_it_lacks_are_read_too(stores: Stores, crawl: CrawlMaker) -> None:
    crawl.segment("200", "node-a", [Capture("http://a/", time=200), Capture("http://b/", time=200)])
    update(stores)
    crawl.segment(
        "100", "node-a", [Capture("http://a/", time=100), Capture("http://late/", time=100)]
    )
    crawl.segment(
        "200", "node-b", [Capture("http://a/", time=201)]
    )  # the iteration has no commit yet
    crawl.segment("300", "node-a", [Capture("http://b/", time=300)])
    keys = [key(f"http://{name}/") for name in ("a", "b", "late", "nowhere")]
    found = newest_rows(stores, keys)
    assert found == without_table(stores, keys)
    assert [found[one]["segment_path"] for one in keys[:3]] == [
        "crawl/200/node-b",
        "crawl/300/node-a",
        "crawl/100/node-a",
    ]


def test_a_look_up_reads_one_row_group_of_one_segment(
    stores: Stores, storage: CountingStorage, crawl: CrawlMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding 3: the keys of every segment were read, for a URL that no page has."""
    monkeypatch.setattr(places, "_GROUP_ROWS", 8)
    for folder in range(100, 140):
        crawl.segment(
            str(folder),
            "node-a",
            [Capture(f"http://h/{folder}/{page}", time=folder) for page in range(20)],
        )
    version = update(stores)
    [part] = version.paths
    groups = pq.ParquetFile(storage.root / part).num_row_groups
    assert groups == 100
    asked: list[int] = []
    read = pq.ParquetFile.read_row_group

    def read_row_group(file: Any, number: int, *arguments: Any, **options: Any) -> Any:
        asked.append(number)
        return read(file, number, *arguments, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", read_row_group)
    for url, segments in (
        ("http://h/117/3", {"crawl/117/node-a"}),
        ("http://nowhere.example/", set()),
    ):
        storage.read, asked[:] = {}, []
        row = newest_rows(stores, [key(url)]).get(key(url))
        assert (row or {"url": url})["url"] == url
        assert {
            path.rpartition("/")[0] for path in storage.read if path.endswith(Manifest.PAGES_NAME)
        } == segments
        assert len(asked) <= 6, (
            "the keys of two row groups, one group whole, and two reads of the segment"
        )


@pytest.mark.parametrize("told", [b"\0" * 20, b"\xff" * 20, None])
def test_a_footer_that_lies_hides_no_row(
    stores: Stores, crawl: CrawlMaker, monkeypatch: pytest.MonkeyPatch, told: bytes | None
) -> None:
    """No checksum protects what the footer tells of keys."""
    monkeypatch.setattr(places, "_GROUP_ROWS", 2)
    urls = [f"http://h/{page}" for page in range(20)]
    crawl.segment("100", "node-a", [Capture(url, time=1) for url in urls])
    update(stores)
    monkeypatch.setattr(ParquetTable, "last_key", lambda *_: told)
    assert set(newest_rows(stores, [key(url) for url in [*urls, "http://h/none"]])) == set(
        map(key, urls)
    )


@pytest.mark.parametrize("damage", ["cut", "gone", "flipped", "all"])
def test_without_a_whole_table_all_is_as_before(
    stores: Stores, storage: CountingStorage, crawl: CrawlMaker, damage: str
) -> None:
    crawl.segment("100", "node-a", [Capture(f"http://h/{page}", time=100) for page in range(20)])
    version = update(stores)
    part = storage.root / version.paths[0]
    data = part.read_bytes()
    if damage == "gone":
        part.unlink()
    elif damage == "cut":
        part.write_bytes(data[:-9])
    elif damage == "flipped":
        part.write_bytes(bytes(byte ^ (40 < place < 90) for place, byte in enumerate(data)))
    else:
        (storage.root / version.path / "manifest.json").write_bytes(b"{")
    keys = [key("http://h/7"), UNKNOWN]
    assert newest_rows(stores, keys) == without_table(stores, keys)
    assert newest_rows(stores, keys)[keys[0]]["url"] == "http://h/7"


def test_a_segment_that_was_deleted_by_hand_is_noticed(
    stores: Stores, storage: CountingStorage, crawl: CrawlMaker
) -> None:
    crawl.segment("100", "node-a", [Capture("http://a/", time=100)])
    crawl.segment("200", "node-a", [Capture("http://a/", time=200)])
    first = update(stores)
    storage.delete("crawl/200")
    assert (
        newest_rows(stores, [key("http://a/")])[key("http://a/")]["segment_path"]
        == "crawl/100/node-a"
    )
    again = update(stores)
    assert (again.number, again.manifest["parent"]) == (first.number + 1, None), (
        "made anew: an older capture counts"
    )
    assert [row["folder"] for row in rows_of(stores, again)] == [100]


def test_why_searches_the_links_of_the_newest_iterations(
    stores: Stores, storage: CountingStorage, crawl: CrawlMaker
) -> None:
    """Finding 3: for a URL that nothing has, `krake why` read the links of every segment."""
    wanted = "http://refused.example/"
    for folder in range(100, 105):
        links = [wanted] if folder == 101 else []
        crawl.segment(
            str(folder), "node-a", [Capture(f"http://h/{folder}", time=folder, links=links)]
        )
    before = why._link(stores, key(wanted), None, inf)
    assert before[0] is not None
    assert before[0]["page"] == "http://h/101"
    storage.read = {}
    assert why._link(stores, key(wanted), 2, inf) == (None, 3)
    assert {path.split("/")[1] for path in storage.read if path.endswith(Manifest.LINKS_NAME)} == {
        "103",
        "104",
    }
    assert why._link(stores, key(wanted), 4, inf) == before
