"""Publishing: all or nothing, whatever is killed, and never over anything."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from crawl_lib.errors import OutputConflictError, StorageError
from crawl_lib.segment import Manifest, SegmentReader, build_segment, publish
from crawl_lib.segment.publish import upload_checked
from crawl_lib.storage import LocalStorage, local
from tests.forked import run_python
from tests.segment.helpers import NODES, facts, fetches, fill, writer

STAGE = """
import os, sys
os.fsync = lambda descriptor: None
from pathlib import Path
from crawl_lib.segment import Manifest, build_segment, publish
from crawl_lib.segment.publish import upload_checked
from crawl_lib.storage import LocalStorage, local
from tests.segment.helpers import NODES, facts
work = Path(sys.argv[1])
build_segment(work / "spool", work / "seg", facts(7), NODES)
publish(LocalStorage(work / "dfs"), "crawl/1", "node-a", "take1", work / "seg")
"""
STEPS = [
    "segment.build.tables",
    "segment.build.outlinks",
    "segment.build.files",
    "segment.build.manifest",
    *[f"segment.publish.uploaded:{n}" for n in range(1, 7)],
    "segment.publish.renamed",
]


@pytest.fixture
def work(tmp_path):
    (tmp_path / "dfs").mkdir()
    out = writer(tmp_path / "spool")
    fill(out, fetches())
    out.close()
    return tmp_path


def stage(work: Path, kill_at: str | None = None) -> int:
    env = os.environ | ({"KRAKE_KILL_AT": kill_at} if kill_at else {})
    return run_python(STAGE, [str(work)], env).returncode


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_every_step_and_run_again(work, step):
    assert stage(work, step) == -signal.SIGKILL
    visible = [entry.name for entry in LocalStorage(work / "dfs").list("")]
    if step != "segment.publish.renamed":
        assert not (work / "dfs" / "crawl" / "1" / "node-a").exists(), visible
    assert stage(work) == 0
    reader = SegmentReader(LocalStorage(work / "dfs"), "crawl/1/node-a")
    assert reader.manifest.counts["pages"] == sum(batch.num_rows for batch in reader.pages()) == 7
    assert sum(1 for name in reader.warc_files for _ in reader.records(name)) == 18
    assert [path.name for path in (work / "dfs" / "crawl" / "1").iterdir()] == ["node-a"]


def test_run_again_after_success(work):
    storage = LocalStorage(work / "dfs")
    build_segment(work / "spool", work / "seg", facts(7), NODES)
    assert publish(storage, "crawl/1", "node-a", "take1", work / "seg") == "crawl/1/node-a"
    before = (work / "dfs/crawl/1/node-a/manifest.json").stat()
    assert publish(storage, "crawl/1", "node-a", "take1", work / "gone") == "crawl/1/node-a"
    assert (work / "dfs/crawl/1/node-a/manifest.json").stat().st_ino == before.st_ino


def test_the_segment_of_another_take_is_not_touched(work):
    storage = LocalStorage(work / "dfs")
    build_segment(work / "spool", work / "seg", facts(7), NODES)
    publish(storage, "crawl/1", "node-a", "take1", work / "seg")
    build_segment(work / "spool", work / "seg", facts(7, take_id="take2"), NODES)
    with pytest.raises(OutputConflictError, match="take1, not of take2"):
        publish(storage, "crawl/1", "node-a", "take2", work / "seg")
    storage.make_dirs("crawl/1/node-b")
    with pytest.raises(OutputConflictError, match="no segment"):
        publish(storage, "crawl/1", "node-b", "take2", work / "seg")
    assert SegmentReader(storage, "crawl/1/node-a").manifest.take_id == "take1"


class LostAnswer(LocalStorage):
    """Renames, then says it could not."""

    def rename(self, source, target):
        super().rename(source, target)
        raise StorageError("the answer was lost")


class NoRename(LocalStorage):
    """Cannot rename."""

    def rename(self, source, target):
        raise StorageError("no rename today")


def test_after_an_error_of_rename_a_manifest_of_ours_is_success(work):
    build_segment(work / "spool", work / "seg", facts(7), NODES)
    assert (
        publish(LostAnswer(work / "dfs"), "crawl/1", "node-a", "take1", work / "seg")
        == "crawl/1/node-a"
    )


def test_a_rename_that_failed_is_an_error(work):
    build_segment(work / "spool", work / "seg", facts(7), NODES)
    with pytest.raises(StorageError, match="no rename today"):
        publish(NoRename(work / "dfs"), "crawl/1", "node-a", "take1", work / "seg")


class BadUpload(LocalStorage):
    """Stores something else than it was given, of the right size."""

    def upload_final(self, local, path):
        data = local.read_bytes()
        self.write_bytes(path, b"\0" * len(data))


def test_an_upload_that_does_not_have_its_digest_is_noticed(work):
    storage = BadUpload(work / "dfs")
    build_segment(work / "spool", work / "seg", facts(7), NODES)
    with pytest.raises(StorageError, match="was stored with other bytes than sent"):
        publish(storage, "crawl/1", "node-a", "take1", work / "seg")
    assert not storage.exists("crawl/1/node-a")


def test_rubbish_of_an_earlier_attempt_does_not_become_visible(work):
    storage = LocalStorage(work / "dfs")
    storage.write_bytes("crawl/1/.node-a-take1/old", b"x")
    storage.write_bytes("crawl/1/.node-a-take1/pages.parquet", b"half")
    manifest = build_segment(work / "spool", work / "seg", facts(7), NODES)
    publish(storage, "crawl/1", "node-a", "take1", work / "seg")
    names = {entry.name for entry in storage.list("crawl/1/node-a")}
    assert names == {entry.name for entry in manifest.files} | {"manifest.json"}
    assert sum(batch.num_rows for batch in SegmentReader(storage, "crawl/1/node-a").pages()) == 7


def test_what_a_killed_attempt_made_visible_is_durable_before_it_is_believed(work, monkeypatch):
    """It died between a rename and the fsync of the folder: the take that holds the same is deleted next."""
    build_segment(work / "spool", work / "seg", facts(7), NODES)
    store = LocalStorage(work / "dfs")
    synced: list[Path] = []
    monkeypatch.setattr(local, "fsync_dir", synced.append)
    publish(store, "crawl/1", "node-a", "take1", work / "seg")
    synced.clear()
    publish(store, "crawl/1", "node-a", "take1", work / "seg")
    assert work / "dfs" / "crawl" / "1" in synced
    assert work / "dfs" in synced
    entry = Manifest.entry_of(work / "seg" / "pages.parquet")
    upload_checked(
        store, work / "seg" / "pages.parquet", "crawl/1/.hidden/pages.parquet", entry, None
    )
    synced.clear()
    upload_checked(
        store,
        work / "seg" / "pages.parquet",
        "crawl/1/.hidden/pages.parquet",
        entry,
        entry.size_bytes,
    )
    assert work / "dfs" / "crawl" / "1" / ".hidden" in synced
