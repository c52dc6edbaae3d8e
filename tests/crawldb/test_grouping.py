"""The result does not depend on how segments were grouped into updates; rebuilt, the table is the same."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from crawl_lib.config import from_mapping
from crawl_lib.crawldb import rebuild, update
from crawl_lib.storage import open_storage
from tests.crawldb.crawls import Crawl, Visit
from tests.crawldb.test_update import DAY, NOW, T
from tests.stores import stores_on

URLS = [f"http://{host}.example/{page}" for host in "ab" for page in range(4)]


@st.composite
def visits(draw: st.DrawFn, depths: dict[str, int]) -> Visit:
    """A visit of any kind, with the depth that its line had."""
    url = draw(st.sampled_from(URLS))
    outcome = draw(
        st.sampled_from(["ok", "ok", "ok", "redirect", "gone", "timeout", "not_modified", "parse"])
    )
    visit = Visit(url, outcome, at=draw(st.integers(-9, 1000)), more={"depth": depths[url]})
    visit.links = draw(st.lists(st.sampled_from(URLS), max_size=3)) if outcome == "ok" else ()
    visit.link = draw(st.sampled_from([{}, {}, {"element": "meta"}])) if visit.links else {}
    visit.body = draw(st.sampled_from("xy"))
    if outcome == "redirect":
        visit.redirect_url = draw(st.sampled_from(URLS))
    if outcome == "timeout":
        visit.retry_s = draw(st.sampled_from([None, 60]))
    if outcome == "not_modified":
        visit.refers_to = ("1/node-a", "0.warc.gz", 0)
    if outcome == "parse":
        visit.outcome, visit.parse_error = "ok", "no"
    return visit


Round = tuple[list[str], list[Visit], bool]


@st.composite
def rounds(draw: st.DrawFn) -> list[Round]:
    """Iterations: seeds before each, what was visited, and whether an update follows."""
    depths = {url: draw(st.integers(0, 3)) for url in URLS}
    seeds = st.lists(
        st.tuples(
            st.sampled_from(URLS),
            st.sampled_from(
                ["", "\tscore=5", "\tscore=0.5", "\tinterval_s=7200", "\tmax_depth=2", "\tx=1"]
            ),
        ),
        max_size=2,
    )
    one = st.tuples(
        seeds.map(lambda lines: ["".join(line) for line in lines]),
        st.lists(visits(depths), max_size=6),
        st.booleans(),
    )
    return draw(st.lists(one, min_size=1, max_size=5))


@settings(
    max_examples=12,
    phases=[Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    rounds(),
    st.sampled_from(["fixed", "adaptive"]),
    st.sampled_from(["keep", "update", "overwrite"]),
)
def test_grouped_in_any_way_the_rows_are_the_same(
    given_rounds: list[Round], kind: str, seeds: str
) -> None:
    assert_same_rows(given_rounds, kind, seeds)


@pytest.mark.parametrize("seeds", ["keep", "update", "overwrite"])
def test_a_seed_that_was_a_redirects_target_before_has_no_redirects(seeds: str) -> None:
    first, last = (f"http://a.example/{number}" for number in range(2))
    found = [
        Visit(url, "redirect", at=at, redirect_url=last) for url, at in ((first, 1), (last, 2))
    ]
    for updates in (False, True):
        rows = assert_same_rows([([], found, updates), ([last], [], updates)], "fixed", seeds)
        assert {url: row["redirects"] for url, row in rows.items()} == {first: 0, last: 0}


HOPS = {
    "redirect": 2,
    "link redirect": 1,
    "redirect link": 1,
    "seed redirect": 1,
    "visit redirect": 1,
    "visit link": 1,
    "redirect refresh": 2,
    "refresh": 2,
    "link refresh": 1,
    "": 1,
}
"""What was seen of a URL, in this order, before it leads on: how many hops what it leads to is from the last link."""


@pytest.mark.parametrize("element", [None, "meta", "sitemap"])
def test_hops_are_counted_from_the_last_link_that_was_seen_before(element: str | None) -> None:
    """`element`: how the URL leads on; None: by a redirect. After that there is a link to it."""
    rounds: list[Round] = [([], [], False) for _ in range(4)]
    for number, before in enumerate(HOPS):
        linking, leading, url, target = (f"http://{number}.example/{page}" for page in range(4))
        seen = {
            "link": Visit(linking, links=[url], at=1),
            "redirect": Visit(leading, "redirect", at=2, redirect_url=url),
            "refresh": Visit(leading, links=[url], link={"element": "meta"}, at=2),
            "visit": Visit(url, at=3),
        }
        if element is None:
            leads = Visit(url, "redirect", at=4, redirect_url=target)
        else:
            leads = Visit(url, links=[target], link={"element": element}, at=4)
        for one, (lines, visits, _) in zip(before.split(), rounds, strict=False):
            if one == "seed":
                lines.append(url)
            else:
                visits.append(seen[one])
        rounds[2][1].append(leads)
        rounds[3][1].append(Visit(linking, links=[url], at=5))
    for updates in (False, True):
        rows = assert_same_rows([(*one[:2], updates) for one in rounds], "fixed", "keep")
        assert {
            one: rows[f"http://{number}.example/3"]["redirects"] for number, one in enumerate(HOPS)
        } == HOPS


def assert_same_rows(given_rounds: list[Round], kind: str, seeds: str) -> dict[str, dict[str, Any]]:
    """The rows that updates after some of the rounds give, which are those that all rounds at once give."""
    with tempfile.TemporaryDirectory() as folder:
        sections = {
            "schedule": {"kind": kind},
            "crawldb": {"seeds": seeds},
            "scratch": {"directory": "scratch"},
        }
        options = {
            "servers": ["node-a"],
            "dfs_primary": "dfs",
            "urls": {"scope": "any"},
            **sections,
        }
        config = from_mapping(options, Path(folder))
        crawl = Crawl(stores_on(open_storage(config), config))
        for number, (lines, found, updates) in enumerate(given_rounds):
            if lines:
                crawl.seeds("\n".join(lines), f"run {number}")
            if updates:
                update(crawl.stores, now=NOW)
            crawl.segment(T + number * DAY, [dataclasses.replace(visit) for visit in found])
            if updates:
                update(crawl.stores, now=NOW)
        grown = crawl.rows(update(crawl.stores, now=NOW))
        built = crawl.rows(rebuild(crawl.stores, now=NOW))
        assert set(built) == set(grown)
        differ = [(u, name, row[name], built[u][name]) for u, row in grown.items() for name in row]
        assert [one for one in differ if one[2] != one[3]] == []
        return grown
