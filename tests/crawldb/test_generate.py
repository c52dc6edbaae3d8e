"""Lists from the CrawlDb: what they take and why not the rest, their leases, and what is left of them at last."""

from __future__ import annotations

import importlib
import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.config.model import STATUSES
from crawl_lib.crawldb import Reason, Status, WhyListed, explain, generate, look_up
from crawl_lib.crawldb.generate import Generated
from crawl_lib.crawldb.lists import aside_lists, held_urls
from crawl_lib.crawldir import FileName, Settled
from crawl_lib.curate.forget import ForgottenPages, forget
from crawl_lib.dfsfiles import write_json_bytes
from crawl_lib.durable import KILL_VARIABLE
from crawl_lib.errors import ConfigError, DamagedFileError, InputError
from crawl_lib.records import RETRY_LISTS, Earlier, QueuedUrl
from crawl_lib.repair import fsck, repair_crawl, restart_node, sweep
from crawl_lib.rounds import commit_iteration, ended_before, start_iteration
from crawl_lib.seeds import Division, hand_over
from crawl_lib.storage import LocalStorage
from crawl_lib.stores import open_stores
from crawl_lib.urlfiles import (
    HANDED_ON,
    OUTLINKS_NAME,
    TakenIn,
    decode_line,
    encode_line,
    read_outlinks,
)
from crawl_lib.urls import Owners, budget_domain_of, host_of
from tests.crawldb.tables import NOW, at, leave_version, row_of
from tests.curate.test_retry import Sites
from tests.e2e.crawl import Result, make_config, run_iteration
from tests.export.crawls import manifest
from tests.forked import run_forked

DAY = 86400
WEEK = 7 * DAY


def config_of(directory: Path, nodes: int = 1, **sections: Any) -> Config:
    frontier = {"order": "crawldb", **sections.pop("frontier", {})}
    usual: dict[str, Any] = {
        "fetch": {"host_delay_s": 0.0, "robots": "ignore"},
        "crawl": {"max_iterations": 1000},
    }
    return make_config(directory, nodes=nodes, frontier=frontier, **(usual | sections))


def with_generate(config: Config, **options: Any) -> Config:
    return replace(config, generate=replace(config.generate, **options))


def lines_of(config: Config, name: str) -> list[QueuedUrl]:
    """The lines of a list, by node and in their order."""
    stores = open_stores(config)
    where = f"{stores.crawl.inbox.path(name, FileName.LISTS)}/{OUTLINKS_NAME}"
    return [decode_line(line)[0] for line in read_outlinks(stores.storage.open_read(where), where)]


def urls_of(config: Config, name: str) -> set[str]:
    return {queued.url for queued in lines_of(config, name)}


_PARTS: dict[str, Any] = {"counts": {}, "outlinks": {}, "scope_added": [], "files": []}
SEGMENT_MANIFEST = write_json_bytes({**_PARTS, "queue_after": 0})
"""Of a segment without a page."""


def make(
    config: Config, iteration: int = 1, now: int = NOW, run_id: str = "run", **options: Any
) -> Generated:
    return generate(open_stores(config), run_id, iteration, now=at(now), **options)


def test_the_states_of_the_config_are_those_of_the_table() -> None:
    assert tuple(Status) == STATUSES


def test_a_list_goes_to_the_owners_and_says_whose_it_is(tmp_path: Path) -> None:
    config = config_of(tmp_path, 3)
    urls = [f"http://h{number}.example/{page}" for number in range(9) for page in range(3)]
    leave_version(open_stores(config), 4, map(row_of, urls))
    made = make(config)
    assert (made.list, made.listed, made.counts) == ("4-1", 27, {"listed": 27})
    own = open_stores(config).crawl.find("run", 1)
    assert own is not None
    assert made.folder == own.folder == str(NOW)
    manifest = open_stores(config).crawl.inbox.manifest("4-1", FileName.LISTS)
    facts = {
        "run_id": "run",
        "iteration": 1,
        "now": NOW,
        "version": 4,
        "lease_s": WEEK,
        "ends_rounds": False,
    }
    assert {name: manifest.said[name] for name in facts} == facts
    owners = Owners(config.servers)
    counts = Counter(owners.owner(host_of(url)) for url in urls)
    assert {node: part["count"] for node, part in manifest.outlinks.items()} == counts
    lines = lines_of(config, "4-1")
    assert {line.url for line in lines} == set(urls)
    assert {line.list_name for line in lines} == {"4-1"}
    hosts = [host_of(line.url) for line in lines]
    assert sum(one != two for one, two in pairwise(hosts)) > 13, "they are shuffled"
    assert make(config) == made, "run again, it finds its own"
    assert len(open_stores(config).crawl.folders()) == 1


def test_what_a_visit_needs_travels_in_its_line(tmp_path: Path) -> None:
    with ExitStack() as stack:
        site = Sites(stack, 1)
        config = config_of(tmp_path)
        leave_version(open_stores(config), 1, [row_of(site.seeds[0])])
        make(config)
        run_iteration(config, "run", 1)
    [segment] = Result(config).segments()
    [page] = Result(config).rows("pages", ["warc_file", "warc_offset"])
    captured = {
        "capture_segment": f"{segment.parent.name}/{segment.name}",
        "capture_file": page["warc_file"],
        "capture_offset": page["warc_offset"],
        "capture_time": NOW - DAY,
        "capture_digest": b"\1" * 20,
        "etag": '"x"',
    }
    rows = [
        row_of(
            "http://a.example/", retries=2, depth=3, redirects=1, metadata='{"a": "b"}', **captured
        ),
        row_of("http://old.example/", **(captured | {"capture_time": NOW - 91 * DAY})),
        row_of("http://lost.example/", **(captured | {"capture_segment": "1/node-0"})),
        row_of("http://new.example/"),
    ]
    leave_version(open_stores(config), 2, rows)
    found = {line.url: line for line in lines_of(config, make(config, 2).list)}
    first = found["http://a.example/"]
    assert (first.retries, first.depth, first.redirects, first.metadata) == (2, 3, 1, '{"a": "b"}')
    earlier = Earlier.of(first.earlier)
    assert earlier is not None
    assert (earlier.segment, earlier.file, earlier.offset) == tuple(
        captured[f"capture_{name}"] for name in ("segment", "file", "offset")
    )
    assert (earlier.time, earlier.digest, earlier.etag) == (NOW - DAY, "01" * 20, '"x"')
    del found["http://a.example/"]
    assert [line.earlier for line in found.values()] == ["", "", ""], (
        "older than always_s, gone, never captured"
    )


def refusal(row: dict[str, Any], config: Config, leased: dict[str, Any]) -> Reason | None:
    """What speaks against a row by itself."""
    settings, depth = config.generate, config.urls.max_depth
    refused = any(rule.value in row["url"] for rule in config.urls.rules) or (
        depth is not None and row["depth"] > depth
    )
    checks = {
        Reason.NOT_DUE: row["fetch_time"].timestamp() > NOW,
        Reason.FILTER: refused,
        Reason.LEASED: leased.get(row["url"], "") == row["fetched_time"],
        Reason.SCORE: settings.min_score is not None
        and row["score"] < Decimal(str(settings.min_score)),
        Reason.STATUS: settings.statuses is not None and row["status"] not in settings.statuses,
    }
    return next((reason for reason, holds in checks.items() if holds), None)


def domain_of_row(row: dict[str, Any]) -> str:
    return budget_domain_of(row["host"])


def model(
    rows: Sequence[dict[str, Any]], config: Config, leased: dict[str, Any], rooms: dict[str, int]
) -> dict[str, Reason]:
    """What the SQL should say, in Python, row by row. `leased`: by URL, the last visit when it was listed."""
    settings, owners = config.generate, Owners(config.servers)
    said = {row["url"]: reason for row in rows if (reason := refusal(row, config, leased))}
    values = {
        "breadth": lambda row: -row["depth"],
        "score": lambda row: row["score"],
        "age": lambda row: 0,
    }
    worth = {row["url"]: Decimal(values[settings.order](row)) for row in rows}
    turn = Counter[str]()

    def best(some: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(
            some,
            key=lambda row: (turn[row["url"]], -worth[row["url"]], row["fetch_time"], row["key"]),
        )

    def cut(some: list[dict[str, Any]], by: Any, most: Any, reason: Reason) -> list[dict[str, Any]]:
        kept, counts = [], Counter[Any]()
        for row in best(some):
            counts[by(row)] += 1
            if most(by(row)) is not None and counts[by(row)] > most(by(row)):
                said[row["url"]] = reason
            else:
                kept.append(row)
        return kept

    left = [row for row in rows if row["url"] not in said]
    visited = Counter(row["host"] for row in rows if row["fetched_time"])
    failed = Counter(row["host"] for row in rows if row["retries"])
    limits = [most for most in (settings.max_per_host, settings.max_per_failing_host) if most]

    def of_host(host: str) -> int | None:
        return (
            min(limits, default=None) if 2 * failed[host] > visited[host] else settings.max_per_host
        )

    left = cut(left, lambda row: row["host"], of_host, Reason.HOST_LIMIT)
    seen = Counter[str]()
    for row in best(left) if settings.spread else ():
        worth[row["url"]] -= seen[row["host"]]
        seen[row["host"]] += 1
    left = cut(left, domain_of_row, lambda _: settings.max_per_domain, Reason.DOMAIN_LIMIT)
    shared = Counter[Any]()
    for row in best(left) if settings.max_per_domain is None else ():
        node = owners.owner(row["host"])
        shared[node, domain_of_row(row)] += 1
        share = max(
            1, ceil(min(rooms[node], settings.top_n or rooms[node]) / 4), settings.max_per_host or 0
        )
        turn[row["url"]] = (shared[node, domain_of_row(row)] - 1) // share
    left = cut(left, lambda row: owners.owner(row["host"]), rooms.get, Reason.ROOM)
    left = cut(left, lambda row: "", lambda _: settings.top_n, Reason.TOP_N)
    return said | {row["url"]: Reason.LISTED for row in left}


def some_rows(choose: random.Random, count: int) -> list[dict[str, Any]]:
    rows = []
    for number in range(count):
        site = choose.choice("abcdef")
        host = f"{choose.choice(['www', 'm', 'x'])}.{site}.example"
        rows.append(
            row_of(
                f"http://{host}/{number}{choose.choice(['', '', '.zip'])}",
                fetch_time=NOW + choose.choice([-3, -2, -1, 0, 5]) * DAY,
                depth=choose.randrange(6),
                score=Decimal(choose.randrange(20)) / 8,
                status=choose.choice(["unfetched", "fetched", "gone"]),
                fetched_time=(fetched := choose.choice([None, NOW - 9 * DAY])),
                retries=(fetched and choose.choice([0, 0, 1] if site in "abc" else [0, 1, 2])) or 0,
            )
        )
    return rows


@pytest.mark.parametrize("seed", range(12))
def test_each_url_has_the_reason_that_a_model_gives_it(seed: int, tmp_path: Path) -> None:
    """Whatever is set: a list holds exactly `top_n`, or all there are; counters and `explain` say the same."""
    choose = random.Random(seed)
    rules = choose.choice([[], [{"action": "-", "kind": "suffix", "value": ".zip"}]])
    config = config_of(
        tmp_path,
        choose.choice([1, 2, 3]),
        urls={"rules": rules, "max_depth": choose.choice([None, 4])},
    )
    config = replace(config, batch=replace(config.batch, size=choose.choice([5, 40, 1000])))
    rows = some_rows(choose, 300)
    stores = open_stores(config)
    leave_version(stores, 1, rows)
    first = make(with_generate(config, top_n=choose.choice([1, 10])), 1, NOW - DAY)
    leased = {
        row["url"]: row["fetched_time"] for row in rows if row["url"] in urls_of(config, first.list)
    }
    for row in choose.sample(rows, 150):
        row["fetched_time"] = (
            row["fetched_time"] or row_of("http://x/", fetched_time=NOW - 60)["fetched_time"]
        )
    leave_version(stores, 2, rows)
    config = with_generate(
        config,
        top_n=choose.choice([None, 1, 7, 50]),
        order=choose.choice(["breadth", "score", "age"]),
        min_score=choose.choice([None, 0.6]),
        statuses=choose.choice([None, ("unfetched", "gone")]),
        max_per_host=choose.choice([None, 1, 5]),
        max_per_failing_host=choose.choice([None, 1, 3]),
        max_per_domain=choose.choice([None, 2, 9]),
        spread=choose.choice([True, False]),
    )
    part = Counter(Owners(config.servers).owner(host_of(url)) for url in leased)
    rooms = {node: max(0, config.batch.size - part[node]) for node in config.servers}
    said = model(rows, config, leased, rooms)
    made = make(config, 2)
    assert made.counts == Counter(said.values())
    assert urls_of(config, made.list) == {
        url for url, reason in said.items() if reason is Reason.LISTED
    }
    for url in choose.sample(sorted(said), 4):
        found = explain(open_stores(config), url)
        assert (found.list, found.reason) == (made.list, said[url])
        assert found.held_by == (first.list if said[url] is Reason.LEASED else None)
        assert look_up(open_stores(config), url) == looked_up(found)
    for ask in (explain, look_up):
        assert ask(open_stores(config), "http://other.example/").reason is Reason.UNKNOWN


def looked_up(found: WhyListed) -> WhyListed:
    """What `look_up` says where `explain` says this: the same, unless the reason follows from a ranking."""
    return replace(found, reason=Reason.OUTRANKED) if found.reason in RANKED else found


RANKED = {
    Reason.TRAP,
    Reason.HOST_PAGES,
    Reason.DOMAIN_PAGES,
    Reason.DOMAIN_HOSTS,
    Reason.HOST_LIMIT,
}
RANKED |= {Reason.DOMAIN_LIMIT, Reason.ROOM, Reason.TOP_N}


def due(site: str, count: int) -> list[dict[str, Any]]:
    return [row_of(f"http://{site}/{number}", depth=1) for number in range(count)]


RESULTS: dict[Reason, tuple[list[dict[str, Any]], dict[str, Any], dict[str, Any]]] = {
    Reason.LISTED: (due("a.test", 1), {}, {}),
    Reason.NOT_DUE: ([row_of("http://a.test/", fetch_time=NOW + DAY)], {}, {}),
    Reason.FILTER: (due("a.test", 1), {}, {"urls": {"max_depth": 0}}),
    Reason.SCORE: (due("a.test", 1), {"min_score": 0.5}, {}),
    Reason.STATUS: (due("a.test", 1), {"statuses": ("gone",)}, {}),
    Reason.TRAP: (
        [row_of(f"http://a.test/?month={number}", depth=1) for number in range(5)],
        {},
        {"traps": {"max_dates": 3}},
    ),
    Reason.HOST_PAGES: (due("a.test", 3), {}, {"urls": {"max_pages_per_host": 2}}),
    Reason.DOMAIN_PAGES: (
        due("a.test", 2) + due("b.a.test", 2),
        {},
        {"urls": {"max_pages_per_domain": 3}},
    ),
    Reason.DOMAIN_HOSTS: (
        due("b.a.test", 2) + due("c.a.test", 2),
        {},
        {"urls": {"max_hosts_per_domain": 1}},
    ),
    Reason.HOST_LIMIT: (due("a.test", 3), {"max_per_host": 2}, {}),
    Reason.DOMAIN_LIMIT: (due("a.test", 3), {"max_per_domain": 2}, {}),
    Reason.ROOM: (due("a.test", 3), {}, {"batch": {"size": 2}}),
    Reason.TOP_N: (due("a.test", 3), {"top_n": 2}, {}),
}
"""Rows of a version, options of `generate` and other sections with which a list has that reason."""


@pytest.mark.parametrize("reason", RESULTS)
def test_a_look_up_says_what_explain_says_or_that_others_took_the_places(
    reason: Reason, tmp_path: Path
) -> None:
    rows, options, sections = RESULTS[reason]
    config = with_generate(config_of(tmp_path, **sections), **options)
    leave_version(open_stores(config), 1, rows)
    make(config)
    found = [explain(open_stores(config), row["url"]) for row in rows]
    assert reason in {one.reason for one in found}
    assert [look_up(open_stores(config), row["url"]) for row in rows] == [
        looked_up(one) for one in found
    ]


def test_with_the_version_of_a_list_deleted_a_look_up_says_which_one_it_asked(
    tmp_path: Path,
) -> None:
    config = config_of(tmp_path)
    stores = open_stores(config)
    later = row_of("http://b.test/", fetch_time=NOW + DAY)
    leave_version(stores, 1, [*due("a.test", 2), later])
    make(config)
    leave_version(stores, 2, [row_of("http://a.test/0", fetch_time=NOW + DAY), later])
    assert look_up(stores, "http://a.test/0").judged_by is None
    stores.storage.delete(f"{stores.crawl.at('crawldb')}/1")
    wanted = {
        "a.test/0": "listed",
        "a.test/1": "listed",
        "b.test/": "not_due",
        "c.test/": "unknown",
    }
    for place, reason in wanted.items():
        url = f"http://{place}"
        found = look_up(stores, url)
        assert found == explain(stores, url)
        assert (found.reason, found.judged_by) == (reason, 2)


def test_the_kth_url_of_a_host_counts_less(tmp_path: Path) -> None:
    """10, 10, 10 next to 8, 8 become 10, 9, 8 next to 8, 8."""
    config = with_generate(config_of(tmp_path), order="score", top_n=3, spread=True)
    rows = [
        row_of(f"http://a.example/{n}", score=Decimal(10), fetch_time=NOW - n) for n in range(3)
    ]
    rows += [
        row_of(f"http://b.example/{n}", score=Decimal(8), fetch_time=NOW - 10) for n in range(2)
    ]
    leave_version(open_stores(config), 1, rows)
    found = Counter(host_of(url) for url in urls_of(config, make(config).list))
    assert found == {"a.example": 2, "b.example": 1}, (
        "10, 9, and an 8 that has waited longer than the third of a"
    )


def test_a_node_gets_no_more_than_its_batch_has_room_for(tmp_path: Path) -> None:
    """Of what its queue holds, as its newest segment says, and of lists that it has yet to take in."""
    with ExitStack() as stack:
        site = Sites(stack, 1)
        config = config_of(
            tmp_path, batch={"size": 4}, fetch={"host_delay_s": 1.0, "robots": "ignore"}
        )
        config = replace(config, batch=replace(config.batch, time_limit_s=1.0, max_per_host=9))
        leave_version(
            open_stores(config), 1, [row_of(f"{site.seeds[0]}p{number}") for number in range(20)]
        )
        assert make(config, 1).counts == {"listed": 4, "room": 16}
        assert make(config, 1, run_id="other").counts == {"leased": 4, "room": 16}, (
            "nothing is taken in yet"
        )
        left = run_iteration(config, "run", 1)["deferred"]
    assert left > 0
    assert make(config, 2).counts == {"leased": 4, "listed": 4 - left, "room": 12 + left}


def test_filters_for_the_crawldb_hold_for_lists(tmp_path: Path) -> None:
    (tmp_path / "suffixes").write_text("+\n.zip\n")
    config = config_of(
        tmp_path,
        urls={"filters": {"crawldb": [{"kind": "suffix", "file": str(tmp_path / "suffixes")}]}},
    )
    urls = ["http://a.example/1.zip", "http://a.example/2"]
    leave_version(open_stores(config), 1, map(row_of, urls))
    made = make(config)
    assert sum(made.counts.values()) == 2
    refused = {url for url in urls if explain(open_stores(config), url).reason is Reason.FILTER}
    assert refused == {*urls} - urls_of(config, made.list)
    assert len(refused) == 1


def test_several_lists_of_one_version_share_no_url(tmp_path: Path) -> None:
    config = with_generate(config_of(tmp_path), top_n=3)
    leave_version(open_stores(config), 1, (row_of(f"http://a.example/{n}") for n in range(8)))
    made = [make(config, number, run_id=f"run-{number}") for number in (1, 2, 3)]
    assert [one.list for one in made] == ["1-1", "1-2", "1-3"]
    lists = [urls_of(config, one.list) for one in made]
    assert [len(one) for one in lists] == [3, 3, 2]
    assert len(set.union(*lists)) == 8


def test_a_lease_ends_with_its_time_or_with_a_visit_that_a_version_has_seen(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    stores = open_stores(config)
    leave_version(stores, 1, [row_of("http://a.example/"), row_of("http://b.example/")])
    make(config, 1)
    leave_version(
        stores,
        2,
        [row_of("http://a.example/", fetched_time=NOW - 9000), row_of("http://b.example/")],
    )
    made = make(config, 2, NOW + 60)
    assert (made.counts, urls_of(config, made.list)) == (
        {"listed": 1, "leased": 1},
        {"http://a.example/"},
    )
    assert make(config, 3, NOW + WEEK - 1).counts == {"leased": 2}
    made = make(config, 4, NOW + WEEK)
    assert urls_of(config, made.list) == {"http://b.example/"}, (
        "a.example was listed a minute later"
    )


def test_rounds_end_when_nothing_is_due_and_nothing_waits(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    stores = open_stores(config)
    leave_version(stores, 1, [row_of("http://a.example/", fetch_time=NOW + 90)])
    made = make(config, 3)
    assert (made.listed, made.folder, made.counts) == (0, "", {"not_due": 1})
    assert made.ended == f"nothing is due before {at(NOW + 90):%Y-%m-%dT%H:%M:%SZ}"
    assert stores.crawl.folders() == [], "no iteration begins"
    assert make(config, 3, NOW + DAY) == made, "a clear repeats it"
    assert ended_before(stores, run_id="run", iteration=3) == made.ended
    assert ended_before(stores, run_id="run", iteration=4) == made.ended
    assert ended_before(stores, run_id="run", iteration=2) == ""
    assert ended_before(stores, run_id="other", iteration=3) == ""
    assert make(config, 1, NOW + DAY, "other").listed == 1
    assert ended_before(stores, run_id="other", iteration=1) == ""
    waits = make(config, 2, NOW + DAY, "other")
    assert (waits.listed, bool(waits.ended)) == (0, False), "a list has yet to be taken in"


def test_before_the_first_version_and_in_odd_orders(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    with pytest.raises(InputError, match="has no CrawlDb yet"):
        make(config)
    with pytest.raises(InputError, match="no list was made yet"):
        explain(open_stores(config), "http://a.example/")
    with ExitStack() as stack:
        site = Sites(stack, 1)
        leave_version(open_stores(config), 1, [row_of(site.seeds[0])])
        start_iteration(open_stores(config), run_id="run", iteration=1)
        made = make(config)
        assert made.folder == open_stores(config).crawl.newest()
        run_iteration(config, "run", 1)
        shutil.rmtree(Path(config.dfs_primary) / "crawl" / FileName.LISTS / made.list)
        assert make(config) == Generated(None, made.folder, 0, {}), "it was committed"
    with pytest.raises(ConfigError, match="max_iterations"):
        make(config, 1001)


def test_two_at_once_share_no_url(tmp_path: Path) -> None:
    """The second one publishes while the first one is about to."""
    config = with_generate(config_of(tmp_path), top_n=2)
    leave_version(open_stores(config), 1, (row_of(f"http://a.example/{n}") for n in range(3)))
    room = importlib.import_module("crawl_lib.seeds.inject")
    before = room.reached
    calls = []

    def meanwhile(step: str) -> None:
        before(step)
        if step == "inject.written" and not calls:
            calls.append(step)
            calls.append(make(config, 1, run_id="faster"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "reached", meanwhile)
        made = make(config, 1, run_id="slower")
    faster = calls[1]
    assert (faster.list, made.list) == ("1-1", "1-2")
    assert (faster.listed, made.counts) == (2, {"listed": 1, "leased": 2})
    assert not urls_of(config, "1-1") & urls_of(config, "1-2")


def test_a_list_of_a_version_that_comes_meanwhile_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = with_generate(config_of(tmp_path), top_n=2)
    rows = [row_of(f"http://a.example/{n}") for n in range(3)]
    leave_version(open_stores(config), 1, rows)
    room = importlib.import_module("crawl_lib.crawldb.generate")
    before, calls = room._read, list[Any]()

    def meanwhile(engine: Any) -> Any:
        found = before(engine)
        if not calls:
            calls.append({})
            leave_version(open_stores(config), 2, rows)
            calls.append(make(config, 1, run_id="faster"))
        return found

    monkeypatch.setattr(room, "_read", meanwhile)
    made = make(config, 1, run_id="slower")
    assert (calls[1].list, made.list) == ("2-1", "2-2")
    assert not urls_of(config, "2-1") & urls_of(config, "2-2")


@pytest.mark.parametrize("read", [*range(1, 5), 99])
def test_a_list_that_another_run_deletes_meanwhile_is_over(
    read: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list vanishes before one of its files is read: its manifest, its keys, or its manifest again."""
    config = config_of(tmp_path)
    stores = open_stores(config)
    leave_version(stores, 1, [row_of("http://a.example/"), row_of("http://b.example/")])
    make(config, 1)
    later = [row_of(f"http://{name}.example/", fetched_time=NOW - 9000) for name in "ab"]
    leave_version(stores, 2, later)
    folder, reads = (
        stores.storage.local_path(stores.crawl.inbox.path("1-1", FileName.LISTS)),
        list[str](),
    )
    before = LocalStorage.read_bytes

    def meanwhile(storage: LocalStorage, path: str) -> bytes:
        if "/1-1/" in path:
            reads.append(path)
            if len(reads) == read:
                shutil.rmtree(folder)
        return before(storage, path)

    monkeypatch.setattr(LocalStorage, "read_bytes", meanwhile)
    made = make(config, 1, NOW + 60, run_id="other")
    assert (made.list, made.listed) == ("2-1", 2)
    assert len(reads) >= min(read, 2)


def _killed(config: Config, kill_at: str) -> None:
    os.environ[KILL_VARIABLE] = kill_at
    make(config, 2, NOW + WEEK)


STEPS = [
    "crawldb.generate.deleted",
    "start.written",
    "start.decided",
    "start.renamed",
    "inject.written",
    "inject.renamed",
]


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_each_step(step: str, tmp_path: Path) -> None:
    config = replace(
        config_of(tmp_path), crawldb=replace(config_of(tmp_path).crawldb, keep_versions=1)
    )
    stores = open_stores(config)
    rows = [row_of(f"http://a.example/{n}") for n in range(3)]
    leave_version(stores, 1, rows)
    make(config, 1)
    stages.settle_node(stores, node="node-0")
    leave_version(stores, 2, rows)
    assert run_forked(_killed, config, step) == -9
    made = make(config, 2, NOW + WEEK)
    assert (made.list, made.listed) == ("2-1", 3)
    assert stores.crawl.inbox.lists() == ["2-1"]
    assert [stores.crawl.folder(name).iteration().iteration for name in stores.crawl.folders()] == [
        1,
        2,
    ]


def test_a_damaged_list_is_named_and_a_repair_lists_its_urls_again(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    leave_version(open_stores(config), 1, [row_of("http://a.example/")])
    made = make(config)
    folder = Path(config.dfs_primary) / "crawl" / FileName.LISTS / made.list
    for name, data in (("listed.parquet", b"x"), ("outlinks", b"x"), ("manifest.json", b"{")):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(data)
        [finding] = [
            one for one in fsck(open_stores(config)).findings if one.name == "seeds_damaged"
        ][:1]
        assert (
            finding.repair
            == "run `krake fsck --repair`: that puts this folder aside, and its URLs are listed again"
        )
        if name != "outlinks":
            with pytest.raises(DamagedFileError, match="krake fsck"):
                make(config, 2)
        (folder / name).write_bytes(whole)
    (folder / "listed.parquet").write_bytes(b"x")
    repair_crawl(open_stores(config))
    assert fsck(open_stores(config)).findings == []
    again = make(config)
    assert (again.list, again.listed) == ("1-2", 1), (
        "under another name: nodes may have taken the first one in"
    )


def test_what_all_nodes_have_begun_with_stays_leased_when_its_list_is_set_aside(
    tmp_path: Path,
) -> None:
    config = config_of(tmp_path, 2)
    leave_version(
        open_stores(config), 1, [row_of(f"http://h{number}.example/") for number in range(9)]
    )
    made = make(config)
    (Path(config.dfs_primary) / "crawl" / FileName.LISTS / made.list / "outlinks").write_bytes(b"x")
    repair_crawl(open_stores(config))
    segments = [
        open_stores(config).crawl.segment(made.folder, node).path for node in config.servers
    ]
    for path in segments:
        folder = Path(config.dfs_primary) / path
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_bytes(SEGMENT_MANIFEST)
    held = aside_lists(open_stores(config))
    assert [one.name for one in held] == [made.list]
    assert held_urls(open_stores(config), held, NOW).num_rows == 9
    assert held_urls(open_stores(config), held, NOW + WEEK).num_rows == 0
    assert sweep(open_stores(config), damaged=True, clock=lambda: NOW).deleted == []
    kept = Path(config.dfs_primary) / "crawl" / FileName.LISTS / held[0].folder
    make(config, 2, NOW + WEEK)
    assert kept.is_dir(), "it is damaged: only a sweep deletes it"
    deleted = [f"crawl/lists/{held[0].folder}"]
    assert (
        sweep(open_stores(config), damaged=True, dry_run=True, clock=lambda: NOW + WEEK).deleted
        == deleted
    )
    shutil.rmtree(Path(config.dfs_primary) / segments[1])
    assert aside_lists(open_stores(config)) == [], (
        "else what that node has not read would wait for a week"
    )
    assert sweep(open_stores(config), damaged=True, clock=lambda: NOW).deleted == deleted
    assert not kept.exists()


def test_rounds_do_not_end_while_a_list_of_retry_waits(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    leave_version(open_stores(config), 1, [row_of("http://a.example/", fetch_time=NOW + WEEK)])
    name = f"{RETRY_LISTS}0-0123"
    line = encode_line(QueuedUrl("http://a.example/", list_name=name), HANDED_ON)
    facts = {"newest": "0", "outcome": "timeout", "host": None}
    hand_over(open_stores(config).crawl, name, [line], Division.of(config), facts=facts, scope=None)
    made = make(config)
    assert (bool(made.ended), made.listed, made.folder) == (False, 0, str(NOW))
    segment = (
        Path(config.dfs_primary) / open_stores(config).crawl.segment(made.folder, "node-0").path
    )
    segment.mkdir(parents=True)
    (segment / "manifest.json").write_bytes(SEGMENT_MANIFEST)
    assert make(config, 2).ended, "it was taken in, and fetched"


def test_there_is_nothing_to_forget(tmp_path: Path) -> None:
    stores = open_stores(config_of(tmp_path))
    with (
        stores.keys() as keys,
        pytest.raises(ConfigError, match=r"crawldb\.seeds: overwrite and inject"),
    ):
        forget(stores, keys, ForgottenPages(["http://a.example/"]))


def test_a_version_that_is_damaged_is_passed_over(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    leave_version(open_stores(config), 1, [row_of("http://a.example/")])
    leave_version(open_stores(config), 2, [row_of("http://a.example/")])
    (Path(config.dfs_primary) / "crawl" / "crawldb" / "2" / "manifest.json").write_bytes(b"{")
    assert make(config).list == "1-1"


def test_many_lists_leave_nothing(tmp_path: Path) -> None:
    """Neither in the crawl directory nor in a node's record; one that is not over stays."""
    config = replace(
        config_of(tmp_path), crawldb=replace(config_of(tmp_path).crawldb, keep_versions=1)
    )
    stores = open_stores(config)
    with ExitStack() as stack:
        site = Sites(stack, 1)
        sizes = []
        for number in range(1, 9):
            visited = NOW + number if number > 1 else None
            rows = [
                row_of(site.seeds[0], fetched_time=visited),
                row_of("http://127.0.0.1:1/", fetch_time=NOW + 2 * WEEK),
            ]
            leave_version(stores, number, rows)
            made = make(config, number, NOW + number)
            assert made.listed == 1
            run_iteration(config, "run", number)
            stages.settle_node(open_stores(config), node="node-0")
            record = json.loads(
                (Path(config.queue.local_dir) / "node-0" / "state.krake").read_bytes()
            )
            sizes.append(sum("-" in name for name in record["taken_in"]["complete"]))
            assert len(stores.crawl.inbox.lists()) <= 2
        assert max(sizes) <= 2, sizes
        assert site.asked == {site.seeds[0]: 8}


def counting(asked: Counter[str], name: str) -> Any:
    """A method of the local store that counts how often it is called."""
    real = getattr(LocalStorage, name)

    def method(*arguments: Any, **named: Any) -> Any:
        asked[name] += 1
        return real(*arguments, **named)

    return method


def test_what_a_generate_reads_does_not_grow_with_lists_that_are_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a lease that is over, or since all their URLs were seen. Folders are deleted once they are merged."""
    config = replace(
        config_of(tmp_path), crawldb=replace(config_of(tmp_path).crawldb, keep_versions=1)
    )
    stores, asked, found, taken_in = open_stores(config), Counter[str](), [], TakenIn()
    for name in ("list", "exists", "open_read"):
        monkeypatch.setattr(LocalStorage, name, counting(asked, name))
    for number in range(1, 25):
        at_s = NOW + number * WEEK
        seen = {"fetched_time": at_s - WEEK} if number % 2 else {}
        leave_version(stores, number, [row_of("http://a.example/", **seen)])
        asked.clear()
        made = make(config, 1, at_s, run_id=f"run {number}")
        found.append(
            (dict(asked), len(list(stores.crawl.storage.list(stores.crawl.at(FileName.LISTS)))))
        )
        folder = Path(config.dfs_primary) / stores.crawl.at(made.folder)
        (folder / "node-0").mkdir()
        (folder / "node-0" / "manifest.json").write_bytes(
            manifest(made.folder, "node-0", pages=1, links=0)
        )
        commit_iteration(open_stores(config), run_id=f"run {number}", iteration=1)
        taken_in = taken_in.with_sources([(made.list, FileName.LISTS)], [made.list]).without_lists(
            [made.list]
        )
        Settled("node-0", made.folder, 0, 0, taken_in).write(stores.crawl)
        for older in stores.crawl.folders()[:-1]:
            shutil.rmtree(folder.parent / older)
    assert found[-1] == found[-3] == found[3], found


def test_a_list_that_some_node_has_not_taken_in_stays(tmp_path: Path) -> None:
    config = replace(
        config_of(tmp_path), crawldb=replace(config_of(tmp_path).crawldb, keep_versions=1)
    )
    stores = open_stores(config)
    leave_version(stores, 1, [row_of("http://a.example/")])
    make(config, 1)
    leave_version(stores, 2, [row_of("http://a.example/", fetched_time=NOW)])
    make(config, 2, NOW + 2 * WEEK)
    assert stores.crawl.inbox.lists() == ["1-1", "2-1"]


def test_a_lost_queue_s_urls_come_again_after_the_lease_and_not_before(tmp_path: Path) -> None:
    with ExitStack() as stack:
        site = Sites(stack, 1)
        config = config_of(tmp_path, batch={"size": 1})
        urls = [f"{site.seeds[0]}p{number}" for number in range(4)]
        leave_version(open_stores(config), 1, map(row_of, urls))
        make(config, 1, batch_size=4)
        run_iteration(config, "run", 1)
        shutil.rmtree(Path(config.queue.local_dir) / "node-0")
        restart_node(open_stores(config), "node-0")
        repair_crawl(open_stores(config))
        fetched = set(site.asked)
        assert make(config, 2, NOW + 60).counts == {"leased": 4}
        assert run_iteration(config, "run", 2)["taken"] == 0
        rows = [
            row_of(
                url,
                **({"fetched_time": NOW, "fetch_time": NOW + 4 * WEEK} if url in fetched else {}),
            )
            for url in urls
        ]
        leave_version(open_stores(config), 2, rows)
        made = make(config, 3, NOW + WEEK, batch_size=4)
        assert urls_of(config, made.list) == set(urls) - fetched
        for number in range(3, 7):
            run_iteration(config, "run", number)
        assert site.asked == Counter(urls), "each once"
