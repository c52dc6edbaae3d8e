"""`krake fsck --repair`: whatever happened to a segment, the good records come back and the lost ones are named."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crawl_lib.crawldir import FolderState, SegmentRef
from crawl_lib.curate.compact import compact_segment
from crawl_lib.curate.drop import drop_pages
from crawl_lib.curate.importing import import_archives
from crawl_lib.dfsfiles import write_json_bytes
from crawl_lib.errors import StoppedError
from crawl_lib.repair import sweep
from crawl_lib.repair.folders.folders import SmallFiles
from crawl_lib.repair.segments.known import read_lost, requeue_urls
from crawl_lib.repair.segments.salvage import SalvageReport, salvage_segment
from crawl_lib.repair.segments.swap import Swap, finish_swaps
from crawl_lib.sealed import sealed_json, unsealed
from crawl_lib.segment import PAGES_SCHEMA, SegmentReader
from crawl_lib.segment.encoder import RecordEncoder
from crawl_lib.stores import open_stores
from crawl_lib.warc import Damage, Whole, scan
from tests.cli.conftest import Krake
from tests.e2e.crawl import Result, check_cdxj, check_warcs, run_iteration, settle
from tests.export.test_remote import Elsewhere
from tests.harms import changed, files_of, flip, garbage, harmed, nonsense, shorten, zero
from tests.repair.archives import answer, pages_archive, write
from tests.repair.checked import findings
from tests.repair.crawled import (
    TABLES,
    copy_of,
    export_all,
    exported,
    largest,
    problems,
    require_file_ids,
    rows,
    stores_of,
    warc_of,
)
from tests.repair.killed import run_killed
from tests.segment.helpers import answered, ids, taken


def test_pages_that_a_salvage_lost_are_noted_until_they_are_requeued_or_crawled(
    copy: Callable[..., Krake],
) -> None:
    krake = copy()
    warc = max(
        krake.directory.glob("dfs/crawl/1*/node-a/*.warc.gz"), key=lambda path: path.stat().st_size
    )
    for share in (0.3, 0.7):
        flip(warc, share)
    assert (
        run_killed(["--config", str(krake.file), "fsck", "--repair"], "repair.swap.indexed").code
        == -9
    )
    (warc.parent.parent / ".swap-node-a.json").unlink()
    report = krake.ok("fsck", "--json").json
    [note] = [one for one in report["findings"] if one["name"] == "pages_lost"]
    assert report["clean"]
    assert note["severity"] == "note"
    assert note["count"] >= 1
    assert "`krake fsck --repair`" in note["repair"]
    before = set(krake.directory.glob("dfs/crawl/seeds/*"))
    krake.ok("fsck", "--repair")
    assert "pages_lost" not in findings(krake), "they are requeued"
    krake.ok("crawl", "--batch-size", "1000")
    krake.ok("settle")
    [requeued] = set(krake.directory.glob("dfs/crawl/seeds/*")) - before
    shutil.rmtree(requeued)
    assert "pages_lost" not in findings(krake), "they are crawled again"
    krake.ok("fsck", "--repair")
    assert set(krake.directory.glob("dfs/crawl/seeds/*")) == before, (
        "a repair does not queue them once more"
    )


def salvage(crawl: Result, name: SegmentRef, **options: bool) -> SalvageReport:
    return salvage_segment(stores_of(crawl.config), name, **options)


def outlinks_of(crawl: Result, segment: Path) -> list[bytes]:
    stores = stores_of(crawl.config)
    name = stores.crawl.segment(segment.parent.name, segment.name)
    reader = SegmentReader(stores.storage, name.path)
    return [line for node in crawl.config.servers for line in reader.outlinks(node)]


@pytest.mark.parametrize("table", TABLES)
def test_what_is_not_the_warc_is_made_again_from_it(table: str, crawl: Result) -> None:
    """The WARC is the log: with it whole, rows, index and outlinks are the same as before the damage."""
    segment, name = largest(crawl)

    def content() -> tuple[object, ...]:
        index = (segment / "index.cdxj").read_bytes()
        return rows(segment), rows(segment, "links"), index, sorted(outlinks_of(crawl, segment))

    before = content()
    for seed in range(3):
        how = harmed(segment / table, Random(f"{table} {seed}"))
        assert problems(crawl.config, name), how
        report = salvage(crawl, name)
        assert (report.lost, report.lost_urls) == (0, []), how
        assert problems(crawl.config, name) == [], how
        assert content() == before, how


def test_two_repairs_in_one_second_keep_both_damaged_segments(crawl: Result) -> None:
    segment, name = largest(crawl)
    asides = set()
    for _ in range(2):
        shorten(segment / "pages.parquet")
        asides.add(
            salvage_segment(stores_of(crawl.config), name, clock=lambda: 1_700_000_000.0).aside
        )
        assert problems(crawl.config, name) == []
    assert len(asides) == 2


def test_all_but_the_warc_is_gone(crawl: Result) -> None:
    segment, name = largest(crawl)
    before = rows(segment), rows(segment, "links"), sorted(outlinks_of(crawl, segment))
    for table in TABLES:
        (segment / table).unlink()
    report = salvage(crawl, name)
    assert report.lost == 0
    assert problems(crawl.config, name) == []
    assert (rows(segment), rows(segment, "links"), sorted(outlinks_of(crawl, segment))) == before


def test_the_export_after_a_salvage_is_that_of_the_unbroken_crawl(crawl: Result) -> None:
    segment, name = largest(crawl)
    export_all(crawl.config, "before")
    for table in ("pages.parquet", "links.parquet", "outlinks"):
        (segment / table).unlink()
    salvage(crawl, name)
    export_all(crawl.config, "after")
    assert exported(crawl.config, "after") == exported(crawl.config, "before")


@pytest.mark.parametrize("seed", range(8))
def test_good_records_come_out_of_a_harmed_warc(seed: int, crawl: Result) -> None:
    """Each page is either kept, with the row it had, or counted and named as lost; its outlinks stay in any case."""
    segment, name = largest(crawl)
    pages = {row["url"]: row for row in rows(segment)}
    outlinks = outlinks_of(crawl, segment)
    how = harmed(warc_of(segment), Random(seed))
    assert problems(crawl.config, name)
    report = salvage(crawl, name)
    assert report.aside
    assert problems(crawl.config, name) == []
    kept = {row["url"]: row for row in rows(segment)}
    lost = pages.keys() - kept.keys()
    assert kept.keys() <= pages.keys()
    assert (report.lost, report.lost_urls) == (len(lost), sorted(lost))
    for url, row in kept.items():
        assert without_places(row) == without_places(pages[url])
    assert outlinks_of(crawl, segment) == outlinks
    most = {"bits": 8, "append": 0}.get(how[:6].split()[0], len(pages))
    assert len(lost) <= most, how
    check_warcs(crawl)
    check_cdxj(crawl)
    require_file_ids(segment)
    export_all(crawl.config, "after")


def without_places(row: dict[str, Any]) -> dict[str, Any]:
    """Leave out of a row where its record lies."""
    return {column: value for column, value in row.items() if not column.startswith("warc_")}


@pytest.mark.parametrize("begin", [b"", b"\x1f\x8b\x08"])
def test_rubbish_around_the_records_loses_none(begin: bytes, crawl: Result) -> None:
    segment, name = largest(crawl)
    warc = warc_of(segment)
    warc.write_bytes(begin + b"rubbish" + warc.read_bytes() + begin + b"rubbish")
    assert problems(crawl.config, name)
    report = salvage(crawl, name)
    assert report.damage
    assert report.lost == 0
    assert problems(crawl.config, name) == []


def test_a_warc_file_that_is_there_twice_counts_once(crawl: Result) -> None:
    """As somebody's copy next to it does."""
    segment, name = largest(crawl)
    before = rows(segment)
    warc = warc_of(segment)
    warc.with_name(warc.name.replace("-00000.", "-00009.")).write_bytes(warc.read_bytes())
    (segment / "pages.parquet").unlink()
    report = salvage(crawl, name)
    assert report.lost == 0
    assert report.damage["repeated"] == report.pages == len(before)
    assert rows(segment) == before
    assert problems(crawl.config, name) == []


@pytest.mark.parametrize("seed", range(3))
def test_warc_and_tables_harmed_at_once(seed: int, crawl: Result) -> None:
    """What is left is kept; without the tables the index still names what is lost."""
    segment, name = largest(crawl)
    pages = {row["url"] for row in rows(segment)}
    answered = {row["url"] for row in rows(segment) if row["status"] is not None}
    rng = Random(seed)
    for path in (warc_of(segment), *map(segment.joinpath, ("pages.parquet", "links.parquet"))):
        changed(path, rng)
    nonsense(segment / "manifest.json", rng)
    report = salvage(crawl, name)
    assert problems(crawl.config, name) == []
    kept = {row["url"] for row in rows(segment)}
    assert kept <= pages
    named = {queued.url for queued in read_lost(stores_of(crawl.config), name)}
    assert (pages - kept) & answered <= named <= pages - kept
    assert report.lost_urls == sorted(named)
    export_all(crawl.config, "after")


@pytest.mark.parametrize(
    "changed", [{"url": "http://127.0.1.1/x\nhttp://not.example/"}, {"outcome": "o"}]
)
def test_a_row_that_was_changed_says_nothing_of_a_page(
    changed: dict[str, str], crawl: Result
) -> None:
    """Its URL would be crawled, its outcome be kept."""
    segment, name = largest(crawl)
    pages = rows(segment)
    (broken, fragment) = [row for row in pages if row["status"] == 200][:2]
    table = pq.read_table(segment / "pages.parquet").to_pylist()
    for row in table:
        if row["key"] in {broken["key"], fragment["key"]}:
            row.update(changed)
    pq.write_table(pa.Table.from_pylist(table, PAGES_SCHEMA), segment / "pages.parquet")
    warc = bytearray((segment / broken["warc_file"]).read_bytes())
    end = broken["warc_offset"] + broken["warc_length"]
    warc[broken["warc_offset"] : end] = bytes(broken["warc_length"])
    metadata = fragment["warc_offset"] + fragment["warc_length"]
    assert end != metadata
    warc[metadata : metadata + 40] = bytes(40)
    (segment / broken["warc_file"]).write_bytes(warc)
    report = salvage(crawl, name)
    assert (report.lost, report.without_metadata) == (1, 1)
    assert problems(crawl.config, name) == []
    assert {row["url"] for row in pages} - {row["url"] for row in rows(segment)} == {broken["url"]}
    assert {queued.url for queued in read_lost(stores_of(crawl.config), name)} <= {broken["url"]}


def test_a_failure_that_passes_is_not_final_without_its_metadata_record(crawl: Result) -> None:
    """Its URL waits in a queue."""
    segment, name = largest(crawl)
    row = next(row for row in rows(segment) if row["status"] == 200)
    again = datetime(2030, 1, 1, tzinfo=UTC)
    table = pq.read_table(segment / "pages.parquet").to_pylist()
    changed = [{**one, "retry_at": again} if one["key"] == row["key"] else one for one in table]
    pq.write_table(pa.Table.from_pylist(changed, PAGES_SCHEMA), segment / "pages.parquet")
    warc = bytearray((segment / row["warc_file"]).read_bytes())
    metadata = row["warc_offset"] + row["warc_length"]
    warc[metadata : metadata + 40] = bytes(40)
    (segment / row["warc_file"]).write_bytes(warc)
    assert salvage(crawl, name).without_metadata == 1
    assert {one["key"]: one["retry_at"] for one in rows(segment)}[row["key"]] == again
    assert json.loads((segment / "manifest.json").read_text())["counts"]["retried"] == {"ok": 1}


def test_a_flipped_bit_loses_one_page_at_most(crawled: Result, tmp_path: Path) -> None:
    segment, _ = largest(crawled)
    pages, rng = len(rows(segment)), Random(1)
    for number in range(6):
        crawl = copy_of(crawled, tmp_path / str(number))
        segment, name = largest(crawl)
        share = rng.random()
        flip(warc_of(segment), share)
        report = salvage(crawl, name)
        assert problems(crawl.config, name) == []
        assert report.lost <= 1, (share, report)
        assert report.pages + report.lost == pages


def test_the_damaged_segment_stays_aside_until_it_is_deleted(crawl: Result) -> None:
    segment, name = largest(crawl)
    flip(warc_of(segment))
    before = files_of(segment)
    report = salvage(crawl, name)
    aside = crawl.crawl_dir.parent / report.aside
    assert files_of(aside) == before
    assert aside.name.startswith(".damaged-")
    assert sweep(stores_of(crawl.config), damaged=True).deleted == [report.aside]
    assert not aside.exists()


def test_what_is_of_a_node_with_a_longer_name_is_left_alone(crawl: Result) -> None:
    """A take's hidden folder holds the only copy of sealed WARC files, whatever its node is called."""
    segment, name = largest(crawl)
    others = [
        segment.parent / f".damaged-{name.node}-2-1700000000",
        segment.parent / f".new-{name.node}-{'0123456789abcdef' * 2}",
        segment.parent / f".new-{name.node}-2-{'0123456789abcdef'}",
    ]
    for other in others:
        other.mkdir()
    garbage(segment / "links.parquet")
    assert salvage(crawl, name).aside
    sweep(stores_of(crawl.config), damaged=True)
    assert all(other.exists() for other in others)
    assert not list(segment.parent.glob(f".damaged-{name.node}-[0-9][0-9]*")), "its own is deleted"


def test_a_dry_run_changes_nothing_and_tells_the_same(crawl: Result) -> None:
    segment, name = largest(crawl)
    zero(warc_of(segment))
    (segment / "links.parquet").unlink()
    home = Path(crawl.config.dfs_primary)
    before = files_of(home)
    dry = salvage(crawl, name, dry_run=True)
    assert files_of(home) == before
    done = salvage(crawl, name)
    assert replace(dry, aside=done.aside) == done


def test_lost_pages_are_crawled_again_if_asked_for(crawl: Result) -> None:
    """They are handed to their owners past the key check, once, however often that is done."""
    segment, name = largest(crawl)
    zero(warc_of(segment), 0.3, 20000)
    report = salvage(crawl, name)
    lost = set(report.lost_urls)
    assert lost
    assert report.lost == len(lost)
    for _ in range(2):
        requeue_urls(stores_of(crawl.config), name, read_lost(stores_of(crawl.config), name))
    before = crawl.visited()
    settle(crawl.config)
    run_iteration(crawl.config, "again", 1)
    fetched = crawl.visited() - before
    assert lost <= set(fetched)
    assert all(fetched[url] == 1 for url in lost)


@pytest.mark.parametrize("broken", [b"\t\t\t", b"h\x14tp://127.0.1.1/\t\t0\t0\th\t"])
def test_a_damaged_line_of_lost_pages_takes_no_other_with_it(broken: bytes, crawl: Result) -> None:
    """Nor is what is no URL queued."""
    segment, name = largest(crawl)
    warc_of(segment).unlink()
    lost = salvage(crawl, name).lost_urls
    assert len(lost) > 1
    lines = (segment / "lost.tsv").read_bytes().splitlines(keepends=True)
    (segment / "lost.tsv").write_bytes(broken + b"\n" + b"".join(lines[1:]))
    assert problems(crawl.config, name)
    assert salvage(crawl, name).lost_urls == lost[1:]
    assert [queued.url for queued in read_lost(stores_of(crawl.config), name)] == lost[1:]


def test_an_index_of_the_folder_says_what_the_new_segment_says(crawl: Result) -> None:
    """Its ranges of `outlinks` are what the next intake reads."""
    segment, name = largest(crawl)
    shorten(segment / "outlinks")
    zero(warc_of(segment), 0.3, 20000)
    assert salvage(crawl, name).lost, "nothing has changed, so nothing is tested"
    index = json.loads((segment.parent / "index.json").read_bytes())
    manifest = json.loads((segment / "manifest.json").read_bytes())
    assert index["outlinks"][name.node] == manifest["outlinks"]
    assert index["counts"]["pages"] == sum(
        json.loads((other / "manifest.json").read_bytes())["counts"]["pages"]
        for other in crawl.segments()
        if other.parent == segment.parent
    )


def test_an_empty_segment_is_salvaged_too(crawl: Result) -> None:
    segment, name = largest(crawl)
    for path in segment.iterdir():
        path.unlink()
    report = salvage(crawl, name)
    assert report.aside
    assert rows(segment) == []
    assert problems(crawl.config, name) == []


def test_fsck_tells_of_a_swap_that_was_stopped_and_salvage_goes_on(crawl: Result) -> None:
    """Between the two renames there is no segment: the check must not pass for clean, nor advise anything else."""
    segment, name = largest(crawl)
    stores, folder = stores_of(crawl.config), segment.parent
    swap = Swap(name.node, f".new-{name.node}-x", f".damaged-{name.node}-1", keep_old=False)
    (folder / f".swap-{name.node}.json").write_bytes(sealed_json(asdict(swap)))
    segment.rename(folder / swap.new)
    files = SmallFiles(stores)
    files.iteration(name.folder)
    (found,) = files.findings.list()
    assert (found.name, found.repair) == ("repair_open", "run `krake fsck --repair`, which goes on")
    finish_swaps(stores, name.folder)
    files = SmallFiles(stores)
    files.iteration(name.folder)
    assert files.findings.list() == []


def test_a_new_segment_that_was_damaged_after_the_decision_takes_no_place(crawl: Result) -> None:
    """The old one still has what it says: nothing is lost that a look at the new one saves."""
    segment, name = largest(crawl)
    stores, folder = stores_of(crawl.config), segment.parent
    before = rows(segment)
    swap = Swap(name.node, f".new-{name.node}-{'0' * 16}", f".damaged-{name.node}-1", keep_old=True)
    shutil.copytree(segment, folder / swap.new)
    shorten(folder / swap.new / "pages.parquet")
    shorten(segment / "index.cdxj")
    (folder / f".swap-{name.node}.json").write_bytes(sealed_json(asdict(swap)))
    finish_swaps(stores, name.folder)
    assert salvage(crawl, name).aside
    assert rows(segment) == before
    assert problems(crawl.config, name) == []
    assert not (folder / f".swap-{name.node}.json").exists()
    assert not list(folder.glob(".new-*"))


def test_a_new_segment_that_is_whole_takes_the_place_that_was_decided(crawl: Result) -> None:
    """Its folder has another name until then, which is no damage."""
    segment, name = largest(crawl)
    swap = Swap(name.node, f".new-{name.node}-{'0' * 16}", f".damaged-{name.node}-1", keep_old=True)
    shutil.copytree(segment, segment.parent / swap.new)
    shorten(segment / "pages.parquet")
    (segment.parent / f".swap-{name.node}.json").write_bytes(sealed_json(asdict(swap)))
    finish_swaps(stores_of(crawl.config), name.folder)
    assert problems(crawl.config, name) == []
    assert (segment.parent / swap.old).exists()
    assert not list(segment.parent.glob(".[ns]*"))


def test_counts_of_a_folder_that_does_not_know_the_segment_say_nothing_of_it(crawl: Result) -> None:
    """It came after the commit: what its pages were is known from its tables only."""
    segment, name = largest(crawl)
    index = unsealed((segment.parent / "index.json").read_bytes())
    del index["outlinks"][name.node]
    index["counts"] = FolderState.sum_counts(
        [name.crawl.segment(name.folder, node).manifest()["counts"] for node in index["outlinks"]]
    )
    (segment.parent / "index.json").write_bytes(write_json_bytes(index))
    pages = {row["url"] for row in rows(segment)}
    warc_of(segment).unlink()
    (segment / "manifest.json").unlink()
    report = salvage(crawl, name)
    assert (report.lost, set(report.lost_urls)) == (len(pages), pages)
    manifest = SegmentReader(name.crawl.storage, name.path).manifest
    assert (manifest.counts["lost"], manifest.counts["deferred"]) == (len(pages), 0)


def test_a_line_of_outlinks_that_is_no_url_takes_no_other_with_it(crawl: Result) -> None:
    """Where no manifest says the owners, they are those of the hosts: it has none."""
    segment, name = largest(crawl)
    lines = outlinks_of(crawl, segment)
    (segment / "outlinks").write_bytes(
        gzip.compress(b"\n".join([b"no-url\t\t0\t0\t\t", *lines]) + b"\n")
    )
    for path in (segment / "manifest.json", segment.parent / "index.json"):
        path.unlink()
    salvage(crawl, name)
    assert problems(crawl.config, name) == []
    assert sorted(outlinks_of(crawl, segment)) == sorted(lines)


def test_what_the_index_says_is_used_where_the_table_ends(
    crawl: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first rows can be read, the records of all are gone."""
    segment, name = largest(crawl)
    table = pq.read_table(segment / "pages.parquet")
    pq.write_table(table, segment / "pages.parquet", row_group_size=1, write_page_checksum=True)
    half = pq.read_metadata(segment / "pages.parquet").row_group(len(table) // 2).column(1)
    data = bytearray((segment / "pages.parquet").read_bytes())
    data[half.data_page_offset : half.data_page_offset + half.total_compressed_size] = bytes(
        half.total_compressed_size
    )
    (segment / "pages.parquet").write_bytes(data)
    warc_of(segment).unlink()
    monkeypatch.setattr("crawl_lib.segment.reader.BATCH_ROWS", 1)
    answered = {row["url"] for row in table.to_pylist() if row["status"] is not None}
    lost = set(salvage(crawl, name).lost_urls)
    assert answered <= lost <= set(table.column("url").to_pylist())
    rows_read = {queued.url: queued for queued in read_lost(stores_of(crawl.config), name)}
    first = next(
        row for row in table.to_pylist() if row["status"] is not None and row["via_key"] is not None
    )
    assert rows_read[first["url"]].via == first["via_key"], (
        "the index says less, and takes no place of a row"
    )


@pytest.mark.parametrize(
    ("url", "head", "is_kept"),
    [
        ("http://127.0.1.1/odd", {"WARC_Record_ID": ""}, False),
        ("http://127.0.1.1/odd", {"WARC_Record_ID": "<urn:?>"}, False),
        ("http://127.0.1.1/odd", {"WARC_Date": "2026-01-01T00:00:00"}, False),
        (f"http://127.0.1.1/{'l' * 3000}", {}, True),
    ],
)
def test_a_response_alone_is_kept_or_named(
    url: str, head: dict[str, str], is_kept: bool, crawl: Result
) -> None:
    """Rubbish that passes for one ends no repair; a URL that is longer than the config allows now is one."""
    segment, name = largest(crawl)
    warc = warc_of(segment)
    data = answer(url, b"<html>", **head).replace(b"<urn:?>", b"<urn:\xe4>")
    warc.with_name(warc.name.replace("-00000.", "-00009.")).write_bytes(gzip.compress(data))
    (segment / "links.parquet").unlink()
    report = salvage(crawl, name)
    assert problems(crawl.config, name) == []
    assert report.without_metadata == is_kept
    assert (url in report.lost_urls) != is_kept
    assert (url in {row["url"] for row in rows(segment)}) == is_kept


def test_a_salvage_may_be_stopped_while_it_makes_rows(crawl: Result) -> None:
    """Of a segment of many files that takes hours. Nothing is changed."""
    segment, name = largest(crawl)
    (segment / "links.parquet").unlink()
    before = files_of(Path(crawl.config.dfs_primary))

    def stop(progress: Mapping[str, Any]) -> None:
        if "making" in progress:
            raise StoppedError("stopped")

    with pytest.raises(StoppedError):
        salvage_segment(open_stores(crawl.config, on_progress=stop), name)
    assert files_of(Path(crawl.config.dfs_primary)) == before
    assert not list(Path(crawl.config.scratch.directory).glob("repair-*"))


def test_all_tools_on_a_store_elsewhere(crawl: Result, tmp_path: Path) -> None:
    segment, name = largest(crawl)
    stores = replace(stores_of(crawl.config), storage=Elsewhere(stores_of(crawl.config).storage))
    flip(warc_of(segment))
    (segment / "links.parquet").unlink()
    assert salvage_segment(stores, name).aside
    url = next(row["url"] for row in rows(segment) if row["status"] == 200)
    drop_pages(stores, [url])
    assert compact_segment(stores, name).state == "compacted"
    assert problems(crawl.config, name) == []
    report = import_archives(stores, [str(write(tmp_path / "a.warc.gz", pages_archive(range(3))))])
    assert report.totals["pages"] == 3


class _Endless:
    """A WARC file of records that are made as they are read; knows the largest piece that was asked for."""

    def __init__(self, records: int, damage_every: int) -> None:
        encoder = RecordEncoder(0, ids())
        self._group = encoder.group(answered("http://a.example/", b"x" * 50_000), taken(0)).data
        self._left, self._every, self.largest = records, damage_every, 0

    def read(self, size: int) -> bytes:
        self.largest = max(self.largest, size)
        if not self._left:
            return b""
        self._left -= 1
        return bytes(len(self._group)) if self._left % self._every == 0 else self._group


def test_scanning_holds_no_more_than_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where most of the file is damaged."""
    file = _Endless(600, 2)
    held = []

    def note(item: Whole | Damage) -> Whole | Damage:
        held.append(len(item.raw) if isinstance(item, Whole) else 0)
        return item

    found = [note(item).__class__ for item in scan(_as_file(file))]
    assert found.count(Whole) == 900  # request, response and metadata of each second group
    assert found.count(Damage) == 300
    assert file.largest <= 1 << 18
    assert max(held) < 60_000


def _as_file(file: _Endless) -> BinaryIO:
    return file  # type: ignore[return-value]
