"""`krake realtime fill`: the table `krakepages` is made again from segments, and rows go to the server of their key.

A lost table, and key servers that were added, need it. The service is stopped meanwhile. The steps, each repeatable:

1. closed parts are collected, so that segments have all fetches;
2. a damaged SQLite file is kept under another name, and missing tables are made;
3. rows on the server of another interval go to their own server, with all that they wait for;
4. each capture in real time of the last `realtime.keep_s` seconds becomes a row, unless the table has a newer one;
5. a row of a redirect gets the document of its target. Without a document there, the row waits for the target, and the
   service fetches the target at its next start.

Lost rows that were only waiting stay lost. Counts of shares, and the names of policies, are lost, too.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from msgspec import structs

from crawl_lib.config import PolicyConfig
from crawl_lib.crawldir import Kind, SegmentRef
from crawl_lib.errors import ConfigError
from crawl_lib.frontier import NodeLock
from crawl_lib.keys import interval, set_aside
from crawl_lib.realtime.arriving import collect_all
from crawl_lib.realtime.collect import collect_parts
from crawl_lib.realtime.documents import (
    Document,
    Request,
    decoded,
    encoded,
    joined,
    request_bytes,
    request_of,
)
from crawl_lib.realtime.fetcher import hop_of
from crawl_lib.realtime.pages import PageServer, Row, part_of
from crawl_lib.realtime.pages_sqlite import SqlitePages
from crawl_lib.realtime.places import FETCHER
from crawl_lib.realtime.protocol import Place
from crawl_lib.realtime.reading import AnswerReader, Told
from crawl_lib.realtime.stages import again_ms, ended, no_target
from crawl_lib.realtime.store import MOST, connect_pages
from crawl_lib.records import Fetched, TakenUrl
from crawl_lib.segment import Position, Recovered, SegmentReader, payload_of
from crawl_lib.states import Outcome
from crawl_lib.stores import Stores
from crawl_lib.urls import UrlFilter, host_of

_POLICY = PolicyConfig(name="default")


@dataclass
class FillReport:
    """The result of a fill. `captures`: read from segments; `filled`: rows made of them, as many as are newer.

    `moved`: rows that went to another server. `redirected`: rows that got the document of a redirect's target;
    `waiting`: rows whose target is to be fetched. `aside`: damaged files that were kept under another name.
    """

    captures: int = 0
    filled: int = 0
    moved: int = 0
    redirected: int = 0
    waiting: int = 0
    aside: int = 0

    def to_mapping(self) -> dict[str, int]:
        """Return the report as JSON has it."""
        return asdict(self)


def fill_table(stores: Stores, *, clock: Callable[[], float] = time.time) -> FillReport:
    """Fill the table from segments. Killed anywhere, the command is run again.

    Raises ConfigError for a crawl without a CrawlDb, LockedError while the service works, KeyStoreError,
    DamagedFileError naming a segment, StorageError, StoppedError.
    """
    config = stores.config
    if not config.order.has_crawldb:
        raise ConfigError(
            "frontier.order: only a crawl of the real-time service has a table, and needs crawldb"
        )
    node = config.servers[0]
    directory = stores.node_dir(node)
    directory.mkdir(parents=True, exist_ok=True)
    with NodeLock(directory, node, config.queue.lock_timeout_s, what="krake realtime fill"):
        collect_parts(stores, FETCHER, clock=clock)
        if config.require_realtime().fetchers:
            collect_all(stores)
        servers = [
            connect_pages(config.key_storage, stores.secrets.key_storage_password, name)
            for name in config.key_storage.servers
        ]
        try:
            return _Fill(stores, servers, clock).run()
        finally:
            for server in servers:
                server.close()


class _Fill:
    def __init__(
        self, stores: Stores, servers: Sequence[PageServer], clock: Callable[[], float]
    ) -> None:
        self.stores, self.servers = stores, servers
        self.since_s = clock() - stores.config.require_realtime().keep_s
        self.reader = AnswerReader(stores.config)
        self.filter = UrlFilter(stores.config.urls, [], stores.config.traps)
        self.report = FillReport()

    def run(self) -> FillReport:
        for server in self.servers:
            self._make(server)
        for place in range(len(self.servers)):
            self._move(place)
        for folder in self.stores.crawl.folders():
            if self.stores.crawl.iteration(folder).kind == Kind.LIVE:
                for node in self.stores.crawl.folder(folder).segments():
                    self._fill(self.stores.crawl.segment(folder, node))
        while self._follow():
            pass
        return self.report

    def _make(self, server: PageServer) -> None:
        if isinstance(server, SqlitePages) and server.damage():
            server.close()
            set_aside(server.path)
            self.report.aside += 1
        server.ensure()

    def _server(self, key: bytes) -> PageServer:
        return self.servers[interval(key, len(self.servers))]

    def _move(self, place: int) -> None:
        """Bring rows to the servers of their keys."""
        server, key = self.servers[place], b""
        while rows := server.rows_after(key, MOST):
            self.stores.go_on()
            self.stores.report(moving=server.name, rows=self.report.moved)
            key = rows[-1].key
            strangers = [row for row in rows if self._server(row.key) is not server]
            self._put(strangers)
            self.report.moved += server.delete([row.key for row in strangers])

    def _put(self, rows: Sequence[Row]) -> int:
        """Write rows on their servers, unless there are newer ones.

        Waiting rows stay, too.
        """
        count = 0
        for server in self.servers:
            own = {row.key: row for row in rows if self._server(row.key) is server}
            for key, row in server.states([*own]).items():
                if row.due_ms is not None or row.fetched_ms >= own[key].fetched_ms:
                    del own[key]
            server.put(
                [(part_of(host_of(request_of(row.request).url)), row) for row in own.values()]
            )
            count += len(own)
        return count

    # -- captures

    def _fill(self, segment: SegmentRef) -> None:
        reader = SegmentReader(self.stores.storage, segment.path)
        for file in reader.warc_files:
            newest: dict[bytes, Row] = {}
            for taken, fetched, position in _captures(reader, file):
                self.stores.go_on()
                self.stores.report(
                    reading=f"{segment.path}/{file}", done=self.report.captures, unit="pages"
                )
                self.report.captures += 1
                if fetched.time >= self.since_s and taken.key not in reader.dropped:
                    row = self._row(taken, fetched, position, newest.get(taken.key))
                    newest |= {} if row is None else {row.key: row}
                if len(newest) >= MOST:
                    self.report.filled += self._put([*newest.values()])
                    newest = {}
            self.report.filled += self._put([*newest.values()])

    def _row(
        self, taken: TakenUrl, fetched: Fetched, position: Position, before: Row | None
    ) -> Row | None:
        """Return the row of a capture.

        None: the visit found no change of an unknown page.
        """
        told = self.reader.read(fetched)
        document = _document(taken, fetched, told, position)
        via = taken.queued.via
        request = Request(
            url=fetched.url, redirects=taken.queued.redirects, via=via.hex() if via else None
        )
        if fetched.outcome is Outcome.NOT_MODIFIED or fetched.revisits is not None:
            before = before or self._server(taken.key).read([taken.key]).get(taken.key)
            if before is None or before.data is None:
                return None
            document = structs.replace(decoded(before.data), hops=document.hops)
        elif told.target is not None:
            if problem := no_target(
                request, told.target, self.filter, self.stores.config.fetch.max_redirects
            ):
                document = ended(document, *problem)
            else:
                request = structs.replace(request, hop=document.hops[0], target=told.target)
        return _row_of(taken.key, request, document, round(1000 * fetched.time))

    # -- redirects

    def _follow(self) -> int:
        """Give rows of redirects the documents of their targets.

        Returns how many rows got a document.
        """
        done = self.report.waiting = 0
        for server in self.servers:
            target = key = b""
            while rows := server.waiting(target, key, MOST):
                self.stores.go_on()
                target, key = rows[-1].waits_for or b"", rows[-1].key
                whole = [one for row in rows if (one := self._whole(row)) is not None]
                server.put([(part_of(host_of(request_of(row.request).url)), row) for row in whole])
                done += len(whole)
                self.report.waiting += len(rows) - len(whole)
        self.report.redirected += done
        return done

    def _whole(self, row: Row) -> Row | None:
        """Return a waiting row with the document of its target.

        None: there is no such document.
        """
        request, target = request_of(row.request), row.waits_for or b""
        rest = self._server(target).read([target]).get(target)
        if rest is None or rest.is_open or rest.data is None or request.hop is None:
            return None
        document = joined(request.url, request.hop, decoded(rest.data))
        return row._replace(waits_for=None, data=encoded(document), again_ms=rest.again_ms)


def _captures(reader: SegmentReader, file: str) -> Iterator[tuple[TakenUrl, Fetched, Position]]:
    """Yield the pages of a WARC file. Raises DamagedFileError."""
    for group in Recovered.groups_of(reader.records(file), file):
        if not isinstance(group, int) and group.taken is not None:
            yield group.taken, group.fetched, group.position


def _document(taken: TakenUrl, fetched: Fetched, told: Told, position: Position) -> Document:
    """Return the document of a capture, as the service had written it."""
    said: dict[str, Any] = {name: value for name, value in vars(told).items() if name != "target"}
    return Document(
        url=fetched.url,
        outcome=fetched.outcome.value,
        final_url=fetched.url,
        hops=[hop_of(taken, fetched)],
        status=fetched.status,
        error=fetched.error,
        retry_at=fetched.retry_at,
        digest=payload_of(fetched).sha1.hex() if fetched.head else None,
        truncated=fetched.truncated,
        warc=Place(warc=position.warc_file, offset=position.offset, length=position.length),
        captured_ms=round(1000 * fetched.time),
        **said,
    )


def _row_of(key: bytes, request: Request, document: Document, fetched_ms: int) -> Row:
    """Return the row of a document.

    The row of a redirect waits for the target.
    """
    target = None if request.target is None else bytes.fromhex(request.target.key)
    good_until_ms = (
        document.retry_at * 1000 if document.retry_at else fetched_ms + again_ms(document, _POLICY)
    )
    return Row(
        key=key,
        due_ms=None,
        fetched_ms=fetched_ms,
        again_ms=good_until_ms,
        shared_ms=fetched_ms,
        tries=0,
        shares=0,
        waits_for=target,
        request=request_bytes(request),
        data=None if target else encoded(document),
    )
