"""Which pages the index has, what stands for the others, and whose anchors a page has."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from crawl_lib import stages
from crawl_lib.ranks import update_linkrank
from crawl_lib.stores import Stores
from tests.crawldb.tables import leave_version, row_of
from tests.export.crawls import Capture, key
from tests.index.made import NOW, Made, a, answer, canonical, linking, page

NOINDEX = "<meta name=robots content=noindex>"
LATER = 5000.0
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made.below(tmp_path / "crawl")


def test_what_has_a_text_and_is_there_is_in_it_and_each_other_page_has_a_reason(made: Made) -> None:
    made.crawl(
        page(a("page"), "apples"),
        page(a("meta"), "pears", head=NOINDEX),
        page(a("header"), "plums", header="X-Robots-Tag: noindex\r\n"),
        page(a("empty"), ""),
        Capture(a("image"), b"\x89PNG", mime="image/png"),
        answer(a("gone"), "gone", 404, time=1),
    )
    version = made.update()
    assert made.urls(version) == {a("page")}
    names = [a(name) for name in ("meta", "header", "empty", "image", "gone")]
    reasons = {url: reason for url, (reason, _) in made.left_out(version, names).items()}
    assert reasons == {
        a("meta"): "noindex",
        a("header"): "noindex",
        a("empty"): "no_text",
        a("image"): "no_text",
    }
    assert version.manifest["left_out"] == {"no_text": 2, "noindex": 2}
    made.configure(robots="ignore")
    assert made.urls(made.update()) == {a("page"), a("meta"), a("header")}


def test_the_newest_answer_decides(made: Made) -> None:
    """Failures that pass, and what was not asked for, leave a page where it was."""
    answers = (
        *(
            ("not_modified", 304, True),
            ("gone", 404, False),
            ("gone", 410, False),
            ("redirect", 301, False),
        ),
        *(("client_error", 403, False), ("server_error", 503, True), ("timeout", None, True)),
        *(("robots_denied", None, True), ("client_error", 429, True)),
    )
    names = [a(f"{outcome}-{status}") for outcome, status, _ in answers]
    made.crawl(*(page(url, f"text of {url}") for url in names), page(a("other"), "other"))
    made.crawl(
        *(
            answer(
                url,
                outcome,
                status,
                time=LATER,
                target=a("other") if outcome == "redirect" else "",
                retry_at=LATER + 1 if status == 429 else None,
            )
            for url, (outcome, status, _) in zip(names, answers, strict=True)
        )
    )
    stay = {url for url, (_, _, stays) in zip(names, answers, strict=True) if stays}
    assert made.urls(made.update()) == stay | {a("other")}


def test_a_page_that_came_back_and_a_visit_that_found_it_unchanged_count(made: Made) -> None:
    made.crawl(page(a("back"), "old"), page(a("same"), "same"))
    made.crawl(
        answer(a("back"), "gone", 404, time=LATER),
        page(a("same"), "same", time=LATER, refers_to="1/node-0"),
    )
    made.crawl(page(a("back"), "new", time=2 * LATER))
    version = made.update()
    assert made.urls(version) == {a("back"), a("same")}
    assert made.find(version, "new") == {a("back")}
    assert made.find(version, "old") == set()


def test_canonical_chains_are_followed_to_their_end_in_five_steps(made: Made) -> None:
    """The seventh page from the end of a chain is six steps away, and stays what it is."""
    chain = [canonical(a(f"c{n}"), a(f"c{n + 1}"), f"text{n}") for n in range(7)]
    made.crawl(*chain, page(a("c7"), "the end"))
    version = made.update()
    assert made.urls(version) == {a("c0"), a("c1"), a("c7")}
    folded = made.left_out(version, [a(f"c{n}") for n in range(8)])
    assert folded == {a(f"c{n}"): ("canonical", a("c7")) for n in range(2, 7)}
    made.configure(canonical="keep")
    assert len(made.urls(made.update())) == 8


def test_of_a_loop_of_canonical_links_the_best_stays(made: Made) -> None:
    """https before http; then the shortest URL. A page that leads into the loop is found as that page too."""
    tails = set()
    for length in (2, 3, 5):
        urls = [a(f"{length}/{n}") for n in range(length - 1)] + [
            f"https://a.example/{length}/the/longest"
        ]
        loop = [canonical(url, urls[(n + 1) % length], f"text {url}") for n, url in enumerate(urls)]
        tail = a(f"{length}/tail")
        made.crawl(*loop, canonical(tail, urls[0], f"tail {length}"))
        tails.add((tail, urls[-1]))
    version = made.update()
    assert made.urls(version) == {best for _, best in tails}
    left_out = made.left_out(version, [url for pair in tails for url in pair])
    assert left_out == {tail: ("canonical", best) for tail, best in tails}


def test_canonical_links_to_what_cannot_be_indexed_count_nothing_and_redirects_lead_on(
    made: Made,
) -> None:
    made.crawl(
        canonical(a("to-noindex"), a("noindex"), "one"),
        page(a("noindex"), "hidden", head=NOINDEX),
        canonical(a("to-nowhere"), a("nowhere"), "two"),
        canonical(a("to-itself"), a("to-itself"), "three"),
        canonical(a("to-moved"), a("moved"), "four"),
        answer(a("moved"), "redirect", 301, time=1, target=a("moved/")),
        page(a("moved/"), "five"),
    )
    version = made.update()
    assert made.urls(version) == {a("to-noindex"), a("to-nowhere"), a("to-itself"), a("moved/")}


def test_of_equal_texts_one_is_found_by_the_order_of_duplicates(made: Made) -> None:
    made.crawl(page(a("first"), "same words"), page(a("newest"), "same words", time=2000.0))
    made.crawl(
        page(a("long"), "equal words"),
        page(a("s"), "equal words"),
        page("https://b.example/p", "third words"),
    )
    made.crawl(page("http://b.example/p", "third words"))
    version = made.update()
    assert made.urls(version) == {a("newest"), a("s"), "https://b.example/p"}
    assert made.left_out(version, [a("first"), a("newest")]) == {
        a("first"): ("same_text", a("newest"))
    }


def test_anchors_of_folded_and_equal_pages_and_of_redirects_are_those_of_the_page(
    made: Made,
) -> None:
    hops = [
        answer(a(f"hop{n}"), "redirect", 301, time=1, target=a(f"hop{n + 1}")) for n in range(5)
    ]
    far = answer(a("far"), "redirect", 302, time=1, target=a("hop0"))
    made.crawl(
        page(a("hop5"), "the page", time=2000.0),
        page(a("equal"), "the page"),
        canonical(a("folded"), a("hop5"), "other words"),
        *hops,
        far,
        linking(a("1"), "one", {a("hop5"): "direct"}),
        linking(a("2"), "two", {a("hop0"): "redirected"}),
        linking(a("3"), "three", {a("folded"): "canonically"}),
        linking(a("4"), "four", {a("equal"): "equally"}),
        linking(a("5"), "five", {a("far"): "beyond"}),
        linking(a("6"), "six", {a("hop5"): "vanished"}),
        answer(a("6"), "gone", 404, time=LATER),
    )
    version = made.update()
    page_of = {
        word: made.find(version, word, "anchors_other") | made.find(version, word, "anchors_en")
        for word in ("direct", "redirect", "canon", "equal", "beyond", "vanish")
    }
    assert {word for word, urls in page_of.items() if urls} == {
        "direct",
        "redirect",
        "canon",
        "equal",
    }
    assert set().union(*page_of.values()) == {a("hop5")}


def test_the_hundred_most_frequent_anchors_count_each_once_a_page(made: Made) -> None:
    target = a("target")
    made.crawl(page(target, "target"), folder=1)
    made.crawl(*(linking(a(f"s{n}"), f"s{n}", {target: f"rare{n}"}) for n in range(100)), folder=2)
    made.crawl(*(linking(a(f"t{n}"), f"t{n}", {target: "often"}) for n in range(2)), folder=3)
    version = made.update()
    searcher = made.index(version).searcher()
    assert searcher.doc_freq("anchors_en", "often") == 1
    assert sum(searcher.doc_freq("anchors_en", f"rare{n}") for n in range(100)) == 99


def test_the_rules_of_the_scope_index_leave_pages_out(tmp_path: Path) -> None:
    rules = tmp_path / "rules.txt"
    rules.write_text("-/private\n+.\n")
    made = Made.below(
        tmp_path / "crawl", urls={"filters": {"index": [{"kind": "regex", "file": str(rules)}]}}
    )
    made.crawl(page(a("page"), "apples"), page(a("private/page"), "pears"))
    version = made.update()
    assert made.urls(version) == {a("page")}
    assert made.left_out(version, [a("private/page")]) == {a("private/page"): ("rules", None)}


def test_pages_without_a_language_have_that_of_most_pages_of_their_host(made: Made) -> None:
    def plain(name: str, text: str) -> Capture:
        return Capture(
            a(name),
            text.encode(),
            mime="text/plain",
            head=b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n",
        )

    made.crawl(page(a("en"), "some words"), plain("short", "running"))
    version = made.update()
    assert made.find(version, "run", "words_en") == {a("short")}


def test_the_table_of_pages_is_in_order_and_has_places_and_boosts(made: Made) -> None:
    until = "<meta name=robots content='unavailable_after: 2027-01-01'>"
    made.crawl(page(a("one"), "apples", head=until), page(a("two"), "pears"))
    version = made.update()
    rows = made.pages(version)
    assert [row["key"] for row in rows] == sorted(key(a(name)) for name in ("one", "two"))
    one = next(row for row in rows if row["key"] == key(a("one")))
    assert (one["host"], one["boost"], one["segment"], one["unavailable_after"].year) == (
        "a.example",
        1.0,
        "1/node-0",
        2027,
    )
    assert one["warc_length"] > 0


def test_boosts_are_ranks_divided_by_their_mean_and_page_rank_comes_first(made: Made) -> None:
    links = {"http://b.example/": "there"}
    made.crawl(
        linking(a("one"), "one", links),
        linking(a("two"), "two", links),
        page("http://b.example/", "three"),
    )
    for source, make in (("LinkRank", update_linkrank), ("PageRank", rank)):
        make(made.stores, now=NOW)
        version = made.update()
        assert version.manifest["boosts"].startswith(source)
        boosts = {row["host"]: row["boost"] for row in made.pages(version)}
        assert boosts["b.example"] > 1 > boosts["a.example"]
        assert boosts["b.example"] + 2 * boosts["a.example"] == pytest.approx(3)


def rank(stores: Stores, *, now: datetime) -> None:
    """Make an export with ranks of its pages."""
    stages.export_pages(stores, label="ranked")
    stages.link_export(stores, export="ranked")
    stages.rank_export(stores, export="ranked")


THERE = ("fetched", "not_modified", "duplicate", "orphan")


def with_crawldb(root: Path) -> Made:
    """A crawl whose CrawlDb has a page of each status, and two of equal texts."""
    made = Made.below(root, frontier={"order": "crawldb"})
    states = (*THERE, "gone", "redirected_permanent", "parse_failed")
    made.crawl(
        *(page(a(name), f"text of {name}") for name in states),
        *(page(a(name), "the same text") for name in ("low", "high")),
        linking(a("links"), "a page with a link", {a("redirected_permanent"): "anchor"}),
    )

    def row(
        name: str, status: str = "fetched", score: int = 0, target: str | None = None
    ) -> dict[str, Any]:
        fetched = (
            status if status in {"gone", "redirected_permanent", "parse_failed"} else "fetched"
        )
        capture = {"capture_segment": "1/node-0", "capture_time": 1000.0, "redirect_url": target}
        return row_of(a(name), status=status, fetch_status=fetched, score=Decimal(score), **capture)

    rows = [row(name, name, target=a("fetched") if "redirect" in name else None) for name in states]
    rows += [row("low", score=1), row("high", score=2), row("links")]
    leave_version(made.stores, 1, rows, segments=["1/node-0"])
    return made


def test_with_a_crawldb_its_status_score_and_redirects_decide(tmp_path: Path) -> None:
    made = with_crawldb(tmp_path / "crawl")
    version = made.update()
    assert made.urls(version) == {a(name) for name in (*THERE, "high", "links")}
    assert made.left_out(version, [a("low"), a("high")]) == {a("low"): ("same_text", a("high"))}
    assert made.find(version, "anchor", "anchors_en") == {a("fetched")}
    made.config = replace(made.config, crawldb=replace(made.config.crawldb, orphans="gone"))
    assert a("orphan") not in made.urls(made.update())
