"""`krake fsck`: nodes that left, and pages that a salvage lost."""

from collections.abc import Collection
from contextlib import suppress

from crawl_lib.crawldir import SegmentRef
from crawl_lib.errors import KrakeError
from crawl_lib.findings import Finding, Findings, Severity
from crawl_lib.repair.folders.identity import nodes_left
from crawl_lib.repair.segments.known import lost_and_not_queued
from crawl_lib.segment import SegmentReader
from crawl_lib.stores import Stores
from crawl_lib.urls import key_of


def check_nodes(stores: Stores) -> list[Finding]:
    """Nodes that had a part in the crawl and are in `servers` no more, and were not retired."""
    findings = Findings("queue", "")
    for node in nodes_left(stores):
        findings.add(
            "node_not_retired",
            str(stores.node_dir(node)) if stores.node_dir(node).is_dir() else node,
            f"node {node} is not in `servers`, and was not retired: what waits in its queue is not crawled",
            repair=f"put it back, or run `krake nodes retire {node}` there (with --lost if its disk is gone)",
            severity=Severity.WARNING,
        )
    return findings.list()


def check_lost(stores: Stores) -> list[Finding]:
    """Pages that a salvage could not bring back, and that are neither crawled again nor about to be. They are notes."""
    findings = Findings("segment", "")
    for name in stores.crawl.segments():
        with suppress(KrakeError):  # findings of the segment
            lost = {key_of(queued.url): queued.url for queued in lost_and_not_queued(stores, name)}
            keys = _not_crawled_since(stores, name, lost.keys()) if lost else set()
            if keys:
                findings.add(
                    "pages_lost",
                    name.path,
                    f"{min(lost[key] for key in keys)} was crawled, and a salvage could not bring it back",
                    repair="run `krake fsck --repair`, and they are crawled again",
                    severity=Severity.NOTE,
                    count=len(keys),
                )
    return findings.list()


def _not_crawled_since(stores: Stores, name: SegmentRef, keys: Collection[bytes]) -> set[bytes]:
    """Those of some keys that no later iteration has a page of."""
    left = set(keys)
    for other in stores.crawl.segments():
        if left and int(other.folder) > int(name.folder):
            for batch in SegmentReader(stores.storage, other.path).pages(["key"], with_dropped=True):
                left.difference_update(batch.column(0).to_pylist())
    return left
