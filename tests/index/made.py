"""Small crawls with pages of which each word is known, and what their index has."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import tantivy

from crawl_lib.config import Config, from_mapping
from crawl_lib.index import Fields, update_index, why_indexed
from crawl_lib.index.look import InIndex
from crawl_lib.index.versions import LEFT_OUT_FILE, PAGES_FILE
from crawl_lib.stores import Stores, open_stores
from crawl_lib.versions import Version
from tests.export.crawls import Capture, CrawlMaker, key

NOW = datetime(2026, 1, 2, tzinfo=UTC)
HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n{}\r\n"


def a(name: str) -> str:
    """The URL of a page of the host `a.example`."""
    return f"http://a.example/{name}"


def page(
    url: str, text: str, *, time: float = 1000.0, head: str = "", header: str = "", **more: Any
) -> Capture:
    """A page that says a text. `head`: in its HTML; `header`: of its answer; `lang`: as it declares it, "en" if not
    given; `title`, ...: columns of its row."""
    lang = more.pop("lang", "en")
    title = f"<title>{more['title']}</title>" if "title" in more else ""
    body = f"<html lang={lang}><head>{title}{head}</head><body><main><p>{text}</p></main></body></html>".encode()
    capture = {
        name: more.pop(name) for name in ("links", "anchors", "refers_to", "mime") if name in more
    }
    return Capture(url, body, time=time, head=HEAD.format(header).encode(), more=more, **capture)


def canonical(url: str, target: str, text: str, **more: Any) -> Capture:
    """A page with a canonical link."""
    return page(url, text, head=f"<link rel=canonical href={target}>", canonical_url=target, **more)


def answer(
    url: str, outcome: str, status: int | None, *, time: float, target: str = "", **more: Any
) -> Capture:
    """An answer that is no page."""
    row = {"redirect_url": target} if target else {}
    return Capture(url, b"", time=time, status=status, outcome=outcome, mime=None, more=row, **more)


def linking(url: str, text: str, links: dict[str, str], **more: Any) -> Capture:
    """A page that links to URLs with texts."""
    return page(url, text, links=list(links), anchors=links, **more)


@dataclass
class Made:
    """A crawl in a folder."""

    root: Path
    config: Config
    maker: CrawlMaker = field(init=False)

    def __post_init__(self) -> None:
        self.maker = CrawlMaker(Path(self.config.dfs_primary))

    @classmethod
    def below(cls, root: Path, **sections: Any) -> Made:
        """A crawl of `fifo`."""
        (root / "dfs").mkdir(parents=True)
        options = {
            "servers": ["node-0"],
            "dfs_primary": str(root / "dfs"),
            "text": {"processes": 1},
        }
        options |= {"scratch": {"directory": str(root / "scratch")}, **sections}
        return cls(root, from_mapping(options, root))

    def copied(self, root: Path) -> Made:
        """A copy of the crawl."""
        shutil.copytree(self.root, root)
        scratch = replace(self.config.scratch, directory=str(root / "scratch"))
        copy = Made(root, replace(self.config, dfs_primary=str(root / "dfs"), scratch=scratch))
        copy.maker.segments += self.maker.segments
        return copy

    def on_another_machine(self) -> Made:
        """The same crawl as a machine sees it that has a scratch folder of its own."""
        other = Made(
            self.root,
            replace(
                self.config, scratch=replace(self.config.scratch, directory=str(self.root / "s2"))
            ),
        )
        other.maker.segments += self.maker.segments
        return other

    @property
    def stores(self) -> Stores:
        return open_stores(self.config)

    def configure(self, **options: Any) -> None:
        """Change options of the section `index`."""
        self.config = replace(self.config, index=replace(self.config.index, **options))

    def crawl(self, *captures: Capture, folder: int | None = None, node: str = "node-0") -> None:
        """Commit a segment."""
        self.maker.segment(str(folder or len(self.maker.segments) + 1), node, captures)

    def update(self, **options: Any) -> Version:
        return update_index(self.stores, now=NOW, **options)

    def folder(self, version: Version) -> Path:
        return Path(self.config.dfs_primary) / version.path

    def pages(self, version: Version) -> list[dict[str, Any]]:
        """The rows of its table of pages."""
        return pq.read_table(self.folder(version) / PAGES_FILE).to_pylist()

    def left_out(self, version: Version, urls: Iterable[str]) -> dict[str, tuple[str, str | None]]:
        """Why some pages are left out, and which page stands for them."""
        names = {key(url): url for url in urls}
        rows = pq.read_table(self.folder(version) / LEFT_OUT_FILE).to_pylist()
        return {
            names[row["key"]]: (row["reason"], names.get(row["owner"]))
            for row in rows
            if row["key"] in names
        }

    def why(self, url: str) -> InIndex | None:
        return why_indexed(self.stores, key(url))

    def index(self, version: Version) -> tantivy.Index:
        fields = Fields(version.manifest["settings"]["languages"])
        index = fields.index(str(self.folder(version)))
        index.reload()
        return index

    def find(self, version: Version, word: str, field_name: str = "text") -> set[str]:
        """URLs of the documents that have a term in a field."""
        index = self.index(version)
        searcher = index.searcher()
        hits = searcher.search(tantivy.Query.term_query(index.schema, field_name, word), 1000).hits
        return {bytes(searcher.doc(address)["url"][0]).decode() for _, address in hits}

    def urls(self, version: Version) -> set[str]:
        """URLs of all documents."""
        searcher = self.index(version).searcher()
        hits = searcher.search(tantivy.Query.all_query(), 10_000).hits
        return {bytes(searcher.doc(address)["url"][0]).decode() for _, address in hits}
