"""The chain of the scope `crawldb`: rows that go, rows that move, and rows that become one."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crawl_lib.config import ChainsConfig, Config, StepConfig
from crawl_lib.crawldb import explain, filter_crawldb, generate, newest_version, rebuild, update
from crawl_lib.errors import ConfigError, InputError
from crawl_lib.storage import open_storage
from crawl_lib.stores import Stores
from crawl_lib.urls import key_of
from tests.crawldb.crawls import Crawl, Visit
from tests.crawldb.tables import NOW as NOW_S
from tests.crawldb.tables import at, leave_version, row_of
from tests.stores import stores_on

NOW = datetime(2026, 11, 1, tzinfo=UTC)
T = 1_790_000_000
A, B = "http://a.example/", "http://b.example/"
QUERY = (StepConfig("query"),)
NO_ZIP = (StepConfig("suffix", None, "+P\n.zip"),)
WITHOUT_CAPTURE = (
    "capture_segment",
    "capture_file",
    "capture_offset",
    "capture_time",
    "capture_digest",
    "etag",
)
Ruled = Callable[..., Crawl]


@pytest.fixture
def ruled(config: Config) -> Ruled:
    """The same crawl directory, under a config with such chains in the scope crawldb."""

    def opened(normalizers: Any = (), filters: Any = ()) -> Crawl:
        chains = {
            "normalizers": ChainsConfig(crawldb=normalizers),
            "filters": ChainsConfig(crawldb=filters),
        }
        changed = dataclasses.replace(config, urls=dataclasses.replace(config.urls, **chains))
        return Crawl(stores_on(open_storage(changed), changed))

    return opened


def filtered(crawl: Crawl) -> dict[str, dict[str, Any]]:
    return crawl.rows(filter_crawldb(crawl.stores, now=NOW))


def facts(stores: Stores) -> dict[str, Any]:
    version = newest_version(stores)
    assert version is not None
    return version.manifest


def test_rows_that_a_filter_rejects_go_and_are_counted(ruled: Ruled) -> None:
    crawl = ruled()
    crawl.seeds(f"{A}\n{A}x.zip\n{A}x.zip?y\n{A}y")
    before = crawl.rows(update(crawl.stores, now=NOW))
    assert "ruled" not in facts(crawl.stores), "an empty chain changes no byte"
    after = filtered(ruled(filters=NO_ZIP))
    assert after == {url: before[url] for url in (A, f"{A}y")}
    manifest = facts(crawl.stores)
    assert (manifest["version"], manifest["parent"], manifest["ruled"], manifest["rows"]) == (
        2,
        1,
        {"rejected": 2},
        2,
    )


def test_a_row_that_moves_is_that_of_the_new_url_without_a_capture(ruled: Ruled) -> None:
    crawl = ruled()
    crawl.seeds(f"{A}?b&a")
    update(crawl.stores, now=NOW)
    crawl.segment(
        T, [Visit(f"{A}?b&a", body="x", links=[B], more={"etag": "e", "last_modified": "l"})]
    )
    before = crawl.rows(update(crawl.stores, now=NOW))
    after = filtered(ruled(normalizers=QUERY))
    assert set(after) == {f"{A}?a&b", B}
    assert after[B] == before[B]
    row, old = after[f"{A}?a&b"], before[f"{A}?b&a"]
    assert (row["key"], row["host"], row["domain"]) == (
        key_of(f"{A}?a&b"),
        "a.example",
        "a.example",
    )
    lost = {*WITHOUT_CAPTURE, "last_modified"}
    assert all(old[name] is not None for name in lost - {"capture_digest"})
    assert all(row[name] is None for name in lost)
    same = set(row) - lost - {"key", "url"}
    assert {name: row[name] for name in same} == {name: old[name] for name in same}
    assert facts(crawl.stores)["ruled"] == {"moved": 1}


def test_a_host_that_is_renamed_gives_its_rows_host_and_domain(ruled: Ruled) -> None:
    crawl = ruled()
    crawl.seeds("http://www.old.co.uk/x")
    update(crawl.stores, now=NOW)
    rows = filtered(ruled(normalizers=(StepConfig("hosts", None, "*.old.co.uk www.new.org"),)))
    assert {url: (row["host"], row["domain"]) for url, row in rows.items()} == {
        "http://www.new.org/x": ("www.new.org", "new.org")
    }


def test_of_rows_of_one_url_that_of_the_newest_visit_counts(ruled: Ruled) -> None:
    """Newest visit, then whose URL it is, then the smallest key; least depth, highest score, all links."""
    crawl = ruled()
    crawl.seeds(f"{A}\n{B}x?b&a\tscore=7")
    update(crawl.stores, now=NOW)
    crawl.segment(
        T,
        [
            Visit(
                A,
                body="x",
                links=[
                    f"{A}x?a&b",
                    f"{A}x?b&a",
                    f"{A}y?b&c&a",
                    f"{A}y?c&b&a",
                    f"{A}y?a&b&c",
                    f"{B}x?a&b",
                ],
            ),
            Visit(f"{A}x?b&a", body="new", at=20.0),
            Visit(f"{A}x?a&b", body="old", at=15.0),
        ],
    )
    before = crawl.rows(update(crawl.stores, now=NOW))
    after = filtered(ruled(normalizers=QUERY))
    assert set(after) == {A, f"{A}x?a&b", f"{A}y?a&b&c", f"{B}x?a&b"}
    visited, own = after[f"{A}x?a&b"], before[f"{A}x?a&b"]
    assert (
        visited["fetched_time"]
        == before[f"{A}x?b&a"]["fetched_time"]
        == own["fetched_time"] + timedelta(seconds=5)
    )
    assert visited["signature"] == before[f"{A}x?b&a"]["signature"]
    assert visited["capture_segment"] is None
    assert visited["inlinks"] == own["inlinks"] + before[f"{A}x?b&a"]["inlinks"]
    unvisited = after[f"{A}y?a&b&c"]
    assert (unvisited["status"], unvisited["inlinks"]) == ("unfetched", 3)
    seed = after[f"{B}x?a&b"]
    assert (seed["depth"], str(seed["score"]), seed["inlinks"]) == (0, "7.000000000", 1)
    assert facts(crawl.stores)["ruled"] == {"moved": 4}


def test_an_update_and_a_rebuild_apply_the_chain_too(ruled: Ruled) -> None:
    """So what a filter removed does not come back, and a rebuilt table is the grown one."""
    crawl = ruled(normalizers=QUERY, filters=NO_ZIP)
    crawl.seeds(f"{A}\n{A}x.zip\n{A}?d&c")
    first = crawl.rows(update(crawl.stores, now=NOW))
    assert set(first) == {A, f"{A}?c&d"}
    crawl.segment(T, [Visit(A, body="x", links=[f"{A}y.zip", f"{B}?b&a"])])
    grown = crawl.rows(update(crawl.stores, now=NOW))
    assert set(grown) == {A, f"{A}?c&d", f"{B}?a&b"}
    assert facts(crawl.stores)["ruled"] == {"moved": 1, "rejected": 1}
    assert filtered(crawl) == grown, "again changes nothing"
    rebuilt = crawl.rows(rebuild(crawl.stores, now=NOW))
    assert {url: row | {"score": 0} for url, row in rebuilt.items()} == {
        url: row | {"score": 0} for url, row in grown.items()
    }


def test_a_url_that_rules_ended_before_its_fetch_is_gone_for_now_and_what_it_became_is_due(
    ruled: Ruled,
) -> None:
    """Rules of the scope fetch alone: the table keeps the row, and tries again."""
    crawl = ruled()
    crawl.seeds(f"{A}?b&a\n{A}x.zip")
    update(crawl.stores, now=NOW)
    moved = Visit(
        f"{A}?b&a", "filtered", redirect_url=f"{A}?a&b", more={"error": f"normalizers: {A}?a&b"}
    )
    crawl.segment(T, [moved, Visit(f"{A}x.zip", "filtered", more={"error": "filters: suffix.txt"})])
    rows = crawl.rows(update(crawl.stores, now=NOW))
    assert {url: row["status"] for url, row in rows.items()} == {
        f"{A}?b&a": "gone",
        f"{A}x.zip": "gone",
        f"{A}?a&b": "unfetched",
    }


def test_a_rule_that_raises_drops_no_row_and_is_counted(ruled: Ruled) -> None:
    crawl = ruled()
    crawl.seeds(A)
    before = crawl.rows(update(crawl.stores, now=NOW))
    xml = "<regex-normalize><regex><pattern>^http</pattern><substitution>ftp</substitution></regex></regex-normalize>"
    assert filtered(ruled(normalizers=(StepConfig("regex", None, xml),))) == before
    assert facts(crawl.stores)["ruled"] == {"normalizers: regex": 1}


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.tuples(
            st.permutations(["a", "b", "c"]).map("&".join),
            st.one_of(st.none(), st.integers(NOW_S - 3, NOW_S)),
            st.integers(0, 3),
            st.integers(0, 3),
        ),
        unique_by=lambda row: row[0],
    )
)
def test_any_rows_of_one_url_become_the_one_that_the_rule_says(
    ruled: Ruled, drawn: list[tuple[str, int | None, int, int]]
) -> None:
    rows = [
        row_of(
            f"{A}?{query}",
            fetched_time=visit,
            depth=number,
            inlinks=number,
            score=Decimal(number),
            retries=place,
        )
        for place, (query, visit, number, _) in enumerate(drawn)
    ]
    shutil.rmtree(ruled().root / "crawldb", ignore_errors=True)
    leave_version(ruled().stores, 1, [*rows, row_of(B)])
    found = filtered(ruled(normalizers=QUERY))
    assert found.pop(B)["retries"] == 0
    if not rows:
        assert found == {}
        return
    own = f"{A}?a&b&c"
    since_ever = datetime(1970, 1, 1, tzinfo=UTC)
    best = min(
        rows,
        key=lambda row: (
            since_ever - (row["fetched_time"] or since_ever),
            row["url"] != own,
            row["key"],
        ),
    )
    [(url, row)] = found.items()
    assert (url, row["key"], row["retries"]) == (own, key_of(own), best["retries"])
    assert (row["depth"], row["inlinks"], row["score"]) == (
        min(row["depth"] for row in rows),
        sum(row["inlinks"] for row in rows),
        max(row["score"] for row in rows),
    )


def test_generate_leaves_out_what_rules_refuse_since_the_version_was_made(ruled: Ruled) -> None:
    crawl = ruled()
    leave_version(crawl.stores, 1, map(row_of, (A, f"{A}x.zip", f"{A}?b&a", f"{A}?a&b")))
    changed = ruled(normalizers=QUERY, filters=NO_ZIP)
    assert generate(changed.stores, run_id="run", iteration=1, now=at(NOW_S)).listed == 2
    reasons = {
        url: str(explain(changed.stores, url).reason)
        for url in (A, f"{A}x.zip", f"{A}?b&a", f"{A}?a&b")
    }
    assert reasons == {
        A: "listed",
        f"{A}x.zip": "filter",
        f"{A}?b&a": "filter",
        f"{A}?a&b": "listed",
    }


def test_without_a_version_or_with_a_wrong_file_nothing_is_made(ruled: Ruled) -> None:
    with pytest.raises(InputError, match="run an update first"):
        filter_crawldb(ruled().stores, now=NOW)
    crawl = ruled()
    crawl.seeds(A)
    update(crawl.stores, now=NOW)
    bad = ruled(filters=(StepConfig("regex", "/x/regex.txt", "+.\nwrong"),))
    with pytest.raises(ConfigError, match=r"^/x/regex\.txt:2: "):
        filter_crawldb(bad.stores, now=NOW)
    assert [path.name for path in (crawl.root / "crawldb").iterdir()] == ["1"]
