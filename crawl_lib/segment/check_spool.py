"""How a node's spool is looked at: closed parts, sealed WARC files, the segment that is built and waits to be sent.

Closed parts are trusted when a segment is built, so they have to be whole; an open one is made again from its WARC.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from threading import Event

from crawl_lib.errors import DamagedFileError, KrakeError
from crawl_lib.findings import Findings
from crawl_lib.segment.build import file_entry
from crawl_lib.segment.manifest import MANIFEST_NAME, Manifest
from crawl_lib.segment.parts import POSITIONS_SUFFIX, SEALED_SUFFIX, Part, list_parts
from crawl_lib.segment.recover import read_positions
from crawl_lib.segment.warc import walk
from crawl_lib.stopping import go_on, until_stopped
from crawl_lib.storage import Storage

_BLOCK_BYTES = 1 << 20


def check_parts(spool: Path, count: int, findings: Findings, *, full: bool) -> None:
    """Look at the closed parts of a spool. `count`: URLs of the open take; `full`: all files are read."""
    seen: Counter[int] = Counter()
    for part in list_parts(spool):
        if part.is_closed:
            for problem in part_problems(part, full=full):
                findings.add("spool_damaged", str(part.warc), problem)
            with suppress(KrakeError):
                seen.update(read_positions(part.path(POSITIONS_SUFFIX)))
    wrong = [position for position, times in seen.items() if times > 1 or position >= count]
    if wrong:
        findings.add(
            "spool_damaged", str(spool), f"position {wrong[0]} of {count} comes twice or late", count=len(wrong)
        )


def check_seals(spool: Path, storage: Storage, hidden: str, findings: Findings, *, full: bool) -> None:
    """Look at WARC files that an open take has on the store only: sealed, and deleted on the node's disk.

    `hidden`: the take's folder; `full`: digests too, else sizes.
    """
    for part in list_parts(spool):
        if problem := seal_problem(storage, hidden, part, full=full):
            findings.add("sealed_damaged", str(part.path(SEALED_SUFFIX)), problem)


def built_problem(folder: Path, *, full: bool) -> str | None:
    """Why a segment that was built cannot be sent; None if it can, or is not built to its end."""
    path = folder / MANIFEST_NAME
    if not path.exists():
        return None
    try:
        manifest = Manifest.from_bytes(path.read_bytes(), str(path))
    except DamagedFileError as error:
        return str(error)
    for entry in manifest.files:
        file = folder / entry["name"]
        if not file.exists():  # sealed
            continue
        if file.stat().st_size != entry["size_bytes"] or (full and file_entry(file) != entry):
            return f"`{file.name}` is not what was built"
    return None


def part_problems(part: Part, *, full: bool, stop: Event | None = None) -> list[str]:
    """What is wrong with a closed part of a spool, in words; `full` reads all its files, unless `stop` is set."""
    problems = []
    try:
        pages = part.counts().pages
        positions = len(read_positions(part.path(POSITIONS_SUFFIX)))
        if pages != positions:
            problems.append(f"its part says {pages} pages, and names {positions} positions")
        if full:
            part.require_whole()
    except KrakeError as error:
        problems.append(str(error))
    if not part.warc.exists():
        if not part.is_freed:
            problems.append("its WARC file is gone")
    elif full:
        damage: Counter[str] = Counter()
        with part.warc.open("rb") as file:
            for _ in until_stopped(walk(file, damage), stop):
                pass
        problems += [f"its records end with {reason}" for reason in damage]
    return problems


def seal_problem(storage: Storage, hidden: str, part: Part, *, full: bool, stop: Event | None = None) -> str | None:
    """Why a part's file on the store cannot be trusted; None if it can, or is still on the disk, or was never sealed.

    `hidden`: the take's folder. `full` reads the file. Raises StoppedError once `stop` is set.
    """
    try:
        entry = part.sealed()
    except DamagedFileError as error:
        return str(error)
    if entry is None or part.warc.exists():
        return None  # it is sent again
    where = f"{hidden}/{entry['name']}"
    found = storage.stat(where)
    if found is None:
        return f"{where}: is not there any more"
    if found.size_bytes != entry["size_bytes"]:
        return f"{where}: has {found.size_bytes} bytes, and was sealed with {entry['size_bytes']}"
    if full and _digest(storage, where, stop) != entry["sha256"]:
        return f"{where}: is not what was sealed (SHA-256)"
    return None


def _digest(storage: Storage, path: str, stop: Event | None) -> str:
    digest = sha256()
    with storage.open_read(path) as file:
        while block := file.read(_BLOCK_BYTES):
            go_on(stop)
            digest.update(block)
    return digest.hexdigest()
