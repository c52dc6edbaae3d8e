"""A fetching process: a share of a take, from URLs to parts of the segment.

The worker reads its task (a JSON line) from standard input, takes back records of an earlier attempt from the spool,
fetches the rest, and writes JSON lines to standard output: progress, at the end `{"final": ...}` or `{"error": ...}`.
Records are in the spool, so the answers have counts only. SIGTERM stops the worker at the next turn of the loop.
After SIGUSR1 (later than its first line) the worker begins no request, waits for requests in flight, and ends.
"""

import asyncio
import gc
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any
from zlib import crc32

import uvloop

from crawl_lib.config import Config, from_mapping
from crawl_lib.errors import KrakeError, StoppedError, os_error
from crawl_lib.fetch import MIN_TTL_S, HostStore, Spans, Turns, boot_id, fetch_all
from crawl_lib.frontier import NodeDirectory, Take
from crawl_lib.records import Fetched, TakenUrl
from crawl_lib.scoring import load_plugins
from crawl_lib.segment import PartWriter, Spool, WarcInfo
from crawl_lib.states import Outcome
from crawl_lib.urls import Chain, Scope, UrlFilter, host_of
from crawl_lib.walls import data_bytes, refuse_calls, set_limits, shut_in
from crawl_lib.worker.aside import Aside
from crawl_lib.worker.page import PageHandler
from crawl_lib.worker.patterns import SIMILAR, Patterns
from crawl_lib.worker.texts import Texts
from crawl_lib.worker.workers import PAUSE_SIGNAL, WorkerDone, WorkerEnd, WorkerTask

PROGRESS_INTERVAL_S = 0.5
LEAST_PAUSED_BYTES = 1 << 20
WORK_BYTES = 256 << 20
"""Memory for pages, rows, links and hosts."""
CONNECTION_BYTES = 256 << 10
FILE_BYTES = 8 << 30
MORE_DESCRIPTORS = 1024


class _Worker:
    """One worker's run. `alone`: called once no process is to be forked any more, before there are threads."""

    def __init__(
        self,
        task: WorkerTask,
        own_bytes: int,
        config: Config,
        alone: Callable[[], object] = lambda: None,
    ) -> None:
        self.task = task
        self.own_bytes = own_bytes
        self.config = config
        self.alone = alone
        self.outcomes = Spool(Path(task.spool), task.prefix).outcomes()
        self.kept = self.outcomes.total()
        self.hosts = NodeDirectory(Path(task.node_dir)).hosts
        self.bytes = 0
        self.stopping = False
        self.pausing = False
        self.most_bytes = 0
        """Where the bytes of answers may go while it pauses."""
        self.left = 0
        self.last_report_s = 0.0

    def run(self) -> WorkerEnd:
        """Take back, fetch, close; returns the counts of the last line."""
        with suppress(
            StoppedError
        ):  # the open part is left as by a kill: its rows are made by the next attempt
            self._work()
        paused = self.pausing and self.left > 0
        return WorkerEnd(**vars(self._done()), stopped=self.stopping, paused=paused)

    def _work(self) -> None:
        task = self.task
        spool, take = Path(task.spool), Take.open(Path(task.node_dir))
        if take is None:
            raise KrakeError(f"{task.node_dir}: the take is gone; run the crawl task again")
        with (
            Aside(
                self.config, spool, self.own_bytes, lambda: self.stopping
            ) as aside,  # before there are threads
            HostStore(
                self.hosts, robots_ttl_s=max(self.config.fetch.robots_ttl_s, MIN_TTL_S)
            ) as self.store,
            PartWriter(
                spool, task.prefix, WarcInfo(**task.info), self.config.segment
            ) as self.writer,
        ):
            own, url_filter = (
                task.nodes.index(task.node),
                UrlFilter(self.config.urls, take.scope(), self.config.traps),
            )
            self.alone()
            self.handler = PageHandler(
                self.config, task.nodes, own, url_filter, self.writer, aside=aside
            )
            most, revisits = self.config.traps.max_equal, self.config.order.revisits
            self.handler.count_texts(Texts(self.store, most, keeps_finders=revisits))
            self.writer.before_close = self.handler.drain
            self.writer.may_close = self.handler.is_empty
            try:
                self.handler.patterns = self._patterns(take)
                finished = Spool(spool, task.prefix).finished_positions() | self._take_back()
                # The same share for every attempt of a take, so the spool's files stay apart; `hash` would differ.
                ours = (
                    t
                    for t in take.urls()
                    if crc32(host_of(t.queued.url).encode()) % task.processes == task.number
                )
                self._visit(ours, finished)
                self.writer.close()
            except BaseException:
                self.handler.large.withdraw()
                raise

    def _patterns(self, take: Take) -> Patterns:
        return Patterns(
            take.header.extra.get("patterns", {}), self.config.traps.max_similar, self.hosts
        )

    def _visit(self, items: Iterable[TakenUrl], finished: Collection[int]) -> None:
        """Fetch unfinished URLs, first those whose patterns have room.

        After these, the pages of the other patterns can be compared.
        """
        self.deadline_s = time.monotonic() + self.task.seconds_left
        patterns = self.handler.patterns
        while True:
            now, later, traps = patterns.divided(items)
            self.handler.texts.know(now)
            self._end([taken for taken in traps if taken.position not in finished], repeat(SIMILAR))
            if fresh := self._admitted([taken for taken in now if taken.position not in finished]):
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    runner.run(self._fetch(fresh))
            if not later or self.stopping or self.close():
                self.left += len(later)
                return
            self.handler.drain()
            patterns.compare(later)
            items = later

    def _take_back(self) -> set[int]:
        """Restore the rows of a part left open by a kill.

        Returns the positions in the part.
        """
        finished: set[int] = set()
        for taken, fetched, position in self.writer.recovered():
            if taken is None:
                self.handler.robots(fetched)
            else:
                self.handler.handle_all([(taken, fetched, position)])
                finished.add(taken.position)
                self.outcomes[fetched.outcome] += 1
                self.kept += 1
            if self.stopping:
                raise StoppedError(
                    "stopped while a spool was read again; run the task again to go on"
                )
        self.report()
        return finished

    def _admitted(self, items: list[TakenUrl]) -> list[TakenUrl]:
        """Return the URLs left unchanged by the chain of `fetch`.

        The other URLs end here, with the rule's name.
        """
        chain = Chain(self.config.urls, Scope.FETCH)
        if chain.is_empty:
            return items
        admitted = self._end(items, (chain.objection(taken.queued.url) for taken in items))
        self.handler.rule_errors.update(chain.errors)
        return admitted

    def _end(self, items: list[TakenUrl], errors: Iterable[str | None]) -> list[TakenUrl]:
        """Have URLs end where something speaks against them; returns the others."""
        others = []
        for taken, error in zip(items, errors, strict=False):
            if error:
                self.on_fetched(
                    taken, Fetched(taken.queued.url, time.time(), Outcome.FILTERED, error=error)
                )
            else:
                others.append(taken)
            if self.stopping:
                raise StoppedError("stopped while rules were asked; run the task again to go on")
        return others

    async def _fetch(self, items: list[TakenUrl]) -> None:
        self.handler.large.attach(asyncio.get_running_loop())
        fetch, retry = self.config.fetch, self.config.retry
        with Turns.of(self.hosts, fetch, shared_spans(self.config)) as turns:
            self.left += await fetch_all(
                items, config=fetch, retry=retry, store=self.store, turns=turns, caller=self
            )
        self.handler.large.detach()

    def objection(self, taken: TakenUrl) -> str:
        """See `Caller`."""
        return self.handler.texts.objection(taken)

    def stop(self) -> bool:
        """See `Caller`."""
        if self.handler.large.failed is not None:
            raise self.handler.large.failed
        return self.stopping or (self.pausing and self.bytes >= self.most_bytes)

    def pause(self) -> None:
        """Begin nothing more: the disk has less room than its watermark.

        Requests in flight may bring a quarter of the watermark, shared among the processes. The rest of it is
        abandoned, and fetched when there is room again.
        """
        self.pausing = True
        share = self.config.watermarks.min_free_local_bytes // (4 * self.task.processes)
        self.most_bytes = self.bytes + max(LEAST_PAUSED_BYTES, share)

    def close(self) -> bool:
        """See `Caller`."""
        return self.pausing or time.monotonic() >= self.deadline_s

    def on_robots(self, fetched: Fetched) -> None:
        """See `Caller`."""
        self.writer.append(None, fetched)
        self.handler.robots(fetched)

    def on_fetched(self, taken: TakenUrl, fetched: Fetched) -> None:
        """See `Caller`."""
        self.handler.add(taken, fetched, self.writer.append(taken, fetched))
        self.outcomes[fetched.outcome] += 1
        self.bytes += len(fetched.head) + len(fetched.body)
        now_s = time.monotonic()
        if now_s - self.last_report_s >= PROGRESS_INTERVAL_S:
            self.last_report_s = now_s
            self.report()

    def report(self) -> None:
        """Say how far it is."""
        say(vars(self._done()))

    def _done(self) -> WorkerDone:
        return WorkerDone(dict(self.outcomes), self.kept, self.bytes)


def say(message: dict[str, Any]) -> None:
    """Write one line to the parent."""
    os.write(1, json.dumps(message).encode() + b"\n")


def shared_spans(config: Config) -> Spans | None:
    """Open the turns shared by nodes.

    The task reserves turns, and the socket to the task carries questions and answers. Call this on a loop.
    """
    if not config.shares_addresses and not config.shares_hosts:
        return None
    spans = Spans(
        lambda name, count, start_s: say({"ask": name, "turns": count, "start_s": start_s}),
        lambda name, rest_s: say({"over": name, "rest_s": rest_s}),
        addresses=config.shares_addresses,
        hosts=config.shares_hosts,
    )
    incoming, rest = os.dup(1), b""

    def hear() -> None:
        nonlocal rest
        *lines, rest = (rest + os.read(incoming, 1 << 16)).split(b"\n")
        for line in map(json.loads, lines):
            spans.give(line["turn"], line["begins_s"], line["ends_s"])

    asyncio.get_running_loop().add_reader(incoming, hear)
    os.set_blocking(1, True)  # the loop has made it one that does not wait, for writing too
    return spans


def build_walls(node_dir: Path, spool: Path) -> None:
    """Restrict this process before it reads a stranger's byte.

    A log line names missing features of the kernel. It may open the spool and the host store of the node's directory
    for writing, and the take. Processes may still be forked, for `Aside`.
    """
    boot_id()  # is kept; in /proc, where everything else is another process's
    lacking = shut_in(
        read=[NodeDirectory(node_dir).take], write=[spool, NodeDirectory(node_dir).hosts]
    )
    for line in filter(None, (lacking, refuse_calls(forks=True, internet=True, limits=True))):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def limit_worker(config: Config, node: NodeDirectory, own_bytes: int) -> None:
    """Limit memory, file sizes and descriptors of this process.

    Limits are several times the need under the config. Up to five copies of a body exist while the record is made. A
    file grows to the size of a WARC file, and by what one page adds; data about hosts grow from take to take.
    `own_bytes`: what the process has now.
    """
    fetch = config.fetch
    connections = fetch.connections + fetch.slow_connections
    known_bytes = (
        sum(path.stat().st_size for path in node.hosts.iterdir()) if node.hosts.is_dir() else 0
    )
    take_bytes = node.take.stat().st_size if node.take.exists() else 0
    set_limits(
        DATA=own_bytes
        + WORK_BYTES
        + 2 * fetch.max_inflight_bytes
        + 8 * fetch.max_body_bytes
        + CONNECTION_BYTES * connections
        + 16 * take_bytes,
        FSIZE=FILE_BYTES + 4 * config.segment.max_warc_bytes + 2 * known_bytes,
        NOFILE=4 * connections + MORE_DESCRIPTORS,
    )


def main() -> int:
    """Run the task from standard input."""
    given = json.loads(sys.stdin.readline())
    own_bytes = data_bytes()
    gc.set_threshold(200_000, 20, 100)
    try:
        config = from_mapping(given["config"], Path("/"), "the task of a worker")
        load_plugins(config.scoring)  # whose modules may lie outside the walls
        limit_worker(config, NodeDirectory(Path(given["node_dir"])), own_bytes)
        build_walls(Path(given["node_dir"]), Path(given["spool"]))
        alone = partial(refuse_calls, forks=False, internet=True, limits=False)
        worker = _Worker(WorkerTask(**given), own_bytes, config, alone)
        signal.signal(signal.SIGTERM, lambda *_: setattr(worker, "stopping", True))
        signal.signal(PAUSE_SIGNAL, lambda *_: worker.pause())
        worker.report()
        say(vars(worker.run()))
    except (KrakeError, OSError) as error:
        say(
            {
                "error": str(
                    error if isinstance(error, KrakeError) else os_error(error, given["spool"])
                )
            }
        )
        return 1
    return 0
