"""`krake import`: archives of other programs become a segment of this crawl.

How data flows: `segment.read_archive` reads each archive; a response and its request are a page here if the URL is
one that Krake crawls, and the page is in the crawl neither by an earlier archive nor by a fetch. Pages go through the
crawl's own code (`PageHandler`, `PartWriter`), so that rows and links are what a fetch would have left; their hosts do
not widen the scope. The segment is in an iteration's folder of its own, as that of the node `import`.

The steps, each durable before the next:

1. the scratch directory holds a spool; a part per archive is closed, and `progress.json` says which archives are done
   (`repair.import.file`). Killed within an archive, that one is read again.
2. `start` names the folder (`start.renamed`); the run is named by the digests of the archives, so that the same
   command finds it again. The folder comes before the first archive is read, since WARC files carry its name.
3. the segment is built and published, as a node's is (`segment.publish.renamed`);
4. its keys are marked as crawled (`repair.import.marked`): they are not fetched any more;
5. `commit` writes the folder's index (`commit.written`): what was imported in it counts as imported from now on.

Run again it goes on there, also for what an import of other archives left open after step 3. Between 3 and 4 a node
that takes in links at that very moment may queue a URL that was imported: it is fetched once more, and nothing is lost.
"""

import json
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

from crawl_lib.crawldir import IMPORT_NODE, INDEX_FILE, MANIFEST_FILE, Iteration, give_up_name, read_json
from crawl_lib.curate.import_pages import FileReport, ImportedPage, ImportReport, page_of, paired
from crawl_lib.durable import reached, write_durable
from crawl_lib.errors import InputError, os_errors
from crawl_lib.keys import ShardedKeyStore
from crawl_lib.node import mark_pages
from crawl_lib.records import QueuedUrl, TakenUrl
from crawl_lib.repair import is_robots, scratch_base
from crawl_lib.rounds import commit_iteration, start_import
from crawl_lib.segment import (
    PAGES_SUFFIX,
    Manifest,
    PartWriter,
    WarcInfo,
    build_segment,
    file_entry,
    list_parts,
    part_prefix,
    publish,
    read_blocks,
    utc_text,
)
from crawl_lib.states import KeyState
from crawl_lib.stores import Stores
from crawl_lib.urls import UrlFilter
from crawl_lib.version import VERSION
from crawl_lib.worker import PageHandler

PROGRESS_FILE = "progress.json"
SUFFIXES = (".warc", ".warc.gz", ".arc", ".arc.gz")
CHUNK_PAGES = 500
CHUNK_BYTES = 32 << 20


def find_archives(paths: Sequence[str]) -> list[Path]:
    """The archives that paths name: files, and those of the usual names in directories. Raises InputError."""
    found: list[Path] = []
    for text in paths:
        path = Path(text)
        if path.is_dir():
            inside = sorted(one for one in path.rglob("*") if one.name.endswith(SUFFIXES) and one.is_file())
            if not inside:
                raise InputError(f"{path}: no file in it ends with {', '.join(SUFFIXES)}")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise InputError(f"{path}: there is no such file or directory")
    return list(dict.fromkeys(found))


def import_archives(
    stores: Stores,
    paths: Sequence[str],
    *,
    dry_run: bool = False,
    clock: Callable[[], float] = time.time,
) -> ImportReport:
    """Make a segment of archives; those that were imported before are left out.

    Raises InputError naming a path that is not there, ConfigError, KeyStoreError, StorageError; run it again then.
    """
    archives = find_archives(paths)
    report = ImportReport(dry_run=dry_run)
    for folder in unfinished_imports(stores):
        if not dry_run:
            finish_import(stores, folder)
    before = imported_archives(stores)
    new: dict[Path, FileReport] = {}
    for path in archives:
        with os_errors(path, "cannot be read", InputError):
            entry = file_entry(path)
        file = FileReport(str(path), entry["sha256"], entry["size_bytes"])
        report.files.append(file)
        if file.sha256 in before or any(other.sha256 == file.sha256 for other in new.values()):
            file.state = "already_imported"
        else:
            new[path] = file
    _Import(stores, new, report, clock=clock).run()
    return report


class _Import:
    """One import under way."""

    def __init__(
        self,
        stores: Stores,
        files: dict[Path, FileReport],
        report: ImportReport,
        *,
        clock: Callable[[], float],
    ) -> None:
        self.stores, self.files, self.report = stores, files, report
        self.clock = clock
        digests = sorted({file.sha256 for file in report.files})
        names = "\n".join(digests)
        self.run_id = f"import-{sha256(names.encode()).hexdigest()[:32]}"
        # Of its parts in the spool: the same in each attempt, in whatever order the archives are named.
        self.numbers = {digest: number for number, digest in enumerate(digests)}
        self.seen: set[bytes] = set()
        self.position = 0
        self.writer: PartWriter | None = None
        self.handler: PageHandler | None = None

    def run(self) -> None:
        """Read all archives; unless it is a dry run, leave a segment."""
        with ExitStack() as stack:
            self.keys = stack.enter_context(self.stores.keys(make=not self.report.dry_run))
            self.asks = not self.report.dry_run or self.keys.exists()  # a dry run makes no tables
            if self.report.dry_run:
                for path, file in self.files.items():
                    self._read(path, file)
                    file.state = file.state if file.state == "refused" else "readable"
                return
            base = stack.enter_context(scratch_base(self.stores, self.run_id))
            if self.files:
                self.iteration = start_import(self.stores, run_id=self.run_id, clock=self.clock)
                self.room = base / self.iteration.folder  # what was read for a folder that is gone names it
                self.spool = self.room / "spool"
                self._read_all()
                self._publish()
            shutil.rmtree(base, ignore_errors=True)

    # Step 1

    def _read_all(self) -> None:
        done = self._resume()
        for path, file in self.files.items():
            if file.sha256 in done:
                vars(file).update({**done[file.sha256], "name": file.name})
                continue
            prefix = self._prefix(file.sha256)
            with PartWriter(self.spool, prefix, self._info(), self.stores.config.segment, clock=self.clock) as writer:
                self.writer, self.handler = writer, self._handler(writer, self.numbers[file.sha256])
                self._read(path, file)
            done[file.sha256] = {**asdict(file), "position": self.position}
            write_durable(self.room / PROGRESS_FILE, json.dumps(list(done.values())).encode())
            reached("repair.import.file")

    def _resume(self) -> dict[str, dict[str, Any]]:
        """What an earlier attempt says of the archives it had done; their pages are not imported again.

        All else in the spool is deleted; everything, if another import brought one of these archives in since.
        """
        entries: list[dict[str, Any]] = []
        with suppress(FileNotFoundError, ValueError):
            entries = json.loads((self.room / PROGRESS_FILE).read_bytes())
        done = {entry["sha256"]: entry for entry in entries}
        if not done.keys() <= {file.sha256 for file in self.files.values()}:
            done = {}
        if not done:
            shutil.rmtree(self.room, ignore_errors=True)
            self.spool.mkdir(parents=True)
        self.position = max((entry["position"] for entry in done.values()), default=0)
        for digest in self.numbers:
            for part in list_parts(self.spool, self._prefix(digest)):
                if digest in done:
                    for block in read_blocks(part.path(PAGES_SUFFIX)):
                        self.seen.update(block.column("key").to_pylist())  # type: ignore[arg-type]
                else:
                    part.discard_rows()
                    part.warc.unlink(missing_ok=True)
        return done

    def _prefix(self, digest: str) -> str:
        return part_prefix(self.iteration.folder, IMPORT_NODE, self.numbers[digest])

    def _info(self) -> WarcInfo:
        return WarcInfo(VERSION, self.stores.config_digest, "", "", f"{self.iteration.folder}/{IMPORT_NODE}")

    def _handler(self, writer: PartWriter, number: int) -> PageHandler:
        config = self.stores.config
        bare = UrlFilter(config.urls, ())
        hosts = self.stores.crawl.scope(self.iteration)
        scope = bare.with_scope(bare.scope_name(host) for host in hosts)
        own = number % len(config.servers)  # with local routing the finder keeps what it found
        return PageHandler(config, config.servers, own, scope, writer, seeds_widen_scope=False)

    def _read(self, path: Path, file: FileReport) -> None:
        """Import what is to be imported of one archive, and count the rest."""
        chunk: list[ImportedPage] = []
        size = 0
        with os_errors(path), path.open("rb") as archive:
            for page in self._pages(archive, file):
                chunk.append(page)
                size += len(page.fetched.body)
                if len(chunk) >= CHUNK_PAGES or size >= CHUNK_BYTES:
                    self._keep(chunk, file)
                    chunk, size = [], 0
        self._keep(chunk, file)
        if not file.records:
            file.state = "refused"
        elif not file.pages and not file.robots:
            file.state = "nothing"

    def _pages(self, archive: BinaryIO, file: FileReport) -> Iterator[ImportedPage]:
        for response, request in paired(archive, file, self._tell):
            page = page_of(response, request, file)
            if page is None:
                continue
            if is_robots(page.fetched.url):
                file.robots += 1
                if self.writer is not None:
                    self.writer.append_robots(page.fetched)
                continue
            yield page

    def _tell(self, name: str, records: int) -> None:
        if records % 200 == 0:
            self.stores.report(importing=name, records=records)

    def _keep(self, pages: Sequence[ImportedPage], file: FileReport) -> None:
        """Write those pages that are in the crawl neither by an earlier archive nor by a fetch."""
        states = known_states(self.keys, {page.key for page in pages}) if self.asks else {}
        for page in pages:
            if page.key in self.seen:
                file.repeated += 1
                continue
            self.seen.add(page.key)
            state = states.get(page.key)
            if state is not None and state is not KeyState.QUEUED:
                file.known += 1
                continue
            file.pages += 1
            file.waiting += state is KeyState.QUEUED
            if self.writer is not None and self.handler is not None:
                taken = TakenUrl(self.position, page.key, QueuedUrl(page.fetched.url, metadata=page.metadata))
                self.handler.handle(taken, page.fetched, self.writer.append(taken, page.fetched))
            self.position += 1

    # Steps 3 to 5

    def _publish(self) -> None:
        folder, built = self.iteration.folder, self.room / "segment"
        if not any(file.pages or file.robots for file in self.files.values()):
            give_up_name(self.stores.crawl, self.iteration)  # nothing but that is in it
            return
        build_segment(self.spool, built, self._facts(self.iteration), self.stores.config.servers)
        publish(self.stores.storage, self.stores.crawl.at(folder), IMPORT_NODE, self.run_id, built)
        finish_import(self.stores, folder)
        self.report.folder = folder

    def _facts(self, iteration: Iteration) -> Manifest:
        files = [
            {"name": Path(file.name).name, "sha256": file.sha256, "size_bytes": file.size_bytes, "pages": file.pages}
            for file in self.files.values()
            if file.state != "refused"
        ]
        now = utc_text(self.clock())
        return Manifest(
            take_id=self.run_id,
            run_id=self.run_id,
            iteration=iteration.iteration,
            folder=iteration.folder,
            node=IMPORT_NODE,
            krake_version=VERSION,
            config_digest=self.stores.config_digest,
            user_agent="",
            robots_policy="",
            started=now,
            finished=now,
            counts={"taken": self.position, "deferred": 0},
            history=[{"what": "import", "time": now, "krake_version": VERSION, "files": files}],
        )


def known_states(keys: ShardedKeyStore, wanted: Collection[bytes]) -> dict[bytes, KeyState | None]:
    """What the crawl knows of keys. Raises KeyServerDownError: without an answer a page could be imported twice."""
    return keys.states(wanted) if wanted else {}


def _import_folders(stores: Stores) -> Iterator[str]:
    """Folders with an imported segment."""
    for folder in stores.crawl.folders():
        if IMPORT_NODE in stores.crawl.folder(folder).segments():
            yield folder


def unfinished_imports(stores: Stores) -> list[str]:
    """Those whose keys may not be marked yet."""
    return [
        folder for folder in _import_folders(stores) if not stores.storage.exists(stores.crawl.at(folder, INDEX_FILE))
    ]


def imported_archives(stores: Stores) -> set[str]:
    """SHA-256 of all archives that were imported."""
    found: set[str] = set()
    for folder in _import_folders(stores):
        manifest = read_json(stores.storage, f"{stores.crawl.path}/{folder}/{IMPORT_NODE}/{MANIFEST_FILE}")
        for entry in manifest.get("history", ()):
            found.update(file["sha256"] for file in entry.get("files", ()))
    return found


def finish_import(stores: Stores, folder: str) -> None:
    """Steps 4 and 5."""
    mark_pages(stores, stores.crawl.segment(folder, IMPORT_NODE).path)
    reached("repair.import.marked")
    iteration = stores.crawl.folder(folder).iteration()
    commit_iteration(stores, run_id=iteration.run_id, iteration=iteration.iteration)
