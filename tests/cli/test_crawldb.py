"""`krake crawldb ...` as a user types it, and `krake crawl` and `krake why` of a crawl with a CrawlDb."""

from __future__ import annotations

import csv
import io
import json
import shutil

import pytest

from demo import Serving
from tests.cli.conftest import Krake

AGAIN = {"frontier": {"order": "crawldb"}}


@pytest.fixture
def crawled(krake: Krake, serving: Serving) -> Krake:
    """Until nothing is due."""
    krake.configure(**AGAIN)
    krake.ok("inject", "\n".join(serving.seeds))
    done = krake.ok("crawl", "--iterations", "8", "--run-id", "one")
    assert "nothing is due before 20" in done.out
    assert "no URL was queued" not in done.err
    return krake


def test_a_crawl_ends_when_nothing_is_due_and_a_settled_crawl_is_clean(
    crawled: Krake, serving: Serving
) -> None:
    found = crawled.ok("crawldb", "stats", "--json").json
    assert found["rows"] == len(serving.truth().visits)
    assert sum(found["rows_of_host"].values()) == found["rows"] == sum(found["statuses"].values())
    assert (found["due"]["now"], found["due"]["within 30 days"]) == (
        0,
        found["rows"] - found["statuses"]["gone"],
    )
    crawled.ok("settle")
    assert "clean" in crawled.ok("fsck").out
    assert "nothing is due" in crawled.ok("crawl").out, "a second run finds the same"


def test_the_row_of_a_url_the_best_and_all(crawled: Krake, serving: Serving) -> None:
    seed = serving.seeds[0]
    row = crawled.ok("crawldb", "get", seed, "--json").json
    assert (row["url"], row["status"], row["depth"]) == (seed, "fetched", 0)
    assert "fetched" in crawled.ok("crawldb", "get", seed).out
    missing = crawled("crawldb", "get", f"{seed}nowhere")
    assert (missing.code, "is not in the CrawlDb" in missing.out) == (1, True)
    best = crawled.ok("crawldb", "top", "--count", "3", "--json").json
    assert len(best) == 3
    assert [one["score"] for one in best] == sorted((one["score"] for one in best), reverse=True)
    assert len(crawled.ok("crawldb", "top", "--count", "2").out.splitlines()) == 2
    rows = [json.loads(line) for line in crawled.ok("crawldb", "dump").out.splitlines()]
    assert [one["key"] for one in rows] == sorted(one["key"] for one in rows)
    assert row in rows
    table = list(csv.DictReader(io.StringIO(crawled.ok("crawldb", "dump", "--format", "csv").out)))
    assert [one["url"] for one in table] == [one["url"] for one in rows]


def test_hosts_are_a_line_each(crawled: Krake) -> None:
    stats = crawled.ok("crawldb", "stats", "--json").json
    found = [json.loads(line) for line in crawled.ok("crawldb", "hosts").out.splitlines()]
    assert {one["host"]: one["urls"] for one in found[:10]} == stats["rows_of_host"]
    assert sum(one["fetched"] for one in found) == stats["statuses"]["fetched"]
    table = list(
        csv.DictReader(
            io.StringIO(crawled.ok("crawldb", "hosts", "--format", "csv", "--count", "2").out)
        )
    )
    assert [one["host"] for one in table] == [one["host"] for one in found[:2]]


def test_why_and_explain_say_the_same_of_the_newest_list(crawled: Krake, serving: Serving) -> None:
    seed = serving.seeds[0]
    said = crawled.ok("crawldb", "explain", seed, "--json").json
    assert said["list"]["reason"] == "not_due"
    why = crawled.ok("why", seed, "--json").json
    assert why["crawldb"] == {"row": said["row"], "list": said["list"]}
    assert why["answer"].startswith("is fetched, and due 20")
    assert why["answer"].endswith(": not_due")
    assert why["answer"] in crawled.ok("crawldb", "explain", seed).out
    unknown = crawled.ok("crawldb", "explain", f"{seed}nowhere", "--json").json
    assert (unknown["row"], unknown["list"]["reason"]) == (None, "unknown")


def test_before_the_first_list_there_is_none_to_explain(krake: Krake, serving: Serving) -> None:
    """Also where `krake retry` has left one of its own."""
    krake.configure(**AGAIN)
    krake.ok("inject", "\n".join(serving.seeds))
    (krake.directory / "dfs" / "crawl" / "lists" / "retry-1-abc").mkdir(parents=True)
    assert krake.ok("crawldb", "explain", serving.seeds[0], "--json").json["list"] is None


def test_a_round_by_hand(krake: Krake, serving: Serving) -> None:
    """As `krake crawl --node` on many machines leaves it to do: a list, each node's part, an update."""
    krake.configure(**AGAIN)
    krake.ok("inject", "\n".join(serving.seeds))
    made = krake.ok("crawldb", "generate", "--run-id", "one", "--json").json
    assert (made["list"], made["listed"]) == ("1-1", len(serving.seeds))
    for node in ("node-a", "node-b"):
        krake.ok("crawl", "--run-id", "one", "--node", node)
    assert krake.ok("crawldb", "generate", "--run-id", "one", "--json").json == made
    assert krake.ok("crawldb", "update", "--json").json["version"] == 2
    assert krake.ok("crawldb", "update", "--json").json["version"] == 2, "nothing is new"
    again = krake.ok("crawldb", "rebuild", "--json").json
    assert again["version"] == 3
    assert krake.ok("crawldb", "filter", "--json").json["rows"] == again["rows"]


def test_a_fifo_crawl_gets_a_crawldb_and_there_is_no_way_back(
    krake: Krake, serving: Serving
) -> None:
    krake.ok("inject", "\n".join(serving.seeds))
    assert "frontier.order: is fifo" in krake("crawldb", "init").error()
    assert "frontier.order: is fifo" in krake("crawldb", "update").error()
    krake.ok("crawl", "--iterations", "8")
    krake.ok("settle")
    krake.configure(**AGAIN)
    for words in (("crawl",), ("crawldb", "update"), ("crawldb", "rebuild")):
        assert "crawldb init" in krake(*words).error()
    krake.configure(**AGAIN, crawl={"name": "another"})
    assert "of the crawl 'krake'" in krake("crawldb", "init").err
    krake.configure(**AGAIN)
    made = krake.ok("crawldb", "init", "--json").json
    assert made["rows"] == len(serving.truth().visits)
    note = krake.directory / "dfs/crawl/_crawl"
    whole = note.read_bytes()
    note.unlink()  # killed right after the old one was deleted
    assert krake.ok("crawldb", "init", "--json").json == made
    assert note.read_bytes() == whole
    assert "nothing is due before 20" in krake.ok("crawl").out
    krake.configure()
    assert "no way back" in krake("crawl").error()


def test_a_page_that_the_table_lacks_was_not_forgotten(crawled: Krake, serving: Serving) -> None:
    shutil.rmtree(crawled.directory / "dfs/crawl/crawldb")
    said = crawled.ok("why", serving.seeds[0]).out
    assert "ended as ok" in said
    assert "forgotten" not in said


def test_a_crawl_without_a_version_says_what_makes_one(krake: Krake) -> None:
    krake.configure(**AGAIN)
    assert "krake crawldb update" in krake("crawldb", "stats").error()
