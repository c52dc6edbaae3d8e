"""Versions of the CrawlDb: which there are, and which one counts.

A version is whole if its manifest is as written, and all parts are there with their sizes. One that is not is passed
over, and named by `krake fsck`; the last whole one counts.
"""

import logging
from dataclasses import dataclass
from typing import Any

from crawl_lib.crawldir import CrawlDirectory, read_json
from crawl_lib.errors import DamagedFileError, PathNotFoundError
from crawl_lib.sealed import MANIFEST_FILE
from crawl_lib.stores import Stores

log = logging.getLogger(__name__)
CRAWLDB_FOLDER = "crawldb"
"""In the crawl directory."""
REMEDY = "move its folder away: the version before it counts, and the next update makes what it lacks"


@dataclass(frozen=True)
class Version:
    """A whole version. `paths`: its parts in order of keys, relative to the storage's root.

    `manifest`: `version`, `parent` (its number, or null), `now` (POSIX seconds), `config_digest`, `segments` (those
    taken in: `<folder>/<node>` and the digest of its manifest), `seeds` (names of folders taken in), `rows`, `statuses`
    (rows by status), `ruled` (see `filtering`; only where there are such rules), `parts` (name, rows, first and last
    key in hex, size_bytes, sha256).
    """

    number: int
    manifest: dict[str, Any]
    paths: tuple[str, ...]


def version_path(crawl: CrawlDirectory, number: int) -> str:
    """The folder of a version, whether it is there or not."""
    return crawl.at(CRAWLDB_FOLDER, str(number))


def version_numbers(crawl: CrawlDirectory) -> list[int]:
    """The versions that are there, whole or not, newest first."""
    return sorted((int(name) for name in crawl.names(CRAWLDB_FOLDER) if name.isdecimal()), reverse=True)


def read_version(crawl: CrawlDirectory, number: int) -> Version:
    """A version. Raises DamagedFileError if it is not whole, naming what it lacks, or StorageError."""
    folder = version_path(crawl, number)
    try:
        manifest = read_json(crawl.storage, f"{folder}/{MANIFEST_FILE}")
        there = {entry.name: entry.size_bytes for entry in crawl.storage.list(folder)}
        parts = [(str(part["name"]), int(part["size_bytes"])) for part in manifest["parts"]]
    except (PathNotFoundError, DamagedFileError, KeyError, TypeError, ValueError) as error:
        raise DamagedFileError(f"{folder}: is no whole version of the CrawlDb: {error}; {REMEDY}") from error
    for name, size_bytes in parts:
        if there.get(name) != size_bytes:
            raise DamagedFileError(f"{folder}/{name}: is not there, or has not the size that was written; {REMEDY}")
    return Version(number, manifest, tuple(f"{folder}/{name}" for name, _ in parts))


def newest_version(stores: Stores) -> Version | None:
    """The newest whole version, None before the first. Raises StorageError.

    Those that are newer and damaged are named in the log. Raises DamagedFileError if there are versions, and none is
    whole: an update would begin with nothing, and forget when pages were visited.
    """
    damaged: DamagedFileError | None = None
    for number in version_numbers(stores.crawl):
        try:
            return read_version(stores.crawl, number)
        except DamagedFileError as error:
            damaged = damaged or error
            log.warning("%s", error)
    if damaged is not None:
        raise DamagedFileError(f"{damaged}; no version is whole: run `krake crawldb rebuild`") from damaged
    return None


def counts_of(stores: Stores, version: Version) -> dict[str, Any]:
    """What tasks and commands say of a version: its number, its `path`, `rows`, those of each status, `segments`."""
    manifest = version.manifest
    return {
        "version": version.number,
        "path": version_path(stores.crawl, version.number),
        "rows": manifest["rows"],
        "statuses": manifest["statuses"],
        "segments": len(manifest["segments"]),
    }
