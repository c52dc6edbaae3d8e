"""`krake fsck`: nodes that left, and pages that a salvage lost."""

from contextlib import suppress

from crawl_lib.errors import KrakeError
from crawl_lib.findings import Finding, Severity
from crawl_lib.repair.folders.identity import nodes_left
from crawl_lib.repair.segments.known import lost_and_not_queued
from crawl_lib.segment import SegmentReader
from crawl_lib.stores import Stores
from crawl_lib.urls import key_of


def check_nodes(stores: Stores) -> list[Finding]:
    """Nodes that had a part in the crawl and are in `servers` no more, and were not retired."""
    findings = []
    for node in nodes_left(stores):
        where = str(stores.node_dir(node)) if stores.node_dir(node).is_dir() else node
        problem = f"node {node} is not in `servers`, and was not retired: what waits in its queue is not crawled"
        again = f"put it back, or run `krake nodes retire {node}` there (with --lost if its disk is gone)"
        findings.append(Finding("queue", "node_not_retired", where, problem, again, Severity.WARNING))
    return findings


def check_lost(stores: Stores) -> list[Finding]:
    """Pages that a salvage could not bring back, and that are neither crawled again nor about to be. They are notes."""
    findings = []
    for name in stores.crawl.segments():
        with suppress(KrakeError):  # findings of the segment
            lost = {key_of(queued.url): queued.url for queued in lost_and_not_queued(stores, name)}
            later = [other for other in stores.crawl.segments() if lost and int(other.folder) > int(name.folder)]
            for other in later:
                pages = SegmentReader(stores.storage, other.path).pages(["key"], with_dropped=True) if lost else ()
                for batch in pages:
                    lost = {key: lost[key] for key in lost.keys() - set(batch.column(0).to_pylist())}
            if lost:
                problem = f"{min(lost.values())} was crawled, and a salvage could not bring it back"
                again = "run `krake fsck --repair`, and they are crawled again"
                note = Severity.NOTE
                findings.append(Finding("segment", "pages_lost", name.path, problem, again, note, len(lost)))
    return findings
