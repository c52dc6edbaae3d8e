"""A file store that is not on the local disk gives the same export, and its files are read where they lie."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import duckdb
import pyarrow.parquet as pq
import pytest

from crawl_lib import scratch as scratch_module
from crawl_lib.config import Config
from crawl_lib.engine.remote import StoreFiles
from crawl_lib.errors import DamagedFileError
from crawl_lib.export import ContentReader, export_pages
from crawl_lib.export.show import open_web_graph, show_page
from crawl_lib.graph import finalize_export, link_export
from crawl_lib.scratch import scratch_folder
from crawl_lib.storage import Storage
from crawl_lib.storage.filestore import Entry
from tests.export.crawls import Capture, CrawlMaker
from tests.stores import stores_on


class Elsewhere(Storage):
    """Another store, but its files have no local path; `opened` are the paths that were read as streams."""

    def __init__(self, inner: Storage) -> None:
        self.inner = inner
        self.opened: list[str] = []

    @property
    def name(self) -> str:
        return "elsewhere"

    def open_read(self, path: str, offset: int = 0, length: int | None = None) -> BinaryIO:
        self.opened.append(path)
        return self.inner.open_read(path, offset, length)

    def open_write(self, path: str) -> BinaryIO:
        return self.inner.open_write(path)

    def rename(self, source: str, target: str) -> None:
        self.inner.rename(source, target)

    def list(self, path: str) -> list[Entry]:
        return self.inner.list(path)

    def stat(self, path: str) -> Entry | None:
        return self.inner.stat(path)

    def stamp(self, path: str) -> str | None:
        return self.inner.stamp(path)

    def delete(self, path: str) -> bool:
        return self.inner.delete(path)

    def make_dirs(self, path: str) -> None:
        self.inner.make_dirs(path)

    def free_bytes(self) -> int:
        return self.inner.free_bytes()


def never(*arguments: object) -> None:
    raise AssertionError(f"copied to scratch: {arguments}")


def all_stages(storage: Storage, config: Config, crawl: CrawlMaker, name: str) -> None:
    export_pages(stores_on(storage, config), name=name, segments=crawl.segments)
    link_export(stores_on(storage, config), name=name)
    finalize_export(stores_on(storage, config), name=name)


def in_scratch(config: Config) -> list[str]:
    """What lies in scratch but for locks."""
    return sorted(
        path.name for path in Path(config.scratch.directory).iterdir() if path.suffix != ".lock"
    )


def test_the_same_bytes_from_a_store_elsewhere(
    storage: Storage, config: Config, crawl: CrawlMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No table is copied to scratch: a crawl that is larger than the disk of this machine can be exported."""
    urls = [f"http://h.example/{number}" for number in range(30)]
    crawl.segment("1", "node-a", [Capture(url, url.encode(), links=urls[::3]) for url in urls])
    crawl.segment(
        "1", "node-b", [Capture(url, url.encode(), time=1, links=urls) for url in urls[:5]]
    )
    far = Elsewhere(storage)
    with monkeypatch.context() as patched:
        patched.setattr(Elsewhere, "download", never)
        for store, name in ((storage, "near"), (far, "far")):
            all_stages(store, config, crawl, name)
    near_folder, far_folder = (
        Path(config.dfs_primary) / "export" / name for name in ("near", "far")
    )
    assert len(list(near_folder.iterdir())) == 9
    for file in near_folder.iterdir():
        assert (far_folder / file.name).read_bytes() == file.read_bytes(), file.name
    warcs = [path for path in far.opened if path.endswith(".warc.gz")]
    assert warcs == [
        "crawl/1/node-a/node-a-00000.warc.gz"
    ]  # once, and none that no chosen capture lies in
    with open_web_graph(stores_on(far, config), name="far") as graph:
        assert len(graph) == 30
    with ContentReader(far_folder / "content") as content:
        assert sorted(content) == sorted(url.encode() for url in urls)
    shown = show_page(stores_on(storage, config), name="near", page="0")
    assert show_page(stores_on(far, config), name="far", page="0") == replace(shown, export="far")
    assert in_scratch(config) == []


class OneAtATime(Elsewhere):
    """A store that says when two threads are in it at once; `threads`: those that read."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.threads: set[int] = set()
        self._busy = threading.Lock()
        for name in ("open_read", "open_write", "rename", "list", "stat", "delete"):
            setattr(self, name, functools.partial(self._alone, getattr(self, name)))

    def _alone(self, method: Callable[..., Any], *arguments: Any) -> Any:
        assert self._busy.acquire(blocking=False), f"two threads at once: {arguments}"
        try:
            self.threads.add(threading.get_ident())
            threading.Event().wait(0.001)  # others may come in
            return method(*arguments)
        finally:
            self._busy.release()


class Meeting:
    """A handle whose readers meet between the `seek` and the `read` that are one read at an offset to DuckDB."""

    meeting = threading.Barrier(2)

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    def seek(self, *place: int) -> int:
        found = self._handle.seek(*place)
        try:
            self.meeting.wait(0.01)
        except threading.BrokenBarrierError:  # no one else is about to read
            self.meeting.reset()
        return int(found)


def test_threads_that_read_at_the_same_time_do_not_change_the_export(
    storage: Storage, config: Config, crawl: CrawlMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many row groups in several segments, four threads, each between another one's `seek` and `read`."""
    urls = [f"http://h.example/{number}" for number in range(60)]
    for node in ("a", "b", "c"):
        place = crawl.segment(
            "1", node, [Capture(url, url.encode() + b"x", links=urls[::7]) for url in urls]
        )
        for name in ("pages.parquet", "links.parquet"):
            pq.write_table(pq.read_table(place / name), place / name, row_group_size=7)
    all_stages(storage, config, crawl, "near")
    far, really_open = OneAtATime(storage), StoreFiles._open
    monkeypatch.setattr(
        StoreFiles, "_open", lambda *given, **more: Meeting(really_open(*given, **more))
    )
    monkeypatch.setattr(duckdb, "connect", functools.partial(duckdb.connect, config={"threads": 4}))
    all_stages(far, config, crawl, "far")
    assert len(far.threads) > 2
    near_folder, far_folder = (
        Path(config.dfs_primary) / "export" / name for name in ("near", "far")
    )
    for file in near_folder.iterdir():
        assert (far_folder / file.name).read_bytes() == file.read_bytes(), file.name


def test_scratch_is_empty_after_a_stage_that_failed(
    storage: Storage, config: Config, crawl: CrawlMaker
) -> None:
    """In the middle of the content, and before the first row of arcs; run again, both go on."""
    place = crawl.segment(
        "1", "node-a", [Capture(f"http://h.example/{n}", b"x" * 99, links=["a"]) for n in range(9)]
    )
    warc, links = place / "node-a-00000.warc.gz", place / "links.parquet"
    whole, table = warc.read_bytes(), links.read_bytes()
    warc.write_bytes(whole[:-40])
    with pytest.raises(DamagedFileError):
        export_pages(stores_on(storage, config), name="x", segments=crawl.segments)
    assert in_scratch(config) == []
    warc.write_bytes(whole)
    export_pages(stores_on(storage, config), name="x", segments=crawl.segments)
    links.write_bytes(table[:-40])
    with pytest.raises(DamagedFileError, match=r"links\.parquet"):
        link_export(stores_on(storage, config), name="x")
    assert in_scratch(config) == []
    links.write_bytes(table)
    link_export(stores_on(storage, config), name="x")
    assert in_scratch(config) == []


def test_what_killed_processes_left_in_scratch_is_deleted_by_the_next_stage(
    storage: Storage, config: Config, crawl: CrawlMaker
) -> None:
    """Of this export, of others, and of readers; what a living process holds, and what is not ours, stays."""
    base = Path(config.scratch.directory)
    for folder in ("export-x", "export-killed", "read-killed-abc", "work-killed", "precious"):
        (base / folder / "duckdb").mkdir(parents=True)
        (base / folder / "bucket-0").write_bytes(b"left")
    crawl.segment("1", "node-a", [Capture("http://h.example/", b"x")])
    far = Elsewhere(storage)
    with scratch_folder(config, "export-alive") as held:
        (held / "bucket-0").write_bytes(b"in use")
        all_stages(far, config, crawl, "x")
        with open_web_graph(stores_on(far, config), name="x") as graph:
            [reader] = [name for name in in_scratch(config) if name.startswith("read-")]
            export_pages(stores_on(storage, config), name="y", segments=crawl.segments)
            assert in_scratch(config) == ["export-alive", "precious", reader]
            assert len(list(graph)) == 1
        assert (held / "bucket-0").read_bytes() == b"in use"
    assert in_scratch(config) == ["precious"]


def test_a_process_that_deletes_what_others_left_is_waited_for(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the lock of all for a moment; that is not taken for another stage at work."""
    with scratch_folder(config, "export-x"):
        pass
    held = (Path(config.scratch.directory) / scratch_module.LOCK).open("rb")
    scratch_module.fcntl.flock(held, scratch_module.fcntl.LOCK_EX)
    really_lock = scratch_module.fcntl.flock

    def lock(file: Any, how: int) -> None:
        """Waits as the system does: the other one ends meanwhile."""
        if not how & scratch_module.fcntl.LOCK_NB:
            held.close()
        really_lock(file, how)

    monkeypatch.setattr(scratch_module.fcntl, "flock", lock)
    with scratch_folder(config, "export-x") as folder:
        assert folder.is_dir()
    assert held.closed
