"""Differences between versions of the index, found by one walk over all tables of pages in the order of keys."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import merge
from itertools import groupby
from math import expm1, log1p
from operator import itemgetter

from crawl_lib.dfsfiles import stored_digest
from crawl_lib.errors import DamagedFileError
from crawl_lib.index import INDEX, PAGES_FILE, PAGES_SCHEMA, file_of
from crawl_lib.parquet import parquet_batches
from crawl_lib.stores import Stores
from crawl_lib.versions import Version

BOOST_STEP = 0.02
"""The step of the logarithm of 1 + boost. New ranks change each boost a little, and a document with an external version
takes no partial update: the whole page has to travel. Rounding moves a score by 0.3 % at most."""
_COLUMNS = ["key", "digest", "boost", "near", "unavailable_after"]


@dataclass(frozen=True)
class Listed:
    """The facts of a page for OpenSearch, from a version's table of pages. `boost`: rounded (`rounded_boost`)."""

    key: bytes
    digest: bytes
    boost: float
    near: bytes | None
    unavailable_after: datetime | None


@dataclass(frozen=True)
class PageChange:
    """A page to send, or to delete where `page` is None."""

    key: bytes
    page: Listed | None


def rounded_boost(boost: float) -> float:
    """Return the nearest boost on a scale with steps of `BOOST_STEP`."""
    step = round(log1p(max(boost, 0.0)) / BOOST_STEP)
    return float(f"{expm1(step * BOOST_STEP):.6g}")


def listed_pages(stores: Stores, version: Version) -> Iterator[Listed]:
    """Yield the rows of a version's checked table of pages.

    Raises DamagedFileError, StorageError, StoppedError.
    """
    path = file_of(version, PAGES_FILE)
    [part] = [part for part in version.manifest["parts"] if part["name"] == PAGES_FILE]
    if stored_digest(stores.storage, path, stores) != part["sha256"]:
        raise DamagedFileError(f"{path}: differs from the written file (SHA-256); {INDEX.remedy}")
    batches = parquet_batches(stores.storage, path, PAGES_SCHEMA, _COLUMNS, f"; {INDEX.remedy}")
    for batch in stores.until_stopped(batches):
        for key, digest, boost, *facts in zip(
            *(batch.column(name).to_pylist() for name in _COLUMNS), strict=True
        ):
            yield Listed(key, digest, rounded_boost(boost), *facts)


def changes(now: Iterable[Listed], befores: Sequence[Iterable[Listed]]) -> Iterator[PageChange]:
    """Yield the pages that differ between versions.

    Changes are rows of `now` without an equal row in each of `befores`, and rows of `befores` without a row in `now`.
    Rows and changes are in the order of keys. Without `befores` all pages are changes.
    """
    rows = [_numbered(number, pages) for number, pages in enumerate((now, *befores))]
    for key, found in groupby(merge(*rows, key=itemgetter(0, 1)), itemgetter(0)):
        versions = {number: page for _, number, page in found}
        page = versions.pop(0, None)
        if (
            page is None
            or not befores
            or len(versions) < len(befores)
            or set(versions.values()) != {page}
        ):
            yield PageChange(key, page)


def _numbered(number: int, pages: Iterable[Listed]) -> Iterator[tuple[bytes, int, Listed]]:
    for page in pages:
        yield page.key, number, page
