"""Each way to damage a segment has a name, and `check_segment` gives it; a whole one gives nothing."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crawl_lib.sealed import sealed, sealed_json, unsealed
from crawl_lib.segment import build_segment, check_segment
from crawl_lib.segment.manifest import write_dropped
from crawl_lib.storage import LocalStorage
from tests.segment.helpers import NODES, facts, fetches, fill, robots, writer

WARC = "krake-1-node-a-0-00000.warc.gz"


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """A whole segment, one fetch of each kind in it."""
    out = writer(tmp_path / "spool")
    fill(out, fetches())
    out.append(None, robots())
    out.close()
    (tmp_path / "dfs" / "crawl" / "1").mkdir(parents=True)
    path = tmp_path / "dfs" / "crawl" / "1" / "node-a"
    build_segment(tmp_path / "spool", path, facts(8, 1), NODES)
    return path


def found(segment: Path, *, full: bool = True) -> set[str]:
    return {
        one.name
        for one in check_segment(LocalStorage(segment.parents[2]), "crawl/1/node-a", full=full)
    }


def manifest(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def damage(segment: Path) -> None:
        path = segment / "manifest.json"
        value = unsealed(path.read_bytes())
        change(value)
        path.write_text(json.dumps(sealed(value)))

    return damage


def signed(segment: Path, name: str) -> None:
    """The manifest lists a file as it is now, so that only what is in it can give it away."""

    def change(value: dict[str, Any]) -> None:
        data = (segment / name).read_bytes()
        for entry in value["files"]:
            if entry["name"] == name:
                entry.update(size_bytes=len(data), sha256=sha256(data).hexdigest())

    manifest(change)(segment)


def data(
    name: str, change: Callable[[bytes], bytes], *, sign: bool = False
) -> Callable[[Path], None]:
    def damage(segment: Path) -> None:
        (segment / name).write_bytes(change((segment / name).read_bytes()))
        if sign:
            signed(segment, name)

    return damage


def rows(name: str, change: Callable[[list[dict[str, Any]]], None]) -> Callable[[Path], None]:
    def damage(segment: Path) -> None:
        table = pq.read_table(segment / name)
        values = table.to_pylist()
        change(values)
        pq.write_table(pa.Table.from_pylist(values, schema=table.schema), segment / name)
        signed(segment, name)

    return damage


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]


def set_in(index: int, **fields: Any) -> Callable[[list[dict[str, Any]]], None]:
    return lambda values: values[index].update(fields)


FAST = {
    "manifest_missing": lambda segment: (segment / "manifest.json").unlink(),
    "manifest_damaged": data("manifest.json", lambda content: content[:-20]),
    "manifest_foreign": manifest(lambda value: value.update(node="node-b")),
    "file_missing": lambda segment: (segment / WARC).unlink(),
    "file_size": data(WARC, lambda content: content[:-9]),
    "file_unknown": lambda segment: (segment / "notes.txt").write_text("mine"),
    "dropped_damaged": lambda segment: (segment / "dropped-0123456789abcdef").write_text(
        f"{'0' * 40}\n"
    ),
    "counts_differ": manifest(lambda value: value["counts"].update(taken=9)),
    "table_damaged": data("pages.parquet", lambda content: content[:-4] + b"xxxx", sign=True),
    "table_rows": rows("pages.parquet", lambda values: values.pop()),
    "outlinks_parts": manifest(lambda value: value["outlinks"].popitem()),
}
FULL = {
    "file_digest": data(
        "index.cdxj", lambda content: content.replace(b"a.example", b"b.example", 1)
    ),
    "record_damaged": data(WARC, flipped, sign=True),
    "record_without_row": rows("pages.parquet", lambda values: values.pop(2)),
    "row_key": rows("pages.parquet", set_in(0, key=b"k" * 20)),
    "row_outcome": rows("pages.parquet", set_in(0, outcome="splendid")),
    "row_repeated": rows("pages.parquet", lambda values: values.append(values[0])),
    "row_record": rows("pages.parquet", set_in(0, warc_offset=3)),
    "link_source": rows("links.parquet", set_in(0, source=b"s" * 20)),
    "link_target": rows("links.parquet", set_in(0, target=b"t" * 20)),
    "index_order": data(
        "index.cdxj", lambda content: b"".join(reversed(content.splitlines(True))), sign=True
    ),
    "index_damaged": data(
        "index.cdxj", lambda content: content.replace(b'"offset"', b'"of'), sign=True
    ),
    "index_record": data(
        "index.cdxj", lambda content: content.replace(b'"offset": "', b'"offset": "9'), sign=True
    ),
    "index_count": data(
        "index.cdxj", lambda content: b"".join(content.splitlines(True)[1:]), sign=True
    ),
    "outlinks_damaged": data("outlinks", flipped, sign=True),
}


def test_a_whole_segment_has_no_findings(segment: Path) -> None:
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in segment.iterdir()}
    assert found(segment) == set()
    assert {
        path: (path.stat().st_mtime_ns, path.read_bytes()) for path in segment.iterdir()
    } == before


@pytest.mark.parametrize("name", FAST)
def test_damage_that_a_fast_check_names(segment: Path, name: str) -> None:
    FAST[name](segment)
    assert name in found(segment, full=False)
    assert name in found(segment, full=True)


@pytest.mark.parametrize("name", FULL)
def test_damage_that_a_full_check_names(segment: Path, name: str) -> None:
    FULL[name](segment)
    assert name in found(segment)


def test_dropped_pages_are_no_damage(segment: Path) -> None:
    write_dropped(LocalStorage(segment.parents[2]), "crawl/1/node-a", [fetches()[0][0].key])
    assert found(segment) == set()


def test_a_row_that_points_at_another_page_s_record_is_named(segment: Path) -> None:
    def swap(values: list[dict[str, Any]]) -> None:
        for field in ("warc_offset", "warc_length"):
            values[0][field], values[1][field] = values[1][field], values[0][field]

    rows("pages.parquet", swap)(segment)
    assert found(segment) == {"row_record"}


def test_a_finding_says_where_and_what_to_run_and_counts_its_places(segment: Path) -> None:
    rows("links.parquet", lambda values: [value.update(target=b"t" * 20) for value in values])(
        segment
    )
    [one] = check_segment(LocalStorage(segment.parents[2]), "crawl/1/node-a")
    assert (one.name, one.where, one.count) == ("link_target", "crawl/1/node-a/links.parquet", 14)
    assert "krake fsck --repair" in one.repair


@pytest.mark.parametrize("name", ["lost", "dropped", "deferred"])
def test_a_count_that_is_none_in_a_manifest_is_named(name: str, segment: Path) -> None:
    value = unsealed((segment / "manifest.json").read_bytes())
    value["counts"][name] = "many"
    (segment / "manifest.json").write_bytes(sealed_json(value))
    assert found(segment) == {"manifest_damaged"}


def test_two_members_in_one_are_counted(segment: Path) -> None:
    path = segment / WARC
    members = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(members))
    signed(segment, WARC)
    assert "record_damaged" in found(segment)


def test_no_record_or_table_is_ever_advised_to_be_deleted(segment: Path) -> None:
    """Whatever the manifest says: a file of its own that it does not list is for salvage, which keeps what it holds."""
    for name in (WARC, "pages.parquet", "outlinks", "index.cdxj"):
        manifest(
            lambda value, name=name: value.update(
                files=[one for one in value["files"] if one["name"] != name]
            )
        )(segment)
    findings = check_segment(LocalStorage(segment.parents[2]), "crawl/1/node-a", full=False)
    unknown = [one for one in findings if one.name == "file_unknown"]
    assert len(unknown) == 4
    assert not any("delete" in one.repair for one in unknown)


def test_a_flipped_bit_anywhere_is_found_and_crashes_nothing(segment: Path) -> None:
    """Of tables, most of all in the footers, which say how the rest is read."""
    rng, names = random.Random(11), sorted(path.name for path in segment.iterdir())
    for name in rng.choices(names, k=100):
        path = segment / name
        whole = path.read_bytes()
        start = max(0, len(whole) - 3500) if name.endswith(".parquet") and rng.random() < 0.7 else 0
        byte, bit = rng.randrange(start, len(whole)), rng.randrange(8)
        path.write_bytes(whole[:byte] + bytes([whole[byte] ^ (1 << bit)]) + whole[byte + 1 :])
        findings = check_segment(LocalStorage(segment.parents[2]), "crawl/1/node-a", full=True)
        assert findings, (name, byte, bit)
        assert not any("delete" in one.repair for one in findings), (name, byte, bit)
        path.write_bytes(whole)
    assert found(segment) == set()
