"""Pages that a list asks for again: conditions, `not_modified`, revisit records, and all that reads them."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from warcio.archiveiterator import ArchiveIterator

from crawl_lib import stages
from crawl_lib.ask import explain, find_page, read_answer
from crawl_lib.config import Config
from crawl_lib.crawldb import generate, update
from crawl_lib.curate import compact_segment, drop_pages
from crawl_lib.durable import KILL_VARIABLE
from crawl_lib.findings import Severity
from crawl_lib.repair import fsck
from crawl_lib.repair.segments.revisits import check_revisits
from crawl_lib.repair.segments.salvage import salvage_segment
from crawl_lib.segment import SegmentReader, check_segment
from crawl_lib.stores import open_stores
from tests.e2e.crawl import Result, check_cdxj, check_counts, check_warcs, run_crawl, run_iteration
from tests.e2e.visits import (
    DATE,
    PATHS,
    VALIDATORS,
    Site,
    config_for,
    full_captures,
    leave_list,
    rows_of,
    running_site,
    visit,
)
from tests.forked import run_forked
from tests.repair.crawled import copy_of

CONDITIONS = {"If-None-Match", "If-Modified-Since"}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running_site() as found:
        yield found


@pytest.fixture(scope="module")
def before(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A crawl of two rounds that found all pages; the site changes after it."""
    found = Result(config_for(tmp_path_factory.mktemp("visits")))
    stages.inject(open_stores(found.config), run_id="run-1", seeds=site.urls["/"])
    for number in (1, 2):
        run_iteration(found.config, "run-1", number)
    site.later()
    return found


@pytest.fixture(scope="module")
def config(before: Result, tmp_path_factory: pytest.TempPathFactory) -> Config:
    """The same with a third round, in which a list asked for all pages again."""
    found = copy_of(before, tmp_path_factory.mktemp("visited")).config
    visit(found, "7-1", 3)
    return found


def comparable(config: Config) -> dict[str, tuple[Any, ...]]:
    """What a visit leaves of each page, without times and places of its own."""
    found = {}
    for path, row in rows_of(config, 3).items():
        facts = (
            "outcome",
            "status",
            "refers_to",
            "metadata",
            "etag",
            "last_modified",
            "title",
            "truncated",
        )
        found[path] = tuple(row[name] for name in facts)
    links = Counter(row["source"] for row in Result(config).rows("links", ["source"]))
    return {**found, "links": tuple(sorted(links.items()))}


def test_the_request_says_what_the_server_said_then(site: Site, config: Config) -> None:
    sent = {
        path: {name: headers[name] for name in CONDITIONS & headers.keys()}
        for path, headers in site.asked
    }
    assert sent.pop("/etag") == {"If-None-Match": '"e1"'}
    assert sent.pop("/date") == {"If-Modified-Since": DATE}
    assert sent.pop("/both") == {"If-None-Match": '"b"', "If-Modified-Since": DATE}
    assert set(map(len, sent.values())) == {0}, "of robots.txt too, and of pages without validators"


def test_what_each_visit_ended_in(config: Config) -> None:
    rows = rows_of(config, 3)
    found = {
        path: (row["outcome"], row["status"], row["refers_to"] is not None)
        for path, row in rows.items()
    }
    assert found == {
        "/": ("ok", 200, True),
        "/same": ("ok", 200, True),
        "/zipped": ("ok", 200, True),
        "/etag": ("not_modified", 304, True),
        "/date": ("not_modified", 304, True),
        "/both": ("not_modified", 304, True),
        "/new": ("ok", 200, False),
        "/liar": ("unexpected_status", 304, False),
        "/moved": ("redirect", 301, False),
        "/gone": ("gone", 404, False),
    }
    assert all(json.loads(row["metadata"]) == {"a": "b", "list": "7-1"} for row in rows.values())
    before = {**rows_of(config, 1), **rows_of(config, 2)}
    for path, row in rows.items():
        if row["refers_to"] is not None:
            old = before[path]
            assert (row["refers_to"]["file"], row["refers_to"]["offset"]) == (
                old["warc_file"],
                old["warc_offset"],
            )
            assert (row["digest"], row["length"], row["title"]) == (None, None, None)
    assert all(row["metadata"] is None for row in before.values())


def test_pages_say_what_the_next_visit_compares_with(config: Config, before: Result) -> None:
    """`coalesce(payload_digest, digest)` of a full capture is the WARC-Payload-Digest, codings or not."""
    for number in (1, 2):
        rows = rows_of(config, number)
        said = {row["url"]: (row["payload_digest"] or row["digest"]).hex() for row in rows.values()}
        assert said == {
            url: found.digest for url, found in full_captures(before.config).items() if url in said
        }
        assert {path for path, row in rows.items() if row["payload_digest"]} == {
            "/zipped"
        } & rows.keys()
    assert not any(row["payload_digest"] for row in rows_of(config, 3).values())


def test_the_segment_is_whole_and_every_reader_reads_it(config: Config) -> None:
    result = Result(config)
    counts = check_warcs(result)
    assert counts["revisit"] == 6
    check_counts(result)
    check_cdxj(result)
    stores = open_stores(config)
    for segment in stores.crawl.segments():
        assert check_segment(stores.storage, segment.path) == []


def test_a_revisit_record_says_what_it_is_a_revisit_of(config: Config) -> None:
    stores, captures = open_stores(config), full_captures(config)
    segment = stores.crawl.segments()[-1]
    reader = SegmentReader(stores.storage, segment.path)
    for path, row in rows_of(config, 3).items():
        if row["refers_to"] is None:
            continue
        headers = reader.read_record(
            row["warc_file"], row["warc_offset"], row["warc_length"]
        ).headers
        old_segment = SegmentReader(
            stores.storage, stores.crawl.at(*row["refers_to"]["segment"].split("/"))
        )
        [old] = old_segment.find([row["key"]])
        full = old_segment.read_record(
            old["warc_file"], old["warc_offset"], old["warc_length"]
        ).headers
        is_304 = row["outcome"] == "not_modified"
        profile = "server-not-modified" if is_304 else "identical-payload-digest"
        assert headers["warc-profile"] == f"http://netpreserve.org/warc/1.1/revisit/{profile}"
        assert headers["warc-refers-to-target-uri"] == full["warc-target-uri"] == row["url"]
        assert headers["warc-refers-to-date"] == full["warc-date"]
        assert headers["warc-payload-digest"] == full["warc-payload-digest"]
        assert headers.get("warc-truncated") == (None if is_304 else "length")
        assert row["truncated"] is None
        assert captures[row["url"]].segment == row["refers_to"]["segment"], path


def test_a_page_that_was_visited_again_is_shown_with_its_body(
    site: Site, config: Config, before: Result
) -> None:
    stores, old = open_stores(config), open_stores(before.config)
    for path in ("/etag", "/same", "/zipped"):
        view = find_page(stores, site.urls[path])
        assert view.row["refers_to"] is not None
        assert explain(stores, site.urls[path])["capture"]["refers_to"] == view.row["refers_to"]
        assert read_answer(stores, view) == read_answer(old, find_page(old, site.urls[path]))


def test_a_damaged_segment_with_revisits_is_made_again(config: Config, tmp_path: Path) -> None:
    other = copy_of(Result(config), tmp_path).config
    path = Result(other).segments()[-1]
    (path / "pages.parquet").write_bytes(b"")
    stores = open_stores(other)
    salvage_segment(stores, stores.crawl.segments()[-1])
    assert comparable(other) == comparable(config)
    assert check_segment(stores.storage, stores.crawl.segments()[-1].path) == []


def test_what_a_compaction_moves_is_found_by_its_key(
    site: Site, config: Config, tmp_path: Path
) -> None:
    """Records of full captures move when others are taken out of their file; revisits are shown with them as before."""
    other = copy_of(Result(config), tmp_path).config
    stores = open_stores(other)
    drop_pages(stores, [site.urls["/liar"], site.urls["/new"], site.urls["/gone"]])
    for segment in stores.crawl.segments():
        compact_segment(stores, segment)
        assert check_segment(stores.storage, segment.path) == []
    for path in ("/etag", "/same", "/date", "/both", "/"):
        content = read_answer(stores, find_page(stores, site.urls[path])).content.data
        assert content.endswith(path.encode())


def test_a_folder_that_is_deleted_takes_bodies_of_later_visits_with_it(
    config: Config, tmp_path: Path
) -> None:
    other = copy_of(Result(config), tmp_path).config
    stores = open_stores(other)
    assert not [one for one in fsck(stores).findings if one.name == "revisit_without_body"]
    stores.storage.delete(stores.crawl.at(stores.crawl.folders()[1]))
    report = fsck(stores)
    [found] = [one for one in report.findings if one.name == "revisit_without_body"]
    assert (
        found.count == sum(row["refers_to"] is not None for row in rows_of(config, 3).values()) - 1
    ), "all but /"
    assert found.severity is Severity.NOTE


def killed_drop(config: Config, urls: list[str], kill_at: str) -> None:
    os.environ[KILL_VARIABLE] = kill_at
    drop_pages(open_stores(config), urls)


def test_a_drop_leaves_no_visit_without_its_body_wherever_it_is_killed(
    site: Site, config: Config, tmp_path: Path
) -> None:
    other = copy_of(Result(config), tmp_path).config
    urls = [site.urls["/etag"], site.urls["/same"]]
    assert run_forked(killed_drop, other, urls, "curate.drop.written")
    assert check_revisits(open_stores(other)) == []
    report = drop_pages(open_stores(other), urls)
    assert len(report.dropped) + len(report.already) == 2
    assert check_revisits(open_stores(other)) == []


STEPS = (
    "take.written",
    "segment.part.log_synced",
    "segment.part.rows_written",
    "segment.part.closed",
    "segment.build.tables",
    "segment.publish.renamed",
    "node.advanced",
)


def killed_visit(config: Config, kill_at: str) -> None:
    os.environ[KILL_VARIABLE] = kill_at
    run_iteration(config, "run-1", 3)


@pytest.mark.parametrize("step", STEPS)
def test_a_visit_that_is_killed_and_run_again_leaves_the_same(
    step: str, site: Site, before: Result, config: Config, tmp_path: Path
) -> None:
    """The rows of a part that was open are made again from its records, which lack the bodies."""
    other = copy_of(before, tmp_path).config
    captures = full_captures(other)
    leave_list(other, "7-1", sorted(captures), captures)
    site.later()
    assert run_forked(killed_visit, other, step), f"{step} was not reached"
    run_iteration(other, "run-1", 3)
    assert Counter(path for path, _ in site.asked if path != "/robots.txt") == dict.fromkeys(
        PATHS, 1
    )
    assert comparable(other) == comparable(config)


def test_a_third_visit_refers_to_the_full_capture_too(
    site: Site, config: Config, tmp_path: Path
) -> None:
    visit(config, "8-1", 4)
    third, second = rows_of(config, 4), rows_of(config, 3)
    assert third["/etag"]["refers_to"] == second["/etag"]["refers_to"]
    assert third["/new"]["refers_to"] is None
    assert all(
        headers.get("If-None-Match") is None for path, headers in site.asked if path == "/moved"
    )


def test_lists_of_the_crawldb_ask_again_as_lists_by_hand_do(tmp_path: Path) -> None:
    """Three visits of each page, by what update and generate know of it; a body is written where it is another one."""
    config = config_for(tmp_path, "crawldb")
    with running_site() as site:
        run_crawl(config, [site.urls["/"]], process=False)
        rounds = len(open_stores(config).crawl.folders())
        full = full_captures(config)
        site.later()
        for number in (1, 2):
            now = datetime.now(UTC) + timedelta(days=40 * number)
            update(open_stores(config), now=now)
            made = generate(open_stores(config), "run-2", number, now=now)
            assert made.listed >= len(PATHS) - 1
            run_iteration(config, "run-2", number)
            rows = rows_of(config, rounds + number)
            revisits = {path for path, row in rows.items() if row["refers_to"]}
            assert revisits == {"/", "/same", "/zipped", "/etag", "/date", "/both"}
            assert {row["outcome"] for path, row in rows.items() if path in VALIDATORS} == {
                "not_modified"
            }
            for path in revisits:
                assert rows[path]["refers_to"] == full[site.urls[path]].place, "never to a revisit"
                assert json.loads(rows[path]["metadata"])["list"] == made.list
    result = Result(config)
    dates = warc_dates(result)
    assert dates["revisit"] <= dates["response"]
    assert check_warcs(result)["revisit"] == 12
    assert fsck(open_stores(config)).clean


def warc_dates(result: Result) -> dict[str, set[tuple[str, str]]]:
    """URL and date of responses, and of what revisits refer to."""
    found: dict[str, set[tuple[str, str]]] = {"response": set(), "revisit": set()}
    for path in result.warcs():
        with path.open("rb") as file:
            for record in ArchiveIterator(file):
                name = {"response": "WARC-Date", "revisit": "WARC-Refers-To-Date"}.get(
                    record.rec_type
                )
                if name is not None:
                    head = record.rec_headers
                    found[record.rec_type].add(
                        (head.get_header("WARC-Target-URI"), head.get_header(name))
                    )
    return found
