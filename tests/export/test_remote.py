"""A file store that is not on the local disk gives the same export: its tables are copied to scratch first."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from crawl_lib.config import Config
from crawl_lib.export import export_pages
from crawl_lib.export.show import open_export, show_page
from crawl_lib.graph import finalize_export, link_export, open_web_graph
from crawl_lib.storage import Storage
from crawl_lib.storage.base import Entry
from tests.export.crawls import Capture, CrawlMaker


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

    def delete(self, path: str) -> bool:
        return self.inner.delete(path)

    def make_dirs(self, path: str) -> None:
        self.inner.make_dirs(path)

    def free_bytes(self) -> int:
        return self.inner.free_bytes()


def test_the_same_bytes_from_a_store_elsewhere(storage: Storage, config: Config, crawl: CrawlMaker) -> None:
    urls = [f"http://h.example/{number}" for number in range(30)]
    crawl.segment("1", "node-a", [Capture(url, url.encode(), links=urls[::3]) for url in urls])
    crawl.segment("1", "node-b", [Capture(url, url.encode(), time=1, links=urls) for url in urls[:5]])
    far = Elsewhere(storage)
    for store, name in ((storage, "near"), (far, "far")):
        export_pages(store, config, name=name, segments=crawl.segments)
        link_export(store, config, name=name)
        finalize_export(store, config, name=name)
    near_folder, far_folder = (Path(config.dfs_primary) / "export" / name for name in ("near", "far"))
    assert len(list(near_folder.iterdir())) == 9
    for file in near_folder.iterdir():
        assert (far_folder / file.name).read_bytes() == file.read_bytes(), file.name
    warcs = [path for path in far.opened if path.endswith(".warc.gz")]
    assert warcs == ["crawl/1/node-a/node-a-00000.warc.gz"]  # once, and none that no chosen capture lies in
    with open_export(far, config, name="far") as export, open_web_graph(far, config, name="far") as graph:
        assert len(export.mapping) == len(graph) == 30
        assert sorted(export.content) == sorted(url.encode() for url in urls)
    assert show_page(far, config, name="far", page="0") == {
        **show_page(storage, config, name="near", page="0"),
        "export": "far",
    }
