"""Collecting: closed parts of a fetcher become a segment, each fetch in exactly one, wherever it is killed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread

import pyarrow.parquet as pq
import pytest

from crawl_lib import stages
from crawl_lib.config import Config, from_mapping
from crawl_lib.crawldb import CRAWLDB, update
from crawl_lib.crawldir import Kind
from crawl_lib.durable import KILL_VARIABLE
from crawl_lib.errors import DamagedFileError, LockedError
from crawl_lib.frontier import NodeDirectory
from crawl_lib.parquet import open_parquet
from crawl_lib.realtime import collect_parts, fill_table
from crawl_lib.realtime.captures import KEEP_S, PAUSE_S, NewestCaptures
from crawl_lib.realtime.documents import Document, decoded
from crawl_lib.realtime.fetcher import queued_of, recorded
from crawl_lib.realtime.places import FETCHER, live_spool, live_submissions
from crawl_lib.realtime.protocol import Fetch, Place
from crawl_lib.realtime.store import connect_pages
from crawl_lib.realtime.submissions import SubmissionLine, SubmissionLog
from crawl_lib.records import TakenUrl
from crawl_lib.repair import salvage_segment
from crawl_lib.rounds import start_import
from crawl_lib.scratch import held
from crawl_lib.segment import (
    SUBMISSIONS_SCHEMA,
    Manifest,
    PartWriter,
    SegmentReader,
    Spool,
    WarcInfo,
    check_segment,
    payload_of,
)
from crawl_lib.states import Outcome
from crawl_lib.urls import key_of
from crawl_lib.versions import Versions
from tests.e2e.crawl import make_config
from tests.forked import run_forked
from tests.repair.crawled import stores_of
from tests.segment.helpers import HEAD, answered, robots

HOST = "http://a.example"
BODY = (
    b"<title>A page</title><meta name=author content='A. U. Thor'>"
    b"<a href='/linked'>x</a><a rel=nofollow href='/not'>y</a>"
    b"<meta http-equiv=refresh content='0;url=/hop'>"
)
STEPS = [
    "realtime.collect.decided",
    "realtime.collect.moved",
    "start.renamed",
    "segment.part.recovered:1",
    "segment.part.rows_written:1",
    "segment.part.closed:1",
    "segment.part.closed:2",
    "segment.build.tables",
    "segment.build.manifest",
    "segment.publish.uploaded",
    "segment.publish.renamed",
    "curate.import.marked",
    "commit.written",
    "realtime.collect.ended",
]


def config_of(directory: Path) -> Config:
    order = {"order": "crawldb", "routing": "host"}
    return make_config(directory, nodes=1, urls={"scope": "any"}, frontier=order, realtime={})


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return config_of(tmp_path)


def node_dir(config: Config) -> Path:
    return stores_of(config).node_dir(config.servers[0])


def fetch(config: Config, *urls: str, prefix: str = "krake-1000-live-0-0") -> None:
    """Leave a closed part as the fetcher does; positions begin again with each fetcher."""
    spool = live_spool(node_dir(config), FETCHER)
    with PartWriter(
        spool, prefix, WarcInfo("", "", "", "", "live/live-0"), config.segment, has_rows=False
    ) as writer:
        writer.append(None, robots())
        for number, url in enumerate(urls):
            wanted = Fetch(id=number, url=url, key=key_of(url).hex())
            head = (
                HEAD if "moved" not in url else b"HTTP/1.1 301 Moved\r\nLocation: /target\r\n\r\n"
            )
            fetched = answered(url, BODY, head)
            writer.append(TakenUrl(number, key_of(url), queued_of(wanted)), fetched)


def pages(config: Config) -> list[str]:
    """The URLs of all rows of all segments."""
    stores = stores_of(config)
    readers = [SegmentReader(stores.storage, segment.path) for segment in stores.crawl.segments()]
    return sorted(
        row["url"]
        for reader in readers
        for batch in reader.pages(["url"])
        for row in batch.to_pylist()
    )


def submitted(config: Config, *urls: str) -> None:
    """Leave a closed log of submissions as the service does."""
    log = SubmissionLog(live_submissions(node_dir(config), FETCHER))
    log.note(
        (1_700_000_000_123, key_of(url).hex(), "www.a.example", "chat", "new", 7) for url in urls
    )
    log.flush(ends=True)


def submissions(config: Config) -> list[str]:
    """The keys of all submissions in all segments."""
    stores, found = stores_of(config), []
    for segment in stores.crawl.segments():
        path = f"{segment.path}/{Manifest.SUBMISSIONS_NAME}"
        if stores.storage.exists(path):
            with open_parquet(stores.storage, path, SUBMISSIONS_SCHEMA) as table:
                found += [
                    row["key"].hex() for batch in table.batches(100) for row in batch.to_pylist()
                ]
    return sorted(found)


def keys(*urls: str) -> list[str]:
    return sorted(key_of(url).hex() for url in urls)


def test_closed_parts_become_a_segment_of_the_fetcher(config: Config) -> None:
    fetch(config, f"{HOST}/1", f"{HOST}/2")
    fetch(config, f"{HOST}/2", f"{HOST}/3", prefix="krake-2000-live-0-0")
    stores = stores_of(config)
    report = collect_parts(stores, FETCHER)
    assert (report.parts, report.pages) == (2, 4)
    assert pages(config) == [f"{HOST}/{page}" for page in (1, 2, 2, 3)]
    segment = stores.crawl.segment(report.folder, FETCHER)
    iteration = stores.crawl.folder(report.folder).iteration()
    assert (iteration.kind, iteration.nodes, iteration.iteration) == (Kind.LIVE, (FETCHER,), 0)
    assert stores.crawl.folder(report.folder).index()
    reader = SegmentReader(stores.storage, segment.path)
    rows = [
        row for batch in reader.pages(["metadata", "title", "author"]) for row in batch.to_pylist()
    ]
    assert {tuple(row.values()) for row in rows} == {('{"list": "live"}', "A page", "A. U. Thor")}
    links = [row for batch in reader.links() for row in batch.to_pylist()]
    assert not any(row["followed"] for row in links)
    assert {row["rule"] for row in links} == {"realtime", "nofollow"}
    assert segment.manifest()["counts"]["robots_captures"] == 2
    assert not list(reader.outlinks("node-0"))
    assert not Spool(live_spool(node_dir(config), FETCHER)).parts()
    assert not list((NodeDirectory(node_dir(config)).live / FETCHER / "collect").iterdir())


def test_nothing_is_made_where_nothing_is_closed(config: Config) -> None:
    stores = stores_of(config)
    assert collect_parts(stores, FETCHER).folder == ""
    spool = live_spool(node_dir(config), FETCHER)
    writer = PartWriter(
        spool, "krake-1-live-0-0", WarcInfo("", "", "", ""), config.segment, has_rows=False
    )
    writer.append(None, robots())
    assert collect_parts(stores, FETCHER).folder == ""
    assert len(Spool(spool).parts()) == 1, "it is still written to"
    writer.close()
    assert stores.crawl.folders() == []


def test_each_collection_has_a_folder_of_its_own(config: Config) -> None:
    fetch(config, f"{HOST}/1")
    first = collect_parts(stores_of(config), FETCHER)
    assert collect_parts(stores_of(config), FETCHER).folder == ""
    fetch(config, f"{HOST}/1", prefix="krake-2000-live-0-0")
    second = collect_parts(stores_of(config), FETCHER)
    assert first.folder != second.folder
    assert pages(config) == [f"{HOST}/1"] * 2, "a visit again is a capture of its own"


def test_the_crawldb_learns_of_no_link_and_no_target(config: Config) -> None:
    fetch(config, f"{HOST}/1", f"{HOST}/moved")
    stores = stores_of(config)
    collect_parts(stores, FETCHER)
    made = update(stores, now=datetime.now(UTC))
    found = Versions(stores, CRAWLDB).batches(made, ["url"])
    known = {row["url"] for batch in found for row in batch.to_pylist()}
    assert known == {f"{HOST}/1", f"{HOST}/moved"}


@pytest.mark.parametrize("outcome", [Outcome.NOT_MODIFIED, Outcome.OK])
def test_a_visit_again_refers_to_the_last_full_capture(
    config: Config, monkeypatch, outcome: Outcome
) -> None:
    """As in a batch crawl: a page that is the same has a revisit record, and its row names the full capture."""
    url, spool, body = f"{HOST}/1", live_spool(node_dir(config), FETCHER), b"<title>A page</title>"
    info = WarcInfo("", "", "", "")
    with PartWriter(spool, "krake-1000-live-0-0", info, config.segment, has_rows=False) as writer:
        full = answered(url, body)
        place = writer.append(
            TakenUrl(0, key_of(url), queued_of(Fetch(id=0, url=url, key=key_of(url).hex()))), full
        )
    stores = stores_of(config)
    document = Document(
        url=url,
        outcome="ok",
        final_url=url,
        etag='"1"',
        digest=payload_of(full).sha1.hex(),
        warc=Place(warc=place.warc_file, offset=place.offset, length=place.length),
        captured_ms=round(1000 * full.time),
    )
    now_s = [0.0]
    captures = NewestCaptures(stores, clock=lambda: now_s[0])
    assert captures.earlier(document) == "", "the capture is in no segment yet"
    first = collect_parts(stores, FETCHER)
    now_s[0] += PAUSE_S
    wanted = Fetch(
        id=0, url=url, key=key_of(url).hex(), etag='"1"', earlier=captures.earlier(document)
    )
    with PartWriter(spool, "krake-2000-live-0-0", info, config.segment, has_rows=False) as writer:
        head = HEAD if outcome is Outcome.OK else b"HTTP/1.1 304 Not Modified\r\n\r\n"
        again = answered(
            url, body if outcome is Outcome.OK else b"", head, outcome=outcome, time=full.time + 9
        )
        writer.append(recorded(TakenUrl(0, key_of(url), queued_of(wanted))), again)
    now_s[0] += KEEP_S
    monkeypatch.setattr(NewestCaptures, "_look", lambda captures, since_s: None)
    assert captures.earlier(document) == "", "compact may have changed segments since"
    second = collect_parts(stores, FETCHER)
    reader = SegmentReader(stores.storage, stores.crawl.segment(second.folder, FETCHER).path)
    [row] = [row for batch in reader.pages(["outcome", "refers_to"]) for row in batch.to_pylist()]
    expected = {
        "segment": f"{first.folder}/{FETCHER}",
        "file": place.warc_file,
        "offset": place.offset,
    }
    assert (row["outcome"], row["refers_to"]) == (outcome.value, expected)
    assert [record.type for record in reader.records(reader.warc_files[0])].count("revisit") == 1
    fill_table(stores, clock=lambda: full.time + 10)
    table = connect_pages(config.key_storage, None, config.key_storage.servers[0])
    data = table.read([key_of(url)])[key_of(url)].data
    table.close()
    assert data is not None
    filled = decoded(data)
    assert (filled.facts["title"], filled.warc, filled.hops[0].outcome) == (
        "A page",
        document.warc,
        outcome.value,
    )


def test_a_probed_picture_is_a_requisite(config: Config) -> None:
    spool, url = live_spool(node_dir(config), FETCHER), f"{HOST}/1.png"
    with PartWriter(
        spool, "krake-1-live-0-0", WarcInfo("", "", "", ""), config.segment, has_rows=False
    ) as writer:
        wanted = Fetch(
            id=0, url=url, key=key_of(url).hex(), via=key_of(f"{HOST}/1").hex(), is_probe=True
        )
        writer.append(
            TakenUrl(0, key_of(url), queued_of(wanted)), answered(url, b"\x89PNG\r\n\x1a\n")
        )
    fetch(config, f"{HOST}/1", prefix="krake-2000-live-0-0")
    stores = stores_of(config)
    report = collect_parts(stores, FETCHER)
    reader = SegmentReader(stores.storage, stores.crawl.segment(report.folder, FETCHER).path)
    rows = [row for batch in reader.pages(["url", "hop", "via_key"]) for row in batch.to_pylist()]
    assert {row["url"]: row["hop"] for row in rows} == {url: "E", f"{HOST}/1": "S"}
    exported = (
        Path(stores.config.dfs_primary) / stages.export_pages(stores)["path"] / "pages.parquet"
    )
    assert pq.read_table(exported).column("url").to_pylist() == [f"{HOST}/1"]


def collect_until(directory: Path, step: str) -> None:
    """Collect in this process, which is killed at a step."""
    os.environ[KILL_VARIABLE] = step
    collect_parts(stores_of(config_of(directory)), FETCHER)


@pytest.mark.parametrize("step", STEPS)
def test_it_goes_on_after_a_kill_at_each_durable_step(
    config: Config, tmp_path: Path, step: str
) -> None:
    fetch(config, f"{HOST}/1", f"{HOST}/2")
    fetch(config, f"{HOST}/3", prefix="krake-2000-live-0-0")
    submitted(config, f"{HOST}/1", f"{HOST}/2")
    submitted(config, f"{HOST}/3")
    assert run_forked(collect_until, tmp_path, step) == -9
    fetch(config, f"{HOST}/4", prefix="krake-3000-live-0-0")  # the service runs meanwhile
    submitted(config, f"{HOST}/4")
    collect_parts(stores_of(config), FETCHER)
    collect_parts(stores_of(config), FETCHER)
    assert pages(config) == [f"{HOST}/{page}" for page in (1, 2, 3, 4)]
    assert submissions(config) == keys(*(f"{HOST}/{page}" for page in (1, 2, 3, 4)))
    check_cdxj_of(config)


def check_cdxj_of(config: Config) -> None:
    """Each segment's index names each of its captures."""
    stores = stores_of(config)
    for segment in stores.crawl.segments():
        lines = stores.storage.read_bytes(f"{segment.path}/index.cdxj").splitlines()
        counts = segment.manifest()["counts"]
        assert len(lines) == counts["pages"] + counts["robots_captures"]


def test_a_damaged_part_is_named_and_the_rest_is_kept(config: Config) -> None:
    fetch(config, f"{HOST}/1")
    (part,) = Spool(live_spool(node_dir(config), FETCHER)).parts()
    part.warc.write_bytes(part.warc.read_bytes()[:-10])
    with pytest.raises(DamagedFileError, match="1 fetches are lost"):
        collect_parts(stores_of(config), FETCHER)


def test_one_collection_at_a_time(config: Config) -> None:
    fetch(config, f"{HOST}/1")
    room = NodeDirectory(node_dir(config)).live / FETCHER / "collect"
    room.mkdir()
    with held(room), pytest.raises(LockedError, match="another collection"):
        collect_parts(stores_of(config), FETCHER)


def test_an_import_is_no_round(config: Config) -> None:
    stores = stores_of(config)
    iteration = start_import(stores, run_id="import-1")
    assert iteration.kind is Kind.IMPORT
    assert not iteration.is_round


def test_a_server_may_be_named_import(config: Config) -> None:
    assert from_mapping(
        {**config.to_mapping(), "servers": ["import"]}, Path("/"), "a test"
    ).servers == ("import",)


def test_submissions_lie_in_the_segment_of_the_parts(config: Config) -> None:
    folder = live_submissions(node_dir(config), FETCHER)
    log = SubmissionLog(folder)
    log.note([SubmissionLine(1_700_000_000_123, None, "", "chat", "refused", 0)])
    log.note(
        [
            SubmissionLine(
                1_700_000_000_456, key_of(f"{HOST}/1").hex(), "www.a.example", "chat", "new", 12
            )
        ]
    )
    log.flush()
    assert log._file is not None
    log._file.close()
    (left,) = folder.iterdir()
    left.write_bytes(left.read_bytes() + b"[170000000")  # a kill within a write
    assert collect_parts(stores_of(config), FETCHER).submissions == 0
    SubmissionLog(folder)  # the next service
    fetch(config, f"{HOST}/1")
    stores = stores_of(config)
    report = collect_parts(stores, FETCHER)
    assert (report.submissions, report.unreadable) == (2, 1)
    path = stores.crawl.segment(report.folder, FETCHER).path
    with open_parquet(
        stores.storage, f"{path}/{Manifest.SUBMISSIONS_NAME}", SUBMISSIONS_SCHEMA
    ) as table:
        rows = [row for batch in table.batches(100) for row in batch.to_pylist()]
    assert [
        (row["key"], row["domain"], row["token"], row["decision"], row["answer_ms"]) for row in rows
    ] == [
        (None, None, "chat", "refused", 0),
        (key_of(f"{HOST}/1"), "a.example", "chat", "new", 12),
    ]
    assert rows[1]["time"] == datetime(2023, 11, 14, 22, 13, 20, 456_000, UTC)
    assert check_segment(stores.storage, path) == []
    assert not list(folder.iterdir())


@pytest.mark.parametrize("file", [Manifest.SUBMISSIONS_NAME, "links.parquet"])
def test_a_salvage_keeps_the_submissions_that_can_be_read(config: Config, file: str) -> None:
    fetch(config, f"{HOST}/1")
    submitted(config, f"{HOST}/1")
    stores = stores_of(config)
    name = stores.crawl.segment(collect_parts(stores, FETCHER).folder, FETCHER)
    path = Path(config.dfs_primary) / name.path / file
    path.write_bytes(path.read_bytes()[:-9])
    salvage_segment(stores, name)
    assert submissions(config) == ([] if file == Manifest.SUBMISSIONS_NAME else keys(f"{HOST}/1"))
    assert check_segment(stores.storage, name.path) == []


def test_memory_and_files_of_submissions_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(range(0, 10_000, 200))
    log = SubmissionLog(tmp_path / "log", clock=lambda: float(next(times)))
    monkeypatch.setattr("crawl_lib.realtime.submissions.MOST", 5)
    line = SubmissionLine(1, None, "", "chat", "new", 1)
    log.note([line] * 3)
    log.note([line] * 3)
    assert log.left_out == 1
    for _ in range(3):
        log.flush()
        log.note([line])
    assert len(list((tmp_path / "log").glob("*.jsonl"))) >= 1, "a file is closed after 300 s"
    log.flush(ends=True)
    read = sum(path.read_bytes().count(b"\n") for path in (tmp_path / "log").iterdir())
    assert read == 5 + 3


def test_a_flush_in_the_middle_of_a_note_writes_each_submission_once(tmp_path: Path) -> None:
    """The loop notes while a thread flushes."""
    log, begun = SubmissionLog(tmp_path / "log"), Event()

    def flush() -> None:
        begun.set()
        log.flush()

    flushing = Thread(target=flush)

    def lines() -> Iterator[tuple[int, None, str, str, str, int]]:
        yield 1, None, "a.example", "t", "new", 0
        flushing.start()
        begun.wait()
        flushing.join(0.2)  # a flush that does not wait for the note ends meanwhile
        yield 2, None, "a.example", "t", "new", 0

    log.note(lines())
    flushing.join()
    log.flush(ends=True)
    (file,) = (tmp_path / "log").iterdir()
    assert [json.loads(line)[0] for line in file.read_text().splitlines()] == [1, 2]
