"""Building a segment: sums, order, sameness, and what readers find."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from fastwarc.warc import ArchiveIterator

from crawl_lib.errors import DamagedFileError, PathNotFoundError, StorageError
from crawl_lib.records import QueuedUrl
from crawl_lib.segment import (
    LINKS_SCHEMA,
    PAGES_SCHEMA,
    Manifest,
    SegmentReader,
    build_segment,
    check_segment,
    runs,
    surt,
)
from crawl_lib.stopping import Work
from crawl_lib.storage import LocalStorage
from crawl_lib.urlfiles import decode_line
from crawl_lib.warc import split_head, utc_text
from tests.segment.helpers import (
    NODES,
    TIME,
    answered,
    facts,
    fetches,
    fill,
    key,
    robots,
    taken,
    writer,
)


def built(
    tmp_path: Path, workers: int = 1, order: int = 0, **more
) -> tuple[Manifest, SegmentReader]:
    """A segment of `fetches()`, spread over workers, in an order of arrival."""
    items = fetches()
    random.Random(order).shuffle(items)
    for number in range(workers):
        out = writer(tmp_path / "spool", number)
        fill(out, items[number::workers])
        if number == 0:
            out.append(None, robots())
        out.close()
    manifest = build_segment(
        tmp_path / "spool",
        tmp_path / "seg",
        facts(8, 1, **more, finished=utc_text(TIME + 9)),
        NODES,
    )
    return manifest, SegmentReader(LocalStorage(tmp_path), "seg")


def test_the_manifest_counts_what_is_there(tmp_path):
    manifest, reader = built(tmp_path, intake={"new": 3}, scope_added=["z.example"])
    assert manifest.counts == {
        "taken": 8,
        "outcomes": {"gone": 1, "ok": 4, "robots_denied": 1, "timeout": 1},
        "deferred": 1,
        "passed_over": 0,
        "retried": {"ok": 1},
        "pages": 7,
        "links": 14,
        "outlinks": 4,
        "robots_captures": 1,
        "rejections": {"scope": 7},
    }
    assert (manifest.started, manifest.finished) == (
        "2026-11-18T11:06:40.123456Z",
        "2026-11-18T11:06:49.123456Z",
    )
    assert manifest.intake == {"new": 3}
    assert manifest.scope_added == ["z.example"]
    assert reader.manifest == manifest
    names = {entry.name for entry in manifest.files}
    assert names == {
        "index.cdxj",
        "krake-1-node-a-0-00000.warc.gz",
        "links.parquet",
        "outlinks",
        "pages.parquet",
    }
    assert {path.name for path in (tmp_path / "seg").iterdir()} == names | {"manifest.json"}
    for entry in manifest.files:
        data = (tmp_path / "seg" / entry.name).read_bytes()
        assert (len(data), sha256(data).hexdigest()) == (entry.size_bytes, entry.sha256)


def test_every_row_points_at_its_record(tmp_path):
    _, reader = built(tmp_path, workers=2)
    by_url = {fetched.url: fetched for _, fetched in fetches()}
    rows = [row for batch in reader.pages() for row in batch.to_pylist()]
    assert {row["url"] for row in rows} == set(by_url)
    for row in rows:
        record = reader.read_record(row["warc_file"], row["warc_offset"], row["warc_length"])
        fetched = by_url[row["url"]]
        assert record.url == row["url"]
        assert record.type == ("response" if fetched.head else "metadata")
        if fetched.head:
            assert split_head(record.block) == (fetched.head, fetched.body)
    assert {row["time"].isoformat() for row in rows} == {
        "2026-11-18T11:06:40.123456+00:00",
        "2026-11-18T11:06:41.123456+00:00",
    }


def test_tables_have_the_schema_and_are_compressed(tmp_path):
    built(tmp_path)
    for name, schema in (("pages", PAGES_SCHEMA), ("links", LINKS_SCHEMA)):
        with pq.ParquetFile(tmp_path / "seg" / f"{name}.parquet") as table:
            assert table.schema_arrow.equals(schema)
            assert table.metadata.row_group(0).column(0).compression == "ZSTD"


def test_cdxj_offsets_hit_and_lines_are_sorted(tmp_path):
    built(tmp_path, workers=3)
    lines = (tmp_path / "seg" / "index.cdxj").read_text().splitlines()
    assert lines == sorted(lines)
    assert len(lines) == 6  # five answers and one robots.txt
    for line in lines:
        urlkey, stamp, text = line.split(" ", 2)
        fields = json.loads(text)
        assert urlkey == surt(fields["url"])
        assert stamp == "20261118110640"
        assert (fields["status"], fields["mime"]) in {("200", "text/html"), ("404", "text/html")}
        with (tmp_path / "seg" / fields["filename"]).open("rb") as file:
            file.seek(int(fields["offset"]))
            record = next(iter(ArchiveIterator(file, parse_http=False)))
            assert record.headers["WARC-Target-URI"] == fields["url"]
            assert record.headers["WARC-Type"] == "response"
            assert record.headers["WARC-Payload-Digest"] == fields["digest"]


@pytest.mark.parametrize("run_urls", [1, 2, 1000])
@pytest.mark.parametrize("workers", [1, 3])
def test_outlinks_are_in_batch_order_each_once_whatever_came_first(
    tmp_path, monkeypatch, run_urls, workers
):
    """Same pages, any order of arrival, any number of workers and runs: the same bytes."""
    monkeypatch.setattr(runs, "RUN_URLS", run_urls)
    monkeypatch.setattr(runs.OutlinkRuns.__init__, "__defaults__", (run_urls,))
    files = set()
    for order in range(4):
        _, reader = built(tmp_path / str(order), workers, order)
        files.add((tmp_path / str(order) / "seg" / "outlinks").read_bytes())
    assert len(files) == 1
    found = {
        owner: [decode_line(line)[0] for line in reader.outlinks(owner)]
        for owner in ("node-a", "node-b")
    }
    assert [url.url for url in found["node-a"]] == [f"http://b.example/{i}" for i in range(3)]
    assert found["node-b"] == [QueuedUrl("http://c.example/", key("http://a.example/0"), 4)]
    assert found["node-a"][0] == QueuedUrl("http://b.example/0", key("http://a.example/0"), 4)


def test_urls_handed_on_come_first_and_keep_their_mark_and_their_tries(tmp_path):
    out = writer(tmp_path / "spool")
    fill(out, fetches())
    out.close()
    handed = [
        ("node-b", QueuedUrl("http://z.example/", metadata='{"k": "v"}'), "h"),
        ("node-b", QueuedUrl("http://c.example/", retries=2, due=1_800_000_000), "h"),
        (
            "node-b",
            QueuedUrl("http://e.example/", b"v" * 20, 1, 2, '{"k": "v"}', list_name="retry-1-x"),
            "h",
        ),
    ]
    build_segment(tmp_path / "spool", tmp_path / "seg", facts(7), NODES, handed_on=handed)
    lines = list(SegmentReader(LocalStorage(tmp_path), "seg").outlinks("node-b"))
    assert [decode_line(line) for line in lines] == [(url, flags) for _, url, flags in handed]


SEGMENT = "1/node-a"


def test_a_node_with_nothing_to_fetch_leaves_its_manifest_alone(tmp_path):
    manifest = build_segment(tmp_path / "none", tmp_path / SEGMENT, facts(0), NODES)
    assert [path.name for path in (tmp_path / SEGMENT).iterdir()] == ["manifest.json"]
    assert manifest.files == []
    assert manifest.counts["pages"] == manifest.counts["taken"] == manifest.counts["outlinks"] == 0
    reader = SegmentReader(LocalStorage(tmp_path), SEGMENT)
    assert [batch.num_rows for batch in reader.pages()] == []
    assert list(reader.links()) == list(reader.find([b"k" * 20])) == []
    assert (reader.rows("pages.parquet"), reader.verified("links.parquet", Work())) == (0, None)
    assert reader.warc_files == []
    assert list(reader.outlinks("node-a")) == []
    assert check_segment(LocalStorage(tmp_path), SEGMENT) == []


def test_a_node_that_took_nothing_and_hands_urls_on_writes_only_these(tmp_path):
    handed = [("node-a", QueuedUrl("http://e.example/", b"v" * 20, 1, 2), "h")]
    build_segment(tmp_path / "none", tmp_path / SEGMENT, facts(0), NODES, handed_on=handed)
    assert {path.name for path in (tmp_path / SEGMENT).iterdir()} == {"manifest.json", "outlinks"}
    [line] = SegmentReader(LocalStorage(tmp_path), SEGMENT).outlinks("node-a")
    assert decode_line(line)[0] == handed[0][1]


def test_tables_are_missing_only_where_the_manifest_says_that_there_are_no_rows(tmp_path):
    """A segment that lost its tables is damaged, though its manifest does not list them."""
    manifest = build_segment(tmp_path / "none", tmp_path / SEGMENT, facts(0), NODES)
    counts = {**manifest.counts, "pages": 1, "taken": 1, "outcomes": {"ok": 1}}
    (tmp_path / SEGMENT / "manifest.json").write_bytes(replace(manifest, counts=counts).to_bytes())
    reader = SegmentReader(LocalStorage(tmp_path), SEGMENT)
    with pytest.raises(PathNotFoundError, match=r"pages\.parquet: is not there"):
        list(reader.pages())
    assert "file_missing" in {
        finding.name for finding in check_segment(LocalStorage(tmp_path), SEGMENT)
    }


@pytest.mark.parametrize(("count", "deferred"), [(8, 0), (7, 1), (9, 1)])
def test_sums_that_do_not_agree_are_an_error(tmp_path, count, deferred):
    out = writer(tmp_path / "spool")
    fill(out, fetches())
    out.close()
    with pytest.raises(DamagedFileError, match="7 fetched"):
        build_segment(tmp_path / "spool", tmp_path / "seg", facts(count, deferred), NODES)
    assert not (tmp_path / "seg" / "manifest.json").exists()


def test_a_url_fetched_by_two_workers_is_an_error(tmp_path):
    for number in (0, 1):
        out = writer(tmp_path / "spool", number)
        fill(out, [(taken(0), answered("http://a.example/0"))])
        out.close()
    with pytest.raises(DamagedFileError, match="position 0"):
        build_segment(tmp_path / "spool", tmp_path / "seg", facts(2), NODES)


def test_an_open_part_is_named(tmp_path):
    out = writer(tmp_path / "spool")
    fill(out, fetches())
    with pytest.raises(StorageError, match=r"00000\.warc\.gz: is still open"):
        build_segment(tmp_path / "spool", tmp_path / "seg", facts(7), NODES)
    out.close()


def test_a_finished_build_is_found_and_one_of_another_take_is_not(tmp_path):
    first, _ = built(tmp_path)
    again = build_segment(
        tmp_path / "spool", tmp_path / "seg", facts(8, 1, finished=utc_text(TIME + 100)), NODES
    )
    assert again == first
    other = build_segment(
        tmp_path / "spool",
        tmp_path / "seg",
        facts(8, 1, take_id="take2", finished=utc_text(TIME + 100)),
        NODES,
    )
    assert other.take_id == "take2"


def test_the_reader_reports_damage(tmp_path):
    _, reader = built(tmp_path)
    name = reader.warc_files[0]
    assert len(list(reader.records(name))) == 21
    path = tmp_path / "seg" / name
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[:-5])
    read = []
    with pytest.raises(DamagedFileError, match="member_cut_short"):
        read.extend(reader.records(name))
    assert len(read) == 20
    with pytest.raises(DamagedFileError, match="byte 3"):
        reader.read_record(name, 3, 50)


def test_a_manifest_that_is_none_is_named(tmp_path):
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(DamagedFileError, match=r"manifest\.json"):
        _ = SegmentReader(LocalStorage(tmp_path.parent), tmp_path.name).manifest


def test_no_bit_of_a_manifest_can_be_another_unnoticed(tmp_path):
    """Whatever key, number or digest it hits: the manifest is damage, or says the same."""
    manifest, reader = built(tmp_path)
    path = tmp_path / "seg" / "manifest.json"
    whole = path.read_bytes()
    for byte in range(len(whole)):
        for bit in range(8):
            data = whole[:byte] + bytes([whole[byte] ^ (1 << bit)]) + whole[byte + 1 :]
            try:
                found = Manifest.from_bytes(data, "manifest")
            except DamagedFileError:
                continue
            assert found == manifest, (byte, bit)
    assert reader.manifest == manifest


@pytest.mark.parametrize("name", ["pages.parquet", "links.parquet"])
def test_a_footer_that_lies_is_damage(tmp_path, name):
    _, reader = built(tmp_path)
    path = tmp_path / "seg" / name
    whole = path.read_bytes()
    footer = 8 + int.from_bytes(whole[-8:-4], "little")
    for byte in random.Random(1).sample(range(len(whole) - footer, len(whole)), 400):
        path.write_bytes(whole[:byte] + bytes([whole[byte] ^ (1 << byte % 8)]) + whole[byte + 1 :])
        problems = []
        try:
            for batch in reader.pages() if name == "pages.parquet" else reader.links():
                batch.to_pylist()
        except DamagedFileError as error:
            problems.append(str(error))
        assert all(name in problem and "krake fsck --repair" in problem for problem in problems)
