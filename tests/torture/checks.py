"""What must hold of a crawl that was killed: the invariants of the design, against the truth and an unbroken crawl.

Each check returns findings: lines that say what is wrong. None is what is hoped for.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from warcio.archiveiterator import ArchiveIterator

from crawl_lib.keys import open_key_store
from crawl_lib.states import KEY_STATE_OF_OUTCOME, Outcome
from crawl_lib.urls import key_of
from demo import LoggedRequest, RequestLog, Truth
from tests.e2e.crawl import Result, check_cdxj, check_counts

EXPORTED = ("urlmapping", "content", "offsets", "webgraph")
RUBBISH = ("take", "leftover", "move", "intake", "new", "put_back", "undecided", "spool")
"""Names that no node's directory has between crawls."""
UNFINISHED_INDEX = ".index.json."
"""What a commit that dies leaves beside the index: a few bytes that nobody reads."""
MANY = 5


def some(names: Iterable[object]) -> str:
    """The first few, for a finding."""
    names = sorted(map(str, names))
    return ", ".join(names[:MANY]) + (f" and {len(names) - MANY} more" if len(names) > MANY else "")


def visited(result: Result, truth: Truth, *, doubles: bool) -> Iterator[str]:
    """I1 and I2: each URL of the truth has one row, no other has, with the outcome it must have."""
    rows = result.visited()
    if lost := set(truth.visits) - set(rows):
        yield f"I1: lost: {some(lost)}"
    if strange := set(rows) - set(truth.visits):
        yield f"I1: not of this web: {some(strange)}"
    if not doubles and (twice := [url for url, count in rows.items() if count > 1]):
        yield f"I2: crawled twice: {some(twice)}"
    wanted = {url: str(outcome) for url, outcome in truth.outcomes().items()}
    wrong = [f"{url} {outcome}" for url, outcome in result.outcomes().items() if wanted.get(url, outcome) != outcome]
    if wrong:
        yield f"I1: outcomes: {some(wrong)}"


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
                for record in ArchiveIterator(stream, check_digests="raise"):
                    record.content_stream().read()
                    kinds[record.rec_type] += 1
                    if record.rec_type == "metadata":
                        seen[record.rec_headers.get_header("WARC-Target-URI")] += 1
        robots = manifest["counts"]["robots_captures"]
        if kinds["metadata"] != manifest["counts"]["pages"] + robots:
            yield f"I3: {segment}: {kinds['metadata']} groups for {manifest['counts']['pages']} pages, {robots} robots"
        if kinds["request"] != kinds["response"]:
            yield f"I3: {segment}: {kinds['request']} requests and {kinds['response']} responses"
        doubled = [url for url, count in seen.items() if count > 1 and not url.endswith("/robots.txt")]
        if doubled:
            yield f"I3: {segment}: records doubled: {some(doubled)}"


def rows(result: Result) -> list[tuple[str, ...]]:
    """Rows of both tables, without times, durations, tries and file positions, and without who found a page first."""
    pages = result.rows("pages", ["url", "outcome", "status", "mime_detected", "charset", "length", "digest", "title"])
    links = result.rows("links", ["source", "target", "target_url", "anchor", "rel", "element", "followed", "rule"])
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
        if path.parent.name.isdecimal() and not path.name.startswith(UNFINISHED_INDEX):
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
                if requests[before].status >= 500:
                    pass  # tried again, as it should be
                elif any(requests[before].start <= last_s and first_s <= until for first_s, last_s in deaths):
                    allowed += 1
                else:
                    wrong.append(f"{request.host}{request.path}")
            last[request.path] = number
    return allowed, [f"I2: fetched again though no kill broke the fetch: {some(wrong)}"] if wrong else []


def polite(
    log: RequestLog, delay_s: float, delays: Mapping[str, float], deaths: Sequence[tuple[float, float]]
) -> Iterator[str]:
    """I6: no two requests to a host are closer than its delay. `delays`: of hosts that ask for more.

    `deaths`: as for `refetched`. The server goes on with an answer that nobody waits for any more; for the crawler that
    request ended with the process, and so it does here.
    """
    seen = RequestLog([_as_the_crawler_saw(request, deaths) for request in log.requests])
    for host in seen.hosts():
        wanted_s = max(delay_s, delays.get(host, 0.0))
        if wanted_s and (gap_s := seen.closest_gap_s(host)) < wanted_s:
            yield f"I6: {host}: a gap of {gap_s:.4f} s, and the delay is {wanted_s} s"


def _as_the_crawler_saw(request: LoggedRequest, deaths: Sequence[tuple[float, float]]) -> LoggedRequest:
    ends = [last_s for _, last_s in deaths if request.start <= last_s < request.end]
    return replace(request, end=min(ends)) if ends else request
