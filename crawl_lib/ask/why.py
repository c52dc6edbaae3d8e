"""`krake why URL`: all facts about one URL, and so the reason why the URL was crawled, waits, or is not crawled.

Every place with the URL is asked: the newest row of `pages`, the directories of nodes on this machine, sources before
their intake, the key store, and, if none of these has the URL, the links to the URL. A place that cannot be asked from
here is named in a note.
"""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crawl_lib import crawldb
from crawl_lib.ask.page import is_later, newest_rows
from crawl_lib.ask.table import look_up_listing
from crawl_lib.captures import KnownCaptures
from crawl_lib.errors import KrakeError, os_errors
from crawl_lib.export import url_named
from crawl_lib.fetch import deciding_line, read_hosts, rules_of_row
from crawl_lib.frontier import Journal, Queue, Take, full_for
from crawl_lib.index import WHY, why_indexed
from crawl_lib.keys import KEY_BYTES
from crawl_lib.node import waiting_sources
from crawl_lib.parquet import plain_row
from crawl_lib.realtime import row_facts
from crawl_lib.segment import SegmentReader
from crawl_lib.stores import Stores
from crawl_lib.urlfiles import OUTLINKS_NAME, decode_meta, read_outlinks, split_line, url_of_line
from crawl_lib.urls import (
    Budgets,
    Owners,
    Rejection,
    Traps,
    UrlFilter,
    authority_of,
    host_of,
    key_of,
)

LINK_ITERATIONS = 20
"""The number of newest iterations that are searched for a link to an otherwise unknown URL."""
_NOT_FOUND = "was not found: no crawled page links to this URL, and no queue here has this URL"
_NOT_FOUND_LATELY = "was not found: no page of the newest iterations links to this URL, and no queue here has this URL"
Facts = dict[str, Any]
_TOLD = ("outcome", "status", "error", "final_url", "retry_at")
_CAPTURE = (
    *("time", "outcome", "status", "error", "retry_at", "refers_to"),
    *("segment_path", "warc_file", "warc_offset", "warc_length"),
)
_LINK_COLUMNS = ("source", "target", "followed", "rule", "element")


def explain(
    stores: Stores, text: str, *, all_links: bool = False, links_until_s: float = math.inf
) -> Facts:
    """Return the output of `krake why`, for JSON.

    `answer` is the answer in one sentence.

    `url`, `key`, `host`; `owner`: the node of the host, None with local routing; `state`: of the key, or "unknown".
    `waits`: the place of a URL before its fetch: node, place and length of the queue, `due`. `source`: the origin of
    the URL: a page or robots.txt, a list, or injected seeds, and the depth. `scope`: the verdict of rules and scope.
    `robots`: the last robots.txt of the host, and the line that decides; `back_off`: until when the host is left alone,
    and `asked` until when the host asked for this (Retry-After). `at_once`: the command that fetches a waiting URL.
    `capture`: the newest row of `pages`, with the place of its record. `link`: a link to the URL, if no other place has
    the URL. `crawldb`: with a CrawlDb, the result of `look_up_listing`. `realtime`: with a real-time service, the row
    of the service (`row_facts`). `index`: with an index, whether the index has the page, or why not. `notes`: places
    that could not be asked. Unknown facts are None.

    With a table of captures the look-up of a URL is fast, and links are searched only in the newest `LINK_ITERATIONS`
    iterations; `unsearched` is the number of other iterations, which a note names too. `all_links`: search all
    iterations. `links_until_s`: end the search for links at this moment of the monotonic clock.

    Raises InputError for a text that is no URL for Krake, DamagedFileError or StorageError naming a segment.
    """
    url = url_named(stores, text)
    key, host, notes = key_of(url), host_of(url), list[str]()
    owner = (
        Owners(stores.config.servers).owner(host)
        if stores.config.frontier.routing == "host"
        else None
    )
    row = newest_rows(stores, [key]).get(key)
    waits = _waits(stores, owner, url, notes)
    found: Facts = {"url": url, "key": key.hex(), "host": host, "owner": owner}
    found["state"] = _state(stores, key, notes)
    live = _live(stores, key, row, notes)
    found["waits"] = waits
    found["capture"] = None if row is None else plain_row({name: row[name] for name in _CAPTURE})
    searched = None if all_links or KnownCaptures.of(stores) is None else LINK_ITERATIONS
    is_known = row or waits or found["state"] != "unknown" or (live and live["state"] != "unknown")
    found["link"], found["unsearched"] = (
        (None, 0) if is_known else _link(stores, key, searched, links_until_s)
    )
    if left := found["unsearched"]:
        command = f"`krake why --all-links {url}`"
        notes.append(
            f"links on pages of {left:,} older iterations were not searched: {command} does"
        )
    found["source"] = _source(stores, url, waits or (None if row is None else plain_row(row)))
    depth = (found["source"] or found["link"] or {}).get("depth", 0)
    found["scope"] = verdict(stores, url, depth)
    found["full"] = (
        full_here(stores, owner, url, notes) if found["link"] and found["link"]["followed"] else []
    )
    found |= _host(stores, owner, url, host, notes)
    found["at_once"] = _at_once(found)
    if stores.config.order.has_crawldb:
        found["crawldb"] = None
        with _noted(notes):
            found["crawldb"] = {
                name: value for name, value in look_up_listing(stores, url).items() if name != "url"
            }
    if live is not None:
        found["realtime"] = live
    found["index"] = None
    with _noted(notes):
        found["index"] = _in_index(stores, key)
    return {"answer": _answer(found), **found, "notes": notes}


def _live(stores: Stores, key: bytes, row: Facts | None, notes: list[str]) -> Facts | None:
    """Return the real-time table's facts of a URL, or None.

    `row`: the newest capture in a segment. `is_newer`: whether the table knows of a later fetch.
    """
    with _noted(notes):
        found = row_facts(stores, key)
        if found is None:
            return None
        is_newer, document = is_later(found, row), found.pop("document", None) or {}
        told = {name: document[name] for name in _TOLD if document.get(name)}
        return {**found, **told, "is_newer": is_newer}
    return None


def _in_index(stores: Stores, key: bytes) -> str | None:
    """Say whether or why not the newest index has a page.

    The answer is None without an index.
    """
    found = why_indexed(stores, key)
    if found is None:
        return None
    if found.indexed:
        return f"version {found.version} has it"
    why = WHY.get(
        found.reason or "",
        "it was no page when that was made (krake index update makes a newer one)",
    )
    owner = newest_rows(stores, [bytes.fromhex(found.owner)]) if found.owner else {}
    in_place = "".join(f": {row['url']}" for row in owner.values())
    return f"version {found.version} does not have it: {why}{in_place}"


def verdict(stores: Stores, url: str, depth: int, *, as_seed: bool = False) -> Facts:
    """Return the verdict of the config on a URL.

    `accepted`, `by`, and the first matching `rule`, if any.

    `becomes`: the normalised URL, if different; the verdict is on the normalised URL.

    The scope is that of the newest iteration; for a seed, or without an iteration, the scope is the URL's own host.
    """
    host = host_of(url)
    judge = filter_at(stores, host, depth, as_seed=as_seed)
    if (becomes := judge.chain.normalize(url)) != url:
        host = host_of(becomes)
    accepted, by = judge.verdict(becomes, host, depth)
    facts = {
        "accepted": accepted,
        "by": str(by),
        "rule": judge.first_rule(becomes, host) or None,
        "depth": depth,
    }
    return {**facts, "becomes": becomes} if becomes != url else facts


def filter_at(stores: Stores, host: str, depth: int, *, as_seed: bool = False) -> UrlFilter:
    """Return the filter of URLs at a depth.

    The scope is that of the newest iteration, or else `host` alone.
    """
    newest, config = stores.crawl.newest_iteration(), stores.config
    hosts = {host} if as_seed or newest is None else stores.crawl.scopes.read(newest)
    return UrlFilter(config.urls, hosts, config.traps if depth else None)


@contextmanager
def _noted(notes: list[str]) -> Iterator[None]:
    """Turn errors into notes."""
    try:
        yield
    except KrakeError as error:
        notes.append(str(error))


def _state(stores: Stores, key: bytes, notes: list[str]) -> str | None:
    with _noted(notes), stores.key_servers() as keys:
        state = keys.states([key])[key]
        return "unknown" if state is None else state.name.lower()
    return None


def _waits(stores: Stores, owner: str | None, url: str, notes: list[str]) -> Facts | None:
    """Return where a URL waits, as far as this machine sees.

    Such a URL is before its fetch, or being fetched. The owner is asked first; other nodes may have the URL after a
    change of the list of nodes, or with local routing.
    """
    for node in sorted(stores.config.servers, key=lambda node: node != owner):
        directory = stores.node_dir(node)
        if not directory.is_dir():
            if owner in {node, None}:
                notes.append(
                    f"{directory}: not on this machine, or not used yet: the URLs waiting there are unknown here"
                )
            continue
        with _noted(notes), os_errors(directory, "changes at the moment; ask again"):
            for where, count, lines in _waiting_lines(stores, Queue(directory, node)):
                if found := _among(lines, url, where):
                    return {"node": node, "where": where, "of": count, **found}
    return None


def full_here(stores: Stores, owner: str | None, url: str, notes: list[str]) -> list[str]:
    """Return the rules that keep a URL out of its queue.

    Only queues on this machine are asked.

    `notes`: gets the places that could not be asked.
    """
    budgets, traps = Budgets(stores.config.urls), Traps(stores.config.traps)
    found: list[str] = []
    with _noted(notes):
        for node in [owner] if owner else stores.config.servers:
            found += full_for(stores.node_dir(node), budgets, traps, url.encode())
    return found


_Lines = Iterable[tuple[bytes, bytes]]
"""Lines of data, each with its line of meta."""


def _waiting_lines(stores: Stores, queue: Queue) -> Iterator[tuple[str, int | None, _Lines]]:
    """Yield the lines of URLs that wait on a node.

    The name of the place and the number of lines come first.
    """
    take = Take.open(queue.directory)
    if take is not None:
        yield "take", take.count, take.lines()
    if queue.exists():
        state = queue.state()
        yield "queue", state.length, queue.lines(state)
    for name, lines in (("handed_on", queue.handed_on()), ("undecided", queue.undecided())):
        yield name, None, (split_line(line)[:2] for line in lines)
    sources, _ = waiting_sources(
        stores,
        queue.node,
        queue.taken_in(),
        before=None,
        planned=Journal.open_plan(queue.directory),
    )
    for source in sources:
        yield (
            f"{source.folder}/{source.node}",
            None,
            (split_line(line)[:2] for line in source.open()),
        )


def _among(lines: _Lines, url: str, where: str) -> Facts | None:
    wanted = url.encode()
    for place, (line, meta) in enumerate(lines, 1):
        if line == wanted:
            queued = decode_meta(line, meta, where)
            facts = {
                "place": place,
                "due": _utc(queued.due),
                "retries": queued.retries,
                "list": queued.list_name or None,
            }
            return {**facts, "depth": queued.depth, "via_key": queued.via and queued.via.hex()}
    return None


def _utc(seconds: float) -> str | None:
    """Return POSIX seconds in ISO 8601; None for 0."""
    return datetime.fromtimestamp(seconds, UTC).isoformat() if seconds else None


def _source(stores: Stores, url: str, known: Facts | None) -> Facts | None:
    """Return the origin of a URL, if known.

    `known`: the place where the URL waits, or its row.
    """
    if known is None:
        return None
    found: Facts = {"depth": known["depth"], "list": known.get("list")}
    if known["via_key"]:
        return {**found, "page": _page_named(stores, url, bytes.fromhex(known["via_key"]))}
    return {**found, "seeds": _seeds_with(stores, url)}


def _page_named(stores: Stores, url: str, key: bytes) -> str:
    """Return a linking page's URL, or else its key.

    The result is the key if the page's segment is gone.
    """
    robots = f"{authority_of(url)}/robots.txt"
    if key == key_of(robots):
        return robots
    row = newest_rows(stores, [key]).get(key)
    return key.hex() if row is None else str(row["url"])


def _seeds_with(stores: Stores, url: str) -> str | None:
    """Return the run that injected a URL, if known.

    None: an import, or deleted seeds.
    """
    wanted = url.encode()
    for digest in stores.crawl.inbox.seeds():
        manifest = stores.crawl.inbox.manifest(digest)
        where = f"{stores.crawl.inbox.path(digest)}/{OUTLINKS_NAME}"
        lines = read_outlinks(stores.storage.open_read(where), where)
        if any(url_of_line(line) == wanted for line in lines):
            return str(manifest.said.get("run_id", digest))
    return None


def _link(stores: Stores, key: bytes, most: int | None, until_s: float) -> tuple[Facts | None, int]:
    """Find a link to a page, in the newest segment with one.

    A followed link is preferred.

    `most`: the number of newest iterations to search; None: all. `until_s`: begin no iteration after this moment of the
    monotonic clock. Returns None if no page has a link, and then the number of unsearched iterations.
    """
    folders = stores.crawl.folders()[::-1]
    for place, folder in enumerate(stores.until_stopped(folders[:most])):
        if time.monotonic() >= until_s:
            return None, len(folders) - place
        for node in _nodes_of(stores, folder):
            if found := _link_in(stores, stores.crawl.segment(folder, node).path, key):
                return found, 0
    return None, len(folders) - len(folders[:most])


def _link_in(stores: Stores, segment: str, key: bytes) -> Facts | None:
    """Find a link to a page in one segment. `segment`: its path."""
    wanted = pa.scalar(key, pa.binary(KEY_BYTES))
    stores.report(reading=segment)
    for batch in stores.until_stopped(SegmentReader(stores.storage, segment).links(_LINK_COLUMNS)):
        rows: list[Facts] = batch.filter(pc.equal(batch.column("target"), wanted)).to_pylist()
        if rows:
            row = max(rows, key=lambda one: bool(one["followed"]))
            page = newest_rows(stores, [row["source"]]).get(row["source"], {})
            facts = {name: row[name] for name in ("followed", "rule", "element")}
            return {
                "page": page.get("url", row["source"].hex()),
                "depth": page.get("depth", 0) + 1,
                **facts,
            }
    return None


def _nodes_of(stores: Stores, folder: str) -> list[str]:
    """Name the nodes of an iteration's segments, the last one first."""
    return stores.crawl.folder(folder).segments()[::-1]


def _host(stores: Stores, owner: str | None, url: str, host: str, notes: list[str]) -> Facts:
    """Return the stored facts of a host: robots.txt and back-off.

    The host is the URL's.
    """
    config, now = stores.config, time.time()
    found: Facts = {"robots": None, "back_off": None, "asked": None}
    for node in [owner] if owner else config.servers:
        with _noted(notes), read_hosts(stores.node_dir(node)) as store:
            if store is None:
                continue
            until = store.in_back_off(now, config.retry.max_wait_s).get(host)
            asked = store.asked_until(now, config.retry.max_wait_s).get(host)
            found["asked"] = found["asked"] or _utc(asked or 0)
            row = store.robots(authority_of(url))
            found["back_off"] = found["back_off"] or _utc(until or 0)
            if row is not None and config.fetch.robots == "obey":
                found["robots"] = robots_says(row, config.fetch.user_agent, url)
    return found


def robots_says(row: Any, token: str, url: str) -> Facts:
    """Return the verdict of a stored robots.txt on a URL."""
    rules = rules_of_row(row, token)
    refusal = rules.refusal if rules else None
    return {
        "url": f"{row.authority}/robots.txt",
        "fetched": _utc(row.fetched),
        "expires": _utc(row.expires),
        "allowed": bool(rules and not refusal and rules.allows(url)),
        "line": deciding_line(row.body, token, url) or None,
        "error": row.error or (f"{refusal[0]}: {refusal[1]}" if refusal else None),
    }


def _at_once(found: Facts) -> str | None:
    """Return the command that fetches a waiting URL at once.

    None for a URL that does not wait.
    """
    waits, capture = found["waits"], found["capture"]
    times = [waits["due"], found["back_off"]] if waits else [capture and capture["retry_at"]]
    if max(filter(None, times), default="") <= (_utc(time.time()) or ""):
        return None
    return f"krake retry --now {'--ignore-retry-after ' if found['asked'] else ''}{found['url']}"


def _answer(found: Facts) -> str:
    """Return the one-sentence answer."""
    waits, capture, link = found["waits"], found["capture"], found["link"]
    listing, live = found.get("crawldb") or {}, found.get("realtime")
    if waits:
        return _says_waiting(waits, found["back_off"])
    if live and (live["is_newer"] or live["state"] in {"due", "redirected"}):
        return _says_live(live, found["scope"])
    if listing.get("row"):
        return says_listing(listing)
    if capture:
        return _says_capture(
            capture, is_forgotten=found["state"] == "unknown" and "crawldb" not in found
        )
    if found["state"] not in {"unknown", None}:
        return "is known, but in no queue of this machine and no segment: the URL waits elsewhere, or was dropped"
    not_found = _NOT_FOUND_LATELY if found["unsearched"] else _NOT_FOUND
    if live:
        not_found = _says_live(live, found["scope"])
    return _rejected(link, found["full"]) if link else not_found


def _says_waiting(waits: Facts, back_off: str | None) -> str:
    text, times = (
        f"is yet to be fetched: {_where(waits)}",
        [*filter(None, (waits["due"], back_off))],
    )
    return f"{text}, not before {max(times)}" if times else text


def _says_capture(capture: Facts, *, is_forgotten: bool) -> str:
    if capture["retry_at"]:
        return f"failed ({capture['outcome']}), and is tried again after {capture['retry_at']}"
    new = "; forgotten since: fetched again once found or injected" if is_forgotten else ""
    why = f": {capture['error']}" if capture["error"] else ""
    return f"ended as {capture['outcome']}{why}{new}"


def _says_live(live: Facts, scope: Facts) -> str:
    """Return the one sentence about a URL of the real-time service."""
    if live["state"] == "due":
        return f"waits to be fetched in real time: due since {live['due']}"
    if live["state"] == "redirected":
        return f"was redirected, and waits for the document of {live['redirects_to']}"
    if live["state"] == "unknown":
        refused = f"submissions are refused ({scope['by']})"
        return "was not submitted, and no segment has it" if scope["accepted"] else refused
    why = f": {live['error']}" if live.get("error") else ""
    return f"ended as {live.get('outcome')}{why}; a submission after {live['again']} fetches again"


def says_listing(found: Facts) -> str:
    """Return one sentence with the CrawlDb's facts about a URL."""
    row, made = found["row"], found["list"]
    text = f"is {row['status']}, and due {row['fetch_time']}" if row else "is not in the CrawlDb"
    by = f" by {made['held_by']}" if made and "held_by" in made else ""
    if made and made["reason"] == crawldb.Reason.OUTRANKED:
        by = ": better URLs took the places, or a limit refuses this URL; `krake crawldb explain URL` says more"
    if made and "judged_by" in made:
        by += f", judged by version {made['judged_by']}, since the list's own version is gone"
    return f"{text}; list {made['list']}: {made['reason']}{by}" if made else text


def _rejected(link: Facts, full: Sequence[str]) -> str:
    why = f"({link['rule']})"
    if link["rule"] == Rejection.SIMILAR:
        why = f"({link['rule']}: traps.max_equal pages of the domain have the words of this page)"
    if link["followed"]:
        why = f"when it was to be queued ({', '.join(full) or 'by a limit of its host or domain, or a rule of traps'})"
    return f"is not crawled: {link['page']} links to this URL, but Krake rejected the URL {why}"


def _where(waits: Facts) -> str:
    if waits["where"] == "take":
        return f"{waits['node']} has taken it, number {waits['place']:,} of {waits['of']:,}"
    if waits["where"] == "queue":
        return f"number {waits['place']:,} of {waits['of']:,} in the queue of {waits['node']}"
    return f"{waits['node']} has it in {waits['where']}, and takes it in with its next task"
