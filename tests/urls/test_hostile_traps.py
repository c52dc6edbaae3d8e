"""Whatever text a stranger chooses, the rules for traps take time linear in its bytes, and honest URLs keep passing."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from statistics import median
from time import process_time

import pytest

from crawl_lib.config import TrapsConfig, UrlsConfig
from crawl_lib.config.model import DomainConfig
from crawl_lib.frontier.hostcounts import host_of_line
from crawl_lib.urls import Budgets, Traps, budget_domain_of, pattern_of
from crawl_lib.urls.normalizers import without_session
from crawl_lib.urls.traps import _SESSION, _WITH_DIGIT, _pattern_name
from tests.urls.hostile import Habit, ordinary

TRAPS = Traps(TrapsConfig())
BYTES = 16_000
SLOW: list[Callable[[int], bytes]] = [
    lambda size: b"http://h/" + b"a" * size + b"/x",
    lambda size: b"http://h/list/" + b"a" * size + b"?x",
    lambda size: b"http://h/?" + b"sessid" * (size // 6) + b"&x=1",
    lambda size: b"http://h/;" + b"sess" * (size // 4) + b"=1",
    lambda size: b"http://h/?" + b"_.-" * (size // 3) + b"=1",
    lambda size: b"http://h/?" + b"a&" * (size // 2),
    lambda size: b"http://h/(S(" + b"a" * size + b"))/",
    lambda size: b"http://h/" + b"a/" * (size // 2),
    lambda size: b"http://h/?d=may" + b"a" * size,
    lambda size: b"http://h/?date=1" + b"1" * size + b"x",
    lambda size: b"http://h/?y=2031&time=" + b"1" * size + b"x",
    lambda size: b"http://h/?" + b"x=2031-may" * (size // 10),
]
WORK: list[Callable[[bytes], object]] = [
    lambda url: TRAPS.groups(url, host_of_line),
    lambda url: pattern_of(url, b"h"),
    lambda url: without_session(url.decode()),
]


def cost(work: Callable[[bytes], object], url: bytes) -> float:
    times = []
    for _ in range(5):
        _pattern_name.cache_clear()
        start = process_time()
        work(url)
        times.append(process_time() - start)
    return median(times)


def assert_linear(url: bytes, half: bytes) -> None:
    for work in WORK:
        # What takes less than a millisecond for 32 KB is linear enough, and too short to be measured.
        assert (whole := cost(work, url)) < max(2.5 * cost(work, half), 0.002), (
            work,
            url[:60],
            whole,
        )


@pytest.mark.parametrize("made", SLOW, ids=lambda made: repr(made(18)))
def test_twice_the_bytes_take_twice_the_time(made: Callable[[int], bytes]) -> None:
    assert_linear(made(2 * BYTES), made(BYTES))


def test_the_same_of_what_strangers_make_up_by_seed() -> None:
    for seed in range(200):
        url = Habit(seed).url(BYTES // 2).encode()
        assert_linear(url, url[: len(url) // 2])


def test_expressions_find_what_simpler_ones_found() -> None:
    """The simpler ones read a text again from each of its bytes."""
    with_digit = re.compile(rb"[^/?&]*\d[^/?&]*")
    faster, simple = rb"(?>\w*sess(?:ion)?[_-]?id)\w*+=", rb"\w*sess(?:ion)?[_-]?id\w*="
    assert faster in _SESSION
    session, simpler = re.compile(_SESSION), re.compile(_SESSION.replace(faster, simple))
    choose = random.Random(1)
    words = [
        "sess",
        "ion",
        "_",
        "-",
        "id",
        "sid",
        "=",
        "1",
        "a",
        "abcd1234",
        ";",
        "&",
        "?",
        "/",
        "x",
    ]
    for _ in range(20_000):
        text = "".join(choose.choices(words, k=choose.randrange(1, 14))).encode()
        assert _WITH_DIGIT.sub(b"#", text) == with_digit.sub(b"#", text)
        assert session.sub(rb"\1\2\3", b"/" + text) == simpler.sub(rb"\1\2\3", b"/" + text), text


def test_a_query_is_in_few_groups_whatever_its_parts() -> None:
    many = b"http://h/l?" + b"&".join(b"%d=x" % number for number in range(400))
    [(_, _, names)] = TRAPS.groups(many, host_of_line)
    assert len(names) == 8
    long = b"http://h/l?keywords=blue&a=1&b=1&c=1&e=1&f=1&g=1&h=1&i=1&j=1"
    other = long.replace(b"blue", b"boat")
    [[(_, _, one)], [(_, _, two)]] = (TRAPS.groups(url, host_of_line) for url in (long, other))
    assert len(set(one) & set(two)) == 7, "the longest part is among them"


def test_no_ordinary_url_of_a_forum_or_a_shop_is_one_too_many() -> None:
    budgets, counts, hosts = Budgets(UrlsConfig()), Counter[bytes](), Counter[str]()
    for url in ordinary(1, 20_000):
        for rule, most, names in TRAPS.groups(url.encode(), host_of_line):
            assert any(counts[name] < most for name in names), (rule, url)
            counts.update(names)
        hosts[host_of_line(url.encode()).decode()] += 1
    for host, pages in hosts.items():
        limits = budgets.of_domain(budget_domain_of(host))
        assert limits.max_pages is not None
        assert pages < limits.max_pages


def test_a_domain_is_counted_under_a_suffix_that_no_list_has_too() -> None:
    names = [
        "x.farm.example",
        "a.b.farm.example",
        "farm.example",
        "www.example.co.uk",
        "a.github.io",
        "x.a.github.io",
    ]
    assert [budget_domain_of(name) for name in names] == [
        *["farm.example"] * 3,
        *["example.co.uk", "a.github.io", "a.github.io"],
    ]
    for own in ("localhost", "127.0.0.1", "[::1]", "github.io", "co.uk"):
        assert budget_domain_of(own) == own


def test_exceptions_are_by_domain_and_the_first_counts() -> None:
    entries = (
        DomainConfig("domain", "a.test", max_pages=9),
        DomainConfig("regex", r"^a\.", max_hosts=5),
        DomainConfig("domain", "edu", max_hosts=7),
    )
    budgets = Budgets(UrlsConfig(max_pages_per_domain=3, max_hosts_per_domain=2, domains=entries))
    found = [tuple(budgets.of_domain(name)) for name in ("a.test", "a.org", "x.edu", "b.org")]
    assert found == [(9, 2), (3, 5), (3, 7), (3, 2)]
