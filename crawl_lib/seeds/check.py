"""Whether a folder of injected seeds is whole, and what to do if it is not."""

import time
from typing import Any

from crawl_lib.crawldir import DAMAGED_PREFIX, CrawlDirectory
from crawl_lib.errors import DamagedFileError, PathNotFoundError
from crawl_lib.findings import Finding, Findings
from crawl_lib.frontier import OUTLINKS_NAME, part_mapping, read_outlinks, split_line

ROOM = "folder"


def check_seeds(crawl: CrawlDirectory, digest: str, *, full: bool = True) -> list[Finding]:
    """What is wrong with a folder of injected seeds. `full`: each line is read. Raises StorageError."""
    path, lines = crawl.seeds_path(digest), f"{crawl.seeds_path(digest)}/{OUTLINKS_NAME}"
    findings = Findings(ROOM, "inject the same seeds with the same --run-id again: that puts this folder aside")
    try:
        manifest = crawl.seeds_manifest(digest)
        findings = Findings(ROOM, _again(path, manifest))
        parts = [part_mapping(value, path) for value in manifest["outlinks"].values()]
        entry = crawl.storage.stat(lines)
        size = entry.size_bytes if entry else -1
        if size != sum(part.length for part in parts):
            findings.add("seeds_damaged", lines, f"has {size} bytes, its manifest says otherwise")
        elif full:
            for part in parts:
                for line in read_outlinks(crawl.storage.open_read(lines, part.offset, part.length), lines, part.count):
                    split_line(line, lines)
    except (DamagedFileError, PathNotFoundError, KeyError, AttributeError) as error:
        findings.add("seeds_damaged", path, str(error))
        return findings.list()
    try:
        crawl.seeds_scope(digest)
    except DamagedFileError as error:
        findings.add("scope_damaged", str(error).split(":")[0], str(error), repair="run `krake fsck --repair`")
    return findings.list()


def _again(path: str, manifest: dict[str, Any]) -> str:
    """What to do about a folder of seeds that cannot be used: it depends on who made it."""
    run_id = str(manifest.get("run_id", ""))
    if "retired" in manifest:
        return (
            f"bring {path} back from a copy; if there is none, move it away once `krake nodes list` says that all nodes"
            f" have settled since {manifest['retired']} was retired"
        )
    if run_id.startswith("salvage "):
        return "run `krake fsck --repair`"
    return f"inject the same seeds with --run-id {run_id} again: that puts this folder aside"


def set_damaged_aside(crawl: CrawlDirectory, digest: str) -> None:
    """Rename a folder that cannot be used, if it is there, so that a whole one can take its place."""
    if crawl.storage.exists(f"{crawl.seeds_path(digest)}") and check_seeds(crawl, digest):
        aside = f"{DAMAGED_PREFIX}{digest}-{time.time_ns()}"  # two of a second keep both
        crawl.storage.rename(crawl.seeds_path(digest), crawl.seeds_path(aside))
