"""The rules of `traps` at the intake: so many URLs of a group, however they are divided among intakes and chunks."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawl_lib.config import TrapsConfig, UrlsConfig
from crawl_lib.config.model import DomainConfig
from crawl_lib.frontier import Queue, full_for
from crawl_lib.frontier.hostcounts import HostCounts, host_of_line, names_of_domain
from crawl_lib.frontier.journal import IntakeReport
from crawl_lib.records import QueuedUrl
from crawl_lib.repair.queue.queue import repair_queue
from crawl_lib.urls import Budgets, Traps, pattern_of
from tests.frontier.helpers import Keys, held, key, source, take_in, urls_of

TRAPS = Traps(TrapsConfig(max_repeated=2, max_dates=3, max_sessions=1, max_combined=2))
SID = "0123456789abcdef0123456789abcde"


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    (tmp_path / "n1").mkdir()
    return Queue(tmp_path / "n1")


def found(*urls: str) -> list[QueuedUrl]:
    return [QueuedUrl(url, bytes(20), 3) for url in urls]


def months(first: int, count: int) -> list[str]:
    return [f"http://a.test/?month={number}" for number in range(first, first + count)]


def rejected(report: IntakeReport) -> dict[str, int]:
    parts = (
        report.new
        + report.known
        + report.duplicates
        + report.undecided
        + sum(report.rejected.values())
    )
    assert report.seen == parts
    return report.rejected


@pytest.mark.parametrize(
    ("reason", "urls"),
    [
        ("calendar", months(1, 5)),
        ("session_id", [f"http://a.test/x;jsessionid={SID}{number}" for number in range(3)]),
        ("repeated_segment", [f"http://a.test/{'b/' * number}" for number in range(2, 6)]),
        (
            "query_explosion",
            [
                f"http://a.test/?{query}"
                for query in ("x=1&y=1", "y=1&x=1", "x=1&y=1&x=1", "y=1;x=1")
            ],
        ),
    ],
)
def test_what_is_over_the_limit_is_rejected_and_counted(
    queue: Queue, reason: str, urls: list[str]
) -> None:
    keys = Keys()
    report = take_in(queue, keys, source("1", "n1", found(*urls, "http://a.test/")), traps=TRAPS)
    assert rejected(report) == {reason: 2}
    assert urls_of(queue) == [*urls[:-2], "http://a.test/"]
    assert not keys.keys & {key(url) for url in urls[-2:]}, "a rejected URL stays unknown"


@pytest.mark.parametrize("divided", [[500], [90, 20, 390], [100, 1, 399]])
def test_patterns_are_counted_from_a_hosts_101st_url_on_however_they_come(
    queue: Queue, divided: list[int]
) -> None:
    urls, keys = [f"http://a.test/x/{number}" for number in range(500)], Keys()
    for place, count in enumerate(divided):
        some = urls[sum(divided[:place]) :][:count]
        take_in(queue, keys, source(str(place), "n1", found(*some)), traps=TRAPS, chunk_lines=37)
    counts = HostCounts(queue.directory)
    [name] = counts.patterns(400)
    assert name == pattern_of(urls[0].encode(), b"a.test").decode()
    assert counts.patterns(401) == []


def test_where_pages_are_not_compared_no_pattern_is_counted(queue: Queue) -> None:
    urls = [f"http://a.test/x/{number}" for number in range(200)]
    take_in(
        queue, Keys(), source("1", "n1", found(*urls)), traps=Traps(TrapsConfig(max_similar=None))
    )
    assert HostCounts(queue.directory).patterns(1) == []


def test_requisites_are_counted_and_are_in_no_pattern(queue: Queue) -> None:
    urls = [QueuedUrl(f"http://a.test/x/{number}", bytes(20), requisite=1) for number in range(200)]
    take_in(queue, Keys(), source("1", "n1", urls), traps=TRAPS)
    assert HostCounts(queue.directory).patterns(1) == []
    assert HostCounts(queue.directory).all() == {"a.test": 200}


def test_a_query_passes_while_one_of_its_parts_is_not_in_too_many(queue: Queue) -> None:
    topics = [
        f"http://a.test/?topic={topic}&page={page}" for topic in range(50) for page in range(2)
    ]
    assert rejected(take_in(queue, Keys(), source("1", "n1", found(*topics)), traps=TRAPS)) == {}
    more = [f"http://a.test/?topic={topic}&page=1&again" for topic in range(50)]
    assert rejected(take_in(queue, Keys(), source("2", "n1", found(*more)), traps=TRAPS)) == {
        "query_explosion": 48
    }


@pytest.mark.parametrize("chunk_lines", [1, 2, 3, 100])
def test_chunks_do_not_matter_nor_how_many_intakes_there_are(
    queue: Queue, chunk_lines: int
) -> None:
    urls = found(*months(1, 2), "http://b.test/?month=1", *months(3, 2), "http://b.test/?month=2")
    first, second = source("1", "n1", urls[:2]), source("2", "n1", urls[2:])
    take_in(queue, Keys(), first, traps=TRAPS, chunk_lines=chunk_lines)
    report = take_in(queue, Keys(), second, traps=TRAPS, chunk_lines=chunk_lines)
    assert rejected(report) == {"calendar": 1}
    assert urls_of(queue) == [url.url for url in urls if url.url != months(4, 1)[0]]


def test_seeds_and_what_other_nodes_hand_on_are_counted_and_not_rejected(queue: Queue) -> None:
    seeds, handed, late = months(1, 4), months(5, 2), months(7, 1)
    sources = [
        source("1", "n", seeds),
        source("1", "n1", found(*handed), "h"),
        source("1", "n2", found(*late)),
    ]
    assert rejected(take_in(queue, Keys(), *sources, traps=TRAPS)) == {"calendar": 1}
    assert urls_of(queue) == [*seeds, *handed]


def test_a_seed_is_no_way_past_the_limit_of_its_host(queue: Queue) -> None:
    report = take_in(
        queue, Keys(), source("1", "n", months(1, 3)), traps=TRAPS, max_pages_per_host=2
    )
    assert rejected(report) == {"host_limit": 1}


def test_without_rules_nothing_of_groups_is_kept(queue: Queue) -> None:
    assert rejected(take_in(queue, Keys(), source("1", "n1", found(*months(1, 9))))) == {}
    counts = HostCounts(queue.directory)
    assert counts.all() == {"a.test": 9}
    [(_, _, [name])] = TRAPS.groups(months(1, 1)[0].encode(), host_of_line)
    assert counts.get([name]) == {}


def test_groups_begin_again_with_what_is_forgotten_of_their_host(queue: Queue) -> None:
    """The counts of other hosts stay, those too whose names begin alike."""
    urls = ["http://a.test/?month=1", "http://a.test0/?month=1", "http://a.test.b/?month=1"]
    take_in(queue, Keys(), source("1", "n1", found(*urls)), traps=TRAPS)
    counts = HostCounts(queue.directory)
    names = [TRAPS.groups(url.encode(), host_of_line)[0][2][0] for url in urls]
    assert counts.get(names) == dict.fromkeys(names, 1)
    counts.lower("one", {b"a.test": 1})
    assert counts.get(names) == dict.fromkeys(names[1:], 1)
    assert counts.all() == {"a.test": 0, "a.test.b": 1, "a.test0": 1}


def test_what_was_lost_and_is_found_again_is_let_in_again(queue: Queue) -> None:
    """Groups would else be full of URLs that no queue holds any more."""
    urls = months(1, 3)
    take_in(queue, Keys(), source("1", "n1", found(*urls)), traps=TRAPS)
    (queue.directory / "0").write_bytes(b"")
    assert repair_queue(held(queue)).lost == 3
    assert urls_of(queue) == []
    assert rejected(
        take_in(queue, Keys(), source("1", "n1", found(*urls, *months(4, 1))), traps=TRAPS)
    ) == {"calendar": 1}
    assert urls_of(queue) == urls


def test_a_killed_intake_counts_what_it_had_queued_once(queue: Queue) -> None:
    """What it had noted and not queued counts for nothing."""
    counts = HostCounts(queue.directory)
    [(_, _, [name])] = TRAPS.groups(months(1, 1)[0].encode(), host_of_line)
    counts.note({name: 3, b"a.test": 3})
    assert (
        rejected(take_in(queue, Keys(), source("1", "n1", found(*months(1, 3))), traps=TRAPS)) == {}
    )
    assert counts.get([name, b"a.test"]) == {name: 3, b"a.test": 3}


def hosts_of_farm(first: int, number: int, domain: str = "farm.example") -> list[str]:
    return [f"http://x{place}.{domain}/" for place in range(first, first + number)]


@pytest.mark.parametrize("chunk_lines", [1, 3, 100])
def test_a_domain_has_so_many_hosts_and_so_many_urls(queue: Queue, chunk_lines: int) -> None:
    """A host that has URLs in the queue may have more; private suffixes are domains of their own."""
    limits = {"max_hosts_per_domain": 3, "max_pages_per_domain": 5}
    many = [*hosts_of_farm(0, 5), "http://x1.farm.example/a", *hosts_of_farm(0, 5, "github.io")]
    report = take_in(
        queue, Keys(), source("1", "n1", found(*many)), chunk_lines=chunk_lines, **limits
    )
    assert rejected(report) == {"domain_hosts": 2}
    assert report.over_budget == {"domain_hosts farm.example": 2}
    more = ["http://x0.farm.example/b", "http://x0.farm.example/c", "http://x9.farm.example/"]
    report = take_in(
        queue, Keys(), source("2", "n1", found(*more)), chunk_lines=chunk_lines, **limits
    )
    assert rejected(report) == {"domain_hosts": 2, "domain_pages": 2}
    assert report.over_budget == {"domain_hosts farm.example": 2, "domain_pages farm.example": 2}
    assert len(urls_of(queue)) == 5 + 5


def test_the_default_ends_a_farm_below_1000_urls_and_refuses_no_seed(queue: Queue) -> None:
    defaults = vars(UrlsConfig())
    limits = {name: defaults[name] for name in ("max_hosts_per_domain", "max_pages_per_domain")}
    seeds = hosts_of_farm(0, 250)
    report = take_in(
        queue,
        Keys(),
        source("1", "n", seeds),
        source("1", "n1", found(*hosts_of_farm(250, 2000))),
        **limits,
    )
    assert rejected(report) == {"domain_hosts": 2000}
    assert len(urls_of(queue)) == 250


def test_exceptions_are_by_domain(queue: Queue) -> None:
    options = {
        "max_hosts_per_domain": 1,
        "domains": (DomainConfig("domain", "farm.example", max_hosts=4),),
    }
    urls = [*hosts_of_farm(0, 6), *hosts_of_farm(0, 3, "other.example")]
    report = take_in(queue, Keys(), source("1", "n1", found(*urls)), **options)
    assert report.over_budget == {"domain_hosts farm.example": 2, "domain_hosts other.example": 2}


def test_what_is_forgotten_of_a_host_leaves_the_counts_of_its_domain(queue: Queue) -> None:
    """A host without URLs is none of the domain's."""
    limits = {"max_hosts_per_domain": 2}
    take_in(
        queue,
        Keys(),
        source("1", "n1", found(*hosts_of_farm(0, 2), "http://x0.farm.example/a")),
        **limits,
    )
    counts, names = HostCounts(queue.directory), names_of_domain(b"x0.farm.example")
    assert counts.get(names) == dict(zip(names, (3, 2), strict=True))
    counts.lower("one", {b"x0.farm.example": 1, b"never.farm.example": 5})
    assert counts.get(names) == dict(zip(names, (2, 2), strict=True))
    counts.lower("two", {b"x0.farm.example": 5})
    counts.lower("two", {b"x0.farm.example": 5})
    assert counts.get(names) == dict(zip(names, (1, 1), strict=True))
    report = take_in(queue, Keys(), source("2", "n1", found(*hosts_of_farm(5, 2))), **limits)
    assert rejected(report) == {"domain_hosts": 1}


def test_why_names_the_rule_that_keeps_a_url_out(queue: Queue) -> None:
    budgets = Budgets(
        UrlsConfig(max_hosts_per_domain=1, max_pages_per_domain=2, max_pages_per_host=1)
    )
    take_in(queue, Keys(), source("1", "n1", found(*hosts_of_farm(0, 2))))
    assert full_for(queue.directory, budgets, TRAPS, b"http://x1.farm.example/b") == [
        "host_limit",
        "domain_pages",
    ]
    assert full_for(queue.directory, budgets, TRAPS, b"http://x2.farm.example/") == [
        "domain_pages",
        "domain_hosts",
    ]


def test_few_domains_are_named_however_many_reach_their_limit(queue: Queue) -> None:
    urls = [url for number in range(50) for url in hosts_of_farm(0, 3, f"farm{number}.example")]
    report = take_in(queue, Keys(), source("1", "n1", found(*urls)), max_hosts_per_domain=1)
    assert rejected(report) == {"domain_hosts": 100}
    assert len(report.over_budget) == 20
    twice = report.plus(IntakeReport(over_budget={f"domain_hosts {n}": 9 for n in range(99)}))
    assert len(twice.over_budget) == 20
