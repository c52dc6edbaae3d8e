"""What must hold of a crawl that was killed: the invariants of the design, against the truth and an unbroken crawl.

Each check returns findings: lines that say what is wrong. None is what is hoped for.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import inf
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from warcio.archiveiterator import ArchiveIterator

from crawl_lib.captures import PLACES
from crawl_lib.commoncrawl import COMMONCRAWL_OUTPUT, GRAPHS_OUTPUT
from crawl_lib.config import Config
from crawl_lib.crawldb import CRAWLDB_SCHEMA, Status, newest_version, rebuild
from crawl_lib.crawldir import FileName
from crawl_lib.duplicates import DUPLICATES
from crawl_lib.errors import KrakeError
from crawl_lib.fetch import costs_a_retry
from crawl_lib.frontier import Queue, Take
from crawl_lib.frontier.fairness import positions_of
from crawl_lib.index import INDEX
from crawl_lib.keys import open_key_store
from crawl_lib.linkdb import LINKDB
from crawl_lib.ranks import LINKRANK
from crawl_lib.repair import sweep
from crawl_lib.states import KEY_STATE_OF_OUTCOME, Outcome
from crawl_lib.storage.s3 import PROBE
from crawl_lib.stores import open_stores
from crawl_lib.terms import TERMS
from crawl_lib.text import TEXT_SCHEMA
from crawl_lib.text.stage import text_tables
from crawl_lib.urls import key_of
from crawl_lib.versions import Versions
from demo import LoggedRequest, RequestLog, Truth
from tests.e2e.crawl import Result, check_cdxj, check_counts

EXPORTED = ("urlmapping", "content", "offsets", "webgraph")
RUBBISH = ("take", "leftover", "move", "intake", "new", "put_back", "undecided", "spool")
"""Names that no node's directory has between crawls."""
UNFINISHED_INDEX = ".index.json."
"""What a commit that dies leaves next to the index: a few bytes that no one reads."""
MANY = 5
BUSY = frozenset({429, *range(500, 600)})
"""Answers after which a page is asked for again."""


def some(names: Iterable[object]) -> str:
    """The first few, for a finding."""
    names = sorted(map(str, names))
    return ", ".join(names[:MANY]) + (f" and {len(names) - MANY} more" if len(names) > MANY else "")


def visited(result: Result, truth: Truth, *, doubles: bool) -> Iterator[str]:
    """I1 and I2: each URL of the truth has one final row, no other has, with the outcome it must have."""
    rows = result.visited()
    if lost := set(truth.visits) - set(rows):
        yield f"I1: lost: {some(lost)}"
    if strange := set(rows) - set(truth.visits):
        yield f"I1: not of this web: {some(strange)}"
    if not doubles and (twice := [url for url, count in rows.items() if count > 1]):
        yield f"I2: crawled twice: {some(twice)}"
    wanted = {url: str(outcome) for url, outcome in truth.outcomes().items()}
    wrong = [
        f"{url} {outcome}"
        for url, outcome in result.outcomes().items()
        if wanted.get(url, outcome) != outcome
    ]
    if wrong:
        yield f"I1: outcomes: {some(wrong)}"


def retried(result: Result) -> Iterator[str]:
    """I2 and I5: failures that pass are tried again `retry.max` times at most, before the final row, and counted."""
    tries: dict[str, list[dict[str, Any]]] = defaultdict(list)
    columns = ("url", "outcome", "attempts", "retry_at", "time")
    for segment, manifest in zip(result.segments(), result.manifests(), strict=True):
        rows = result.rows("pages", columns, segment)
        for row in rows:
            tries[row["url"]].append(row)
        waiting = Counter(row["outcome"] for row in rows if row["retry_at"] is not None)
        if waiting != manifest["counts"]["retried"]:
            yield f"I5: {segment}: {waiting} are tried again, and {manifest['counts']['retried']} counted"
    for url, rows in tries.items():
        *before, last = sorted(rows, key=itemgetter("time"))
        costs = sum(costs_a_retry(Outcome(row["outcome"]), row["attempts"]) for row in before)
        if costs > result.config.retry.max:
            yield f"I2: tried again too often: {url} {costs}"
        if last["retry_at"] is not None or any(row["retry_at"] is None for row in before):
            yield f"I2: a final row is not the last one: {url}"


def open_takes(config: Config) -> Iterator[str]:
    """I5: an open take has the lines of the queue that it says, and passed over all others that it looked at."""
    for node in config.servers:
        queue = Queue(Path(config.queue.local_dir) / node, node)
        try:
            take = Take.open(queue.directory) if queue.directory.exists() else None
            if (
                take is not None
                and not (queue.directory / "move").exists()
                and not _has_its_lines(queue, take)
            ):
                yield f"I5: the take of {node} has other lines than its header says: {take.header.runs}"
        except KrakeError as error:
            yield f"I4: {error}"


def _has_its_lines(queue: Queue, take: Take) -> bool:
    state = queue.state()
    if queue.record().last_move == f"take-{take.take_id}" or state != take.header.position_before:
        return True  # the queue has moved on, perhaps to a state of the same numbers
    taken = set(positions_of(take.header.runs))
    lines = [
        line for at, line in enumerate(queue.lines(state, take.header.looked_at)) if at in taken
    ]
    return lines == [*take.lines()] and take.header.looked_at == take.count + take.passed_over


def segments(result: Result) -> Iterator[str]:
    """I3 and I5: manifests count what is there, every record is read by warcio with its digests, none is doubled."""
    try:
        check_counts(result)
        check_cdxj(result)
    except AssertionError as error:
        yield f"I3, I5: {error}"
    for segment, manifest in zip(result.segments(), result.manifests(), strict=True):
        kinds: Counter[str] = Counter()
        seen: Counter[str] = Counter()
        for path in sorted(segment.glob("*.warc.gz")):
            with path.open("rb") as stream:
                for record in ArchiveIterator(stream, check_digests=True):
                    record.content_stream().read()
                    if problems := _digest_problems(record):
                        yield f"I3: {path}: {record.rec_headers.get_header('WARC-Record-ID')}: {problems}"
                    kinds[record.rec_type] += 1
                    if record.rec_type == "metadata":
                        seen[record.rec_headers.get_header("WARC-Target-URI")] += 1
        robots = manifest["counts"]["robots_captures"]
        if kinds["metadata"] != manifest["counts"]["pages"] + robots:
            yield f"I3: {segment}: {kinds['metadata']} groups for {manifest['counts']['pages']} pages, {robots} robots"
        if kinds["request"] != kinds["response"]:
            yield f"I3: {segment}: {kinds['request']} requests and {kinds['response']} responses"
        doubled = [
            url for url, count in seen.items() if count > 1 and not url.endswith("/robots.txt")
        ]
        if doubled:
            yield f"I3: {segment}: records doubled: {some(doubled)}"


def _digest_problems(record: Any) -> list[str]:
    """List what warcio says of digests. It counts the transfer coding into the payload; WARC 1.1 does not."""
    is_chunked = (
        record.http_headers is not None
        and record.http_headers.get_header("Transfer-Encoding") is not None
    )
    return [
        one
        for one in record.digest_checker.problems
        if not (is_chunked and one.startswith("payload digest"))
    ]


def rows(result: Result) -> list[tuple[str, ...]]:
    """Rows of both tables, without times, durations, tries and file positions, and without who found a page first."""
    columns = ["url", "outcome", "status", "mime_detected", "charset", "length", "digest", "title"]
    pages = [row for row in result.rows("pages", [*columns, "retry_at"]) if row["retry_at"] is None]
    links = result.rows(
        "links", ["source", "target", "target_url", "anchor", "rel", "element", "followed", "rule"]
    )
    return sorted(tuple(map(str, row.values())) for row in [*pages, *links])


def exported(result: Result) -> dict[str, str]:
    """Name and SHA-256 of each file of the export `out` that is fixed byte for byte."""
    folder = Path(result.config.dfs_primary) / result.config.export.directory / "out"
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in EXPORTED}


def same_output(result: Result, unbroken: Mapping[str, object], *, doubles: bool) -> Iterator[str]:
    """I4: the tables' rows and the export's bytes are those of the unbroken crawl."""
    if not doubles and rows(result) != unbroken["rows"]:
        yield "I4: rows of pages and links differ from the unbroken crawl's"
    own, other = exported(result), unbroken["exported"]
    if own != other:
        yield f"I4: export differs: {some(name for name in EXPORTED if own[name] != other[name])}"  # type: ignore[index]


def keys(result: Result, truth: Truth) -> Iterator[str]:
    """Every visited URL's key is marked with what became of it, and there are no other keys."""
    with open_key_store(result.config.key_storage) as store:
        states = store.states([key_of(url) for url in truth.visits])
        total = sum(counts.total for counts in store.counts()) // store.replication
    wrong = [
        f"{url} {states.get(key_of(url))}"
        for url, outcome in truth.outcomes().items()
        if states.get(key_of(url)) != KEY_STATE_OF_OUTCOME[Outcome(outcome)]
    ]
    if wrong:
        yield f"keys: wrong states: {some(wrong)}"
    if total != len(truth.visits):
        yield f"keys: {total}, and {len(truth.visits)} URLs"


def believed(result: Result) -> list[tuple[str, ...]]:
    """What the CrawlDb says of each URL, without times, places of captures, and from where a page was found first."""
    names = [
        "url",
        "status",
        "fetch_status",
        "retries",
        "interval_s",
        "signature",
        "redirects",
        "inlinks",
    ]
    version = newest_version(open_stores(result.config))
    assert version is not None
    rows = [row for path in version.paths for row in _read(result, path, names)]
    return [tuple(map(str, row.values())) for row in rows]


HIDDEN_BY_RIGHT = {".locks", ".managed.json", PROBE}
"""The folder of locks, the list that Tantivy keeps of its files, and the object that tries an object store."""


def table(result: Result, unbroken: Mapping[str, Any]) -> Iterator[str]:
    """I1 and I4: the CrawlDb is that of the unbroken crawl, and one that is made again of all segments is the same.

    No key is stored, no list is damaged, and a sweep leaves nothing hidden.
    """
    if unbroken and believed(result) != unbroken["believed"]:
        yield "I4: the CrawlDb differs from the unbroken crawl's"
    stores = open_stores(result.config)
    grown = newest_version(stores)
    assert grown is not None
    names = [name for name in CRAWLDB_SCHEMA.names if name != "score"]
    old = [_unmarked(row) for path in grown.paths for row in _read(result, path, names)]
    again = rebuild(stores, now=datetime.fromtimestamp(grown.manifest["now"], UTC))
    new = [row for path in again.paths for row in _read(result, path, names)]
    if old != new:
        differ = [row["url"] for row, other in zip(old, new, strict=False) if row != other]
        yield f"I4: the CrawlDb that is made again differs: {len(old)} rows, {len(new)}, {some(differ)}"
    with open_key_store(result.config.key_storage) as store:
        if total := sum(counts.total for counts in store.counts()):
            yield f"keys: {total}, and a CrawlDb has none"
    sweep(stores)
    found = [
        path
        for path in Path(result.config.dfs_primary).rglob(".*")
        if path.name not in HIDDEN_BY_RIGHT
    ]
    if left := [str(path) for path in found if not _may_go_on(path)]:
        yield f"left after a sweep: {some(left)}"


def _may_go_on(path: Path) -> bool:
    """Whether an attempt that is not written to the end may be at work on it still: no sweep can tell."""
    is_unfinished_start = (
        path.name.startswith(FileName.START_PREFIX) and not (path / FileName.ITERATION).exists()
    )
    return path.name.startswith(UNFINISHED_INDEX) or is_unfinished_start


def _unmarked(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the CrawlDb with the status of its visits, which it has until `duplicates` marks it again."""
    return {**row, "status": row["fetch_status"]} if row["status"] == Status.DUPLICATE else row


def derived(result: Result) -> dict[str, str]:
    """Return a SHA-256 by name of each output that was made: of its bytes, or without times and places of records."""
    stores = open_stores(result.config)
    newest = {
        family.folder: Versions(stores, family).newest()
        for family in (LINKDB, LINKRANK, DUPLICATES, TERMS)
    }
    found = {name: version.digest for name, version in newest.items() if version is not None}
    ranks = (
        Path(result.config.dfs_primary)
        / result.config.export.directory
        / "out"
        / "pagerank-pages.parquet"
    )
    if ranks.exists():
        found[ranks.name] = _digest(pq.read_table(ranks).to_pylist())
    if (version := newest_version(stores)) is not None:
        names = ["url", "score", "status"]
        found["crawldb"] = _digest(
            [row for path in version.paths for row in _read(result, path, names)]
        )
    if (
        captures := Versions(stores, PLACES).newest()
    ) is not None:  # where they are goes by times of visits
        found["captures"] = _digest(
            [row for path in captures.paths for row in _read(result, path, ["key"])]
        )
    if (
        index := Versions(stores, INDEX).newest()
    ) is not None:  # which of equal texts is found goes by times of visits
        found["index"] = _digest([index.manifest[name] for name in ("pages", "left_out")])
    for folder in GRAPHS_OUTPUT.folders(stores):
        found[folder.path] = _digest(
            [(file["name"], file["sha256"]) for file in folder.read()["files"]]
        )
    for folder in COMMONCRAWL_OUTPUT.folders(
        stores
    ):  # its name is that of the newest iteration, a time
        found[folder.path.partition("/")[0]] = _digest(_as_others_read(result, folder.path))
    if texts := text_tables(stores):
        names = [name for name in TEXT_SCHEMA.names if not _VARYING.fullmatch(name)]
        found["text"] = _digest(
            sorted(repr(row) for path in texts for row in _read(result, path, names))
        )
    return found


_VARYING = re.compile(r"time|fetch_time|(warc|wet)_\w+")
"""Columns of times, and of places that go by times."""


def _as_others_read(result: Result, folder: str) -> list[str]:
    """Return the rows of an index, or the pages and digests of WET files, without times and places.

    Without answers that ask for a later try too: where a kill breaks the fetch of such an answer, the server has told
    a client to wait, no record has the answer, and the page itself comes next.
    """
    place = Path(result.config.dfs_primary) / folder
    tables = (pq.read_table(path, partitioning=None) for path in place.rglob("*.gz.parquet"))
    asked = [row for table in tables for row in _unvarying(table).to_pylist()]
    rows = [repr(row) for row in asked if row["fetch_status"] not in BUSY]
    for path in place.rglob("*.warc.wet.gz"):
        with path.open("rb") as file:
            heads = [
                record.rec_headers
                for record in ArchiveIterator(file)
                if record.rec_type == "conversion"
            ]
        rows += [f"{head['WARC-Target-URI']} {head['WARC-Block-Digest']}" for head in heads]
    return sorted(rows)


def _unvarying(table: pa.Table) -> pa.Table:
    return table.select([name for name in table.column_names if not _VARYING.fullmatch(name)])


def same_derived(own: Mapping[str, str], unbroken: Mapping[str, str]) -> Iterator[str]:
    """I4: what follows from the crawl is that of the unbroken crawl."""
    if own != unbroken:
        names = (name for name in {*own, *unbroken} if own.get(name) != unbroken.get(name))
        yield f"I4: derived tables differ: {some(names)}"


def _digest(rows: object) -> str:
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def _read(result: Result, path: str, names: list[str]) -> list[dict[str, Any]]:
    return list(
        pq.ParquetFile(Path(result.config.dfs_primary) / path).read(columns=names).to_pylist()
    )


def nothing_left(result: Result) -> Iterator[str]:
    """Queues are empty and whole; nothing open or half done lies about."""
    for node in result.config.servers:
        directory = Path(result.config.queue.local_dir) / node
        if (state := (directory / "state").read_text()) != "0\n0\n":
            yield f"queue of {node}: state {state.split()}"
        for name in RUBBISH:
            if (directory / name).exists():
                yield f"queue of {node}: {name} is left"
    for path in Path(result.config.dfs_primary).rglob(".*"):
        is_right = path.name in HIDDEN_BY_RIGHT or path.name.startswith(UNFINISHED_INDEX)
        if path.parent.name.isdecimal() and not is_right:
            yield f"{path}: a hidden folder is left in a committed iteration"


def refetched(log: RequestLog, deaths: Sequence[tuple[float, float]]) -> tuple[int, list[str]]:
    """I2, as the server saw it: how many pages were asked for again because a kill broke their fetch, and findings.

    `deaths`: from when to when processes of crawl tasks died. With one connection a host, the fetch that a kill broke
    is the last request to its host before it.
    """
    by_host: dict[str, list[LoggedRequest]] = defaultdict(list)
    for request in log.requests:
        if request.path != "/robots.txt":
            by_host[request.host].append(request)
    allowed, wrong = 0, []
    for requests in by_host.values():
        last: dict[str, int] = {}
        for number, request in enumerate(requests):
            if request.path in last:
                before = last[request.path]
                until = requests[before + 1].start
                if requests[before].status in BUSY:
                    pass  # tried again, as it should be
                elif any(
                    requests[before].start <= last_s and first_s <= until
                    for first_s, last_s in deaths
                ):
                    allowed += 1
                else:
                    wrong.append(f"{request.host}{request.path}")
            last[request.path] = number
    return allowed, [
        f"I2: fetched again though no kill broke the fetch: {some(wrong)}"
    ] if wrong else []


def polite(
    log: RequestLog,
    delay_s: float,
    delays: Mapping[str, float],
    deaths: Sequence[tuple[float, float]],
) -> Iterator[str]:
    """I6: no two requests to a host are closer than its delay. `delays`: of hosts that ask for more.

    `deaths`: as for `refetched`. The server goes on with an answer that no one waits for any more; for the crawler that
    request ended with the process, and so it does here. Of a process that died while another one did the same task,
    only a span is known in which it died: it may have broken one request of each host.
    """
    for host in log.hosts():
        wanted_s = max(delay_s, delays.get(host, 0.0))
        spans, closest_s, end_s, last_s = list(deaths), inf, -inf, -inf
        for request in (one for one in log.requests if one.host == host):
            broken = next((span for span in spans if span[0] <= last_s <= span[1]), None)
            if request.start - end_s < wanted_s and broken:
                spans.remove(broken)
                end_s = -inf
            else:
                closest_s = min(closest_s, request.start - end_s)
            end_s, last_s = max(end_s, _as_the_crawler_saw(request, deaths).end), request.start
        if wanted_s and closest_s < wanted_s:
            yield f"I6: {host}: a gap of {closest_s:.4f} s, and the delay is {wanted_s} s"


def _as_the_crawler_saw(
    request: LoggedRequest, deaths: Sequence[tuple[float, float]]
) -> LoggedRequest:
    ends = [last_s for _, last_s in deaths if request.start <= last_s < request.end]
    return replace(request, end=min(ends)) if ends else request
