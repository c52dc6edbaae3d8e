"""Requisites of pages: which are handed on, by which rules, and what `links` says of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from crawl_lib.config import Config, RuleConfig
from crawl_lib.parse import ParsedPage, parse_html
from crawl_lib.parse.css import parse_css
from crawl_lib.records import Fetched, QueuedUrl, TakenUrl
from crawl_lib.segment.encoder import metadata_fields
from crawl_lib.segment.recover import Recovered
from crawl_lib.states import Outcome
from crawl_lib.urlfiles import decode_line, encode_line
from crawl_lib.urls import key_of
from crawl_lib.warc import warc_fields
from crawl_lib.worker.discovery import Discovery
from tests.worker.test_discovery import CONFIG, Kept, discovery_of

URL = "http://a.test/"


def config_for(
    requisites: str = "all", depth: int | None = None, rules: tuple[RuleConfig, ...] = ()
) -> Config:
    parse = replace(CONFIG.parse, requisites=requisites, requisites_per_page=5)
    return replace(CONFIG, parse=parse, urls=replace(CONFIG.urls, max_depth=depth, rules=rules))


class Judged:
    """One worker's discoveries."""

    def __init__(self, config: Config) -> None:
        self.config, self.kept = config, Kept()
        self.lines: list[tuple[int, str, Any]] = []
        self.kept.part.outlinks.add = lambda _, place, __, found: self.lines.append(
            (place, found[0], found[3])
        )
        self.discovery: Discovery = discovery_of(config, self.kept)

    def read(self, text: str, url: str = URL, steps: int = 0, position: int = 0) -> None:
        """Read a page, or a style sheet where its URL ends so."""
        given: dict[str, Any] = {"url": url, "header_charset": "utf-8", "config": self.config.parse}
        page: ParsedPage = (parse_css if url.endswith(".css") else parse_html)(
            text.encode(), **given
        )
        self.discovery.links(self.taken(url, steps, position), page, page.nofollow)

    def taken(self, url: str = URL, steps: int = 0, position: int = 0) -> TakenUrl:
        return TakenUrl(position, key_of(url), QueuedUrl(url, b"v" * 20, 1, 0, requisite=steps))

    @property
    def handed_on(self) -> list[tuple[str, Any]]:
        return [(url, hops) for _, url, hops in self.lines]

    def rows(self) -> list[tuple[str, str, bool, str]]:
        """URL, element, followed and rule of each row of `links`."""
        found = self.kept.end()
        rows = [(row[2], *row[5:]) for row in found.rows]
        found.rows.clear()
        return rows

    @property
    def rejected(self) -> Counter[str]:
        return self.kept.found.rejections


def test_depth_and_scope_refuse_links_and_no_requisites() -> None:
    judged = Judged(config_for(depth=1))
    judged.read("<a href=/x></a><a href=//b.test/></a><img src=/i><img src=//b.test/i>")
    assert judged.handed_on == [("http://a.test/i", "0E1"), ("http://b.test/i", "0E1")]
    rows = judged.rows()
    assert [row[1:] for row in rows] == [("img", False, "requisite")] * 2 + [
        ("a", False, "depth")
    ] * 2
    assert judged.rejected == {"depth": 2}


def test_same_site_asks_for_the_registered_domain_of_the_page() -> None:
    rules = (RuleConfig("+", "domain", "cdn.test"), RuleConfig("-", "suffix", ".gif"))
    judged = Judged(config_for("same_site", rules=rules))
    judged.read(
        "<img src=//www.a.test/1><img src=//b.test/2><img src=//cdn.test/3><img src=4.gif><img src=ftp://x>"
    )
    assert [url for url, _ in judged.handed_on] == ["http://www.a.test/1", "http://cdn.test/3"]
    assert [row[3] for row in judged.rows()] == ["requisite", "other_site", "requisite", "rule"]
    assert judged.rejected == {"other_site": 1, "rule": 1, "scheme": 1}
    judged.read("<img src=//b.test/2>", "http://b.test/")
    assert [row[3] for row in judged.rows()] == ["requisite"], (
        "a verdict is for the pages of one site"
    )


def test_a_frame_that_scope_or_depth_refuses_is_a_requisite_and_else_a_link() -> None:
    judged = Judged(config_for(rules=(RuleConfig("-", "suffix", ".no"),)))
    judged.read(
        "<iframe src=in></iframe><iframe src=//b.test/out></iframe><iframe src=//b.test/x.no></iframe>"
    )
    assert judged.handed_on == [("http://b.test/out", "0E1"), ("http://a.test/in", 0)]
    assert judged.rows() == [
        ("http://b.test/out", "iframe", False, "requisite"),
        ("http://a.test/in", "iframe", True, "accepted"),
        ("http://b.test/out", "iframe", False, "scope"),
        ("http://b.test/x.no", "iframe", False, "rule"),
    ]
    assert judged.rejected == {"scope": 1, "rule": 1}


def test_links_of_a_requisite_are_not_followed_and_its_frames_are_requisites() -> None:
    judged = Judged(config_for())
    judged.read("<a href=x></a><iframe src=f></iframe><img src=i>", steps=1)
    assert judged.handed_on == [("http://a.test/f", "0E2"), ("http://a.test/i", "0E2")]
    assert [row[1:] for row in judged.rows()] == [
        *(("iframe", False, "requisite"), ("img", False, "requisite")),
        *(("a", False, "on_requisite"), ("iframe", False, "on_requisite")),
    ]


def test_nofollow_and_equal_pages_do_not_concern_requisites() -> None:
    judged = Judged(config_for())
    judged.read("<meta name=robots content=nofollow><a href=x></a><img src=i rel=nofollow>")
    assert judged.handed_on == [("http://a.test/i", "0E1")]


def test_style_sheets_import_each_other_five_times_and_no_requisite_is_eight_steps_away() -> None:
    judged = Judged(config_for())
    for steps in range(1, 8):
        judged.read("@import 'i.css'; a{b:url(p)}", f"http://a.test/{steps}/s.css", steps)
    steps_of = dict(judged.handed_on)
    assert [url for url in steps_of if url.endswith(".css")] == [
        f"http://a.test/{n}/i.css" for n in range(1, 6)
    ]
    assert [url for url in steps_of if url.endswith("p")] == [
        f"http://a.test/{n}/p" for n in range(1, 7)
    ]
    assert steps_of["http://a.test/6/p"] == "0E7"
    assert judged.rejected == {"requisite_depth": 3}


def test_what_is_beyond_the_limit_is_counted() -> None:
    judged = Judged(config_for())
    judged.read("".join(f"<img src={number}>" for number in range(8)))
    assert len(judged.handed_on) == 5
    assert judged.rejected == {"requisite_limit": 3}


def test_a_requisite_comes_behind_all_links_and_once() -> None:
    judged = Judged(config_for())
    judged.read("<img src=x><img src=x#y>", position=4)
    judged.read("<img src=x><a href=x>", position=7)
    (first, *_), (second, *_) = judged.lines
    assert second == 8 < 10_000 < first
    assert judged.handed_on == [("http://a.test/x", "0E1"), ("http://a.test/x", 0)]


@pytest.mark.parametrize(
    ("requisites", "expected"), [("all", [("http://b.test/x", "1E2")]), ("same_site", [])]
)
def test_a_redirect_of_a_requisite_is_a_requisite(
    requisites: str, expected: list[tuple[str, str]]
) -> None:
    judged = Judged(config_for(requisites))
    judged.discovery.redirect(judged.taken(steps=2), URL, "//b.test/x")
    assert judged.handed_on == expected
    assert judged.rejected == ({} if expected else {"other_site": 1})


def test_where_none_are_wanted_images_are_links_as_before() -> None:
    judged = Judged(config_for("none"))
    judged.read("<img src=i><style>a{b:url(c)}</style><a href=x>")
    assert judged.handed_on == [("http://a.test/x", 0)]
    assert [row[1:] for row in judged.rows()] == [
        ("img", False, "element"),
        ("a", True, "accepted"),
    ]


def test_lines_and_records_carry_the_steps() -> None:
    """So a spool that is read again after a kill, and a queue, know a requisite."""
    queued = QueuedUrl(URL, b"v" * 20, 1, 2, requisite=3)
    assert decode_line(encode_line(queued))[0] == queued
    taken = TakenUrl(4, key_of(URL), queued)
    block = metadata_fields(Fetched(URL, 0.0, Outcome.OK), taken, URL).encode()
    assert Recovered.taken_of(warc_fields(block), URL) == taken
    assert [replace(queued, requisite=0, redirects=n).hop for n in (0, 2)] == ["L", "R"]


@pytest.mark.parametrize(
    ("url", "named"), [(URL, "<img src=http://{0}.b.test/>"), (f"{URL}s.css", "url(//{0}.b.test/)")]
)
def test_a_page_hands_on_few_of_100_000_requisites_and_counts_the_rest(
    url: str, named: str
) -> None:
    """Each on a host of its own, in HTML and in CSS."""
    judged = Judged(config_for())
    judged.read("".join(named.format(number) for number in range(100_000)), url)
    assert [found for found, _ in judged.handed_on] == [
        f"http://{number}.b.test/" for number in range(5)
    ]
    assert judged.rejected["requisite_limit"] == 100_000 - 5
