"""The inputs of an export: the segments it takes in, its options, and the file `inputs`."""

import re
from collections.abc import Sequence
from dataclasses import asdict, replace

from crawl_lib.dataclass import dataclass
from crawl_lib.dfsfiles import write_json_bytes
from crawl_lib.errors import DamagedFileError
from crawl_lib.sealed import unsealed
from crawl_lib.segment import SegmentReader
from crawl_lib.stores import Stores

FORMAT_VERSION = 1
REMEDY = "move its folder away and run the export again, or choose another label"
COMPRESSOR, LEVEL = "libdeflate", 1
"""Pages are compressed by libdeflate, whose bytes depend on nothing but the page. On HTML of documentation, 68 KB a
page, CPU and size: 0.18 ms, 17.6 %; zlib at level 1 0.33 ms, 19.4 %. ISA-L at level 2 takes 0.09 ms, 18.7 %, but one
in a few hundred exports of small pages had other bytes."""
NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, order=True)
class SegmentInput:
    """A segment that an export takes in: its iteration's folder, its node, and its path below the storage's root.

    `manifest_sha256`: of its `manifest.json`, in hex, or, where pages of it were dropped, what `SegmentReader.digest`
    says; "" where it was not read yet.
    """

    folder: str
    node: str
    path: str
    manifest_sha256: str = ""


@dataclass(frozen=True)
class Inputs:
    """Inputs of an export: everything that decides its bytes.

    `segments`: in order of folder (as a number) and node. `mime_types`: patterns in lower case, or None. `compressor`,
    `level`: of the content file, unless a newer Krake wrote that than began the export. `revisited`: whether pages are
    visited again, and one that is gone does not count.
    `requisites`: whether requisites count as pages do.
    `duplicates`: what becomes of pages that the CrawlDb calls so (keep, drop); `crawldb`: the parts of its version.
    """

    segments: tuple[SegmentInput, ...]
    mime_types: tuple[str, ...] | None
    max_content_bytes: int
    compressor: str = COMPRESSOR
    level: int = LEVEL
    revisited: bool = False
    duplicates: str = "keep"
    crawldb: tuple[str, ...] = ()
    requisites: bool = False

    def to_bytes(self) -> bytes:
        """Return the file `inputs`: JSON with its digest.

        Equal inputs give equal bytes.
        """
        options = asdict(self)
        if not self.revisited:
            del options["revisited"]
        if not self.requisites:
            del options["requisites"]
        if self.duplicates == "keep":
            del options["duplicates"], options["crawldb"]
        value = {
            "format_version": FORMAT_VERSION,
            "segments": options.pop("segments"),
            "options": {**options, "compression": "zlib"},
        }
        return write_json_bytes(value)

    @classmethod
    def from_bytes(cls, data: bytes, place: str) -> "Inputs":
        """Read a file `inputs`; `place` names it in errors. Raises DamagedFileError."""
        try:
            value = unsealed(data)
            version, options = value["format_version"], value["options"]
            if version != FORMAT_VERSION:
                raise DamagedFileError(
                    f"{place}: has format version {version}, and this Krake reads {FORMAT_VERSION}; {REMEDY}"
                )
            segments, mimes = (
                tuple(SegmentInput(**entry) for entry in value["segments"]),
                options["mime_types"],
            )
            mimes = None if mimes is None else tuple(mimes)
            return cls(
                segments,
                mimes,
                options["max_content_bytes"],
                options["compressor"],
                options["level"],
                options.get("revisited", False),
                options.get("duplicates", "keep"),
                tuple(options.get("crawldb", ())),
                options.get("requisites", False),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedFileError(
                f"{place}: is not the inputs of an export: {error!r}; {REMEDY}"
            ) from error

    def late(self, now: "Inputs") -> tuple[SegmentInput, ...] | None:
        """Return the later segments of the same iterations.

        `now` has them besides these, and differs in nothing else but in the version of the CrawlDb, or in how this
        version compresses; else None. `crawl.min_nodes` lets a round, and an export, go on without a node, whose
        segment comes later.
        """
        same_folders = {segment.folder for segment in self.segments} == {
            segment.folder for segment in now.segments
        }
        may_differ = {
            name: getattr(self, name) for name in ("segments", "crawldb", "compressor", "level")
        }
        same_options = replace(now, **may_differ) == self
        if not (same_options and same_folders and set(self.segments) <= set(now.segments)):
            return None
        here = set(self.segments)
        return tuple(segment for segment in now.segments if segment not in here)


def gather_inputs(
    stores: Stores, segments: Sequence[SegmentInput], crawldb: Sequence[str] = ()
) -> Inputs:
    """Return the inputs of an export over segments, in any order.

    `crawldb`: parts of a version. Raises PathNotFoundError, StoppedError.
    """
    ordered = sorted(
        set(segments), key=lambda one: (int(one.folder) if one.folder.isdecimal() else -1, one)
    )
    config = stores.config.export
    chosen = []
    for segment in stores.until_stopped(ordered):
        digest = segment.manifest_sha256 or SegmentReader(stores.storage, segment.path).digest
        chosen.append(replace(segment, manifest_sha256=digest))
    return Inputs(
        tuple(chosen),
        None
        if config.mime_types is None
        else tuple(sorted({mime.lower() for mime in config.mime_types})),
        config.max_content_bytes,
        revisited=stores.config.order.revisits,
        duplicates=config.duplicates if stores.config.order.revisits else "keep",
        crawldb=tuple(crawldb),
    )
