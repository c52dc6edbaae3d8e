"""Groups of URLs that are alike, by rule; ordinary URLs are in none; no page of real documentation is too many."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from urllib.parse import quote

import pytest

from benchmarks.crawl import DOC, TREES
from crawl_lib.config import ParseConfig, TrapsConfig, UrlsConfig
from crawl_lib.parse import parse_html
from crawl_lib.urls import (
    LinkResolver,
    Rejection,
    Traps,
    UrlFilter,
    canonicalize,
    host_of,
    pattern_of,
)
from tests.parse.links import columns
from tests.urls.resolved import resolved

SID = "0123456789abcdef0123456789ABCDEF"
OTHER_SID = "fedcba98765432100123456789abcdef"


def groups(url: str, **options: int | None) -> dict[str, set[bytes]]:
    """The names of the groups of a URL, by rule."""
    found = Traps(TrapsConfig(**options)).groups(
        canonicalize(url).encode(), lambda _: host_of(url).encode()
    )
    return {str(rule): set(names) for rule, _, names in found}


@pytest.mark.parametrize(
    ("rule", "alike", "other"),
    [
        (
            "session_id",
            [f"http://h/a;jsessionid={SID}?x=1", f"http://h/a;jsessionid={OTHER_SID}?x=1"],
            "http://h/a?x=1",
        ),
        (
            "session_id",
            [f"http://h/?PHPSESSID={SID}", f"http://h/?PHPSESSID={OTHER_SID}"],
            "http://h/?PHPSESSID=",
        ),
        (
            "session_id",
            [f"http://h/t?s={SID}&t=1", f"http://h/t?s={OTHER_SID}&t=1"],
            f"http://h/t?s={SID}&t=2",
        ),
        (
            "session_id",
            ["http://h/?CFID=1234567&CFTOKEN=9876543", "http://h/?CFID=7654321&CFTOKEN=1234567"],
            "http://h/",
        ),
        (
            "session_id",
            [
                "http://h/(S(abcdefghij0123456789abcd))/x",
                "http://h/(S(zyxwvutsrq0123456789abcd))/x",
            ],
            "http://h/(S)/x",
        ),
        (
            "session_id",
            ["http://h/a;jsessionid=1", "http://h/a;jsessionid=99"],
            "http://h/a;sessionid=99",
        ),
        (
            "session_id",
            [f"http://h/?session={SID}", f"http://h/?session={OTHER_SID}"],
            "http://h/?session=12345678901234567890123456789012",
        ),
        (
            "session_id",
            ["http://h/?sessid=a1b2c3d4", "http://h/?sessid=e5f6a7b8"],
            "http://h/?sessid=12345678",
        ),
        (
            "repeated_segment",
            ["http://h/a/b/a/", "http://h/b/a/b/", "http://h/a/a/b/b/a/"],
            "http://h/a/b/a/c/",
        ),
        ("repeated_segment", ["http://h/x/x", "http://h/x/x/x/x/x"], "http://h/x/y"),
        (
            "calendar",
            ["http://h/cal/2031/05/12/", "http://h/cal/1999/12/1/"],
            "http://h/cal/2031/05/12/a-party",
        ),
        (
            "calendar",
            ["http://h/cal/2031/may/12/", "http://h/cal/2032/December/1/"],
            "http://h/cal/2031/maybe2/12/",
        ),
        (
            "calendar",
            ["http://h/calendar/5", "http://h/calendar/123456"],
            "http://h/calendar/5/list",
        ),
        ("calendar", ["http://h/x/month/5/", "http://h/x/month/12/"], "http://h/x/months-of-5"),
        ("calendar", ["http://h/cal/2031-05", "http://h/cal/2031-06"], "http://h/cal/2031-05-01"),
        ("calendar", ["http://h/12.05.2031", "http://h/1.6.2031"], "http://h/12.05.1831"),
        (
            "calendar",
            ["http://h/on/20310512.html", "http://h/on/20310513.html"],
            "http://h/on/20311312.html",
        ),
        ("calendar", ["http://h/2031-W05", "http://h/2031-W06"], "http://h/2031-X05"),
        (
            "calendar",
            ["http://h/c?view=day&date=2031-05-12", "http://h/c?view=day&date=2031-05-13"],
            "http://h/c?view=day",
        ),
        ("calendar", ["http://h/c?month=1", "http://h/c?month=123456"], "http://h/c?months=1"),
        ("calendar", ["http://h/c?y=2031&m=5", "http://h/c?y=2032&m=12"], "http://h/c?y=5"),
        (
            "calendar",
            ["http://h/c?x-bar_eventDate=5&q=1", "http://h/c?x-bar_eventDate=6&q=1"],
            "http://h/c?candidate=5",
        ),
        (
            "calendar",
            ["http://h/c?when=2031-05-12T10:00", "http://h/c?when=2031-05-13T10:00"],
            "http://h/c?when=now",
        ),
    ],
)
def test_urls_that_are_alike_are_in_one_group(rule: str, alike: list[str], other: str) -> None:
    [name] = groups(alike[0])[rule]
    assert [groups(url)[rule] for url in alike] == [{name}] * len(alike)
    assert name not in groups(other).get(rule, set())
    assert name not in groups(alike[0].replace("http://h/", "http://i/"))[rule]


def test_a_query_of_several_parts_is_in_a_group_for_each_part() -> None:
    first, second = groups("http://h/l?a=1&b=2"), groups("http://h/l?c=3&b=2;d=4")
    assert (len(first["query_explosion"]), len(second["query_explosion"])) == (2, 3)
    assert len(first["query_explosion"] & second["query_explosion"]) == 1
    assert groups("http://h/l?b=2&a=1") == first, "their order does not matter"
    assert not first["query_explosion"] & groups("http://h/m?a=1&b=2")["query_explosion"], (
        "a path has its own"
    )


def test_session_ids_do_not_hide_a_url_from_the_other_rules() -> None:
    with_ids = [groups(f"http://h/cal;jsessionid={sid}?month=5&view=x") for sid in (SID, OTHER_SID)]
    assert with_ids[0] == with_ids[1]
    assert with_ids[0].keys() == {"session_id", "calendar", "query_explosion"}


@pytest.mark.parametrize(
    "url",
    [
        "http://h/",
        "http://h/a/b/c.html",
        "http://h/2024/05/12/a-story.html",
        "http://h/rfc/2616",
        "http://h/item/20241342",
        "http://h/v/2.10.15/",
        "http://h/?id=20",
        "http://h/?sid=20240925123456789",
        "http://h/bills?session=2023Regular",
        "http://h/debates?session=44th-parliament-1st-session",
        "http://h/program?session=day2-afternoon",
        "http://h/?s=windows+11+pro+install",
        "http://h/?s=windows%2011%20pro%20install",
        "http://h/quote-of-the-day/1523",
        "http://h/word_of_the_day/1523",
        "http://h/?sessionid=short1",
        "http://h/?q=2031-05-12-and-more",
        "http://h/commit/?id=0123456789abcdef0123456789abcdef01234567",
        "http://h/a//b",
    ],
)
def test_an_ordinary_url_is_in_no_group(url: str) -> None:
    assert groups(url) == {}


def test_a_rule_without_a_limit_is_none() -> None:
    url = f"http://h/a/a/2031-05;jsessionid={SID}?a=1&b=2&day=3"
    every = {
        "max_repeated": "repeated_segment",
        "max_dates": "calendar",
        "max_sessions": "session_id",
    }
    every["max_combined"] = "query_explosion"
    assert groups(url).keys() == set(every.values())
    for option, rule in every.items():
        assert groups(url, **{option: None}).keys() == set(every.values()) - {rule}


def test_names_of_groups_begin_with_the_host_so_that_they_go_with_it() -> None:
    [(rule, most, [name])] = Traps(TrapsConfig()).groups(
        b"http://h.test:81/a/a", lambda _: b"h.test"
    )
    assert (rule, most) == (Rejection.REPEATED_SEGMENT, 5)
    assert name.startswith(b"h.test/")
    assert len(name) < 30


@pytest.mark.parametrize(
    ("one", "other", "are_alike"),
    [
        ("http://h/x/tables.html", "http://h/x/chairs.html", True),
        ("http://h/x/tables/", "http://h/x/chairs/", True),
        ("http://h/x/tables.html", "http://h/y/tables.html", False),
        ("http://h/2031/5/a", "http://h/1999/12/b", True),
        ("http://h/x?id=1", "http://h/x?id=abc", True),
        ("http://h/x?id=1&page=2", "http://h/x?page=9&id=3", True),
        ("http://h/x?id=1", "http://h/x?page=1", False),
        ("http://h/x?id=1", "http://h/y?id=1", False),
        ("http://h/x?abc", "http://h/x?def", True),
        ("http://h/x?a1=1", "http://h/x?a2=1", True),
    ],
)
def test_a_pattern_is_a_folder_or_the_names_in_a_query(
    one: str, other: str, are_alike: bool
) -> None:
    assert (pattern_of(one.encode(), b"h") == pattern_of(other.encode(), b"h")) is are_alike
    assert pattern_of(one.encode(), b"h").startswith(b"h/~")
    assert pattern_of(one.encode(), b"h") != pattern_of(one.encode(), b"i")


OTHERS = [
    ("git-doc", DOC / "git-doc", ""),
    ("python-django-doc", DOC / "python-django-doc/html", ""),
    ("apache2-doc", DOC / "apache2-doc/manual", ""),
]


def urls_of(tree: Path) -> list[str]:
    """Every file of a package, as a site, and every page that one of them links to, on other sites too."""
    found: dict[str, None] = {}
    resolver = LinkResolver()
    for file in sorted(tree.rglob("*")):
        url = canonicalize(f"http://doc.test/{quote(str(file.relative_to(tree)))}")
        if file.is_file():
            found[url] = None
        if file.is_file() and ".html" in file.suffixes:
            page = parse_html(file.read_bytes(), url=url, header_charset=None, config=ParseConfig())
            links = columns(page.links)
            targets = zip(resolved(resolver, page.base, links.hrefs), links.followable, strict=True)
            found.update(
                (target.url, None) for target, is_followed in targets if is_followed and target.url
            )
    return list(found)


@pytest.mark.parametrize(
    ("package", "tree", "_"), [*TREES, *OTHERS], ids=lambda value: str(value)[:20]
)
def test_no_page_of_real_documentation_is_one_too_many(package: str, tree: Path, _: str) -> None:
    """In two orders."""
    urls = urls_of(tree)
    if not urls:
        pytest.skip(f"Debian's {package} is not installed")
    assert len(urls) < (UrlsConfig().max_pages_per_domain or 0)
    config = TrapsConfig()
    traps, url_filter = Traps(config), UrlFilter(UrlsConfig(scope="any"), (), config)
    for order in (urls, random.Random(1).sample(urls, len(urls))):
        counts: Counter[bytes] = Counter()
        for url in order:
            host = host_of(url)
            assert url_filter.verdict(url, host, 1) == (True, "accepted")
            for rule, most, names in traps.groups(url.encode(), lambda _, host=host: host.encode()):
                assert any(counts[name] < most for name in names), (rule, url)
                counts.update(names)
