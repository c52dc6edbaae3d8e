"""Looking things up in an export: a page with its in- and out-links, by URL, key or NodeID."""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from crawl_lib.errors import InputError, UrlError
from crawl_lib.export.folder import CONTENT, GRAPH_INDEX, OFFSETS, PAGES, URL_MAPPING, WEB_GRAPH, ExportFolder
from crawl_lib.export.readers import ContentReader, UrlMapping
from crawl_lib.export.scratch import local_files
from crawl_lib.export.webgraph import WebGraph
from crawl_lib.segment import parquet_errors, read_dropped
from crawl_lib.stores import Stores
from crawl_lib.urls import canonicalize, key_of

KEY_PATTERN = re.compile(r"[0-9a-fA-F]{40}")
NODE_ID_PATTERN = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True)
class LinkedPage:
    """A page at the other end of an arc."""

    node_id: int
    url: str


@dataclass(frozen=True)
class PageView:
    """A page of an export. `row`: of the export's `pages.parquet`, keys as bytes.

    `in_links`, `out_links`: the first ones by NodeID; `in_degree`, `out_degree`: how many there are. All four are None
    where the export has no web graph yet.
    """

    export: str
    node_id: int
    key: bytes
    url: str
    row: dict[str, Any]
    in_degree: int | None
    out_degree: int | None
    in_links: tuple[LinkedPage, ...] | None
    out_links: tuple[LinkedPage, ...] | None

    def to_mapping(self) -> dict[str, Any]:
        """The same as JSON takes it: keys in hex, times in ISO 8601."""
        value = asdict(self)
        value["row"] = {name: _plain(entry) for name, entry in self.row.items()}
        return {**value, "key": self.key.hex()}


class PageTable:
    """Random reads in an export's `pages.parquet`, by NodeID: only the row groups that are needed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with parquet_errors(str(path)):
            self._file = pq.ParquetFile(path)
        groups = self._file.metadata
        self._ends = [0]
        for number in range(groups.num_row_groups):
            self._ends.append(self._ends[-1] + groups.row_group(number).num_rows)

    def rows(self, node_ids: Sequence[int], columns: list[str] | None = None) -> list[dict[str, Any]]:
        """The rows of ascending NodeIDs; `columns`: None for all."""
        found: list[dict[str, Any]] = []
        at = 0
        for group, (first, end) in enumerate(zip(self._ends, self._ends[1:], strict=False)):
            start = at
            while at < len(node_ids) and node_ids[at] < end:
                at += 1
            if at > start:
                with parquet_errors(str(self._path)):
                    table = self._file.read_row_group(group, columns=columns)
                found += table.take([node_id - first for node_id in node_ids[start:at]]).to_pylist()
        return found

    def close(self) -> None:
        """Let the file go."""
        self._file.close()


@dataclass(frozen=True)
class OpenExport:
    """The readers of an export; `graph` is None before the finalizer has run."""

    name: str
    mapping: UrlMapping
    content: ContentReader
    pages: PageTable
    graph: WebGraph | None

    def find(self, what: str) -> int | None:
        """The NodeID of a URL, a key in hex (40 digits) or a NodeID in decimal; None if it was not crawled.

        Raises InputError for what is none of them.
        """
        if KEY_PATTERN.fullmatch(what):
            return self.mapping.node_id(bytes.fromhex(what))
        if NODE_ID_PATTERN.fullmatch(what):
            return int(what) if int(what) < len(self.mapping) else None
        try:
            return self.mapping.node_id(key_of(canonicalize(what)))
        except UrlError as error:
            reason = f"is neither a NodeID, nor a key of 40 digits, nor a URL that Krake crawls ({error.reason})"
            raise InputError(f"{what}: {reason}") from error

    def view(self, node_id: int, limit: int = 100) -> PageView:
        """A page with at most `limit` in- and out-links each. Raises IndexError beyond the last."""
        key = self.mapping.key(node_id)
        row = self.pages.rows([node_id])[0]
        if self.graph is None:
            return PageView(self.name, node_id, key, row["url"], row, None, None, None, None)
        node = self.graph.node(node_id)
        return PageView(
            export=self.name,
            node_id=node_id,
            key=key,
            url=row["url"],
            row=row,
            in_degree=len(node.in_neighbours),
            out_degree=len(node.out_neighbours),
            in_links=self._linked(node.in_neighbours[:limit].tolist()),
            out_links=self._linked(node.out_neighbours[:limit].tolist()),
        )

    def _linked(self, node_ids: list[int]) -> tuple[LinkedPage, ...]:
        rows = self.pages.rows(node_ids, ["url"])
        return tuple(LinkedPage(node_id, row["url"]) for node_id, row in zip(node_ids, rows, strict=True))


@contextmanager
def open_export(stores: Stores, *, name: str) -> Iterator[OpenExport]:
    """The readers of an export, closed at the end of the block. Files of a remote store are copied to scratch first.

    Raises PathNotFoundError naming what is missing and the command that makes it.
    """
    folder = ExportFolder(stores, name)
    folder.read_inputs()
    folder.require([PAGES, URL_MAPPING, OFFSETS, CONTENT], "krake export")
    with ExitStack() as stack:
        local = local_files(folder, stack)
        mapping = stack.enter_context(UrlMapping(local(URL_MAPPING)))
        content = stack.enter_context(ContentReader(local(CONTENT), local(OFFSETS)))
        pages = PageTable(local(PAGES))
        stack.callback(pages.close)
        graph = None
        if folder.has(GRAPH_INDEX, WEB_GRAPH):
            graph = stack.enter_context(WebGraph(local(WEB_GRAPH), local(GRAPH_INDEX)))
        yield OpenExport(name, mapping, content, pages, graph)


def show_page(stores: Stores, *, name: str, page: str, limit: int = 100) -> dict[str, Any]:
    """What `krake show URL|KEY|NODEID` prints, as JSON takes it: `PageView.to_mapping`.

    `name`: the export; `page`: URL, key in hex, or NodeID; `limit`: in- and out-links shown, each. Raises InputError
    where the export has no such page, or it was dropped since, or `page` is none of the three, PathNotFoundError
    where there is no such export.
    """
    with open_export(stores, name=name) as export:
        node_id = export.find(page)
        if node_id is None:
            raise InputError(f"{page}: is not among the {len(export.mapping)} crawled pages of export {name!r}")
        view = export.view(node_id, limit)
    segment = view.row["segment_path"]
    if stores.storage.exists(segment) and view.key in read_dropped(stores.storage, segment):
        raise InputError(
            f"{page}: was dropped from {segment} since export {name!r} was made; make a new export, and delete this one"
        )
    return view.to_mapping()


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if isinstance(value, datetime) else value
