"""Looking things up in an export: a page with its in- and out-links, by URL, key or NodeID; the web graph."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from crawl_lib.errors import DamagedFileError, InputError, UrlError
from crawl_lib.export.choice import REMEDY
from crawl_lib.export.folder import ExportFolder
from crawl_lib.export.readers import UrlMapping, WebGraph
from crawl_lib.export.tables import CONTENT, GRAPH_INDEX, OFFSETS, PAGES, URL_MAPPING, WEB_GRAPH
from crawl_lib.parquet import parquet_errors, plain_row
from crawl_lib.segment import DroppedLists
from crawl_lib.stores import Stores
from crawl_lib.urls import canonicalize, host_of, key_of

KEY_PATTERN = re.compile(r"[0-9a-fA-F]{40}")
NODE_ID_PATTERN = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True, kw_only=True)
class PageView:
    """The output of `krake show URL|KEY|NODEID`. Keys are in hex, times in ISO 8601.

    `row`: of the export's `pages.parquet`. Links and degrees are None where the export has no web graph yet; `node_id`
    too, where no export has the page.
    """

    export: str | None = None
    node_id: int | None = None
    key: str
    url: str
    row: dict[str, Any]
    in_degree: int | None = None
    out_degree: int | None = None
    in_links: list[dict[str, Any]] | None = None
    out_links: list[dict[str, Any]] | None = None


def show_page(stores: Stores, *, name: str, page: str, limit: int = 100) -> PageView:
    """Look a page of an export up.

    `name`: the export; `page`: URL, key in hex, or NodeID; `limit`: in- and out-links shown, each, the first by NodeID.

    Raises InputError if the export has no such page, if the page was dropped since, or if `page` has another form;
    PathNotFoundError naming the missing file of the export, and the command that makes the file.
    """
    folder = _require(stores, name, [PAGES, URL_MAPPING, OFFSETS, CONTENT], "krake export")
    graph: dict[str, Any] = {}
    with ExitStack() as stack:
        local = stack.enter_context(folder.local_files())
        mapping = stack.enter_context(UrlMapping(local(URL_MAPPING)))
        node_id = int(page) if is_node_id(page) else mapping.node_id(page_key(stores, page))
        if node_id is None or node_id >= len(mapping):
            raise InputError(
                f"{page}: is not among the {len(mapping)} crawled pages of export {name!r}"
            )
        pages, key = local(PAGES), mapping.key(node_id)
        [row] = _rows(pages, [node_id])
        if folder.has(GRAPH_INDEX, WEB_GRAPH):
            _, *sides = stack.enter_context(WebGraph(local(WEB_GRAPH), local(GRAPH_INDEX))).node(
                node_id
            )
            for side, ids in zip(("in", "out"), sides, strict=True):
                linked = _rows(pages, ids[:limit].tolist(), ["node_id", "url"])
                graph |= {f"{side}_degree": len(ids), f"{side}_links": linked}
    segment = row["segment_path"]
    if stores.storage.exists(segment) and key in DroppedLists(stores.storage, segment).read():
        raise InputError(
            f"{page}: was dropped from {segment} since export {name!r} was made; make a new export, and delete this one"
        )
    return PageView(
        export=name,
        node_id=node_id,
        key=key.hex(),
        url=row["url"],
        row=plain_row(row),
        **graph,
    )


@contextmanager
def open_web_graph(stores: Stores, *, name: str) -> Iterator[WebGraph]:
    """Open the web graph of an export for a block.

    A remote graph is copied to scratch first. Raises PathNotFoundError where the finalizer has not run.
    """
    folder = _require(stores, name, [GRAPH_INDEX, WEB_GRAPH], "krake graph finalize")
    with folder.local_files() as local, WebGraph(local(WEB_GRAPH), local(GRAPH_INDEX)) as graph:
        yield graph


def _require(stores: Stores, name: str, files: list[str], command: str) -> ExportFolder:
    folder = ExportFolder(stores, name)
    folder.read_inputs()
    folder.require(files, command)
    return folder


def is_node_id(page: str) -> bool:
    """Say whether a page's name has the form of a NodeID."""
    return NODE_ID_PATTERN.fullmatch(page) is not None


def page_key(stores: Stores, page: str) -> bytes:
    """Return the key of a page.

    The page is named by its URL, or by its key in hex (40 digits). Raises InputError.
    """
    return (
        bytes.fromhex(page)
        if KEY_PATTERN.fullmatch(page)
        else key_of(url_named(stores, page, or_key=True))
    )


def url_named(stores: Stores, text: str, *, or_key: bool = False) -> str:
    """Return the canonical form of a user's URL.

    Raises InputError; `or_key`: it might have been a key.
    """
    try:
        return canonicalize(text, max_length_chars=stores.config.urls.max_length_chars)
    except UrlError as error:
        if meant := _with_scheme(text, stores.config.urls.max_length_chars):
            raise InputError(f"{text}: has no http:// or https://: write {meant}") from error
        neither, nor = ("neither", " nor a key of 40 digits") if or_key else ("not", "")
        raise InputError(
            f"{text}: is {neither} a URL that Krake crawls ({error.reason}){nor}"
        ) from error


def _with_scheme(text: str, max_length_chars: int) -> str:
    """Return the URL meant by a text without a scheme.

    "" for words, mail addresses and other schemes.
    """
    if "//" in text or "@" in text:
        return ""
    try:
        meant = canonicalize(f"http://{text}", max_length_chars=max_length_chars)
    except UrlError:
        return ""
    host = host_of(meant)
    return meant if "." in host or ":" in host or host == "localhost" else ""


def _rows(
    pages: Path, node_ids: list[int], columns: list[str] | None = None
) -> list[dict[str, Any]]:
    """Return rows of `pages.parquet` by NodeID.

    Only the necessary row groups are read. Raises DamagedFileError, also where a row is missing: a damaged index of row
    groups hides some.
    """
    with parquet_errors(str(pages), f"; {REMEDY}"):
        options: dict[str, Any] = {"page_checksum_verification": True, "partitioning": None}
        found = pq.read_table(
            pages, columns=columns, filters=[("node_id", "in", node_ids)], **options
        ).to_pylist()
    if len(found) != len(set(node_ids)):
        raise DamagedFileError(
            f"{pages}: lacks rows of {len(set(node_ids)) - len(found)} pages; {REMEDY}"
        )
    return found
