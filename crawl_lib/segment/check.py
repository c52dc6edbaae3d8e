"""The check of a segment: whether it is what its manifest says (`check_records` reads every record), and of a node's
spool: closed parts, sealed WARC files, the segment that is built and waits to be sent.

Closed parts are trusted when a segment is built, so they have to be whole; an open one is made again from its WARC.
"""

from collections import Counter
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from threading import Event

from crawl_lib.errors import DamagedFileError, KrakeError, PathNotFoundError
from crawl_lib.findings import Finding, Findings, Severity
from crawl_lib.frontier import part_mapping
from crawl_lib.segment.build import file_entry
from crawl_lib.segment.check_records import OUTCOMES, RecordsCheck, SegmentPlace, file_entries
from crawl_lib.segment.manifest import (
    INDEX_NAME,
    LINKS_NAME,
    MANIFEST_NAME,
    OUTLINKS_NAME,
    PAGES_NAME,
    Manifest,
    encode_dropped,
    is_dropped_file,
    read_dropped,
)
from crawl_lib.segment.parts import POSITIONS_SUFFIX, SEALED_SUFFIX, Part, list_parts
from crawl_lib.segment.reader import SCHEMAS
from crawl_lib.segment.recover import read_positions
from crawl_lib.segment.tables import open_parquet
from crawl_lib.segment.warc import walk
from crawl_lib.stopping import Work, go_on, until_stopped
from crawl_lib.storage import Storage

ROOM = "segment"
ACCOUNTED = ("deferred", "dropped", "lost")
"""Counts of taken URLs that have no row in `pages`."""


def check_segment(storage: Storage, path: str, *, full: bool = True, work: Work | None = None) -> list[Finding]:
    """What is wrong with one segment; nothing is changed. `path`: its folder, `<crawl>/<folder>/<node>`.

    Raises StorageError only where the store itself fails.
    """
    return _Check(storage, path, work or Work()).run(full=full)


class _Check:
    def __init__(self, storage: Storage, path: str, work: Work) -> None:
        self.findings = Findings(ROOM, "run `krake fsck --repair`")
        self.place = SegmentPlace(storage, path, self.findings, work)

    def run(self, *, full: bool) -> list[Finding]:
        manifest = self._manifest()
        if manifest is not None:
            self._files(manifest)
            self._counts(manifest)
            self._table_rows(manifest)
            self._outlink_parts(manifest)
            if full:
                RecordsCheck(self.place).run(manifest)
        return self.findings.list()

    def _manifest(self) -> Manifest | None:
        where = self.place.file(MANIFEST_NAME)
        try:
            manifest = Manifest.from_bytes(self.place.storage.read_bytes(where), where)
        except PathNotFoundError:
            self.findings.add("manifest_missing", where, "is not there")
            return None
        except DamagedFileError as error:
            self.findings.add("manifest_damaged", where, str(error))
            return None
        folder, node = self.place.path.split("/")[-2:]
        if (manifest.folder, manifest.node) != (folder, node):
            self.findings.add(
                "manifest_foreign",
                where,
                f"is of {manifest.folder}/{manifest.node}",
                repair="move the folder to where it belongs, or run `krake fsck --repair`",
            )
        return manifest

    def _files(self, manifest: Manifest) -> None:
        there = {entry.name: entry for entry in self.place.storage.list(self.place.path)}
        for entry in file_entries(manifest):
            found = there.pop(entry["name"], None)
            where = self.place.file(entry["name"])
            if found is None:
                self.place.rubbish.add(entry["name"])
                self.findings.add("file_missing", where, "the manifest lists it, and it is not there")
            elif found.size_bytes != entry["size_bytes"]:
                self.findings.add(
                    "file_size", where, f"has {found.size_bytes:,} bytes, the manifest says {entry['size_bytes']:,}"
                )
        for name in there.keys() - {MANIFEST_NAME}:
            if is_dropped_file(name):
                self._dropped(name)
                continue
            if name.endswith((".warc.gz", ".parquet")) or name in {OUTLINKS_NAME, INDEX_NAME}:
                self.findings.add("file_unknown", self.place.file(name), "the manifest does not list it, and should")
                continue
            self.findings.add(
                "file_unknown",
                self.place.file(name),
                "the manifest does not list it",
                repair="no stage reads it: delete it",
                severity=Severity.WARNING,
            )

    def _dropped(self, name: str) -> None:
        """A list of dropped pages is named by its digest."""
        try:
            whole = encode_dropped(read_dropped(self.place.storage, self.place.path, [name]))[0] == name
        except DamagedFileError:
            whole = False
        if not whole:
            self.findings.add(
                "dropped_damaged",
                self.place.file(name),
                "is not the list of pages that was written",
                repair="delete it, and run `krake segment drop` for its pages again",
            )

    def _counts(self, manifest: Manifest) -> None:
        counts, where = manifest.counts, self.place.file(MANIFEST_NAME)
        try:
            fetched = sum(counts["outcomes"].values())
            accounted = fetched + sum(counts.get(name, 0) for name in ACCOUNTED)
            unknown = sorted(counts["outcomes"].keys() - OUTCOMES)
            wrong = [
                (counts["taken"] != accounted, f"{counts['taken']} URLs were taken, {accounted} are accounted for"),
                (counts["pages"] != fetched, f"{counts['pages']} pages, and outcomes of {fetched}"),
                (bool(unknown), f"unknown outcomes: {', '.join(unknown)}"),
            ]
        except (KeyError, TypeError, AttributeError) as error:
            wrong = [(True, f"its counts cannot be used: {error!r}")]
        for is_wrong, problem in wrong:
            if is_wrong:
                self.findings.add("counts_differ", where, problem)

    def _table_rows(self, manifest: Manifest) -> None:
        for name, count in ((PAGES_NAME, "pages"), (LINKS_NAME, "links")):
            where = self.place.file(name)
            if name in self.place.rubbish:
                continue
            try:
                with open_parquet(self.place.storage, where, SCHEMAS[name]) as table:
                    rows = table.rows
            except PathNotFoundError:
                self.findings.add("file_missing", where, "is not there")
                self.place.rubbish.add(name)
            except DamagedFileError as error:
                self.findings.add("table_damaged", where, str(error).removeprefix(f"{where}: "))
                self.place.rubbish.add(name)
            else:
                if rows != manifest.counts.get(count):
                    self.findings.add(
                        "table_rows", where, f"has {rows:,} rows, the manifest says {manifest.counts.get(count)}"
                    )

    def _outlink_parts(self, manifest: Manifest) -> None:
        where = self.place.file(OUTLINKS_NAME)
        found = self.place.storage.stat(where)
        size = found.size_bytes if found else 0
        try:
            parts = sorted(
                (part_mapping(value, where) for value in manifest.outlinks.values()), key=lambda part: part.offset
            )
        except DamagedFileError as error:
            self.findings.add("outlinks_parts", self.place.file(MANIFEST_NAME), str(error))
            return
        end = 0
        for part in parts:
            if part.offset != end:
                break
            end += part.length
        total = sum(part.count for part in parts)
        if found is not None and end != size:
            self.findings.add("outlinks_parts", where, f"has {size:,} bytes, and the manifest's parts end at {end:,}")
        if total != manifest.counts.get("outlinks"):
            self.findings.add(
                "outlinks_parts",
                self.place.file(MANIFEST_NAME),
                f"its parts of outlinks hold {total} URLs, its counts say {manifest.counts.get('outlinks')}",
            )


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
