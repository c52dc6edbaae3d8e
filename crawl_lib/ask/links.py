"""What people ask of links: `krake linkdb get|dump`. Nothing is written."""

from typing import Any, TextIO

from crawl_lib.ask.table import dump_version
from crawl_lib.errors import InputError
from crawl_lib.export import plain_row, url_named
from crawl_lib.linkdb import LINKDB, OUTLINKS
from crawl_lib.ranks import LINKRANK
from crawl_lib.stores import Stores
from crawl_lib.urls import key_of
from crawl_lib.versions import Family, Version, Versions

TABLES = {"inlinks": LINKDB, "outlinks": OUTLINKS, "ranks": LINKRANK}
"""What may be dumped."""


def inlinks_of(stores: Stores, text: str) -> list[dict[str, Any]]:
    """The rows of the LinkDb of a URL: who links to it, as JSON takes them. Raises InputError for what is no URL to
    crawl, and before the first version."""
    version, key = _version(stores, LINKDB), key_of(url_named(stores, text))
    batches = Versions(stores, LINKDB).rows_of(version, key)
    return [plain_row(row) for batch in batches for row in batch.to_pylist()]


def dump_links(stores: Stores, table: str, out: TextIO, *, as_csv: bool) -> int:
    """Write all rows of one of `TABLES`, as `dump_version` does; returns how many. Raises InputError before the first
    version."""
    family = TABLES[table]
    return dump_version(Versions(stores, family), _version(stores, family), out, as_csv=as_csv)


def _version(stores: Stores, family: Family) -> Version:
    version = Versions(stores, family).newest()
    if version is None:
        command = "krake linkdb rank" if family is LINKRANK else "krake linkdb update"
        raise InputError(f"{stores.crawl.path}: has no {family.folder} yet; `{command}` makes it")
    return version
