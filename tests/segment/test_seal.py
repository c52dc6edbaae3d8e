"""Sealing: local room is given back only for what the store has, whatever is killed or breaks."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from threading import Event

import pytest

from crawl_lib.errors import DamagedFileError, StorageError
from crawl_lib.segment import (
    HiddenFolder,
    Sealer,
    SegmentReader,
    Spool,
    build_segment,
    publish,
)
from crawl_lib.storage import LocalStorage
from tests.forked import run_python
from tests.segment.helpers import NODES, facts, fetches, fill, take_back, writer

HIDDEN = "crawl/1/.node-a-take1"
REPAIR = "krake fsck --repair"
SMALL = {"max_warc_bytes": 2500}  # several parts of the seven fetches
STAGE = """
import os, sys
os.fsync = lambda descriptor: None
from pathlib import Path
from crawl_lib.storage import LocalStorage
from tests.segment.test_seal import go_on
go_on(Path(sys.argv[1]))
"""


def go_on(work: Path, storage: LocalStorage | None = None) -> None:
    """What the crawl task does after fetching."""
    storage = storage or LocalStorage(work / "dfs")
    HiddenFolder(storage, HIDDEN).seal_all(work / "spool", REPAIR)
    build_segment(work / "spool", work / "spool" / "segment", facts(7), NODES)
    publish(storage, "crawl/1", "node-a", "take1", work / "spool" / "segment")


def rows(work: Path) -> tuple[list, list, list]:
    """Everything readers see, read from the WARC files too."""
    reader = SegmentReader(LocalStorage(work / "dfs"), "crawl/1/node-a")
    pages = sorted(
        (row for batch in reader.pages() for row in batch.to_pylist()), key=lambda row: row["key"]
    )
    links = sorted(str(row) for batch in reader.links() for row in batch.to_pylist())
    records = [
        record.headers["warc-record-id"]
        for name in reader.warc_files
        for record in reader.records(name)
    ]
    return pages, links, records


def spooled(work: Path) -> list[str]:
    """The WARC files that take local room."""
    return sorted(path.name for path in (work / "spool").glob("*.warc.gz"))


@pytest.fixture
def work(tmp_path):
    """A spool of several closed parts."""
    (tmp_path / "dfs").mkdir()
    out = writer(tmp_path / "spool", **SMALL)
    fill(out, fetches())
    out.close()
    assert len(spooled(tmp_path)) > 2
    return tmp_path


@pytest.fixture
def unsealed(work, tmp_path_factory):
    """The rows of the same segment when its WARC files stay on the disk until it is published."""
    other = tmp_path_factory.mktemp("unsealed")
    (other / "dfs").mkdir()
    out = writer(other / "spool", **SMALL)
    fill(out, fetches())
    out.close()
    build_segment(other / "spool", other / "segment", facts(7), NODES)
    publish(LocalStorage(other / "dfs"), "crawl/1", "node-a", "take1", other / "segment")
    return rows(other)


def test_the_segment_is_the_same_as_without_sealing_and_local_room_is_free(work, unsealed):
    storage = LocalStorage(work / "dfs")
    HiddenFolder(storage, HIDDEN).seal_all(work / "spool", REPAIR)
    assert spooled(work) == []
    assert not storage.exists("crawl/1/node-a")
    go_on(work)
    assert spooled(work) == []
    assert rows(work) == unsealed
    manifest = SegmentReader(storage, "crawl/1/node-a").manifest
    assert [entry.name for entry in manifest.files] == sorted(
        entry.name for entry in storage.list("crawl/1/node-a") if entry.name != "manifest.json"
    )


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("step", ["seal.uploaded", "seal.written", "seal.freed"])
def test_killed_after_a_step_and_run_again(work, unsealed, step, count):
    """What is not on the store, said to be so, is still on the disk."""
    env = os.environ | {"KRAKE_KILL_AT": f"{step}:{count}"}
    killed = run_python(STAGE, [str(work)], env)
    assert killed.returncode == -signal.SIGKILL
    sent = {entry.name for entry in LocalStorage(work / "dfs").list(HIDDEN)}
    for part in Spool(work / "spool").parts():
        assert part.warc.exists() or part.sealed() is not None
        assert part.sealed() is None or part.warc.name in sent
    assert len(sent) == count
    go_on(work)
    assert rows(work) == unsealed
    assert spooled(work) == []


def test_a_rerun_trusts_what_is_sealed_and_reads_only_the_open_file(tmp_path):
    (tmp_path / "dfs").mkdir()
    out = writer(tmp_path / "spool", **SMALL)
    fill(out, fetches()[:6])
    out._open.abandon()  # as a kill leaves it
    parts = Spool(tmp_path / "spool").parts()
    assert [part.is_closed for part in parts] == [True] * (len(parts) - 1) + [False]
    HiddenFolder(LocalStorage(tmp_path / "dfs"), HIDDEN).seal_closed(tmp_path / "spool")
    assert spooled(tmp_path) == [parts[-1].warc.name]
    assert Spool(tmp_path / "spool").parts() == parts
    again = writer(tmp_path / "spool", **SMALL)
    trusted = Spool(tmp_path / "spool").finished_positions()
    taken_back = take_back(again)
    assert trusted | taken_back == set(range(6))
    assert not trusted & taken_back
    fill(again, fetches()[6:])
    again.close()
    assert [int(part.stem.name[-5:]) for part in Spool(tmp_path / "spool").parts()] == list(
        range(len(Spool(tmp_path / "spool").parts()))
    )
    go_on(tmp_path)
    assert [row["url"] for row in rows(tmp_path)[0]] != []
    assert len(rows(tmp_path)[0]) == 7


def test_an_open_part_is_left_alone_and_refused_at_the_end(tmp_path):
    (tmp_path / "dfs").mkdir()
    out = writer(tmp_path / "spool")
    fill(out, fetches())
    storage = LocalStorage(tmp_path / "dfs")
    HiddenFolder(storage, HIDDEN).seal_closed(tmp_path / "spool")
    assert len(spooled(tmp_path)) == 1
    with pytest.raises(StorageError, match="still open"):
        HiddenFolder(storage, HIDDEN).seal_all(tmp_path / "spool", REPAIR)
    out.close()


class Breaks(LocalStorage):
    """A store whose first `failures` uploads leave half a file and an error; `tried`: what was to be uploaded."""

    def __init__(self, root: Path, failures: int) -> None:
        super().__init__(root)
        self.failures, self.tried = failures, []
        self.worked, self.failed = Event(), Event()

    def upload_final(self, local: Path, path: str) -> None:
        self.tried.append(local.name)
        if len(self.tried) <= self.failures:
            with self.open_write(path) as file:
                file.write(local.read_bytes()[:1000])
            self.failed.set()
            raise StorageError("the store is away")
        super().upload_final(local, path)
        self.worked.set()


def test_a_store_that_breaks_while_fetching_is_tried_again(work, unsealed):
    storage = Breaks(work / "dfs", failures=3)
    first = spooled(work)[0]
    with Sealer(lambda: storage, HIDDEN, work / "spool", interval_s=0.01):
        assert storage.worked.wait(60)
    assert storage.tried[:4] == [first] * 4
    go_on(work, storage)
    assert rows(work) == unsealed


def test_a_store_that_stays_broken_is_an_error_only_when_it_is_needed(work, unsealed, caplog):
    storage = Breaks(work / "dfs", failures=10_000)
    before = spooled(work)
    with Sealer(lambda: storage, HIDDEN, work / "spool", interval_s=0.01):
        assert storage.failed.wait(60)
    assert spooled(work) == before
    assert [part.sealed() for part in Spool(work / "spool").parts()] == [None] * len(before)
    assert "the store is away" in caplog.text
    with pytest.raises(StorageError, match="the store is away"):
        go_on(work, storage)
    assert spooled(work) == before
    go_on(work)
    assert rows(work) == unsealed


def test_a_store_that_cannot_be_opened_is_tried_again(work):
    storage, tries, done = LocalStorage(work / "dfs"), [], Event()

    def opened() -> LocalStorage:
        tries.append(1)
        if len(tries) < 3:
            raise StorageError("no namenode answers")
        done.set()
        return storage

    with Sealer(opened, HIDDEN, work / "spool", interval_s=0.01):
        assert done.wait(60)
    HiddenFolder(storage, HIDDEN).seal_all(work / "spool", REPAIR)
    assert spooled(work) == []


def test_half_a_file_on_the_store_is_sent_again(work, unsealed):
    """Of the right size, too: an upload of another attempt whose blocks are not what was sent."""
    storage = LocalStorage(work / "dfs")
    name = spooled(work)[0]
    storage.write_bytes(f"{HIDDEN}/{name}", b"\0" * (work / "spool" / name).stat().st_size)
    go_on(work)
    assert rows(work) == unsealed


def test_a_sealed_file_that_is_gone_is_sent_again_while_the_local_one_is_there(work, unsealed):
    """Killed between the seal and the deletion; then somebody deletes the store's."""
    env = os.environ | {"KRAKE_KILL_AT": "seal.written"}
    run_python(STAGE, [str(work)], env)
    storage = LocalStorage(work / "dfs")
    assert storage.delete(HIDDEN)
    go_on(work)
    assert rows(work) == unsealed


@pytest.mark.parametrize("damage", ["gone", "shorter", "folder"])
def test_a_sealed_file_that_is_lost_is_named_with_what_to_do(work, damage):
    storage = LocalStorage(work / "dfs")
    HiddenFolder(storage, HIDDEN).seal_all(work / "spool", REPAIR)
    part = Spool(work / "spool").parts()[1]
    place = storage.local_path(f"{HIDDEN}/{part.warc.name}")
    data = place.read_bytes()
    if damage == "folder":
        storage.delete(HIDDEN)
        part = Spool(work / "spool").parts()[0]
    elif damage == "gone":
        place.unlink()
    else:
        place.write_bytes(data[:-1])
    with pytest.raises(StorageError) as caught:
        go_on(work)
    for text in (
        part.warc.name,
        str(len(data) - 1) if damage == "shorter" else "is gone",
        f"`{REPAIR}`",
    ):
        assert text in str(caught.value)
    assert not storage.exists("crawl/1/node-a")


def test_a_sealed_file_that_is_lost_after_the_build_is_not_published(work):
    storage = LocalStorage(work / "dfs")
    HiddenFolder(storage, HIDDEN).seal_all(work / "spool", REPAIR)
    build_segment(work / "spool", work / "segment", facts(7), NODES)
    name = Spool(work / "spool").parts()[1].warc.name
    storage.delete(f"{HIDDEN}/{name}")
    with pytest.raises(StorageError, match=name):
        publish(storage, "crawl/1", "node-a", "take1", work / "segment")
    assert not storage.exists("crawl/1/node-a")


@pytest.mark.parametrize("data", [b"", b"{}", b'{"name": 1}', b"\xff"])
def test_a_seal_that_is_none_is_named(work, data):
    seal = Spool(work / "spool").parts()[0].path(".sealed.json")
    seal.write_bytes(data)
    with pytest.raises(DamagedFileError, match=seal.name):
        go_on(work)
