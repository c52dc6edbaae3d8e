"""Pages that a salvage could not bring back: their URLs, as far as old tables name them, and crawling them again."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from crawl_lib.crawldir import SegmentRef
from crawl_lib.errors import KrakeError, UrlError
from crawl_lib.frontier import HANDED_ON, decode_line, encode_line
from crawl_lib.records import QueuedUrl
from crawl_lib.repair.segments.glean import is_robots
from crawl_lib.seeds import Division, check_seeds, hand_over, set_damaged_aside
from crawl_lib.segment import INDEX_NAME, SegmentReader
from crawl_lib.states import Outcome
from crawl_lib.storage import Storage
from crawl_lib.stores import Stores
from crawl_lib.urls import canonicalize, key_of

LOST_NAME = "lost.tsv"
"""URLs of pages that were lost, as lines of `outlinks`, handed on past the key check."""
OUTCOMES = frozenset(Outcome)
OLD_COLUMNS = ("key", "url", "via_key", "depth", "metadata", "outcome", "attempts", "duration_ms")


def read_lost(stores: Stores, name: SegmentRef) -> list[QueuedUrl]:
    """The URLs that salvages of a segment could not bring back. Raises DamagedFileError."""
    where = f"{name.path}/{LOST_NAME}"
    if not stores.storage.exists(where):
        return []
    return [decode_line(line, where)[0] for line in stores.storage.read_bytes(where).splitlines()]


def lost_and_not_queued(stores: Stores, name: SegmentRef) -> list[QueuedUrl]:
    """Those that were not queued again yet. Raises DamagedFileError."""
    lost = read_lost(stores, name)
    digest = requeue_name(name, lost)
    queued = stores.storage.exists(stores.crawl.seeds_path(digest)) and not check_seeds(stores.crawl, digest)
    return [] if queued else lost


def requeue_name(name: SegmentRef, urls: Sequence[QueuedUrl]) -> str:
    """The name of the folder in `seeds` that lost URLs of a segment are requeued by: the same for the same ones."""
    lines = [encode_line(queued, HANDED_ON) for queued in urls]
    return hashlib.sha1(b"\n".join([f"salvage {name}".encode(), *lines])).hexdigest()


def requeue_urls(stores: Stores, name: SegmentRef, urls: Sequence[QueuedUrl]) -> None:
    """Leave lost URLs of a segment for their owners past the key check, without making their hosts seeds.

    The same URLs again change nothing.
    """
    lines = [encode_line(queued, HANDED_ON) for queued in urls]
    digest = requeue_name(name, urls)
    set_damaged_aside(stores.crawl, digest)
    hand_over(stores.crawl, digest, lines, Division.of(stores.config), facts={"run_id": f"salvage {name}"})


def old_rows(storage: Storage, path: str, notes: list[str]) -> Iterator[tuple[QueuedUrl, dict[str, Any]]]:
    """Rows of a damaged segment's `pages`, as far as it can be read; without it, URLs of its index.

    A row whose URL is not that of its key, or whose outcome is none, was changed: it is left out.
    `path`: the segment's; `notes`: gets a line about where reading ended.
    """
    rows = 0
    try:
        for batch in SegmentReader(storage, path).pages(OLD_COLUMNS, with_dropped=True):
            for row in batch.to_pylist():
                rows += 1
                if key_of(row["url"]) != row["key"] or row["outcome"] not in OUTCOMES:
                    continue
                yield QueuedUrl(row["url"], row["via_key"], row["depth"], 0, row["metadata"] or ""), row
    except (KrakeError, OSError, ValueError, KeyError, AttributeError):
        notes.append(f"pages.parquet cannot be read after row {rows}")
    if not rows:
        yield from _old_index(storage, path)


def _old_index(storage: Storage, path: str) -> Iterator[tuple[QueuedUrl, dict[str, Any]]]:
    with suppress(KrakeError), storage.open_read(f"{path}/{INDEX_NAME}") as file:
        for line in file:
            with suppress(ValueError, KeyError, IndexError, TypeError, UrlError):
                url = canonicalize(json.loads(line.split(b" ", 2)[2])["url"])
                if not is_robots(url):
                    yield QueuedUrl(url), {"key": key_of(url)}
