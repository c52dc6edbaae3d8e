"""Parts of a fetcher on another machine: the lines of the collector, and the answers of the gate.

The collector says `hello`, then `list`; `get` brings a file of a part in pieces; `acknowledge` has parts deleted, which
the collector says after the commit of their segment only. A part is two files: the WARC file and the note that the WARC
file is whole, which comes last and goes last.
"""

import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec

from crawl_lib.durable import fsync_dir
from crawl_lib.errors import os_errors
from crawl_lib.realtime.protocol import BODY_PIECE_BYTES, Count, Hello, Message, Parting, Setup
from crawl_lib.segment import Part, Spool

MOST_PARTS = 300
"""The most parts of a list; the rest come with the next one."""
SUFFIXES = (Part.WARC_SUFFIX, Part.ROWLESS_SUFFIX)
"""The files of a part, in the order of their making and deletion."""
PART_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,200}-[0-9]{5,9}$"
PartName = Annotated[str, msgspec.Meta(pattern=PART_PATTERN)]


class ListParts(Message, tag="list", frozen=True, kw_only=True):
    """The question for closed parts."""


class PartEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A closed part. `sizes`: bytes of its files, in the order of `SUFFIXES`."""

    name: PartName
    sizes: tuple[Count, Count]


class PartList(Message, tag="parts", frozen=True, kw_only=True):
    """The closed parts, the oldest first, at most `MOST_PARTS`."""

    parts: tuple[PartEntry, ...]


class GetFile(Message, tag="get", frozen=True, kw_only=True):
    """Bring a file of a part, `suffix` one of `SUFFIXES`."""

    name: PartName
    suffix: str


class Piece(Message, tag="piece", frozen=True, kw_only=True):
    """Bytes of a file, in order."""

    data: bytes
    is_last: bool = False


class Acknowledge(Message, tag="acknowledge", frozen=True, kw_only=True):
    """The segment of these parts is committed: delete the parts. Unknown parts are passed over."""

    names: tuple[PartName, ...]


class Acknowledged(Message, tag="acknowledged", frozen=True, kw_only=True):
    """The parts are deleted, durably."""


class AskBacklog(Message, tag="ask_backlog", frozen=True, kw_only=True):
    """How much waits for the collection? The scheduler asks this for its metrics."""


class Backlog(Message, tag="backlog", frozen=True, kw_only=True):
    """Closed parts that wait. `oldest_ms`: since the oldest one was closed; `free_bytes`: of the spool's disk."""

    parts: Count
    oldest_ms: Count
    free_bytes: Count


ToGate = Hello | Setup | ListParts | GetFile | Acknowledge | AskBacklog
ToCollector = Hello | PartList | Piece | Acknowledged | Backlog | Parting
Answer = PartList | Piece | Acknowledged | Backlog


def answers(spool: Path, asked: ListParts | GetFile | Acknowledge | AskBacklog) -> Iterator[Answer]:
    """Carry out a line of the collector.

    Raises StorageError, which names the file.
    """
    with os_errors(spool, "cannot be used"):
        match asked:
            case ListParts():
                yield PartList(parts=tuple(listed(spool)))
            case GetFile():
                yield from pieces(spool, asked)
            case Acknowledge():
                delete(spool, asked.names)
                yield Acknowledged()
            case AskBacklog():
                yield backlog_of(spool, time.time())


def backlog_of(spool: Path, now_s: float, *more: Path) -> Backlog:
    """Return what waits in a spool.

    `more`: other files whose age counts, if they exist. Raises OSError.
    """
    closed = [*spool.glob(f"*{Part.ROWLESS_SUFFIX}")]
    times = [time_s for path in (*closed, *more) if (time_s := _changed_s(path))]
    oldest_ms = max(0, round(1000 * (now_s - min(times, default=now_s))))
    there = next(folder for folder in (spool, *spool.parents) if folder.exists())
    return Backlog(parts=len(closed), oldest_ms=oldest_ms, free_bytes=shutil.disk_usage(there).free)


def _changed_s(path: Path) -> float | None:
    """Return the POSIX time of a file.

    None: the collection has taken the file meanwhile.
    """
    with suppress(FileNotFoundError):
        return path.stat().st_mtime
    return None


def listed(spool: Path) -> list[PartEntry]:
    """Return the closed parts of a spool.

    A part without its WARC file is one whose deletion was cut short.
    """
    found = []
    for part in Spool(spool).parts():
        if part.is_rowless and part.warc.exists() and re.match(PART_PATTERN, part.stem.name):
            first, second = (part.path(suffix).stat().st_size for suffix in SUFFIXES)
            found.append(PartEntry(name=part.stem.name, sizes=(first, second)))
    return found[:MOST_PARTS]


def pieces(spool: Path, asked: GetFile) -> Iterator[Piece]:
    """Return the pieces of a file.

    A missing file, and a part that is not closed, have one empty piece.
    """
    names = {f"{entry.name}{suffix}" for entry in listed(spool) for suffix in SUFFIXES}
    name = f"{asked.name}{asked.suffix}"
    if name not in names:
        yield Piece(data=b"", is_last=True)
        return
    with (spool / name).open("rb") as file:
        data = file.read(BODY_PIECE_BYTES)
        while following := file.read(BODY_PIECE_BYTES):
            yield Piece(data=data)
            data = following
        yield Piece(data=data, is_last=True)


def delete(spool: Path, names: tuple[str, ...]) -> None:
    """Delete closed parts.

    Each WARC file goes before its note, so that no half is taken for an open part.
    """
    known = {part.stem.name: part for part in Spool(spool).parts() if part.is_rowless}
    for part in (known[name] for name in names if name in known):
        for suffix in SUFFIXES:
            part.path(suffix).unlink(missing_ok=True)
            fsync_dir(spool)
