"""`krake segment list|get|dump`: what committed segments hold, as text and as files that other programs read."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from warcio.archiveiterator import ArchiveIterator

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.stores import open_stores
from tests.cli.conftest import Krake, run_in_process
from tests.e2e.crawl import run_iteration, write_config
from tests.e2e.visits import PATHS, config_for, running_site, visit
from tests.screens import KRAKE, SIZES, run_in_terminal

Visited = tuple[Path, Config, dict[str, str]]


@pytest.fixture(scope="module")
def visited(tmp_path_factory: pytest.TempPathFactory) -> Visited:
    """A crawl of two rounds, and a third in which a list asked for all pages again."""
    directory = tmp_path_factory.mktemp("read")
    config = config_for(directory)
    with running_site() as site:
        stages.inject(open_stores(config), run_id="run-1", seeds=site.urls["/"])
        for number in (1, 2):
            run_iteration(config, "run-1", number)
        site.later()
        visit(config, "7-1", 3)
        urls = dict(site.urls)
    write_config(config, directory).rename(directory / "krake.yml")
    return directory, config, urls


@pytest.fixture
def krake(visited: Visited, capsys: pytest.CaptureFixture[str]) -> Krake:
    return Krake(visited[0], lambda words: run_in_process(capsys, words))


def test_the_list_says_what_each_segment_holds(krake: Krake, visited: Visited) -> None:
    found = krake.ok("segment", "list", "--json").json
    assert [one["segment"] for one in found] == list(
        map(str, open_stores(visited[1]).crawl.segments())
    )
    assert [one["pages"] for one in found] == [1, len(PATHS) - 1, len(PATHS)]
    assert found[2]["outcomes"] == {
        "ok": 4,
        "not_modified": 3,
        "unexpected_status": 1,
        "redirect": 1,
        "gone": 1,
    }
    assert [one["needed"] for one in found] == [1, 5, 0], (
        "/ in the first, and what the third found as it was"
    )
    assert all(str(one["segment"]) in krake.ok("segment", "list").out for one in found)


def test_all_that_was_fetched_of_a_url(krake: Krake, visited: Visited, tmp_path: Path) -> None:
    _, _, urls = visited
    for path, kinds in (
        ("/etag", "revisit"),
        ("/same", "revisit"),
        ("/new", "response"),
        ("/gone", "response"),
    ):
        file = tmp_path / f"{path[1:]}.warc.gz"
        found = krake.ok("segment", "get", urls[path], "--output", str(file), "--json").json
        assert [[head["warc-type"] for head in one["records"]] for one in found] == [
            ["request", "response", "metadata"],
            ["request", kinds, "metadata"],
        ]
        with file.open("rb") as stream:
            records = list(ArchiveIterator(stream))
        assert {record.rec_headers.get_header("WARC-Target-URI") for record in records} == {
            urls[path]
        }
        assert len(records) == 6
        assert (
            "is there already" in krake("segment", "get", urls[path], "--output", str(file)).error()
        )
    assert "304" in krake.ok("segment", "get", urls["/etag"]).out
    assert krake("segment", "get", "http://127.0.0.1:9/never").code == 1


def test_a_table_as_text(krake: Krake, visited: Visited) -> None:
    segment = str(open_stores(visited[1]).crawl.segments()[-1])
    lines = krake.ok("segment", "dump").out.splitlines()
    assert len(lines) == 2 * len(PATHS)
    rows = [json.loads(line) for line in krake.ok("segment", "dump", segment).out.splitlines()]
    assert {row["url"] for row in rows} == set(visited[2].values())
    assert sum(row["refers_to"] is not None for row in rows) == 6
    table = list(
        csv.DictReader(io.StringIO(krake.ok("segment", "dump", segment, "--format", "csv").out))
    )
    assert [row["url"] for row in table] == [row["url"] for row in rows]
    assert [json.loads(row["refers_to"] or "null") for row in table] == [
        row["refers_to"] for row in rows
    ]
    links = krake.ok("segment", "dump", "--table", "links", "--format", "csv").out.splitlines()
    assert links[0].startswith("segment,source,target,target_url")
    assert len({len(line.split(",")) for line in links}) == 1
    assert "there is no such segment" in krake("segment", "dump", "7/node-x").error()


def test_a_crawl_without_segments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = Krake(tmp_path, lambda words: run_in_process(capsys, words))
    empty.configure()
    (tmp_path / "dfs").mkdir()
    assert "there is no segment yet" in empty.ok("segment", "list").out
    assert empty.ok("segment", "dump").out == ""


@pytest.mark.parametrize("size", SIZES)
def test_a_terminal_gets_one_table_of_all_segments(visited: Visited, size: tuple[int, int]) -> None:
    """Each segment was a box of nine lines."""
    config = visited[0] / "krake.yml"
    terminal = run_in_terminal(KRAKE, ["--config", config, "segment", "list"], size)
    assert terminal.finish() == 0, terminal.written
    head, *rows = [
        line.split() for line in terminal.screen.lines if not line.startswith(" ") and line
    ]
    assert head == ["segment", "finished", "pages", "links"]
    segments = open_stores(visited[1]).crawl.segments()
    assert [row[0] for row in rows] == list(map(str, segments))
    assert [row[2] for row in rows] == ["1", str(len(PATHS) - 1), str(len(PATHS))]
    text = " ".join(" ".join(terminal.screen.lines).split())
    assert "not_modified 3" in text
