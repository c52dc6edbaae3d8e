"""Questions about links: `krake linkdb get|dump`. Nothing is written."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TextIO

import pyarrow.compute as pc

from crawl_lib.ask.table import dump_version
from crawl_lib.errors import InputError
from crawl_lib.export import url_named
from crawl_lib.linkdb import LINKDB, OUTLINKS
from crawl_lib.parquet import plain_row
from crawl_lib.ranks import LINKRANK
from crawl_lib.stores import Stores
from crawl_lib.urls import host_of, key_of
from crawl_lib.versions import Family, Version, Versions

TABLES = {"inlinks": LINKDB, "outlinks": OUTLINKS, "ranks": LINKRANK}
"""The tables for a dump."""


def inlinks_of(stores: Stores, text: str) -> list[dict[str, Any]]:
    """Return the LinkDb's rows of the links to a URL.

    For JSON. Raises InputError for a URL that cannot be crawled, and before the first version.
    """
    version, key = _version(stores, LINKDB), key_of(url_named(stores, text))
    batches = Versions(stores, LINKDB).rows_of(version, key)
    return [plain_row(row) for batch in batches for row in batch.to_pylist()]


def links_left_out(stores: Stores, text: str, found: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Count a URL's left-out links by the option that decides.

    `found`: the result of `inlinks_of`. Reads the whole table of links. Raises as `inlinks_of`, and DamagedFileError.
    """
    linkdb, key = _version(stores, LINKDB), key_of(url_named(stores, text))
    links = Versions(stores, OUTLINKS).newest()
    if links is None:
        return {}
    reason = _limit(
        linkdb.manifest["settings"], is_old=links.digest != linkdb.manifest["of"], shown=len(found)
    )
    shown = {(row["source"], row["anchor"]) for row in found}
    most, left = linkdb.manifest["settings"]["max_anchor_chars"], Counter[str]()
    source, anchors = b"", set[str]()
    for row in _links_to(stores, links, key):
        anchors = anchors if row["key"] == source else set()
        source, anchor = row["key"], row["anchor"][:most]
        if anchor not in anchors and (source.hex(), anchor) not in shown:
            left[reason(row["url"], row["target_url"])] += 1
        anchors.add(anchor)
    return dict(left)


def _links_to(stores: Stores, links: Version, key: bytes) -> Iterator[dict[str, Any]]:
    """Yield the counting links to a page, in order of sources."""
    columns = ["key", "url", "target", "target_url", "anchor", "is_gone"]
    for batch in Versions(stores, OUTLINKS).batches(links, columns):
        yield from batch.filter((pc.field("target") == key) & ~pc.field("is_gone")).to_pylist()


def _limit(settings: Mapping[str, Any], *, is_old: bool, shown: int) -> Callable[[str, str], str]:
    """Return a function that names the option excluding a link.

    The function takes the URLs of the link's ends.
    """

    def named(source_url: str, target_url: str) -> str:
        if not settings["within_host"] and host_of(source_url) == host_of(target_url):
            return "linkdb.within_host: false"
        if settings["rules"] is not None:
            return "the rules of urls for linkdb, or a limit of linkdb"
        if is_old:
            return "new since the last `krake linkdb update`"
        name = "max_inlinks" if shown >= settings["max_inlinks"] else "max_outlinks"
        return f"linkdb.{name}: {settings[name]}"

    return named


def dump_links(stores: Stores, table: str, out: TextIO, *, as_csv: bool) -> int:
    """Write all rows of one of `TABLES`; return their number.

    The format is that of `dump_version`. Raises InputError before the first version.
    """
    family = TABLES[table]
    return dump_version(Versions(stores, family), _version(stores, family), out, as_csv=as_csv)


def _version(stores: Stores, family: Family) -> Version:
    version = Versions(stores, family).newest()
    if version is None:
        command = "krake linkdb rank" if family is LINKRANK else "krake linkdb update"
        raise InputError(f"{stores.crawl.path}: has no {family.folder} yet; `{command}` makes it")
    return version
