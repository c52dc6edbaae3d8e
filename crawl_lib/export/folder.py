"""The export directory: names of its files, `inputs`, and how a file of it becomes visible."""

import json
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from crawl_lib.durable import reached
from crawl_lib.engine import Engine, Room, open_engine
from crawl_lib.errors import (
    DamagedFileError,
    InputError,
    OutputConflictError,
    PathNotFoundError,
    TargetExistsError,
)
from crawl_lib.segment import NO_COLUMNS, open_parquet, segment_digest
from crawl_lib.stopping import Progress
from crawl_lib.storage import Storage
from crawl_lib.stores import Stores

FORMAT_VERSION = 1
REMEDY = "delete its folder and run the export again, or choose another label"
INPUTS = "inputs"
PAGES = "pages.parquet"
URL_MAPPING = "urlmapping"
OFFSETS = "offsets"
CONTENT = "content"
ARCS_OUT = "arcs-out.parquet"
ARCS_IN = "arcs-in.parquet"
GRAPH_INDEX = "webgraph-index"
WEB_GRAPH = "webgraph"
COMPRESSOR, LEVEL = "isa-l", 2
"""Pages are compressed by Intel's ISA-L. On HTML of documentation, 32 KB a page, CPU and size: level 2 0.07 ms, 20.1 %;
zlib at level 3 0.25 ms, 19.3 %. Its levels up to 2 were seen to give the same bytes with AVX-512 and without; level 3
does not, and on other processors than x86-64 bytes may differ. So nothing relies on it: see `content.write_content`."""
NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, order=True)
class SegmentInput:
    """A segment that an export takes in: its iteration's folder, its node, and its path below the storage's root."""

    folder: str
    node: str
    path: str


@dataclass(frozen=True)
class Inputs:
    """What an export was made of: everything that decides its bytes.

    `segments`: in order of folder (as a number) and node; `manifests`: SHA-256 of their `manifest.json`, in hex, or,
    where pages of it were dropped, what `segment.manifest.segment_digest` says.
    `mime_types`: patterns in lower case, or None. `compressor`, `level`: of the content file.
    """

    segments: tuple[SegmentInput, ...]
    manifests: tuple[str, ...]
    mime_types: tuple[str, ...] | None
    max_content_bytes: int
    compressor: str
    level: int

    def to_bytes(self) -> bytes:
        """The file `inputs`: JSON, equal for equal inputs."""
        entries = zip(self.segments, self.manifests, strict=True)
        value = {
            "format_version": FORMAT_VERSION,
            "segments": [{**asdict(segment), "manifest_sha256": digest} for segment, digest in entries],
            "options": {
                "mime_types": None if self.mime_types is None else list(self.mime_types),
                "max_content_bytes": self.max_content_bytes,
                "compression": "zlib",
                "compressor": self.compressor,
                "level": self.level,
            },
        }
        return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()

    def late(self, now: "Inputs") -> tuple[SegmentInput, ...] | None:
        """Segments that came late: `now` has them besides these, in the same iterations, and differs in nothing else.

        None where it does. `crawl.min_nodes` lets a round, and an export, go on without a node, whose segment comes
        later.
        """
        mine, others = (dict(zip(each.segments, each.manifests, strict=True)) for each in (self, now))
        same_options = replace(now, segments=self.segments, manifests=self.manifests) == self
        same_folders = {segment.folder for segment in mine} == {segment.folder for segment in others}
        if not (same_options and same_folders and mine.items() <= others.items()):
            return None
        return tuple(segment for segment in now.segments if segment not in mine)

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
            mimes = options["mime_types"]
            return cls(
                segments=tuple(SegmentInput(s["folder"], s["node"], s["path"]) for s in value["segments"]),
                manifests=tuple(s["manifest_sha256"] for s in value["segments"]),
                mime_types=None if mimes is None else tuple(mimes),
                max_content_bytes=options["max_content_bytes"],
                compressor=options["compressor"],
                level=options["level"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedFileError(f"{place}: is not the inputs of an export: {error!r}; {REMEDY}") from error


def folder_order(segment: SegmentInput) -> tuple[int, str, str, str]:
    """Sort key of segments: iterations by time, then nodes."""
    number = int(segment.folder) if segment.folder.isdecimal() else -1
    return number, segment.folder, segment.node, segment.path


def gather_inputs(stores: Stores, segments: Sequence[SegmentInput]) -> Inputs:
    """The inputs of an export over these segments, in whatever order they come.

    Raises PathNotFoundError, StoppedError.
    """
    ordered = sorted(set(segments), key=folder_order)
    config = stores.config.export
    return Inputs(
        segments=tuple(ordered),
        manifests=tuple(segment_digest(stores.storage, segment.path) for segment in stores.until_stopped(ordered)),
        mime_types=None if config.mime_types is None else tuple(sorted({mime.lower() for mime in config.mime_types})),
        max_content_bytes=config.max_content_bytes,
        compressor=COMPRESSOR,
        level=LEVEL,
    )


class ExportFolder:
    """One export on the DFS. Its files appear whole, by rename, and are never changed again.

    A file is written as `.<name>.<attempt>` next to its place, and renamed when it is whole and durable. The next
    attempt deletes what an earlier one left, so one that still runs, on a machine that was given up, fails at its
    rename.
    `path`: below the storage's root. `written`: names of files that are there as this object wrote them.
    """

    def __init__(self, stores: Stores, name: str) -> None:
        if not NAME_PATTERN.fullmatch(name):
            raise InputError(f"export name {name!r}: use letters, digits, '.', '_' and '-', a letter or digit first")
        self.stores, self.storage, self.name = stores, stores.storage, name
        self.written: set[str] = set()
        self.path = f"{stores.config.export.directory.strip('/')}/{name}"

    def file(self, name: str) -> str:
        """The path of a file of the export."""
        return f"{self.path}/{name}"

    def has(self, *names: str) -> bool:
        """Whether all these files are there."""
        return all(self.storage.exists(self.file(name)) for name in names)

    def size(self, name: str) -> int:
        """Bytes of a file. Raises PathNotFoundError."""
        entry = self.storage.stat(self.file(name))
        if entry is None:
            raise PathNotFoundError(f"{self.file(name)}: is not there")
        return entry.size_bytes

    def read_inputs(self) -> Inputs:
        """The file `inputs`. Raises PathNotFoundError if there is no such export, DamagedFileError."""
        place = self.file(INPUTS)
        try:
            return Inputs.from_bytes(self.storage.read_bytes(place), place)
        except PathNotFoundError as error:
            raise PathNotFoundError(
                f"{self.path}: there is no such export (it has no {INPUTS}); run `krake export` first, or name one that"
                " `krake status` shows"
            ) from error

    def is_empty(self) -> bool:
        """Whether no file is there, but for leftovers of killed runs."""
        if not self.storage.exists(self.path):
            return True
        return all(entry.name.startswith(".") for entry in self.storage.list(self.path))

    def claim(self, inputs: Inputs) -> None:
        """Write `inputs`, the first file, or find that it says the same.

        Raises OutputConflictError where the folder is an export of something else.
        """
        if not self.has(INPUTS):
            if not self.is_empty():
                raise OutputConflictError(
                    f"{self.path}: has files but no {INPUTS}, so it is not an export of Krake;"
                    " choose another label, or delete that folder"
                )
            with self.writing(INPUTS) as file:
                file.write(inputs.to_bytes())
        if self.read_inputs() != inputs:
            raise self._conflict()

    def begun(self, now: Inputs) -> tuple[Inputs, tuple[SegmentInput, ...]]:
        """What the export was begun with, where it was, and segments of `now` that came since; else `now`, and none.

        Raises OutputConflictError where the folder is an export of something else.
        """
        if not self.has(INPUTS):
            return now, ()
        inputs = self.read_inputs()
        late = inputs.late(now)
        if late is None:
            raise self._conflict()
        return inputs, late

    def _conflict(self) -> OutputConflictError:
        return OutputConflictError(
            f"{self.path}: the export {self.name!r} exists already and was made of other segments or options"
            f" (see {self.file(INPUTS)}), or before pages of them were dropped; choose another label, or delete"
            f" that folder"
        )

    def require(self, names: Sequence[str], command: str) -> None:
        """Raises PathNotFoundError naming what is missing and the command that makes it."""
        for name in names:
            if not self.has(name):
                raise PathNotFoundError(f"{self.file(name)}: is not there; run `{command}` for {self.name!r} first")

    def engine(self, scratch: Path) -> AbstractContextManager[Engine]:
        """An engine that works for this export: in `scratch`, and in a hidden folder here."""
        hidden, limits = self.file(".engine"), self.stores.config.scratch
        room = Room(self.storage, scratch, hidden, limits.memory_bytes, self.stores, limits.max_bytes)
        return open_engine(self.stores.reached, room)

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        """A file to write; it takes its name when the block ends without an exception."""
        hidden = self._hidden(name)
        with self.storage.open_write(hidden) as file:
            yield file
        self._reveal(hidden, name)

    def _hidden(self, name: str) -> str:
        """A name for this attempt alone, after what others left is deleted: none renames what another one writes."""
        if self.storage.exists(self.path):
            for entry in self.storage.list(self.path):
                if entry.name.startswith(f".{name}."):
                    self.storage.delete(self.file(entry.name))
        return self.file(f".{name}.{uuid.uuid4().hex}")

    def _reveal(self, hidden: str, name: str) -> None:
        reached(f"export.{name}.written")
        try:
            self.storage.rename(hidden, self.file(name))
            self.written.add(name)
        except TargetExistsError:
            # Another attempt was faster. Equal inputs give equal content, so its file will do.
            self.storage.delete(hidden)
        reached(f"export.{name}.published")


def check_segments(folder: ExportFolder, inputs: Inputs) -> None:
    """See that every segment of an export is as it was when the export was begun.

    Raises PathNotFoundError or OutputConflictError naming the segment, the export and what to do, and StoppedError.
    """
    for segment, digest in folder.stores.until_stopped(zip(inputs.segments, inputs.manifests, strict=True)):
        try:
            now = segment_digest(folder.storage, segment.path)
        except PathNotFoundError as error:
            raise PathNotFoundError(
                f"export {folder.name!r} was begun with segment {segment.path}, which is gone;"
                f" bring it back, or delete {folder.path} and export what is left"
            ) from error
        if now != digest:
            raise OutputConflictError(
                f"export {folder.name!r} was begun with another state of segment {segment.path} (pages were dropped"
                f" since, or its manifest.json has changed); choose another label for a new export, or delete"
                f" {folder.path}"
            )


_ENDS = [pa.field(name, pa.int32(), nullable=False) for name in ("source", "target")]
ARC_SCHEMAS = {ARCS_OUT: pa.schema(_ENDS), ARCS_IN: pa.schema(_ENDS[::-1])}


def write_table(
    folder: ExportFolder,
    name: str,
    schema: pa.Schema,
    rows: Iterable[pa.Table],
    progress: Progress,
    *,
    dictionary: bool = True,
) -> None:
    """Write a Parquet file of an export: each of `rows` becomes a row group. `dictionary`: as Parquet understands it.

    The file is begun when the first rows are there: a server would not wait for it while they are sorted.
    """
    waiting = iter(rows)
    first = next(waiting, None)
    with (
        folder.writing(name) as file,
        pq.ParquetWriter(
            file, schema, compression="zstd", use_dictionary=dictionary, write_page_checksum=True
        ) as writer,
    ):
        for table in chain([] if first is None else [first], waiting):
            writer.write_table(table.cast(schema), row_group_size=max(1, len(table)))
            progress.add(len(table))
    progress.end()


def row_count(storage: Storage, path: str, schema: pa.Schema = NO_COLUMNS) -> int:
    """How many rows a Parquet file of the store has; only its end is read. Raises what `open_parquet` does."""
    with open_parquet(storage, path, schema) as table:
        return table.rows
