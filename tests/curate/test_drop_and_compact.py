"""`krake segment drop` and `compact`: a dropped page is in no reader's answer, and after `compact` in no file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crawl_lib import stages
from crawl_lib.crawldir import SegmentRef
from crawl_lib.curate.compact import _Compaction, compact_segment
from crawl_lib.curate.drop import DropReport, drop_pages
from crawl_lib.errors import DamagedFileError, InputError, OutputConflictError
from crawl_lib.export.show import show_page
from crawl_lib.repair.folders.folders import SmallFiles
from crawl_lib.repair.segments import swap
from crawl_lib.repair.segments.salvage import salvage_segment
from crawl_lib.rounds import note_change
from crawl_lib.segment import PAGES_SCHEMA, SegmentReader
from crawl_lib.states import KeyState
from crawl_lib.storage import LocalStorage
from crawl_lib.stores import Stores, open_stores
from crawl_lib.urls import key_of
from tests.e2e.crawl import Result, check_cdxj, check_warcs
from tests.harms import files_of, flip
from tests.repair.crawled import (
    export_all,
    exported,
    largest,
    problems,
    require_file_ids,
    rows,
    stores_of,
    warc_of,
)


def some_pages(segment: Path, count: int = 3) -> list[str]:
    """URLs of pages with links and status 200."""
    sources = {row["source"] for row in rows(segment, "links")}
    found = [row["url"] for row in rows(segment) if row["status"] == 200 and row["key"] in sources]
    assert len(found) > count
    return found[:count]


def drop(crawl: Result, *pages: str, dry_run: bool = False) -> DropReport:
    return drop_pages(stores_of(crawl.config), pages, dry_run=dry_run)


def reader_of(crawl: Result, name: SegmentRef) -> SegmentReader:
    stores = stores_of(crawl.config)
    return SegmentReader(stores.storage, name.path)


def urls_in(reader: SegmentReader) -> set[str]:
    return {url for batch in reader.pages(["url"]) for url in batch.column(0).to_pylist()}


def test_readers_leave_a_dropped_page_out_with_its_links(crawl: Result) -> None:
    segment, name = largest(crawl)
    by_url, by_key, stays = some_pages(segment)
    report = drop(crawl, by_url, key_of(by_key).hex())
    assert report.dropped == {str(name): sorted([by_url, key_of(by_key).hex()])}
    reader = reader_of(crawl, name)
    assert urls_in(reader) == {row["url"] for row in rows(segment)} - {by_url, by_key}
    sources = {
        source
        for batch in reader.links(["source", "target"])
        for source in batch.column("source").to_pylist()
    }
    assert not sources & {key_of(by_url), key_of(by_key)}
    assert key_of(stays) in sources
    everything = {
        url
        for batch in reader.pages(["url"], with_dropped=True)
        for url in batch.column(0).to_pylist()
    }
    assert {by_url, by_key} <= everything
    assert reader.taken_out == {key_of(by_url), key_of(by_key)}


def test_dropping_twice_changes_nothing_and_unknown_pages_are_named(crawl: Result) -> None:
    segment, name = largest(crawl)
    url = some_pages(segment)[0]
    drop(crawl, url)
    before = files_of(crawl.crawl_dir)
    report = drop(crawl, url, "http://nowhere.example/")
    assert (report.dropped, report.already) == ({}, {str(name): [url]})
    assert report.unknown == ["http://nowhere.example/"]
    assert files_of(crawl.crawl_dir) == before
    with pytest.raises(InputError, match="neither a URL"):
        drop(crawl, "mailto:x@example.org")


@pytest.mark.parametrize("step", ["repair.swap.decided", "repair.swap.aside", "repair.swap.placed"])
def test_a_drop_sees_a_segment_that_a_killed_repair_put_aside(
    step: str, crawl: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pages are dropped, though the segment may not be there when the command begins."""
    segment, name = largest(crawl)
    first, second, _ = some_pages(segment)
    drop(crawl, first)
    killed_at(step, crawl, name, monkeypatch)
    report = drop(crawl, second)
    assert (report.dropped, report.unknown) == ({str(name): [second]}, [])
    assert first not in {row["url"] for row in rows(segment)}, "the compaction was not carried out"
    assert not urls_in(reader_of(crawl, name)) & {first, second}
    assert problems(crawl.config, name) == []


def test_a_crawl_task_makes_no_other_segment_while_a_repair_is_open(
    crawl: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task of an old iteration is cleared, whose segment a killed repair put aside."""
    segment, name = largest(crawl)
    drop(crawl, some_pages(segment)[0])
    killed_at("repair.swap.aside", crawl, name, monkeypatch)
    iteration = json.loads((segment.parent / "iteration.json").read_text())
    round_: dict[str, Any] = {"run_id": iteration["run_id"], "iteration": iteration["iteration"]}
    note_change(open_stores(crawl.config), round_["run_id"])  # the copy's config has other paths
    task = round_ | {"node": name.node}
    with pytest.raises(DamagedFileError, match="krake fsck --repair"):
        stages.crawl_node(open_stores(crawl.config), **task)
    assert not segment.exists()
    swap.finish_swaps(stores_of(crawl.config), name.folder)
    assert stages.crawl_node(open_stores(crawl.config), **task)["folder"] == name.folder


@pytest.mark.parametrize("step", ["repair.swap.decided", "repair.swap.aside", "repair.swap.placed"])
def test_a_compaction_whose_decision_cannot_be_read_leaves_no_dropped_page_aside(
    step: str, crawl: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment, name = largest(crawl)
    url = some_pages(segment)[0]
    drop(crawl, url)
    killed_at(step, crawl, name, monkeypatch)
    (segment.parent / f".swap-{name.node}.json").write_bytes(b"{")
    with pytest.raises(DamagedFileError, match="krake fsck --repair"):
        drop(crawl, url)
    before = files_of(crawl.crawl_dir)
    planned = repaired(crawl, name, dry_run=True)
    assert files_of(crawl.crawl_dir) == before
    assert f"{crawl.config.crawl.directory}/{name.folder}/.swap-{name.node}.json: " in planned[0]
    repaired(crawl, name)
    assert repaired(crawl, name) == []
    aside = [
        path.name
        for path in segment.parent.iterdir()
        if path.name.startswith(".") and path.is_dir()
    ]
    assert [path.partition(f"-{name.node}-")[0] for path in aside] == (
        [".new"] if step.endswith("decided") else []
    )
    assert problems(crawl.config, name) == []
    compact_segment(stores_of(crawl.config), name)
    assert key_of(url) not in {row["key"] for row in rows(segment)}
    assert not list(segment.parent.glob(".[cn]*"))


def test_a_compacted_segment_that_is_damaged_before_the_old_one_goes_gives_place_to_it(
    crawl: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pages are in the old one still, which would go with the decision that cannot be read."""
    segment, name = largest(crawl)
    url = some_pages(segment)[0]
    drop(crawl, url)
    before = urls_in(reader_of(crawl, name))
    killed_at("repair.swap.placed", crawl, name, monkeypatch)
    (segment.parent / f".swap-{name.node}.json").write_bytes(b"{")
    warc = max(segment.glob("*.warc.gz"), key=lambda path: path.stat().st_size)
    warc.write_bytes(warc.read_bytes()[:-400])
    repaired(crawl, name)
    assert repaired(crawl, name) == []
    assert problems(crawl.config, name) == []
    assert urls_in(reader_of(crawl, name)) == before
    assert len(list(segment.parent.glob(f".damaged-{name.node}-*/*.warc.gz"))) == len(
        list(segment.glob("*.warc.gz"))
    )


def repaired(crawl: Result, name: SegmentRef, *, dry_run: bool = False) -> list[str]:
    """What a repair of the segment's folder did."""
    done: list[str] = []
    SmallFiles(stores_of(crawl.config), done.append, dry_run=dry_run).iteration(name.folder)
    return done


def killed_at(step: str, crawl: Result, name: SegmentRef, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction that ends at a step of the swap, as if it was killed there."""

    def reached(at: str) -> None:
        if at == step:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(swap, "reached", reached)
        with pytest.raises(KeyboardInterrupt):
            compact_segment(stores_of(crawl.config), name)


def test_a_dry_run_of_drop_changes_nothing(crawl: Result) -> None:
    segment, name = largest(crawl)
    before = files_of(crawl.crawl_dir)
    report = drop(crawl, *some_pages(segment), dry_run=True)
    assert len(report.dropped[str(name)]) == 3
    assert files_of(crawl.crawl_dir) == before


def test_exports_honour_a_drop(crawl: Result) -> None:
    """An older export does not pass for one of what is left, one begun before is refused, a new one is clean."""
    segment, _ = largest(crawl)
    url = some_pages(segment)[0]
    export_all(crawl.config, "done")
    stages.export_pages(open_stores(crawl.config), label="begun")
    pages = stages.export_pages(open_stores(crawl.config), label="done")["pages"]
    places = [place.path for place in drop(crawl, url).places]
    assert places[-2:] == ["export/begun", "export/done"]
    assert f"crawl/{segment.parent.name}/{segment.name}" in places
    for label in ("done", "begun"):
        with pytest.raises(OutputConflictError, match="dropped"):
            stages.export_pages(open_stores(crawl.config), label=label)
    with pytest.raises(OutputConflictError, match="dropped"):
        stages.link_export(open_stores(crawl.config), export="begun")
    assert export_all(crawl.config, "after")["pages"] == pages - 1
    stores = stores_of(crawl.config)
    with pytest.raises(InputError, match="was dropped"):
        show_page(stores, name="done", page=url)
    with pytest.raises(InputError, match="is not among"):
        show_page(stores, name="after", page=url)


def test_failures_that_pass_are_counted_again(crawl: Result) -> None:
    """`crawl.max_pages` counts fetches without them."""
    segment, name = largest(crawl)
    urls = some_pages(segment)
    table = pq.read_table(segment / "pages.parquet").to_pylist()
    changed = [{**one, "retry_at": one["time"]} if one["url"] in urls[:2] else one for one in table]
    pq.write_table(pa.Table.from_pylist(changed, PAGES_SCHEMA), segment / "pages.parquet")
    drop(crawl, *urls[1:])
    compact_segment(stores_of(crawl.config), name)
    assert reader_of(crawl, name).manifest.counts["retried"] == {"ok": 1}


def test_a_dropped_page_stays_known(crawl: Result) -> None:
    segment, name = largest(crawl)
    url = some_pages(segment)[0]
    drop(crawl, url)
    compact_segment(stores_of(crawl.config), name)
    with stores_of(crawl.config).keys() as keys:
        assert keys.states([key_of(url)]) == {key_of(url): KeyState.CRAWLED}
    assert reader_of(crawl, name).taken_out == {key_of(url)}


def test_status_tells_of_dropped_pages(crawl: Result) -> None:
    segment, name = largest(crawl)
    drop(crawl, *some_pages(segment))

    def told() -> dict[str, int]:
        iterations = stages.status_of(crawl.config)["iterations"]
        return {
            entry["folder"]: entry.get("dropped", 0) for entry in iterations if entry.get("dropped")
        }

    assert told() == {name.folder: 3}
    compact_segment(stores_of(crawl.config), name)
    assert told() == {}


def test_compact_takes_dropped_pages_out_of_every_file(crawl: Result) -> None:
    """The rest is as it was: rows, links, index, outlinks and exports; sums still add up."""
    segment, name = largest(crawl)
    gone = some_pages(segment)
    outlinks = (segment / "outlinks").read_bytes()
    drop(crawl, *gone)
    export_all(crawl.config, "dropped")
    keys = {key_of(url) for url in gone}
    places = {"warc_file", "warc_offset", "warc_length"}

    def without_places() -> list[dict[str, object]]:
        return [
            {k: v for k, v in row.items() if k not in places}
            for row in rows(segment)
            if row["key"] not in keys
        ]

    pages = without_places()
    links = [row for row in rows(segment, "links") if row["source"] not in keys]
    report = compact_segment(stores_of(crawl.config), name)
    assert (report.state, report.pages) == ("compacted", 3)
    assert report.bytes_after < report.bytes_before
    assert problems(crawl.config, name) == []
    assert without_places() == pages
    assert rows(segment, "links") == links
    assert (segment / "outlinks").read_bytes() == outlinks
    text = b"".join(gzip.decompress(path.read_bytes()) for path in segment.glob("*.warc.gz"))
    named = [url for url in gone if f"WARC-Target-URI: {url}\r\n".encode() in text]
    assert named == []
    assert not [
        line
        for line in (segment / "index.cdxj").read_text().splitlines()
        if json.loads(line.split(" ", 2)[2])["url"] in gone
    ]
    check_warcs(crawl)
    check_cdxj(crawl)
    require_file_ids(segment)
    export_all(crawl.config, "compacted")
    assert exported(crawl.config, "compacted") == exported(crawl.config, "dropped")
    assert [path.name for path in segment.parent.iterdir() if path.name.startswith(".")] == []
    assert compact_segment(stores_of(crawl.config), name).state == "nothing"


def test_a_segment_may_lose_all_its_pages(crawl: Result) -> None:
    """Its files are there, without a row, and each reader and check takes them."""
    segment, name = largest(crawl)
    urls = [row["url"] for row in rows(segment)]
    before = segment_counts(segment)
    drop(crawl, *urls)
    assert compact_segment(stores_of(crawl.config), name).pages == len(urls) == before["pages"]
    assert (rows(segment), rows(segment, "links")) == ([], [])
    counts = segment_counts(segment)
    assert (counts["pages"], counts["links"], counts["dropped"], counts["taken"]) == (
        0,
        0,
        len(urls),
        before["taken"],
    )
    assert problems(crawl.config, name) == []
    assert reader_of(crawl, name).taken_out == {key_of(url) for url in urls}
    check_warcs(crawl)
    check_cdxj(crawl)
    export_all(crawl.config, "rest")


def segment_counts(segment: Path) -> dict[str, int]:
    found: dict[str, int] = json.loads((segment / "manifest.json").read_text())["counts"]
    return found


def test_compacting_twice_with_a_drop_between(crawl: Result) -> None:
    segment, name = largest(crawl)
    first, second, _ = some_pages(segment)
    for url in (first, second):
        drop(crawl, url)
        assert compact_segment(stores_of(crawl.config), name).pages == 1
    assert problems(crawl.config, name) == []
    counts = json.loads((segment / "manifest.json").read_bytes())["counts"]
    assert counts["dropped"] == 2
    assert reader_of(crawl, name).taken_out == {key_of(first), key_of(second)}


def test_a_damaged_segment_is_not_compacted_but_sent_to_salvage(crawl: Result) -> None:
    segment, name = largest(crawl)
    drop(crawl, *some_pages(segment))
    flip(warc_of(segment))
    before = files_of(crawl.crawl_dir)
    with pytest.raises(DamagedFileError, match="krake fsck --repair"):
        compact_segment(stores_of(crawl.config), name)
    assert files_of(crawl.crawl_dir) == before


def test_what_was_dropped_or_compacted_stays_out_after_a_salvage(crawl: Result) -> None:
    """Neither comes back, nor counts as lost."""
    segment, name = largest(crawl)
    compacted, dropped, _ = some_pages(segment)
    drop(crawl, compacted)
    compact_segment(stores_of(crawl.config), name)
    drop(crawl, dropped)
    (segment / "pages.parquet").unlink()
    report = salvage_segment(stores_of(crawl.config), name)
    assert (report.lost, report.lost_urls) == (0, [])
    assert problems(crawl.config, name) == []
    assert not {compacted, dropped} & urls_in(reader_of(crawl, name))
    assert compact_segment(stores_of(crawl.config), name).pages == 1


def test_a_dropped_page_whose_record_a_salvage_lost_is_compacted(crawl: Result) -> None:
    """Found by operators who dropped a page, had a WARC file damaged and repaired, and compacted its segment."""
    segment, name = largest(crawl)
    url, other, _ = some_pages(segment)
    [row] = [row for row in rows(segment) if row["url"] == url]
    drop(crawl, url, other)
    with (segment / row["warc_file"]).open("r+b") as file:
        file.seek(row["warc_offset"])
        file.write(b"\0" * row["warc_length"])
    report = salvage_segment(stores_of(crawl.config), name)
    assert (report.lost, report.lost_urls) == (1, [])
    assert compact_segment(stores_of(crawl.config), name).pages == 1
    assert problems(crawl.config, name) == []
    assert reader_of(crawl, name).taken_out == {key_of(url), key_of(other)}
    assert compact_segment(stores_of(crawl.config), name).state == "nothing"


def test_index_lines_are_in_order_again_where_only_their_places_differ(tmp_path: Path) -> None:
    """Two captures of a URL in one second, as archives that overlap have them of robots.txt."""
    lines = [
        f'example)/ 20200101000000 {{"offset": "{offset}", "filename": "w"}}\n'
        for offset in (1050, 2000)
    ]
    (tmp_path / "index.cdxj").write_text("".join(lines))
    (tmp_path / "segment").mkdir()
    store = LocalStorage(tmp_path.parent)
    compaction = _Compaction(
        cast("Stores", SimpleNamespace(storage=store)),
        SegmentReader(store, tmp_path.name),
        tmp_path / "segment",
    )
    compaction.removed["w"] = [(0, 1000, 1000)]
    compaction._index()
    offsets = [
        json.loads(line.split(" ", 2)[2])["offset"]
        for line in (tmp_path / "segment/index.cdxj").read_text().splitlines()
    ]
    assert offsets == ["1000", "50"]
