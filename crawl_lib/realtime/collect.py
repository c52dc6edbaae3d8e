"""`krake realtime collect`: closed parts of a fetcher become a segment, as imported archives do.

Parts lie in `live/<fetcher>/spool` of the node's directory, closed logs of submissions in `submissions`. The service
may run meanwhile: open parts are left alone.
The steps, each durable before the next:

1. `collect/run.json` names the parts and logs; a digest of the names is the run's id (`realtime.collect.decided`);
2. parts and logs are moved to `collect/spool` and `collect/submissions` (`realtime.collect.moved`);
3. `start` names the folder (`start.renamed`);
4. rows are made from the records, part by part (`segment.part.closed`);
5. the segment is built, with `submissions.parquet`, and published (`segment.publish.renamed`), its keys are marked
   (`curate.import.marked`), and the folder is committed (`commit.written`);
6. `run.json` is deleted (`realtime.collect.ended`), then all else in `collect`.

Run again, `collect` goes on there. A part or log belongs to one run, and a run to one folder. Each fetch and each
submission is in exactly one segment. Logs wait for the first closed part.
"""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import count
from pathlib import Path

from crawl_lib.crawldir import Iteration
from crawl_lib.curate import finish_folder
from crawl_lib.durable import delete_durable, fsync_dir, reached, write_durable
from crawl_lib.errors import LockedError, os_errors
from crawl_lib.frontier import NodeDirectory
from crawl_lib.realtime.places import RUN_FILE, live_spool, live_submissions
from crawl_lib.realtime.submissions import closed_logs, write_submissions
from crawl_lib.rounds import start_live
from crawl_lib.scratch import held
from crawl_lib.sealed import own_file, sealed_json, unsealed
from crawl_lib.segment import Manifest, Part, PartWriter, Spool, WarcInfo, build_segment, publish
from crawl_lib.stores import Stores
from crawl_lib.urls import Rejection, UrlFilter
from crawl_lib.version import VERSION
from crawl_lib.warc import utc_text
from crawl_lib.worker import PageHandler


@dataclass
class CollectReport:
    """The result of a collection. `folder`: of the segment, "" without parts; all others: numbers.

    `unreadable`: lines of logs, such as the torn last one of a killed service.
    """

    name: str
    folder: str = ""
    parts: int = 0
    pages: int = 0
    submissions: int = 0
    unreadable: int = 0


NUMBERS = ("parts", "pages", "submissions", "unreadable")
"""The numbers of a report."""


class NoLinks(UrlFilter):
    """The filter for pages of real time: no link is followed."""

    def verdict(self, url: str, host: str, depth: int) -> tuple[bool, str]:
        """Reject each URL, by the rule `realtime`."""
        return False, Rejection.REALTIME


def collect_parts(
    stores: Stores, name: str, *, clock: Callable[[], float] = time.time
) -> CollectReport:
    """Make a segment of a fetcher's closed parts.

    `name`: of the fetcher, such as `live-0`. Raises LockedError if another collection runs, DamagedFileError for a
    damaged part, StorageError, KeyStoreError, StoppedError; run the command again then.
    """
    node_dir = stores.node_dir(stores.config.servers[0])
    spool, logs = live_spool(node_dir, name), live_submissions(node_dir, name)
    room = NodeDirectory(node_dir).live / name / "collect"
    if not spool.is_dir():
        return CollectReport(name)
    with os_errors(room, "cannot be used"):
        room.mkdir(exist_ok=True)
        try:
            with held(room):
                return _Collection(stores, name, spool, logs, room, clock).run()
        except BlockingIOError as error:
            raise LockedError(
                f"{room}: another collection is at work there; wait for its end"
            ) from error


def read_run(path: Path) -> tuple[str, list[str], list[str]] | None:
    """Return id, parts and logs of an unfinished run, if any.

    Raises DamagedFileError, StorageError.
    """
    if not path.exists():
        return None
    with own_file(path, "not the note of a collection"):
        run = unsealed(path.read_bytes())
        return str(run["run_id"]), list(run["parts"]), list(run.get("submissions", ()))


def _write_run(path: Path, parts: list[str], logs: list[str]) -> str:
    """Write the note of a run; return the run's id.

    The id follows from the names of the parts.
    """
    run_id = f"live-{sha256(chr(10).join(parts).encode()).hexdigest()[:32]}"
    write_durable(path, sealed_json({"run_id": run_id, "parts": parts, "submissions": logs}))
    return run_id


def uncollected(node_dir: Path, name: str) -> set[str]:
    """Return the parts of a fetcher that are in no segment.

    Only committed segments count. Raises DamagedFileError, StorageError.
    """
    run = read_run(NodeDirectory(node_dir).live / name / "collect" / RUN_FILE)
    return {part.stem.name for part in Spool(live_spool(node_dir, name)).parts()} | set(
        run[1] if run else ()
    )


def write_run_again(room: Path) -> None:
    """Write a damaged note of a run again.

    All parts of a run are in the room before anything else is done with them. Raises StorageError.
    """
    with os_errors(room, "cannot be repaired"):
        spool = room / "spool"
        parts = [part.stem.name for part in Spool(spool).parts()] if spool.is_dir() else []
        if parts:
            _write_run(room / RUN_FILE, parts, closed_logs(room / "submissions"))
        else:
            delete_durable(room / RUN_FILE)


@dataclass
class _Collection:
    """The steps of one collection. `room`: the folder of the parts and logs that are collected."""

    stores: Stores
    name: str
    spool: Path
    logs: Path
    room: Path
    clock: Callable[[], float]

    def run(self) -> CollectReport:
        run_id, parts, logs = self.decide()
        if not parts:
            return CollectReport(self.name)
        self.move(parts, logs)
        iteration = start_live(self.stores, run_id=run_id, name=self.name, clock=self.clock)
        self.make_rows()
        pages = len(Spool(self.room / "spool").finished_positions())
        logged = write_submissions(
            [self.room / "submissions" / name for name in logs],
            self.room / Manifest.SUBMISSIONS_NAME,
        )
        self.publish(iteration, pages, logged)
        delete_durable(self.room / RUN_FILE)
        reached("realtime.collect.ended")
        self.clear()
        return CollectReport(
            self.name,
            iteration.folder,
            len(parts),
            pages,
            logged["submissions"],
            logged["unreadable"],
        )

    def decide(self) -> tuple[str, list[str], list[str]]:
        """Return the unfinished run, or begin a new one.

        A new run has all closed parts and logs.
        """
        path = self.room / RUN_FILE
        if run := read_run(path):
            return run
        self.clear()  # of a run that has ended
        parts = [part.stem.name for part in Spool(self.spool).parts() if part.is_rowless]
        logs = closed_logs(self.logs)
        if not parts:
            return "", [], []
        run_id = _write_run(path, parts, logs)
        reached("realtime.collect.decided")
        return run_id, parts, logs

    def clear(self) -> None:
        """Delete the content of the room."""
        for entry in self.room.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    def move(self, parts: list[str], logs: list[str]) -> None:
        """Move parts and logs into the room.

        Each WARC file moves before the note of the part's end.
        """
        files = [
            f"{part}{suffix}"
            for part in parts
            for suffix in (Part.WARC_SUFFIX, Part.ROWLESS_SUFFIX)
        ]
        for source, names in ((self.spool, files), (self.logs, logs)):
            target = self.room / source.name
            target.mkdir(exist_ok=True)
            for name in names:
                if (source / name).exists():
                    (source / name).rename(target / name)
            for folder in (target, self.room, source):
                if folder.is_dir():
                    fsync_dir(folder)
        reached("realtime.collect.moved")

    def make_rows(self) -> None:
        """Make the rows of all parts without rows."""
        config, spool = self.stores.config, self.room / "spool"
        config = replace(
            config, parse=replace(config.parse, facts=True)
        )  # the service's documents have facts, too
        nothing = NoLinks(config.urls, (), config.traps)
        info = WarcInfo(VERSION, self.stores.config_digest, "", "")  # their first records are there
        positions = count(len(Spool(spool).finished_positions()))
        for prefix in sorted({part.stem.name.rpartition("-")[0] for part in Spool(spool).parts()}):
            with PartWriter(spool, prefix, info, config.segment, clock=self.clock) as writer:
                handler = PageHandler(
                    config, config.servers, 0, nothing, writer, seeds_widen_scope=False
                )
                writer.before_close = handler.drain
                self._handle(writer, handler, positions)

    def _handle(self, writer: PartWriter, handler: PageHandler, positions: Iterator[int]) -> None:
        for number, (taken, fetched, position) in enumerate(writer.recovered(positions)):
            self.stores.go_on()
            if taken is not None:
                handler.add(taken, fetched, position)
            self.stores.report(collecting=position.warc_file, done=number, unit="records")

    def publish(self, iteration: Iteration, pages: int, logged: Counter[str]) -> None:
        """Build the segment, make it visible, and finish its folder."""
        stores, now = self.stores, utc_text(self.clock())
        facts = Manifest(
            take_id=iteration.run_id,
            run_id=iteration.run_id,
            iteration=iteration.iteration,
            folder=iteration.folder,
            node=self.name,
            krake_version=VERSION,
            config_digest=stores.config_digest,
            user_agent=stores.config.fetch.user_agent,
            robots_policy=stores.config.fetch.robots,
            started=now,
            finished=now,
            counts={"taken": pages, "deferred": 0},
            history=[{"what": iteration.kind, "time": now, "krake_version": VERSION, **logged}],
        )
        built = self.room / "segment"
        more = stores.crawl.folder(iteration.folder).copy_identity(self.room)
        more += [self.room / Manifest.SUBMISSIONS_NAME] if logged["submissions"] else []
        build_segment(self.room / "spool", built, facts, stores.config.servers, more_files=more)
        publish(stores.storage, stores.crawl.at(iteration.folder), self.name, facts.run_id, built)
        finish_folder(stores, iteration.folder, self.name)
