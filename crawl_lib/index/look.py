"""Answers from the index, for commands: its figures, and whether it has a page, or why not."""

from datetime import UTC, datetime
from typing import Any

from crawl_lib.dataclass import dataclass
from crawl_lib.errors import InputError
from crawl_lib.index.pages import PAGES_SCHEMA
from crawl_lib.index.update import newest_index
from crawl_lib.index.versions import INDEX, LEFT_OUT_FILE, PAGES_FILE, file_of
from crawl_lib.index.wanted import LEFT_OUT_SCHEMA
from crawl_lib.parquet import open_parquet
from crawl_lib.stores import Stores
from crawl_lib.versions import Version, Versions, find_rows

_FIGURES = ("pages", "deleted", "added", "removed", "is_anew", "left_out", "boosts", "settings")
WHY = {
    "no_text": "the answer has no readable text",
    "noindex": "the page asks not to be indexed (index.robots)",
    "rules": "a rule of the scope `index` rejects the page (urls.filters, urls.normalizers)",
    "canonical": "the index has the target of the page's canonical links (index.canonical)",
    "same_text": "the index has another page with the same text",
}
"""Reasons against an existing page in the index, by their names in a version."""


@dataclass(frozen=True)
class IndexCounts:
    """The figures of a version. `made`: ISO 8601; the fields after `size_bytes` are those of the manifest."""

    version: int
    path: str
    made: str
    size_bytes: int
    pages: int
    deleted: int
    added: int
    removed: int
    is_anew: bool
    left_out: dict[str, int]
    boosts: dict[str, Any]
    settings: dict[str, Any]


def index_counts(version: Version) -> IndexCounts:
    """Return the figures of a version."""
    size_bytes = sum(part["size_bytes"] for part in version.manifest["parts"])
    figures = {name: version.manifest[name] for name in _FIGURES}
    made = datetime.fromtimestamp(version.manifest["now"], UTC).isoformat()
    return IndexCounts(version.number, version.path, made, size_bytes, **figures)


def index_stats(stores: Stores) -> IndexCounts:
    """Return the figures of the newest version.

    Raises InputError before the first version, StorageError.
    """
    version = newest_index(Versions(stores, INDEX))
    if version is None:
        raise InputError(
            f"{stores.crawl.at(INDEX.folder)}: there is no index yet; run `krake index update`"
        )
    return index_counts(version)


@dataclass(frozen=True)
class InIndex:
    """The answer to the question: does a version of the index have a page?

    `reason`: one of `WHY`, None for a page that did not exist when the version was made; `owner`: the key in hex of the
    page that results show instead.
    """

    version: int
    indexed: bool = False
    reason: str | None = None
    owner: str | None = None


def why_indexed(stores: Stores, key: bytes) -> InIndex | None:
    """Say whether the newest version has a page.

    The result is None without a version. Raises DamagedFileError, StorageError.
    """
    version = newest_index(Versions(stores, INDEX))
    if version is None:
        return None
    if _rows(stores, version, PAGES_FILE, key):
        return InIndex(version.number, indexed=True)
    for row in _rows(stores, version, LEFT_OUT_FILE, key):
        owner = row["owner"].hex() if row["owner"] else None
        return InIndex(version.number, reason=row["reason"], owner=owner)
    return InIndex(version.number)


def _rows(stores: Stores, version: Version, name: str, key: bytes) -> list[dict[str, Any]]:
    schema = PAGES_SCHEMA if name == PAGES_FILE else LEFT_OUT_SCHEMA
    with open_parquet(stores.storage, file_of(version, name), schema, f"; {INDEX.remedy}") as table:
        return [row for batch in find_rows(table, key) for row in batch.to_pylist()]
