"""The check of a folder of injected seeds or of a list, and the remedies for damage."""

import time
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from crawl_lib.crawldir import CrawlDirectory, FileName
from crawl_lib.errors import DamagedFileError, PathNotFoundError
from crawl_lib.findings import Finding, Findings
from crawl_lib.records import RETRY_LISTS
from crawl_lib.urlfiles import OUTLINKS_NAME, part_mapping, read_outlinks, split_line

ROOM = "folder"
_SEEDS_AGAIN = "inject the same seeds with the same --run-id again: that puts this folder aside"
_LIST_AGAIN = "run the same `krake retry` again: that puts this folder aside"
_MADE_AGAIN = (
    "run `krake fsck --repair`: that puts this folder aside, and its URLs are listed again"
)


def check_seeds(
    crawl: CrawlDirectory, name: str, kind: str = FileName.SEEDS, *, full: bool = True
) -> list[Finding]:
    """Return the faults of a folder of seeds or a list.

    `full`: each line is read. Raises StorageError.
    """
    path = crawl.inbox.path(name, kind)
    lines, is_list = f"{path}/{OUTLINKS_NAME}", kind == FileName.LISTS
    list_again = _LIST_AGAIN if name.startswith(RETRY_LISTS) else _MADE_AGAIN
    findings = Findings(ROOM, list_again if is_list else _SEEDS_AGAIN)
    try:
        manifest = crawl.inbox.manifest(name, kind)
        findings = Findings(ROOM, list_again if is_list else _again(path, manifest.said))
        for file, digest in manifest.files.items():
            if sha256(crawl.storage.read_bytes(f"{path}/{file}")).hexdigest() != digest:
                findings.add(
                    "seeds_damaged", f"{path}/{file}", "differs from the written file (SHA-256)"
                )
        parts = [part_mapping(value, path) for value in manifest.outlinks.values()]
        entry = crawl.storage.stat(lines)
        size = entry.size_bytes if entry else -1
        if size != sum(part.length for part in parts):
            findings.add(
                "seeds_damaged", lines, f"has {size} bytes, but its manifest has another size"
            )
        elif full:
            for part in parts:
                for line in read_outlinks(
                    crawl.storage.open_read(lines, part.offset, part.length), lines, part.count
                ):
                    split_line(line, lines)
    except (DamagedFileError, PathNotFoundError, KeyError, AttributeError) as error:
        if not is_list or crawl.storage.exists(
            path
        ):  # otherwise another run deleted a finished list
            findings.add("seeds_damaged", path, str(error))
        return findings.list()
    if not is_list:
        _check_scope(crawl, name, findings)
    return findings.list()


def _check_scope(crawl: CrawlDirectory, name: str, findings: Findings) -> None:
    """Add a finding if the hosts of injected seeds cannot be read."""
    try:
        crawl.inbox.scope(name)
    except DamagedFileError as error:
        findings.add(
            "scope_damaged",
            str(error).split(":")[0],
            str(error),
            repair="run `krake fsck --repair`",
        )


def _again(path: str, manifest: Mapping[str, Any]) -> str:
    """Return the remedy for unusable seeds, by their origin."""
    run_id = str(manifest.get("run_id", ""))
    if "retired" in manifest:
        return (
            f"bring {path} back from a copy; without a copy, move it away once `krake nodes list` says that all nodes"
            f" have settled since {manifest['retired']} was retired"
        )
    if run_id.startswith("salvage "):
        return "run `krake fsck --repair`"
    return f"inject the same seeds with --run-id {run_id} again: that puts this folder aside"


def set_damaged_aside(crawl: CrawlDirectory, name: str, kind: str = FileName.SEEDS) -> bool:
    """Rename an unusable folder; return whether it existed.

    A complete folder can then take its place.
    """
    if not crawl.storage.exists(crawl.inbox.path(name, kind)) or not check_seeds(crawl, name, kind):
        return False
    aside = f"{FileName.DAMAGED_PREFIX}{name}-{time.time_ns()}"  # two of a second keep both
    crawl.storage.rename(crawl.inbox.path(name, kind), crawl.inbox.path(aside, kind))
    return True
