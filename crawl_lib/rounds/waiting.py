"""Waiting URLs of this machine: URLs that are not due yet, hosts in back-off, and until when. Reads only."""

import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import islice

from crawl_lib import fetch
from crawl_lib.config import Config
from crawl_lib.dataclass import dataclass
from crawl_lib.errors import KrakeError, os_errors
from crawl_lib.frontier import Queue, host_of_line
from crawl_lib.stores import node_dir
from crawl_lib.urlfiles import due_of

QUEUE_LINES = 1_000_000
"""Number of a queue's URLs to read."""


@dataclass
class Waiting:
    """What waits. Times are POSIX seconds.

    `hosts`: in back-off; `since`: when the first of them failed, None where unknown. `urls`: that are not due, or whose
    host is in back-off; `until`: when the first of them is due; `last`: when the last one is. `is_part`: whether a
    queue has more URLs than were looked at.
    """

    hosts: int = 0
    since: float | None = None
    urls: int = 0
    until: float | None = None
    last: float | None = None
    is_part: bool = False

    def add_url(self, until: float) -> None:
        """Count a URL."""
        self.urls += 1
        self.until = until if self.until is None else min(self.until, until)
        self.last = max(self.last or 0.0, until)

    def __str__(self) -> str:
        """Return one line for people, "" where nothing waits."""
        now, parts = time.time(), []
        if self.hosts:
            since = f" since {clock_text(self.since, now)}" if self.since is not None else ""
            parts.append(f"{_counted(self.hosts, 'host')} in back-off{since}")
        if self.urls and self.until is not None and self.last is not None:
            until, last = clock_text(self.until, now), clock_text(self.last, now)
            verb = "waits" if self.urls == 1 else "wait"
            least = "at least " if self.is_part else ""
            parts.append(
                f"{least}{_counted(self.urls, 'URL')} {verb} until {until}{' or later' * (last != until)}"
            )
        return ", ".join(parts)


def _counted(count: int, name: str) -> str:
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def clock_text(at: float, now: float) -> str:
    """Return a UTC time to the minute, such as `07:12Z`.

    The text has the day, unless the day is today.
    """
    form = "%H:%MZ" if time.gmtime(at)[:3] == time.gmtime(now)[:3] else "%Y-%m-%dT%H:%MZ"
    return time.strftime(form, time.gmtime(at))


def what_waits(config: Config) -> Waiting:
    """Return what waits on this machine.

    A node that cannot be read at the moment is left out.
    """
    found = Waiting()
    for node in config.servers:
        with suppress(KrakeError):
            _add_node(config, node, found)
    return found


def _add_node(config: Config, node: str, found: Waiting) -> None:
    directory, now = node_dir(config, node), time.time()
    if not directory.is_dir():
        return
    longest_s = config.retry.max_wait_s
    with fetch.read_hosts(directory) as hosts:
        back_offs = hosts.in_back_off(now, longest_s) if hosts else {}
        since = hosts.back_offs_since(now, longest_s) if hosts else None
    found.hosts += len(back_offs)
    found.since = min(filter(None, (found.since, since)), default=None)
    queue = Queue(directory, node)
    with os_errors(directory, "changes at the moment"):
        found.is_part = found.is_part or (queue.exists() and queue.state().length > QUEUE_LINES)
        for _, until in islice(_waiting(queue, back_offs, now), QUEUE_LINES):
            if until > now:
                found.add_url(until)


def _waiting(
    queue: Queue, back_offs: dict[str, float], now: float
) -> Iterator[tuple[bytes, float]]:
    """Yield a queue's first URLs, each with its due time.

    0 where it waits for nothing.
    """
    ends = {host.encode(): until for host, until in back_offs.items()}
    for url, meta in (
        queue.lines(queue.state(), min(QUEUE_LINES, queue.length())) if queue.exists() else ()
    ):
        yield url, max(due_of(meta), ends.get(host_of_line(url), 0.0) if ends else 0.0)


def waits_until(
    config: Config, urls: Collection[str], hosts: Collection[str] = ()
) -> dict[str, float]:
    """Return until when URLs and hosts wait, in POSIX seconds.

    On this machine; for hosts, of the first URL.

    `urls`, `hosts`: canonical. URLs that do not wait are left out, and so are unreadable ones.
    """
    found, now = dict[str, float](), time.time()
    wanted, of_hosts = {url.encode() for url in urls}, {host.encode() for host in hosts}
    for node in config.servers:
        directory = node_dir(config, node)
        if not directory.is_dir():
            continue
        with suppress(KrakeError), os_errors(directory, "changes at the moment"):
            with fetch.read_hosts(directory) as known:
                back_offs = known.in_back_off(now, config.retry.max_wait_s) if known else {}
            for url, until in _waiting(Queue(directory, node), back_offs, now):
                if until <= now:
                    continue
                for name in {url} & wanted | {host_of_line(url)} & of_hosts:
                    found[name.decode()] = min(found.get(name.decode(), until), until)
    return found


def at_once(until: float, what: str) -> str:
    """Return until when something waits, and the command against it.

    `until`: POSIX seconds. A URL or host may wait.
    """
    return (
        f"next try {clock_text(until, time.time())}: `krake retry --now {what}` fetches it at once"
    )
