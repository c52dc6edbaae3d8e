"""`krake index cdxj`: one index of all segments, whose lines a replay program finds and whose records are there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crawl_lib.curate import index as cdxj
from crawl_lib.curate.compact import compact_segment
from crawl_lib.curate.drop import drop_pages
from crawl_lib.curate.index import IndexReport, merge_indexes
from crawl_lib.errors import (
    ConfigError,
    DamagedFileError,
    InputError,
    PathNotFoundError,
    StorageError,
)
from crawl_lib.repair.segments.salvage import salvage_segment
from crawl_lib.repair.sweep import check_leftovers
from crawl_lib.segment import runs, surt
from crawl_lib.storage.local import LocalStorage
from tests.curate.test_drop_and_compact import killed_at
from tests.e2e.crawl import Result, cdxj_entries, record_at, write_config
from tests.harms import flip
from tests.repair.crawled import largest, rows, stores_of, warc_of
from tests.repair.killed import run_killed

OLD = 'example,old)/ 20200101000000 {"url": "http://old.example/"}\n'


def merge(crawl: Result, output: Path | None = None) -> IndexReport:
    return merge_indexes(stores_of(crawl.config), output)


def index_of(crawl: Result) -> bytes:
    merge(crawl)
    return (crawl.crawl_dir / "index.cdxj").read_bytes()


def test_every_capture_of_every_segment_is_in_it_once_with_its_place(crawl: Result) -> None:
    report = merge(crawl)
    merged = list(cdxj_entries(crawl.crawl_dir))
    of_segments = [
        {**entry, "filename": f"{segment.parent.name}/{segment.name}/{entry['filename']}"}
        for segment in crawl.segments()
        for entry in cdxj_entries(segment)
    ]
    assert sorted(map(repr, merged)) == sorted(map(repr, of_segments))
    assert report == IndexReport(
        str(crawl.crawl_dir / "index.cdxj"), len(crawl.segments()), len(merged), 0
    )
    assert len({entry["filename"].rpartition("/")[0] for entry in merged}) > 1
    for entry in merged:
        place = crawl.crawl_dir / entry["filename"], int(entry["offset"]), int(entry["length"])
        assert record_at(*place) == ("response", entry["url"])


def test_lines_are_in_the_order_of_their_bytes_each_with_the_key_of_its_url(crawl: Result) -> None:
    lines = index_of(crawl).splitlines()
    assert lines == sorted(lines)
    for line in lines:
        urlkey, _, text = line.decode().split(" ", 2)
        assert urlkey == surt(json.loads(text)["url"])


def test_runs_and_merges_of_runs_change_nothing(
    crawl: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = index_of(crawl)
    monkeypatch.setattr(cdxj, "RUN_LINES", 3)
    monkeypatch.setattr(runs, "RUNS_AT_ONCE", 2)
    assert whole.count(b"\n") > 3 * 2 * 2 * 2
    assert index_of(crawl) == whole


def test_no_more_files_are_open_than_a_merge_may_have(
    crawl: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = [0]
    merge_runs = runs.merge_runs

    def counted(paths: list[Path]) -> object:
        opened.append(len(paths))
        return merge_runs(paths)

    monkeypatch.setattr(cdxj, "RUN_LINES", 2)
    monkeypatch.setattr(runs, "RUNS_AT_ONCE", 4)
    monkeypatch.setattr(runs, "merge_runs", counted)
    merge(crawl)
    assert max(opened) == 4


def test_keys_of_older_segments_are_made_again(crawl: Result) -> None:
    """Before, an address kept its order and double slashes stayed: other keys, and another order of the lines."""
    whole = index_of(crawl)
    for segment in crawl.segments():
        lines = (segment / "index.cdxj").read_text().splitlines()
        older = sorted(
            f"{len(lines) - number:05d}) {line.split(' ', 1)[1]}"
            for number, line in enumerate(lines)
        )
        (segment / "index.cdxj").write_text("".join(f"{line}\n" for line in older))
    assert index_of(crawl) == whole


def test_dropped_pages_are_left_out(crawl: Result) -> None:
    stores, (segment, name) = stores_of(crawl.config), largest(crawl)
    url = next(row["url"] for row in rows(segment) if row["status"] == 200)
    before = merge(crawl).captures
    drop_pages(stores, [url])
    report = merge(crawl)
    assert (report.captures, report.dropped) == (before - 1, 1)
    assert url not in [entry["url"] for entry in cdxj_entries(crawl.crawl_dir)]
    compact_segment(stores, name)
    report = merge(crawl)
    assert (report.captures, report.dropped) == (before - 1, 0)


def test_the_damaged_segment_that_a_salvage_keeps_is_not_read(crawl: Result) -> None:
    before = merge(crawl).segments
    segment, name = largest(crawl)
    flip(warc_of(segment))
    salvage_segment(stores_of(crawl.config), name)
    assert list(segment.parent.glob(".damaged-*"))
    assert merge(crawl).segments == before
    assert not any(".damaged" in entry["filename"] for entry in cdxj_entries(crawl.crawl_dir))


@pytest.mark.parametrize("step", ["repair.swap.decided", "repair.swap.aside", "repair.swap.placed"])
def test_a_segment_that_a_killed_repair_put_aside_is_in_it(
    crawl: Result, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = merge(crawl)
    segment, name = largest(crawl)
    drop_pages(
        stores_of(crawl.config), [next(row["url"] for row in rows(segment) if row["status"] == 200)]
    )
    killed_at(step, crawl, name, monkeypatch)
    after = merge(crawl)
    assert (after.segments, after.captures) == (before.segments, before.captures - 1)


def test_an_index_that_is_there_is_replaced_as_a_whole(crawl: Result, tmp_path: Path) -> None:
    words = ["--config", str(write_config(crawl.config, tmp_path)), "index", "cdxj"]
    file = crawl.crawl_dir / "index.cdxj"
    file.write_text(OLD)
    done = run_killed(words, "curate.index.written")
    assert (done.code, file.read_text()) == (-9, OLD)
    assert [leftover.where for leftover in check_leftovers(stores_of(crawl.config), ())] == [
        f"crawl/{found.name}" for found in file.parent.glob(".index.cdxj.*")
    ]
    done = run_killed([*words, "--json"], None)
    assert done.json["captures"] == file.read_text().count("\n")
    assert not (Path(crawl.config.scratch.directory) / "repair-index").exists()


def test_output_names_another_place(crawl: Result, tmp_path: Path) -> None:
    whole = index_of(crawl)
    (crawl.crawl_dir / "index.cdxj").unlink()
    merge(crawl, tmp_path / "mine.cdxj")
    assert (tmp_path / "mine.cdxj").read_bytes() == whole
    assert not (crawl.crawl_dir / "index.cdxj").exists()
    with pytest.raises(StorageError, match=r"nowhere/mine.cdxj: cannot be written: No such file"):
        merge(crawl, tmp_path / "nowhere" / "mine.cdxj")


def test_a_crawl_directory_elsewhere_needs_output(
    crawl: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = index_of(crawl)
    monkeypatch.setattr(
        LocalStorage, "local_path", lambda _self, path: tmp_path / path if path == "x" else None
    )
    with pytest.raises(ConfigError, match="--output"):
        merge_indexes(stores_of(crawl.config), None)
    monkeypatch.undo()
    merge(crawl, tmp_path / "mine.cdxj")
    assert (tmp_path / "mine.cdxj").read_bytes() == whole


def test_a_damaged_line_and_a_lost_index_are_named_with_the_command_that_repairs_them(
    crawl: Result,
) -> None:
    segment, name = largest(crawl)
    whole = (segment / "index.cdxj").read_text()
    (segment / "index.cdxj").write_text(whole.replace('"url"', '"uri"', 1))
    with pytest.raises(
        DamagedFileError, match=f"{name}/index.cdxj: line 1 .*`krake fsck --repair`"
    ):
        merge(crawl)
    (segment / "index.cdxj").unlink()
    with pytest.raises(
        PathNotFoundError, match=f"{name}/index.cdxj: is gone; run `krake fsck --repair`"
    ):
        merge(crawl)
    assert not (crawl.crawl_dir / "index.cdxj").exists()


def test_a_crawl_without_segments_leaves_an_index_alone(crawl: Result, tmp_path: Path) -> None:
    (tmp_path / "mine.cdxj").write_text(OLD)
    for segment in crawl.segments():
        segment.rename(tmp_path / f"{segment.parent.name}-{segment.name}")
    with pytest.raises(InputError, match="no segment"):
        merge(crawl, tmp_path / "mine.cdxj")
    assert (tmp_path / "mine.cdxj").read_text() == OLD


def test_a_file_that_is_no_index_is_not_replaced(crawl: Result, tmp_path: Path) -> None:
    file = tmp_path / "thesis.txt"
    file.write_text("Walls of crawlers\n")
    with pytest.raises(InputError, match=r"thesis.txt: is there already, and is no index"):
        merge(crawl, file)
    assert file.read_text() == "Walls of crawlers\n"
    file.write_text("")
    assert merge(crawl, file).captures == file.read_text().count("\n")
    with pytest.raises(StorageError, match="cannot be read: Is a directory"):
        merge(crawl, tmp_path)


def test_a_name_that_the_system_refuses_is_named(crawl: Result, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be read: File name too long"):
        merge(crawl, tmp_path / ("x" * 300))
