"""`krake import`: archives of other programs become a segment of this crawl.

How data flows: `segment.read_archive` reads each archive. A response and its request are a page here if Krake crawls
such URLs, and the crawl has the page neither from an earlier archive nor from a fetch. Pages go through the crawl's own
code (`PageHandler`, `PartWriter`), so rows and links are the same as after a fetch; hosts of pages do not widen the
scope. With `parse.requisites` the archives are read twice: `needed` first finds the captures that are requisites. The
segment is in its own iteration's folder, as a segment of the node `import`.

The steps, each durable before the next:

1. the scratch directory holds a spool; a part for each archive is closed, and `import.json` names the finished archives
   (`curate.import.file`). After a kill within an archive, this archive is read again.
2. `start` names the folder (`start.renamed`); the run is named by the digests of the archives, so that the same
   command finds the run again. The folder comes before the first archive is read, since WARC files have its name.
3. the segment is built and published, as a node's segment is (`segment.publish.renamed`);
4. its keys are marked as crawled (`curate.import.marked`), except for passing failures: the pages are not fetched
   again;
5. `commit` writes the folder's index (`commit.written`): its archives count as imported from now on.

A second run goes on there, also with work of other imports that is open after step 3. Between 3 and 4 a node that takes
in links at this very moment may queue an imported URL: the URL is fetched once more, and nothing is lost.
"""

import shutil
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

from crawl_lib.crawldir import IMPORT_NODE, FileName, Iteration, Kind, Starts
from crawl_lib.curate.import_pages import ArchiveReader, FileReport, ImportReport
from crawl_lib.curate.needed import steps_of_requisites
from crawl_lib.durable import reached, write_durable
from crawl_lib.errors import InputError, os_errors
from crawl_lib.fetch import retry_at
from crawl_lib.node import mark_pages
from crawl_lib.records import QueuedUrl, TakenUrl
from crawl_lib.repair import is_robots
from crawl_lib.rounds import commit_iteration, start_import
from crawl_lib.scratch import scratch_base
from crawl_lib.sealed import sealed_json, unsealed
from crawl_lib.segment import (
    Manifest,
    Part,
    PartWriter,
    SegmentReader,
    Spool,
    WarcInfo,
    build_segment,
    publish,
    read_blocks,
)
from crawl_lib.stores import Stores
from crawl_lib.urls import UrlFilter
from crawl_lib.version import VERSION
from crawl_lib.warc import utc_text
from crawl_lib.worker import PageHandler

PROGRESS_FILE = "import.json"
SUFFIXES = (".warc", ".warc.gz", ".arc", ".arc.gz")


def find_archives(paths: Sequence[str]) -> list[Path]:
    """Return the archives that paths name.

    Paths name files, or directories with files of the usual names. Raises InputError.
    """
    found: list[Path] = []
    for text in paths:
        path = Path(text)
        within = (
            one for one in sorted(path.rglob("*")) if one.name.endswith(SUFFIXES) and one.is_file()
        )
        archives = [path] if path.is_file() else [*within]
        if not archives:
            missing = (
                f"no file in it ends with {', '.join(SUFFIXES)}"
                if path.is_dir()
                else "no such file or directory"
            )
            raise InputError(f"{path}: {missing}")
        found += archives
    return list(dict.fromkeys(found))


def import_archives(
    stores: Stores,
    paths: Sequence[str],
    *,
    dry_run: bool = False,
    clock: Callable[[], float] = time.time,
) -> ImportReport:
    """Make a segment of archives that were never imported.

    Raises InputError naming a missing path, ConfigError, KeyStoreError, StorageError; run the command again then.
    """
    archives = find_archives(paths)
    before = _imported_before(stores, finish=not dry_run)
    report = ImportReport(dry_run=dry_run)
    new: list[FileReport] = []
    for path in archives:
        with os_errors(path, "cannot be read", InputError):
            entry = Manifest.entry_of(path)
        file = FileReport(str(path), entry.sha256, entry.size_bytes)
        report.files.append(file)
        if file.sha256 in before:
            file.state = "already_imported"
        else:
            new.append(file)
        before.add(file.sha256)
    digests = sorted({file.sha256 for file in report.files})
    names = "\n".join(digests)
    run_id = f"import-{sha256(names.encode()).hexdigest()[:32]}"
    with stores.keys(make=not dry_run) as keys:
        reader = ArchiveReader(stores, keys if not dry_run or keys.exists() else None)
        if dry_run:
            for file in new:
                deque(reader.read(file), 0)
                file.state = file.state if file.state == "refused" else "readable"
            return report
        with scratch_base(stores.config, run_id) as base:
            if new:
                iteration = start_import(stores, run_id=run_id, clock=clock)
                report.folder = _Import(
                    stores, reader, new, digests, iteration, base / iteration.folder, clock
                ).run()
            shutil.rmtree(base, ignore_errors=True)
    return report


@dataclass
class _Import:
    """The steps of one import. `digests`: of all named archives, sorted; `room`: the scratch folder of the import."""

    stores: Stores
    reader: ArchiveReader
    files: list[FileReport]
    digests: list[str]
    iteration: Iteration
    room: Path
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        config, hosts = self.stores.config, self.stores.crawl.scopes.read(self.iteration)
        self.scope = UrlFilter(config.urls, hosts, config.traps)
        self.needed: dict[bytes, int] = {}

    def run(self) -> str:
        """Read all archives and leave a segment; return its folder.

        "": the archives had nothing to import.
        """
        done = self.resume()
        if self.stores.config.parse.wants_requisites and len(done) < len(self.files):
            self.needed = self.find_requisites()
        for file in self.files:
            if file not in done:
                self.spool(file, sum(one.pages for one in done))
                done.append(file)
                write_durable(
                    self.room / PROGRESS_FILE, sealed_json({"files": [asdict(one) for one in done]})
                )
                reached("curate.import.file")
        if any(file.pages or file.robots for file in done):
            self.publish()
            return self.iteration.folder
        Starts(self.stores.crawl).give_up(
            self.iteration
        )  # an empty folder, except for its small files
        return ""

    def resume(self) -> list[FileReport]:
        """Return the archives that an earlier attempt had finished.

        Their pages are not imported again. All other files in the spool are deleted; if another import has brought in
        one of these archives since, the whole spool is deleted.
        """
        files = {file.sha256: file for file in self.files}
        counts: dict[str, dict[str, Any]] = {}
        with suppress(
            FileNotFoundError, ValueError, KeyError, TypeError
        ):  # an unreadable file is made again
            entries = unsealed((self.room / PROGRESS_FILE).read_bytes())["files"]
            counts = {entry["sha256"]: entry for entry in entries}
        if not counts or not counts.keys() <= files.keys():
            shutil.rmtree(self.room, ignore_errors=True)
            (self.room / "spool").mkdir(parents=True)
            return []
        for digest in self.digests:
            for part in Spool(self.room / "spool", self.prefix(digest)).parts():
                if digest in counts:
                    for block in read_blocks(part.path(Part.PAGES_SUFFIX)):
                        self.reader.seen.update(block.column("key").to_pylist())  # type: ignore[arg-type]
                else:
                    part.discard_rows()
                    part.warc.unlink(missing_ok=True)
        for digest, entry in counts.items():
            vars(files[digest]).update({**entry, "name": files[digest].name})
        return [files[digest] for digest in counts]

    def find_requisites(self) -> dict[bytes, int]:
        """Return the captures that are requisites, with their steps.

        By key. All archives are read for this purpose.
        """
        reader = ArchiveReader(self.stores, None)
        copies = [replace(file) for file in self.files]
        pages = chain.from_iterable(map(reader.read, copies))
        return steps_of_requisites(self.stores, pages, self.scope, self.room / "first", self.clock)

    def prefix(self, digest: str) -> str:
        """Return the prefix of an archive's part in the spool.

        Each attempt has the same prefix, whatever the order of the archives on the command line.
        """
        return Spool.prefix_of(self.iteration.folder, IMPORT_NODE, self.digests.index(digest))

    def spool(self, file: FileReport, position: int) -> None:
        """Write an archive's pages from a position on: step 1."""
        stores, config = self.stores, self.stores.config
        info = WarcInfo(
            VERSION, stores.config_digest, "", "", f"{self.iteration.folder}/{IMPORT_NODE}"
        )
        # With local routing the finder keeps its finds: a node for each archive.
        finder = self.digests.index(file.sha256) % len(config.servers)
        prefix = self.prefix(file.sha256)
        with PartWriter(
            self.room / "spool", prefix, info, config.segment, clock=self.clock
        ) as writer:
            handler = PageHandler(
                config, config.servers, finder, self.scope, writer, seeds_widen_scope=False
            )
            for fetched, key, metadata in self.reader.read(file):
                if is_robots(fetched.url):
                    writer.append(None, fetched)
                else:
                    fetched.retry_at = retry_at(
                        fetched, 0, config.retry
                    )  # the crawl may get a better answer
                    steps = self.needed.get(key, 0)
                    queued = QueuedUrl(fetched.url, depth=steps, metadata=metadata, requisite=steps)
                    taken = TakenUrl(position, key, queued)
                    handler.handle_all([(taken, fetched, writer.append(taken, fetched))])
                    position += 1

    def publish(self) -> None:
        """Publish the segment: steps 3 to 5."""
        stores, folder, now = self.stores, self.iteration.folder, utc_text(self.clock())
        files = [
            {
                "name": Path(file.name).name,
                "sha256": file.sha256,
                "size_bytes": file.size_bytes,
                "pages": file.pages,
            }
            for file in self.files
            if file.state != "refused"
        ]
        facts = Manifest(
            take_id=self.iteration.run_id,
            run_id=self.iteration.run_id,
            iteration=self.iteration.iteration,
            folder=folder,
            node=IMPORT_NODE,
            krake_version=VERSION,
            config_digest=stores.config_digest,
            user_agent="",
            robots_policy="",
            started=now,
            finished=now,
            counts={"taken": sum(file.pages for file in self.files), "deferred": 0},
            history=[{"what": "import", "time": now, "krake_version": VERSION, "files": files}],
        )
        built, more = self.room / "segment", stores.crawl.folder(folder).copy_identity(self.room)
        build_segment(self.room / "spool", built, facts, stores.config.servers, more_files=more)
        publish(stores.storage, stores.crawl.at(folder), IMPORT_NODE, facts.run_id, built)
        finish_folder(stores, folder, IMPORT_NODE)


def _imported_before(stores: Stores, *, finish: bool) -> set[str]:
    """Return the SHA-256 of all imported archives.

    `finish`: first finish imports whose keys may not be marked yet.
    """
    digests: set[str] = set()
    for folder in stores.crawl.folders():
        segment = stores.crawl.segment(folder, IMPORT_NODE)
        if segment.exists() and stores.crawl.iteration(folder).kind is Kind.IMPORT:
            if finish and not stores.storage.exists(stores.crawl.at(folder, FileName.INDEX)):
                finish_folder(stores, folder, IMPORT_NODE)
            for entry in segment.manifest().get("history", ()):
                digests.update(file["sha256"] for file in entry.get("files", ()))
    return digests


def finish_folder(stores: Stores, folder: str, node: str) -> None:
    """Mark an import's keys, and commit its folder: steps 4 and 5.

    Repetition is harmless.
    """
    mark_pages(stores, SegmentReader(stores.storage, stores.crawl.segment(folder, node).path))
    reached("curate.import.marked")
    iteration = stores.crawl.folder(folder).iteration()
    commit_iteration(stores, run_id=iteration.run_id, iteration=iteration.iteration)
