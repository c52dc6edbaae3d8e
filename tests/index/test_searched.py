"""A crawl from its segments to what `krake search` and `krake why` print: the expected answer of each kind of page."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.crawldir import IMPORT_NODE, Iteration, Kind
from crawl_lib.dfsfiles import write_json_bytes
from crawl_lib.duplicates import find_near
from tests.cli.conftest import Krake, run_in_process
from tests.export.crawls import Capture
from tests.index.made import NOW, Made, a, answer, canonical, linking, page
from tests.text.pdfs import pdf

ROBOTS = "<meta name=robots content='{}'>"
NEAR = " ".join(f"penguin{number}" for number in range(300))
PDF_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/pdf\r\n\r\n"
CAPTURES = [
    Capture(
        a("paper.pdf"), pdf("An octopus has three hearts"), mime="application/pdf", head=PDF_HEAD
    ),
    *(page(a(f"near{number}"), f"{NEAR} different{number}") for number in range(4)),
    page(a("plain"), "A walrus has tusks"),
    page(a("nosnippet"), "A walrus has whiskers", head=ROBOTS.format("nosnippet")),
    page(a("nosnippet-header"), "A walrus has flippers", header="X-Robots-Tag: nosnippet\r\n"),
    page(
        a("nosnippet-other"), "A walrus has blubber", header="X-Robots-Tag: otherbot: nosnippet\r\n"
    ),
    page(a("past"), "old news of a tapir", head=ROBOTS.format("unavailable_after: 2020-01-01")),
    page(a("future"), "late news of a tapir", head=ROBOTS.format("unavailable_after: 2999-01-01")),
    page(a("noindex"), "a hidden tapir", head=ROBOTS.format("noindex")),
    canonical(a("chain0"), a("chain1"), "first gibbon"),
    canonical(a("chain1"), a("chain2"), "second gibbon"),
    page(a("chain2"), "third gibbon"),
    canonical(a("loop/of/two"), a("loop"), "lemur there"),
    canonical(a("loop"), a("loop/of/two"), "lemur here"),
    linking(a("linking"), "a list", {a("moved"): "excellent ocelots"}),
    answer(a("moved"), "redirect", 301, time=1000.0, target=a("moved/here")),
    answer(a("moved/here"), "redirect", 302, time=1000.0, target=a("there")),
    page(a("there"), "a spotted cat"),
    page(a("en"), "Those who die in hotels"),
    page(a("de"), "Die Reise durch alle Hotels dieser Stadt", lang="de"),
    page(a("zh"), "我爱北京天安门", lang="zh"),
    page(a("equal"), "the same words", time=2000.0),
    page(a("equal/older"), "the same words"),
    answer(a("gone"), "gone", 404, time=1000.0),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A crawl with an index."""
    made = Made.below(tmp_path_factory.mktemp("searched") / "crawl")
    made.crawl(*CAPTURES)
    imported = Iteration("1", "", 1, (IMPORT_NODE,), "host", "", {}, 0, (), (), "", Kind.IMPORT)
    made.stores.storage.write_bytes("crawl/1/iteration.json", write_json_bytes(asdict(imported)))
    made.update()
    find_near(made.stores, now=NOW)
    made.update()
    return made.root


@pytest.fixture
def krake(root: Path, capsys: pytest.CaptureFixture[str]) -> Krake:
    krake = Krake(root, lambda words: run_in_process(capsys, words))
    krake.configure(servers=["node-0"])
    return krake


def found(krake: Krake, *query: str) -> dict[str, Any]:
    """The results of a query by URL."""
    return {one["url"]: one for one in krake("search", "--json", "--", *query).json["results"]}


@pytest.mark.parametrize(
    ("query", "urls"),
    [
        ("octopus hearts", {"paper.pdf"}),
        ("octopus type:pdf", {"paper.pdf"}),
        ("octopus -type:pdf", set()),
        ("tapir", {"future"}),
        ("gibbon", {"chain2"}),
        ("lemur", {"loop"}),
        ("excellent ocelot", {"there"}),
        ("die hotel", {"en", "de"}),
        ("die hotel language:en", {"en"}),
        ("reise", {"de"}),
        ("reisen hotel", {"de"}),
        ("北京", {"zh"}),
        ("京北", set()),
        ("same words", {"equal"}),
        ("url:gone", set()),
    ],
)
def test_a_query_finds_the_pages_that_are_there(krake: Krake, query: str, urls: set[str]) -> None:
    assert {url for url, one in found(krake, query).items() if not one["missing"]} == {
        a(name) for name in urls
    }


def test_near_duplicates_are_one_result_that_names_the_others(krake: Krake) -> None:
    (one,) = found(krake, "penguin7").values()
    assert {one["url"], *one["like"]} == {a(f"near{number}") for number in range(4)}
    assert "and 3 like it: http://a.example/near" in krake.ok("search", "penguin7").out


def test_a_page_that_wants_no_snippet_has_none(krake: Krake) -> None:
    snippets = {url: one["snippet"] for url, one in found(krake, "walrus").items()}
    assert snippets == {
        a("plain"): "A walrus has tusks",
        a("nosnippet"): None,
        a("nosnippet-header"): None,
        a("nosnippet-other"): "A walrus has blubber",
    }
    out = krake.ok("search", "walrus").out
    assert "*walrus* has tusks" in out
    assert "whiskers" not in out
    assert "flippers" not in out


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("plain", "version 2 has it"),
        ("past", "version 2 has it"),
        ("noindex", "version 2 does not have it: the page asks not to be indexed (index.robots)"),
        ("chain0", f"the target of the page's canonical links (index.canonical): {a('chain2')}"),
        ("loop/of/two", f"the target of the page's canonical links (index.canonical): {a('loop')}"),
        ("equal/older", f"another page with the same text: {a('equal')}"),
        ("gone", "version 2 does not have it: it was no page when that was made"),
        ("never-seen", "version 2 does not have it: it was no page when that was made"),
    ],
)
def test_why_says_whether_the_index_has_a_page_or_why_not(
    krake: Krake, name: str, line: str
) -> None:
    assert line in krake.ok("why", a(name), "--json").json["index"]
    assert line in krake.ok("why", a(name)).out
