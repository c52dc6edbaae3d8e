"""Which captures an export takes, and what it takes of them."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from crawl_lib.config import Config
from crawl_lib.errors import (
    DamagedFileError,
    InputError,
    LockedError,
    NoRoomError,
    OutputConflictError,
    PathNotFoundError,
    StorageError,
)
from crawl_lib.export import ContentReader, export_pages
from crawl_lib.export import run as run_module
from crawl_lib.export.readers import UrlMapping
from crawl_lib.graph import link_export
from crawl_lib.scratch import scratch_folder
from crawl_lib.storage import Storage
from tests.export.crawls import Capture, CrawlMaker, key
from tests.stores import stores_on

A, B, C = "http://a.example/", "http://b.example/", "http://c.example/"


def contents(config: Config, name: str = "x") -> dict[bytes, bytes]:
    folder = Path(config.dfs_primary) / "export" / name
    with UrlMapping(folder / "urlmapping") as mapping, ContentReader(folder / "content") as content:
        return dict(zip(mapping, content, strict=True))


def exported(
    storage: Storage, config: Config, crawl: CrawlMaker, **options: Any
) -> dict[bytes, bytes]:
    narrowed = replace(config, export=replace(config.export, **options))
    export_pages(stores_on(storage, narrowed), name="x", segments=crawl.segments)
    return contents(config)


def test_only_captures_of_status_200_count(
    storage: Storage, config: Config, crawl: CrawlMaker
) -> None:
    statuses = [200, 201, 204, 301, 404, 500, None]
    crawl.segment(
        "1", "node-a", [Capture(f"{A}{status}", b"x", status=status) for status in statuses]
    )
    assert exported(storage, config, crawl) == {key(f"{A}200"): b"x"}


def test_the_newest_capture_of_status_200_wins(
    storage: Storage, config: Config, crawl: CrawlMaker
) -> None:
    crawl.segment(
        "3",
        "node-a",
        [Capture(A, b"late but gone", time=30, status=404), Capture(B, b"oldest", time=1)],
    )
    crawl.segment("2", "node-a", [Capture(A, b"newest", time=20), Capture(B, b"middle", time=2)])
    crawl.segment("1", "node-a", [Capture(A, b"older", time=10), Capture(B, b"newest", time=3)])
    assert exported(storage, config, crawl) == {key(A): b"newest", key(B): b"newest"}


@pytest.mark.parametrize("with_requisites", [False, True])
def test_requisites_are_exported_where_a_followed_link_names_them_or_on_demand(
    with_requisites: bool, storage: Storage, config: Config, crawl: CrawlMaker
) -> None:
    """Every second link of a made capture is followed. The link may be in another segment."""
    requisites = [
        Capture(f"{A}{name}", b"x", more={"hop": "E"}) for name in ("linked", "refused", "alone")
    ]
    crawl.segment("1", "node-a", [*requisites, Capture(B, b"x", more={"hop": "L"})])
    crawl.segment("2", "node-a", [Capture(C, b"x", links=[f"{A}linked", f"{A}refused"])])
    stores = stores_on(storage, config)
    export_pages(stores, name="x", segments=crawl.segments, with_requisites=with_requisites)
    more = {key(f"{A}refused"), key(f"{A}alone")} if with_requisites else set()
    assert set(contents(config)) == {key(B), key(C), key(f"{A}linked")} | more
    with pytest.raises(OutputConflictError):
        export_pages(stores, name="x", segments=crawl.segments, with_requisites=not with_requisites)


@pytest.mark.parametrize("turn", [False, True])
def test_equal_times_are_decided_by_segment_file_and_offset(
    storage: Storage, config: Config, crawl: CrawlMaker, turn: bool
) -> None:
    """Iterations count as numbers: 10 is later than 9. The order in which segments are named does not count."""
    crawl.segment("10", "node-a", [Capture(A, b"last folder"), Capture(B, b"first file", file=0)])
    crawl.segment("9", "node-b", [Capture(A, b"earlier folder")])
    crawl.segment(
        "10",
        "node-b",
        [Capture(B, b"x", file=0), Capture(B, b"y", file=1), Capture(B, b"z", file=1)],
    )
    if turn:
        crawl.segments.reverse()
    assert exported(storage, config, crawl) == {key(A): b"last folder", key(B): b"z"}


@pytest.mark.parametrize(
    ("patterns", "taken"),
    [
        (None, {"text/html", "Text/Plain", "image/png", None}),
        (("text/*",), {"text/html", "Text/Plain"}),
        (("TEXT/PLAIN",), {"Text/Plain"}),
        (("image/*", "text/html"), {"text/html", "image/png"}),
        (("video/*",), set()),
        ((), set()),
    ],
)
def test_mime_types_narrow_the_export(
    storage: Storage,
    config: Config,
    crawl: CrawlMaker,
    patterns: tuple[str, ...] | None,
    taken: set[str | None],
) -> None:
    mimes = ["text/html", "Text/Plain", "image/png", None]
    crawl.segment("1", "node-a", [Capture(f"{A}{mime}", b"x", mime=mime) for mime in mimes])
    found = exported(storage, config, crawl, mime_types=patterns)
    assert set(found) == {key(f"{A}{mime}") for mime in taken}


def test_codings_are_undone_and_everything_else_kept(
    storage: Storage, config: Config, crawl: CrawlMaker
) -> None:
    text = b"<p>caf\xe9</p>\r\n" * 50
    packed = gzip.compress(text)
    chunked = b"".join(
        b"%x\r\n%s\r\n" % (len(packed[at : at + 9]), packed[at : at + 9])
        for at in range(0, len(packed), 9)
    )
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n\r\n"
    deflated = b"HTTP/1.1 200 OK\r\nContent-Encoding: deflate\r\n\r\n"
    crawl.segment(
        "1",
        "node-a",
        [
            Capture(A, chunked + b"0\r\n\r\n", head=head),
            Capture(B, zlib.compress(text), head=deflated),
            Capture("http://c.example/", bytes(range(256))),
        ],
    )
    found = exported(storage, config, crawl)
    assert found == {key(A): text, key(B): text, key("http://c.example/"): bytes(range(256))}


def test_content_beyond_the_limit_is_cut(
    storage: Storage, config: Config, crawl: CrawlMaker
) -> None:
    crawl.segment("1", "node-a", [Capture(A, b"0123456789")])
    assert exported(storage, config, crawl, max_content_bytes=4) == {key(A): b"0123"}


def test_many_pages_over_many_buckets_keep_their_content(
    storage: Storage, config: Config, crawl: CrawlMaker
) -> None:
    """With the least memory, pages go over several bucket files, which are flushed while WARC files are read."""
    small = replace(config, scratch=replace(config.scratch, memory_bytes=1 << 16))
    pages = {
        f"{A}{number}": bytes([number % 251]) * 10 + str(number).encode() * 40
        for number in range(700)
    }
    for node in ("node-a", "node-b"):
        mine = [url for url in pages if (int(url.rsplit("/", 1)[1]) % 2) == (node == "node-b")]
        crawl.segment(
            "1",
            node,
            [Capture(url, pages[url], file=number // 100) for number, url in enumerate(mine)],
        )
    assert exported(storage, small, crawl) == {key(url): body for url, body in pages.items()}


def test_pages_keep_to_their_disk(
    storage: Storage, config: Config, crawl: CrawlMaker, tmp_path: Path
) -> None:
    """Beyond it is an error that names the option; with more room the same export goes on."""
    rng = random.Random(1)
    pages = {f"{A}{number}": rng.randbytes(200) for number in range(300)}
    crawl.segment("1", "node-a", [Capture(url, body) for url, body in pages.items()])
    scratch = replace(config.scratch, memory_bytes=1 << 16, max_bytes=30_000)
    with pytest.raises(NoRoomError, match=r"more than scratch\.max_bytes \(30000\)"):
        exported(storage, replace(config, scratch=scratch), crawl)
    assert [
        path
        for path in Path(scratch.directory).rglob("*")
        if path.is_file() and path.suffix != ".lock"
    ] == []
    enough = replace(config, scratch=replace(scratch, max_bytes=100_000))
    assert exported(storage, enough, crawl) == {key(url): body for url, body in pages.items()}


def test_the_export_has_a_table_of_its_pages(
    storage: Storage, config: Config, crawl: CrawlMaker
) -> None:
    crawl.segment("1", "node-a", [Capture(A, b"x"), Capture(B, b"y")])
    exported(storage, config, crawl)
    rows = pq.read_table(Path(config.dfs_primary) / "export/x/pages.parquet").to_pylist()
    assert [(row["node_id"], row["key"], row["url"]) for row in rows] == [
        (node_id, key(url), url) for node_id, url in enumerate(sorted([A, B], key=key))
    ]
    assert {row["segment_path"] for row in rows} == {"crawl/1/node-a"}


def test_run_again_it_is_complete_and_nothing_is_touched(
    storage: Storage, config: Config, crawl: CrawlMaker
) -> None:
    crawl.segment("1", "node-a", [Capture(A, b"x")])
    first = export_pages(stores_on(storage, config), name="x", segments=crawl.segments)
    folder = Path(config.dfs_primary) / "export" / "x"
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    again = export_pages(stores_on(storage, config), name="x", segments=crawl.segments)
    assert again == replace(first, complete_already=True)
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_other_inputs_under_the_same_name_are_refused(
    storage: Storage, config: Config, crawl: CrawlMaker
) -> None:
    crawl.segment("1", "node-a", [Capture(A, b"x")])
    exported(storage, config, crawl)
    crawl.segment("2", "node-a", [Capture(B, b"y")])
    with pytest.raises(
        OutputConflictError,
        match=r"export/x: .*'x'.*choose another label, or move that folder away",
    ):
        exported(storage, config, crawl)
    with pytest.raises(OutputConflictError):
        exported(
            storage,
            replace(config, export=replace(config.export, mime_types=("text/html",))),
            crawl,
        )
    assert contents(config) == {key(A): b"x"}


@pytest.mark.parametrize("left", [[], ["content", "offsets"], ["urlmapping", "content", "offsets"]])
def test_an_export_goes_on_without_the_segment_of_a_late_node(
    storage: Storage,
    config: Config,
    crawl: CrawlMaker,
    left: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It keeps what it was begun with, finished or not, and says what the next export will have."""
    crawl.segment("1", "node-a", [Capture(A, b"x", links=[B])])
    crawl.segment("2", "node-a", [Capture(B, b"y")])
    whole = export_pages(stores_on(storage, config), name="x", segments=crawl.segments)
    for name in left:
        (Path(config.dfs_primary) / "export" / "x" / name).unlink()
    crawl.segment("1", "node-b", [Capture(A, b"newer", time=9e8), Capture(C, b"z")])
    again = export_pages(stores_on(storage, config), name="x", segments=crawl.segments)
    assert again == replace(whole, complete_already=not left, late_segments=1)
    assert "crawl/1/node-b" in caplog.text
    assert contents(config) == {key(A): b"x", key(B): b"y"}
    assert link_export(stores_on(storage, config), name="x").arcs == 1
    assert export_pages(stores_on(storage, config), name="next", segments=crawl.segments).pages == 3


def test_a_late_segment_hides_no_other_change(
    storage: Storage, config: Config, crawl: CrawlMaker
) -> None:
    place = crawl.segment("1", "node-a", [Capture(A, b"x")])
    export_pages(stores_on(storage, config), name="x", segments=crawl.segments)
    crawl.segment("1", "node-b", [Capture(B, b"y")])
    export_pages(stores_on(storage, config), name="x", segments=crawl.segments)
    for segments in (crawl.segments[1:], []):
        with pytest.raises(OutputConflictError):
            export_pages(stores_on(storage, config), name="x", segments=segments)
    smaller = replace(config, export=replace(config.export, max_content_bytes=1))
    with pytest.raises(OutputConflictError):
        export_pages(stores_on(storage, smaller), name="x", segments=crawl.segments)
    (place / "manifest.json").write_text(json.dumps({"dropped": 1}))
    with pytest.raises(OutputConflictError):
        export_pages(stores_on(storage, config), name="x", segments=crawl.segments)


def test_a_changed_manifest_is_another_input(
    storage: Storage, config: Config, crawl: CrawlMaker
) -> None:
    place = crawl.segment("1", "node-a", [Capture(A, b"x")])
    exported(storage, config, crawl)
    (place / "manifest.json").write_text(json.dumps({"dropped": 1}))
    with pytest.raises(OutputConflictError):
        exported(storage, config, crawl)


def test_a_folder_that_is_no_export_is_refused(
    storage: Storage, config: Config, crawl: CrawlMaker
) -> None:
    folder = Path(config.dfs_primary) / "export" / "x"
    folder.mkdir(parents=True)
    (folder / "content").write_bytes(b"precious")
    crawl.segment("1", "node-a", [Capture(A, b"x")])
    with pytest.raises(OutputConflictError, match="not an export of Krake"):
        exported(storage, config, crawl)
    assert (folder / "content").read_bytes() == b"precious"


def test_a_missing_segment_is_named(storage: Storage, config: Config, crawl: CrawlMaker) -> None:
    crawl.segment("1", "node-a", [Capture(A, b"x")])
    (Path(config.dfs_primary) / "crawl/1/node-a/manifest.json").unlink()
    with pytest.raises(PathNotFoundError, match="crawl/1/node-a"):
        exported(storage, config, crawl)


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "..", "a b"])
def test_a_bad_name_is_refused(storage: Storage, config: Config, name: str) -> None:
    with pytest.raises(InputError, match="export name"):
        export_pages(stores_on(storage, config), name=name, segments=[])


def test_too_many_pages_are_refused_before_any_work(
    storage: Storage, config: Config, crawl: CrawlMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More rows than NodeIDs are fine as long as the keys are not; both ways out are named."""
    monkeypatch.setattr(run_module, "MAX_PAGES", 1)
    crawl.segment(
        "1", "node-a", [Capture(A, b"x"), Capture(A, b"newer", time=2000), Capture(B, status=404)]
    )
    assert exported(storage, config, crawl) == {key(A): b"newer"}
    crawl.segment("2", "node-a", [Capture(B, b"y")])
    with pytest.raises(InputError, match=r"2 crawled pages.*1 at most.*folders.*mime_types"):
        export_pages(stores_on(storage, config), name="y", segments=crawl.segments)
    assert not (Path(config.dfs_primary) / "export" / "y").exists()


def damage(place: Path, kind: str) -> None:
    file = place / "node-a-00000.warc.gz"
    data = bytearray(file.read_bytes())
    if kind == "cut":
        del data[-20:]
    elif kind == "bits":
        data[-30] ^= 0xFF
    file.write_bytes(data)


@pytest.mark.parametrize("kind", ["cut", "bits"])
def test_a_damaged_warc_file_is_named_with_the_offset(
    storage: Storage, config: Config, crawl: CrawlMaker, kind: str
) -> None:
    place = crawl.segment("1", "node-a", [Capture(A, b"x" * 100), Capture(B, b"y" * 100)])
    offset = max(row["warc_offset"] for row in pq.read_table(place / "pages.parquet").to_pylist())
    damage(place, kind)
    with pytest.raises(
        DamagedFileError, match=rf"crawl/1/node-a/node-a-00000.warc.gz.* {offset}\b"
    ):
        exported(storage, config, crawl)


def test_a_row_that_names_another_record_is_damage(
    storage: Storage, config: Config, crawl: CrawlMaker
) -> None:
    place = crawl.segment("1", "node-a", [Capture(A, b"x")])
    table = pq.read_table(place / "pages.parquet").to_pylist()
    file = (place / "node-a-00000.warc.gz").read_bytes()
    start = file.index(b"\x1f\x8b", 10)
    table[0] |= {"warc_offset": start, "warc_length": table[0]["warc_offset"] - start}
    pq.write_table(
        run_module.pa.Table.from_pylist(table, run_module.PAGES_SCHEMA), place / "pages.parquet"
    )
    with pytest.raises(DamagedFileError, match="a request record, not a response"):
        exported(storage, config, crawl)


def test_two_processes_do_not_share_the_scratch(
    storage: Storage, config: Config, crawl: CrawlMaker
) -> None:
    crawl.segment("1", "node-a", [Capture(A, b"x")])
    with (
        scratch_folder(config, "export-x"),
        pytest.raises(LockedError, match="export-x: another process"),
    ):
        exported(storage, config, crawl)
    assert exported(storage, config, crawl) == {key(A): b"x"}
    assert [path.name for path in Path(config.scratch.directory).iterdir()] == ["export.lock"]


def test_an_unusable_scratch_directory_is_named(
    storage: Storage, config: Config, crawl: CrawlMaker
) -> None:
    blocked = Path(config.dfs_primary) / "file"
    blocked.write_bytes(b"")
    repaired = replace(config, scratch=replace(config.scratch, directory=str(blocked / "below")))
    with pytest.raises(StorageError, match=r"file/below.*scratch\.directory"):
        exported(storage, repaired, crawl)


def test_progress_is_told(storage: Storage, config: Config, crawl: CrawlMaker) -> None:
    crawl.segment("1", "node-a", [Capture(A, b"x"), Capture(B, b"y")])
    told: list[dict[str, Any]] = []
    stores = stores_on(storage, config, on_progress=lambda event: told.append(dict(event)))
    export_pages(stores, name="x", segments=crawl.segments)
    assert told[-1] == {"stage": "export.content", "done": 2, "total": 2, "unit": "pages"}
    assert {"export.choose", "export.content"} == {event["stage"] for event in told}
