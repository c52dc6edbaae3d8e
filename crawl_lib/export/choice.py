"""What an export is made of and what it is called: the segments it takes in, its options, and the file `inputs`."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from crawl_lib.errors import ConfigError, DamagedFileError
from crawl_lib.segment import segment_digest
from crawl_lib.stores import Stores

FORMAT_VERSION = 1
REMEDY = "move its folder away and run the export again, or choose another label"
COMPRESSOR, LEVEL = "isa-l", 2
"""Pages are compressed by Intel's ISA-L. On HTML of documentation, 32 KB a page, CPU and size: level 2 0.07 ms, 20.1 %;
zlib at level 3 0.25 ms, 19.3 %. Its levels up to 2 were seen to give the same bytes with AVX-512 and without; level 3
does not, and on other processors than x86-64 bytes may differ. So nothing relies on it: see `content.write_content`."""
NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, order=True)
class SegmentInput:
    """A segment that an export takes in: its iteration's folder, its node, and its path below the storage's root.

    `manifest_sha256`: of its `manifest.json`, in hex, or, where pages of it were dropped, what `segment_digest` says;
    "" until an export is begun with it.
    """

    folder: str
    node: str
    path: str
    manifest_sha256: str = ""


@dataclass(frozen=True)
class Inputs:
    """What an export was made of: everything that decides its bytes.

    `segments`: in order of folder (as a number) and node. `mime_types`: patterns in lower case, or None. `compressor`,
    `level`: of the content file.
    """

    segments: tuple[SegmentInput, ...]
    mime_types: tuple[str, ...] | None
    max_content_bytes: int
    compressor: str = COMPRESSOR
    level: int = LEVEL

    def to_bytes(self) -> bytes:
        """The file `inputs`: JSON, equal for equal inputs."""
        options = asdict(self)
        value = {
            "format_version": FORMAT_VERSION,
            "segments": options.pop("segments"),
            "options": {**options, "compression": "zlib"},
        }
        return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()

    @classmethod
    def from_bytes(cls, data: bytes, place: str) -> "Inputs":
        """Read a file `inputs`; `place` names it in errors. Raises DamagedFileError."""
        try:
            value = json.loads(data)
            version, options = value["format_version"], value["options"]
            if version != FORMAT_VERSION:
                raise DamagedFileError(
                    f"{place}: has format version {version}, and this Krake reads {FORMAT_VERSION}; {REMEDY}"
                )
            segments, mimes = tuple(SegmentInput(**entry) for entry in value["segments"]), options["mime_types"]
            mimes = None if mimes is None else tuple(mimes)
            return cls(segments, mimes, options["max_content_bytes"], options["compressor"], options["level"])
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedFileError(f"{place}: is not the inputs of an export: {error!r}; {REMEDY}") from error

    def late(self, now: "Inputs") -> tuple[SegmentInput, ...] | None:
        """Segments that came late: `now` has them besides these, in the same iterations, and differs in nothing else.

        None where it does. `crawl.min_nodes` lets a round, and an export, go on without a node, whose segment comes
        later.
        """
        same_folders = {segment.folder for segment in self.segments} == {segment.folder for segment in now.segments}
        same_options = replace(now, segments=self.segments) == self
        if not (same_options and same_folders and set(self.segments) <= set(now.segments)):
            return None
        return tuple(segment for segment in now.segments if segment not in self.segments)


def gather_inputs(stores: Stores, segments: Sequence[SegmentInput]) -> Inputs:
    """The inputs of an export over these segments, in whatever order they come.

    Raises PathNotFoundError, StoppedError.
    """
    ordered = sorted(set(segments), key=lambda one: (int(one.folder) if one.folder.isdecimal() else -1, one))
    config = stores.config.export
    return Inputs(
        tuple(
            replace(segment, manifest_sha256=segment_digest(stores.storage, segment.path))
            for segment in stores.until_stopped(ordered)
        ),
        None if config.mime_types is None else tuple(sorted({mime.lower() for mime in config.mime_types})),
        config.max_content_bytes,
    )


def choose(
    stores: Stores, *, run_id: str | None = None, label: str | None = None, folders: Sequence[str] | None = None
) -> tuple[str, list[SegmentInput]]:
    """The name of an export, the label or else its newest iteration, and the segments it takes in.

    `folders`: just these iterations. Else all, but none that is younger than the last iteration of `run_id`: so that an
    export that is run again after later runs has the same inputs. Raises ConfigError naming a folder that is not there,
    or a label that cannot be a name, or if there is neither label nor iteration.
    """
    crawl = stores.crawl
    chosen = crawl.folders()
    if folders:
        if missing := sorted(set(folders) - set(chosen)):
            there = f"{', '.join(chosen[-10:])} ({len(chosen)} in all)" if chosen else "none yet"
            raise ConfigError(f"{crawl.path}: no iteration {', '.join(missing)}; there are {there}")
        chosen = sorted(set(folders), key=int)
    elif run_id is not None:
        newest_first = stores.until_stopped(reversed(chosen))
        last = next((folder for folder in newest_first if crawl.folder(folder).iteration().run_id == run_id), None)
        chosen = chosen[: chosen.index(last) + 1] if last else chosen
    if label and not NAME_PATTERN.fullmatch(label):
        raise ConfigError(f"label {label!r}: use letters, digits, '.', '_' and '-', beginning with the first two")
    if not label and not chosen:
        raise ConfigError("there is no iteration to export; crawl first, or give the export a label")
    segments = [
        SegmentInput(folder, node, crawl.segment(folder, node).path)
        for folder in stores.until_stopped(chosen)
        for node in crawl.folder(folder).segments()
    ]
    return label or chosen[-1], segments
