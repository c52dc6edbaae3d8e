"""Pages that a salvage could not bring back: crawling them again."""

import hashlib
from collections.abc import Sequence

from crawl_lib.crawldir import SegmentRef
from crawl_lib.frontier import HANDED_ON, decode_line, encode_line
from crawl_lib.records import QueuedUrl
from crawl_lib.seeds import Division, check_seeds, hand_over, set_damaged_aside
from crawl_lib.stores import Stores

LOST_NAME = "lost.tsv"
"""URLs of pages that were lost, as lines of `outlinks`, handed on past the key check."""


def read_lost(stores: Stores, name: SegmentRef) -> list[QueuedUrl]:
    """The URLs that salvages of a segment could not bring back. Raises DamagedFileError."""
    where = f"{name.path}/{LOST_NAME}"
    if not stores.storage.exists(where):
        return []
    return [decode_line(line, where)[0] for line in stores.storage.read_bytes(where).splitlines()]


def lost_and_not_queued(stores: Stores, name: SegmentRef) -> list[QueuedUrl]:
    """Those that were not queued again yet. Raises DamagedFileError."""
    lost = read_lost(stores, name)
    digest, _ = _handed_over(name, lost)
    queued = stores.storage.exists(stores.crawl.seeds_path(digest)) and not check_seeds(stores.crawl, digest)
    return [] if queued else lost


def requeue_urls(stores: Stores, name: SegmentRef, urls: Sequence[QueuedUrl]) -> None:
    """Leave lost URLs of a segment for their owners past the key check, without making their hosts seeds.

    The same URLs again change nothing.
    """
    digest, lines = _handed_over(name, urls)
    set_damaged_aside(stores.crawl, digest)
    hand_over(stores.crawl, digest, lines, Division.of(stores.config), facts={"run_id": f"salvage {name}"})


def _handed_over(name: SegmentRef, urls: Sequence[QueuedUrl]) -> tuple[str, list[bytes]]:
    """Lines of lost URLs, and the name of their folder in `seeds`: the same for the same ones."""
    lines = [encode_line(queued, HANDED_ON) for queued in urls]
    return hashlib.sha1(b"\n".join([f"salvage {name}".encode(), *lines])).hexdigest(), lines
