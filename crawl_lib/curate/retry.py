"""`krake retry`: lists pages whose newest final row is a failure, so that the pages are fetched once more.

`krake retry --now`: makes waiting URLs due at once. A queue lies on its node's disk, so a note in the crawl directory
names URLs and hosts (`crawldir.retrynow`), and the next take of each node follows the note. With a CrawlDb waiting URLs
are in no queue, so a list has these URLs too: first comes the list, then the note.

A list is `<crawl>/lists/<name>/`: lines for the nodes, left as seeds are, which pass the key check and carry the name
of the list; the scope stays unchanged. One rename makes the list visible (`inject.renamed`). Its name comes from its
pages and from the newest iteration: killed, or run twice at once, the command leaves the same list.

A page is not listed while a list later than its newest final row has the page: such a page waits, or is being fetched.
A later command deletes a list once all its nodes have taken the list in and each of its pages has a later row.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha1
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crawl_lib.crawldir import FileName, RetryNow, RetryNowNotes, SegmentRef
from crawl_lib.durable import reached
from crawl_lib.errors import InputError, os_errors
from crawl_lib.fetch import read_hosts
from crawl_lib.frontier import Queue, host_of_line
from crawl_lib.keyarrays import Keys, is_among, key_array, key_bytes
from crawl_lib.keys import KEY_BYTES
from crawl_lib.records import RETRY_LISTS, QueuedUrl, metadata_without_list, steps_of_row
from crawl_lib.repair import keys_of
from crawl_lib.rounds import NodeLayout
from crawl_lib.seeds import Division, check_seeds, hand_over, set_damaged_aside
from crawl_lib.segment import SegmentReader
from crawl_lib.states import Outcome
from crawl_lib.stores import Stores
from crawl_lib.urlfiles import (
    HANDED_ON,
    OUTLINKS_NAME,
    due_of,
    encode_line,
    read_outlinks,
    some_lines,
    url_of_line,
)
from crawl_lib.urls import host_of, key_of

_COLUMNS: dict[str, Any] = {
    "key": pa.binary(KEY_BYTES),
    "time": pa.int64(),
    "segment": pa.int32(),
    "failed": pa.bool_(),
}
_SCHEMA = pa.schema(_COLUMNS)
_LINES = 50_000


@dataclass
class RetryReport:
    """The listed pages, or the pages to list.

    `failed`: pages whose newest final row has the outcome; `listed`: the part in the new list, at `path`; `waiting`:
    the part in an earlier list, and not fetched since. `deleted`: finished lists.
    """

    dry_run: bool
    failed: int = 0
    listed: int = 0
    waiting: int = 0
    path: str = ""
    deleted: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Failures:
    """Which pages: pages with an outcome, of one host or of all.

    `waits`: pages that wait for another try, instead of pages with final failures. For waiting pages an `outcome` of
    None means any, and `url` one page.
    """

    outcome: Outcome | None
    host: str | None = None
    url: str | None = None
    waits: bool = False

    def among(self, batch: pa.RecordBatch) -> Any:
        """Return a column that marks the rows of such pages."""
        is_final: Any = pc.is_null(batch.column("retry_at"))
        found = pc.invert(is_final) if self.waits else is_final
        values = {
            "outcome": self.outcome and self.outcome.value,
            "host": self.host,
            "key": self.url and key_of(self.url),
        }
        for name, value in values.items():
            if value is not None:
                found = pc.and_(
                    found, pc.equal(batch.column(name), pa.scalar(value, batch.column(name).type))
                )
        return found

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the final rows, or with `waits` all rows.

        The newest row of a page counts.
        """
        return batch if self.waits else batch.filter(pc.is_null(batch.column("retry_at")))


@dataclass
class RetryNowReport:
    """Report of URLs due at once, also of a dry run.

    `waiting`: URLs that wait in queues of this machine, and `hosts` in back-off there; `asked`: hosts that stay left
    alone because of their Retry-After, each with the end (POSIX seconds). `until`: when the first of the URLs would be
    due, in POSIX seconds. `elsewhere`: nodes with queues on other machines. `listed`, `path`: the URLs of a list, with
    a CrawlDb. `note`: path of the note; "" without a note.
    """

    dry_run: bool
    waiting: int = 0
    hosts: int = 0
    until: float | None = None
    asked: dict[str, float] = field(default_factory=dict)
    elsewhere: list[str] = field(default_factory=list)
    listed: int = 0
    path: str = ""
    note: str = ""


class _List(NamedTuple):
    """An existing list: its pages, and the newest iteration at the time of the list."""

    name: str
    keys: Keys
    newest: int


def retry(stores: Stores, failures: Failures, *, dry_run: bool = False) -> RetryReport:
    """List failed pages, so that they are fetched once more.

    Raises InputError if nothing was crawled yet, or no page of this host; ConfigError if no iteration may have the
    nodes of the config yet; DamagedFileError naming a segment, StorageError, StoppedError.
    """
    NodeLayout(stores).require()
    segments, report = stores.crawl.segments(), RetryReport(dry_run)
    if not segments:
        raise InputError(
            f"{stores.crawl.path}: nothing was crawled yet, so nothing has failed: run `krake crawl` first"
        )
    lists = _lists(stores, dry_run=dry_run)
    rows = _newest_rows(stores, segments, failures, lists)
    keys, folders = (
        _keys(rows),
        np.array([int(one.folder) for one in segments])[rows.column("segment").to_numpy()],
    )
    failed = np.array(rows.column("failed").to_pylist(), np.bool_)
    waiting = np.zeros(len(keys), np.bool_)
    for one in lists:
        listed = is_among(keys, one.keys)
        waiting |= listed & (folders <= one.newest)
        are_listed = (listed & (folders > one.newest)).sum() == len(one.keys)
        if are_listed and NodeLayout(stores).is_taken_in(one.name, FileName.LISTS):
            _delete(stores, one, report)
    report.failed, report.waiting = int(failed.sum()), int((failed & waiting).sum())
    _hand_over(stores, segments, failures, rows.filter(pa.array(failed & ~waiting)), report)
    return report


def retry_now(
    stores: Stores,
    failures: Failures,
    *,
    ignore_retry_after: bool = False,
    dry_run: bool = False,
    run_id: str | None = None,
) -> RetryNowReport:
    """Make waiting URLs due with the next take.

    This needs a note in the crawl directory, and with a CrawlDb a list.

    `failures`: which of the waiting URLs; final pages are never meant. `ignore_retry_after`: includes hosts with a
    Retry-After. `run_id`: of a run, which makes one note, however often its task is repeated. Expired notes are
    deleted. Raises the errors of `retry`; nothing is fetched yet.
    """
    NodeLayout(stores).require()
    note = RetryNow.made(None, None, ignore_retry_after=ignore_retry_after, run_id=run_id)
    report, longest_s = RetryNowReport(dry_run), stores.config.retry.max_wait_s
    if earlier := [*filter(note.is_of_run, RetryNowNotes(stores.crawl).names(longest_s))]:
        report.note = stores.crawl.at(FileName.RETRY_NOW, earlier[0])
        return report
    if failures.url is not None:
        note = replace(
            note, hosts=frozenset({host_of(failures.url)}), keys=frozenset({key_of(failures.url)})
        )
    elif failures.host is not None:
        note = replace(note, hosts=frozenset({failures.host}))
    segments = (
        stores.crawl.segments() if failures.outcome or stores.config.order.makes_lists else []
    )
    if segments:
        note = _of_rows(stores, segments, failures, note, report)
    elif failures.outcome:
        note = replace(note, hosts=frozenset(), keys=frozenset())
    _look_at_queues(stores, note, report)
    if not dry_run:
        for name in RetryNowNotes(stores.crawl).names(longest_s, over=True):
            stores.storage.delete(stores.crawl.at(FileName.RETRY_NOW, name))
        report.note = RetryNowNotes(stores.crawl).write(note)
    return report


def _of_rows(
    stores: Stores,
    segments: Sequence[SegmentRef],
    failures: Failures,
    note: RetryNow,
    report: RetryNowReport,
) -> RetryNow:
    """Return the note for waiting pages; with a CrawlDb, list them.

    The newest row of such a page says that the page waits.
    """
    lists = _lists(stores, dry_run=report.dry_run) if stores.config.order.makes_lists else []
    rows = _newest_rows(stores, segments, failures, lists)
    rows = rows.filter(rows.column("failed"))
    if stores.config.order.makes_lists:
        keys, folders = (
            _keys(rows),
            np.array([int(one.folder) for one in segments])[rows.column("segment").to_numpy()],
        )
        waiting = np.zeros(len(keys), np.bool_)
        for one in lists:
            waiting |= is_among(keys, one.keys) & (folders <= one.newest)
        listed = RetryReport(report.dry_run)
        _hand_over(stores, segments, failures, rows.filter(pa.array(~waiting)), listed)
        report.listed, report.path = listed.listed, listed.path
    if failures.outcome is None:
        return note
    keys = _keys(rows)
    found = [
        batch.filter(pa.array(is_among(_keys(batch), keys)))
        for _, batch in _rows(stores, segments, failures)
    ]
    hosts = {str(host) for batch in found for host in batch.column("host").to_pylist()}
    return replace(note, hosts=frozenset(hosts), keys=frozenset(map(key_bytes, keys)))


def _look_at_queues(stores: Stores, note: RetryNow, report: RetryNowReport) -> None:
    """Count the URLs and hosts of a note on this machine."""
    now, longest_s = time.time(), stores.config.retry.max_wait_s
    for node in stores.config.servers:
        directory = stores.node_dir(node)
        if not directory.is_dir():
            report.elsewhere.append(node)
            continue
        with read_hosts(directory) as known:
            back_offs = known.in_back_off(now, longest_s) if known else {}
            asked = (
                known.asked_until(now, longest_s) if known and not note.ignore_retry_after else {}
            )
        queue = Queue(directory, node)
        hosts = {host for host in back_offs if note.names_host(host)}
        with os_errors(directory, "changes at the moment; ask again"):
            for url, meta in queue.lines(queue.state()) if queue.exists() else ():
                host = host_of_line(url).decode("ascii", "replace")
                until = max(due_of(meta), back_offs.get(host, 0.0))
                if until > now and note.names_url(url, host):
                    report.waiting += 1
                    report.until = min(report.until or until, until)
                    hosts.add(host)
        report.hosts += sum(host in back_offs for host in hosts)
        report.asked.update({host: until for host, until in asked.items() if host in hosts})


def _lists(stores: Stores, *, dry_run: bool) -> list[_List]:
    """Return this command's complete lists; set other lists of the command aside.

    The URLs of these other lists are listed again.
    """
    crawl, found = stores.crawl, []
    for name in crawl.inbox.lists():
        if not name.startswith(RETRY_LISTS):
            continue
        if (
            check_seeds(crawl, name, FileName.LISTS)
            if dry_run
            else set_damaged_aside(crawl, name, FileName.LISTS)
        ):
            continue
        manifest = crawl.inbox.manifest_if_there(name, FileName.LISTS)
        if manifest is None:
            continue
        where = f"{crawl.inbox.path(name, FileName.LISTS)}/{OUTLINKS_NAME}"
        lines = read_outlinks(stores.storage.open_read(where), where, manifest.accepted)
        keys = (b"".join(keys_of(map(url_of_line, some))) for some in some_lines(lines, _LINES))
        found.append(_List(name, key_array(b"".join(keys)), int(manifest.said["newest"])))
    return found


def _rows(
    stores: Stores, segments: Sequence[SegmentRef], failures: Failures, columns: Sequence[str] = ()
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield rows of `pages` with the place of their segment.

    Some at a time, by iteration, then node.
    """
    done = 0
    for number, segment in enumerate(segments):
        names = ["key", "time", "outcome", "host", "retry_at", *columns]
        for batch in SegmentReader(stores.storage, segment.path).pages(names):
            yield number, failures.rows(batch)
            done += batch.num_rows
            stores.report(reading=segment.path, done=done, unit="pages")


def _newest_rows(
    stores: Stores, segments: Sequence[SegmentRef], failures: Failures, lists: Sequence[_List]
) -> pa.Table:
    """Return the newest row of each failed or listed page.

    Raises InputError: no such host.
    """
    meant, is_known = bytearray(), failures.host is None
    for _, batch in _rows(stores, segments, failures):
        if not is_known:
            is_host = pc.equal(batch.column("host"), pa.scalar(failures.host or ""))
            is_known = bool(pc.any(is_host).as_py())
        meant += _keys(batch.filter(failures.among(batch))).tobytes()
    if not is_known:
        raise InputError(f"{failures.host}: no page of a host of that name was crawled")
    listed = b"".join(one.keys.tobytes() for one in lists)
    wanted, found = key_array(meant + listed), [_SCHEMA.empty_table()]
    for number, batch in _rows(stores, segments, failures):
        some = batch.filter(pa.array(is_among(_keys(batch), wanted)))
        place = pa.array(np.full(some.num_rows, number, np.int32))
        columns = [
            some.column("key"),
            some.column("time").cast(pa.int64()),
            place,
            failures.among(some),
        ]
        found.append(pa.table(columns, schema=_SCHEMA))
    order: Any = [("key", "ascending"), ("time", "ascending"), ("segment", "ascending")]
    rows = pa.concat_tables(found).sort_by(order)
    keys = _keys(rows)
    is_last = np.append(keys[1:] != keys[:-1], True)[: len(keys)]
    return rows.filter(pa.array(is_last))


def _keys(rows: Any) -> Keys:
    return np.array(rows.column("key").to_pylist(), f"S{KEY_BYTES}")


def _delete(stores: Stores, over: _List, report: RetryReport) -> None:
    if not report.dry_run:
        stores.storage.delete(stores.crawl.inbox.path(over.name, FileName.LISTS))
        reached("curate.retry.deleted")
    report.deleted.append(over.name)


def _hand_over(
    stores: Stores,
    segments: Sequence[SegmentRef],
    failures: Failures,
    chosen: pa.Table,
    report: RetryReport,
) -> None:
    """Leave the list. `chosen`: key and segment of each row."""
    report.listed = chosen.num_rows
    if not report.listed:
        return
    newest, keys = stores.crawl.newest(), _keys(chosen)
    name = f"{RETRY_LISTS}{newest}-{sha1(keys.tobytes()).hexdigest()[:12]}"
    report.path = stores.crawl.inbox.path(name, FileName.LISTS)
    places = chosen.column("segment").to_numpy()

    def lines() -> Iterator[bytes]:
        for number, batch in _rows(
            stores, segments, failures, ["url", "via_key", "depth", "metadata", "hop"]
        ):
            here = is_among(_keys(batch), keys[places == number])
            for row in batch.filter(pc.and_(pa.array(here), failures.among(batch))).to_pylist():
                metadata = metadata_without_list(row["metadata"])
                url = QueuedUrl(
                    row["url"], row["via_key"], row["depth"], 0, metadata, list_name=name
                )
                yield encode_line(replace(url, requisite=steps_of_row(row)), HANDED_ON)

    if not report.dry_run:
        facts = {
            "newest": newest,
            "outcome": failures.outcome and failures.outcome.value,
            "host": failures.host,
        }
        hand_over(stores.crawl, name, lines(), Division.of(stores.config), facts=facts, scope=None)
