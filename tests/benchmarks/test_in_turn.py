"""What runs in turn is compared by medians, and a side that failed is a row without a figure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import first, pairs, peers, requisites
from benchmarks.first import Cost
from benchmarks.peers import Peer
from benchmarks.report import Row
from demo import Serving, SynthWeb
from tests.web.files import FileServing

WGET, SCRAPY = "wget with WARC", "Scrapy with a WARC pipeline"


def test_one_slow_round_does_not_move_the_ratio() -> None:
    found = {
        "Krake": [Peer(10, 200.0)] * 4 + [Peer(10, 20.0)],
        WGET: [Peer(10, 100.0)] * 5,
        SCRAPY: [Peer(9, 20.0)],
    }
    krake, wget, scrapy = peers.rows_of(found, whole=True)
    assert krake == Row("peers: Krake", "200 URLs/s of CPU (20 to 200; 10 URLs)")
    assert (wget.value, wget.verdict) == ("2.00 x: 100 URLs/s of CPU (100 to 100; 10 URLs)", "met")
    assert scrapy.verdict == "MISSED"


def test_a_peer_that_failed_is_not_judged_nor_is_a_part_of_the_web() -> None:
    _, wget, scrapy = peers.rows_of(
        {"Krake": [Peer(10, 200.0)], WGET: [Peer(10, 1.0)], SCRAPY: []}, whole=False
    )
    assert (wget.verdict, scrapy.verdict) == ("not judged", "not judged")
    assert "not measured" in scrapy.value


def test_crawlers_run_in_turn_round_by_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def crawler(name: str, figure: Peer | None) -> object:
        def crawl(seeds: object, directory: Path) -> Peer | None:
            assert list(directory.iterdir()) == []
            (directory / "mirror").write_text("not kept")
            ran.append(name)
            return figure

        return crawl

    monkeypatch.setattr(
        peers, "CRAWLERS", {"a": crawler("a", Peer(1, 2.0)), "b": crawler("b", None)}
    )
    assert peers.in_turn([], tmp_path, rounds=2) == {"a": [Peer(1, 2.0)] * 2, "b": []}
    assert ran == ["a", "b", "a", "b"]


def test_pairs_are_judged_by_the_median_of_their_ratios() -> None:
    [row] = pairs.rows_of([(0.002, 0.001), (0.001, 0.002), (0.0011, 0.002)], "HEAD~1")
    assert row.what == "pairs: CPU a URL, this checkout against HEAD~1, median of 3 pairs"
    assert row.value == "0.550 (0.500 to 2.000); medians 1.100, 2.000 ms"


def test_requisites_are_judged_by_the_median_of_pairs() -> None:
    [row] = requisites.rows_of([(0.002, 0.001), (0.001, 0.002), (0.0013, 0.001)], (6000, 1000))
    assert (
        row.value
        == "1.300 (0.500 to 2.000); medians 1.300 ms of 6,000 URLs and 1.000 ms of 1,000 URLs"
    )
    assert row.verdict == "met"


def test_a_made_site_has_requisites_for_a_crawl_that_wants_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requisites, "PAGES", 3)
    requisites.make_site(tmp_path / "site")
    with FileServing(tmp_path / "site", "127.0.8.9") as site:
        sections = {"parse": {"requisites": "all"}}
        urls, _ = pairs.crawl(pairs.PROJECT, [site.url("/0.html")], tmp_path / "crawl", sections)
    assert urls == 3 + 3 * 4 + 7, "pages, what each has of its own, what they share"


def test_the_first_hour_is_judged_by_medians_of_turns_against_the_commit_before_alone(
    tmp_path: Path,
) -> None:
    ran: list[tuple[Path, str]] = []

    def cost(checkout: Path, directory: Path) -> list[Cost]:
        ran.append((checkout, directory.name))
        return (
            [Cost(1.0, 9.0), Cost(2.0, 1.0)]
            if checkout == pairs.PROJECT
            else [Cost(4.0, 10.0), Cost(4.0, 1.0)]
        )

    other = tmp_path / "other"
    found = first.in_turns(cost, other, tmp_path, 3)
    assert [checkout for checkout, _ in ran] == [
        other,
        pairs.PROJECT,
        pairs.PROJECT,
        other,
        other,
        pairs.PROJECT,
    ]
    assert len({name for _, name in ran}) == 6
    cpu, clock = first.rows_of("later", found, slice(1, None), first.BEFORE)
    assert (cpu.value, cpu.verdict) == ("1.00 (1.00 to 1.00); medians 1.00, 1.00 s", "MISSED")
    assert (clock.value, clock.verdict) == ("0.50 (0.50 to 0.50); medians 2.00, 4.00 s", "met")
    assert {row.verdict for row in first.rows_of("first", found, slice(1), "HEAD~1")} == {""}


def test_a_checkout_crawls_with_its_own_code(tmp_path: Path) -> None:
    with Serving(SynthWeb(seed=1, sites=1, pages_per_site=3, specials=False)) as serving:
        urls, cpu_s = pairs.crawl(pairs.PROJECT, serving.seeds, tmp_path / "crawl")
    assert urls >= 3
    assert cpu_s > 0


def test_pairs_need_a_commit_and_nothing_else_takes_one() -> None:
    for arguments in (["pairs"], ["keys", "--against", "HEAD"]):
        ended = subprocess.run(
            [sys.executable, "-m", "benchmarks", *arguments], capture_output=True, text=True
        )
        assert ended.returncode == 2
        assert "go together" in ended.stderr
