"""Visits that found a page unchanged, and the full captures with their bodies, mostly in other segments.

The deletion of a folder takes the bodies of later visits away: `krake segment list` says beforehand how many, and
`krake fsck` counts these visits afterwards. A dropped page is dropped with all its visits.
"""

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow.compute as pc

from crawl_lib.findings import Finding, Findings, Severity
from crawl_lib.keyarrays import Keys, key_array
from crawl_lib.segment import SegmentReader
from crawl_lib.stores import Stores

_REPAIR = "these bodies are lost; the next visit of each page brings a body again"


def bodies_needed(stores: Stores) -> dict[str, Keys]:
    """Return the pages whose body later visits need.

    Keys are grouped by the segment that should have the body (`<folder>/<node>`).

    20 bytes of memory a page. Raises DamagedFileError, StorageError.
    """
    found: defaultdict[Any, bytearray] = defaultdict(bytearray)
    for segment in stores.until_stopped(stores.crawl.segments()):
        reader = SegmentReader(stores.storage, segment.path)
        if not reader.manifest.has_rows or all(
            batch.column(0).null_count == len(batch)
            for batch in reader.pages(["refers_to"], with_dropped=True)
        ):
            continue
        for batch in reader.pages(["key", "refers_to"]):
            visits = batch.filter(batch.column("refers_to").is_valid())
            names = pc.struct_field(visits.column("refers_to"), "segment").to_pylist()
            keys: list[Any] = visits.column("key").to_pylist()
            for key, name in zip(keys, names, strict=True):
                found[name] += key
    return {name: key_array(keys) for name, keys in found.items()}


def check_revisits(stores: Stores) -> list[Finding]:
    """Count pages whose visits lack a body, by segment.

    The segment is the place where the body should be. Raises as `bodies_needed` does.
    """
    findings = Findings("segment", _REPAIR)
    for name, keys in sorted(bodies_needed(stores).items()):
        path = stores.crawl.segment_named(name).path
        lost = len(np.setdiff1d(keys, _full_captures(stores, path), assume_unique=True))
        if lost:
            problem = (
                "had the body of a page that a later visit found as it was, and has it no more"
            )
            findings.add("revisit_without_body", path, problem, severity=Severity.NOTE, count=lost)
    return findings.list()


def _full_captures(stores: Stores, path: str) -> Keys:
    keys = bytearray()
    if stores.storage.exists(path):
        for batch in SegmentReader(stores.storage, path).pages(["key", "refers_to"]):
            full: list[Any] = (
                batch.filter(batch.column("refers_to").is_null()).column("key").to_pylist()
            )
            keys += b"".join(full)
    return key_array(keys)
