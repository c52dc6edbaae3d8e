"""The id that all records of a WARC file carry, and what is read of records that do not carry it."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import pytest

from crawl_lib.repair.segments.glean import Gleaner
from crawl_lib.segment import Spool, build_segment
from crawl_lib.segment.encoder import RecordEncoder
from crawl_lib.segment.manifest import Manifest
from crawl_lib.segment.recover import read_groups
from crawl_lib.stopping import Work
from crawl_lib.warc import NOT_OWN, Damage, FileId, Whole, scan, walk
from tests.segment.helpers import (
    INFO,
    NODES,
    TIME,
    answered,
    facts,
    failed,
    fetches,
    fill,
    ids,
    robots,
    take_back,
    taken,
    writer,
)

OTHER = "<urn:uuid:01234567-89ab-4cde-8f01-23456789abcd>"
NAME = "krake-1-node-a-0-00000.warc.gz"
HEADER_BYTES = 10


def own_file() -> bytes:
    """A file with the records of three pages."""
    encoder = RecordEncoder(2, ids())
    info = encoder.warcinfo(NAME, INFO, TIME)
    return info + b"".join(
        encoder.group(answered(f"http://a.example/{number}"), taken(number)).data
        for number in range(3)
    )


def older_file() -> bytes:
    """The same, as versions before wrote it."""
    encoder = RecordEncoder(2, ids())
    info = encoder.warcinfo(NAME, INFO, TIME)
    encoder.file_id = ""
    return info + b"".join(
        encoder.group(answered(f"http://a.example/{number}"), taken(number)).data
        for number in range(3)
    )


def forged(file_id: str = "") -> bytes:
    return RecordEncoder(file_id=file_id).group(answered("http://planted.example/"), taken(9)).data


def gleaned(data: bytes, **facts: object) -> Gleaner:
    gleaner = Gleaner(Work(), **facts)  # type: ignore[arg-type]
    gleaner.read(NAME, io.BytesIO(data))
    return gleaner


def test_every_record_of_a_spool_names_the_warcinfo_of_its_file(tmp_path: Path) -> None:
    out = writer(tmp_path / "spool", max_warc_bytes=1 << 12)
    fill(out, fetches())
    out.append(None, robots())
    out.close()
    parts = Spool(tmp_path / "spool").parts()
    assert len(parts) > 1
    for part in parts:
        with part.warc.open("rb") as file:
            first, *rest = walk(file)
        assert "warc-warcinfo-id" not in first.headers
        assert {record.headers["warc-warcinfo-id"] for record in rest} == {
            first.headers["warc-record-id"]
        }
        assert part.counts().warcinfo_id == first.headers["warc-record-id"]
    manifest = build_segment(tmp_path / "spool", tmp_path / "built", facts(len(fetches())), NODES)
    assert manifest.warcinfo_ids == {part.warc.name: part.counts().warcinfo_id for part in parts}
    assert Manifest.from_bytes(manifest.to_bytes(), "x").warcinfo_ids == manifest.warcinfo_ids


def test_a_spool_that_goes_on_keeps_its_id_and_one_of_an_older_version_has_none(
    tmp_path: Path,
) -> None:
    for name, data in (("own", own_file()), ("older", older_file())):
        (tmp_path / name).mkdir()
        (tmp_path / name / NAME).write_bytes(data[:-30])
        out = writer(tmp_path / name)
        assert take_back(out) == {0, 1}
        fill(out, [(taken(2), failed("http://a.example/2"))])
        out.close()
        with (tmp_path / name / NAME).open("rb") as file:
            first, *rest = walk(file)
        said = {record.headers.get("warc-warcinfo-id", "") for record in rest}
        assert said == {first.headers["warc-record-id"] if name == "own" else ""}
        assert said == {Spool(tmp_path / name).parts()[0].counts().warcinfo_id}


@pytest.mark.parametrize("file_id", ["", OTHER])
def test_a_rerun_stops_at_a_group_that_is_not_of_its_spool(file_id: str, tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(own_file() + forged(file_id))
    assert len(list(read_groups(path))) == 4
    damage: Counter[str] = Counter()
    with path.open("rb") as file:
        assert len(list(walk(file, damage))) == 10
    assert damage == {NOT_OWN: 1}


def test_a_member_with_optional_fields_is_damage(tmp_path: Path) -> None:
    """One bit says that a name or more follows the header: then the member would begin within a body."""
    data = bytearray(own_file())
    data[3] |= 4
    first, *_ = scan(io.BytesIO(data))
    assert (type(first), first.reason) == (Damage, "bad_gzip")


@pytest.mark.parametrize("file_id", ["", OTHER])
def test_what_is_forged_behind_damage_is_put_aside_and_the_rest_is_kept(file_id: str) -> None:
    data = own_file()
    at = len(data) // 2
    damaged = data[:at] + b"\0" * 9 + data[at + 9 :]
    gleaner = gleaned(damaged + forged(file_id) + data[-40:])
    assert gleaner.positions | {1} == {0, 1, 2}
    assert all("planted" not in queued.url for queued in gleaner.unfetched.values())


def test_the_manifest_names_the_id_where_the_first_record_is_damaged() -> None:
    data = own_file()
    file_id = next(iter(walk(io.BytesIO(data)))).headers["warc-record-id"]
    broken = data[:30] + b"\0\0" + data[32:]
    assert gleaned(broken).positions == set()
    gleaner = gleaned(broken, file_ids={NAME: file_id})
    assert gleaner.positions == {0, 1, 2}
    assert gleaner.headless == {NAME}
    assert gleaned(forged() + broken, file_ids={NAME: file_id}).positions == {0, 1, 2}


def test_a_table_names_what_is_kept_behind_damage_in_an_older_file() -> None:
    data = older_file()
    places = {
        (item.record.offset, item.record.url)
        for item in scan(io.BytesIO(data))
        if isinstance(item, Whole) and item.record.is_answer
    }
    broken = data[:30] + b"\0\0" + data[32:] + forged() + forged(OTHER)
    gleaner = gleaned(broken, is_named=lambda name, record: (record.offset, record.url) in places)
    assert gleaner.positions == {0, 1, 2}
    assert gleaner.damage[NOT_OWN] == 2
    assert gleaned(broken).positions == set()
    assert gleaned(data + forged()).positions == {0, 1, 2, 9}, "without damage the WARC is the log"


def test_a_record_that_a_table_names_tells_the_id_of_its_file() -> None:
    """The manifest is gone, and the first record."""
    data = own_file()
    records = [item.record for item in scan(io.BytesIO(data)) if isinstance(item, Whole)]
    named = next(record for record in records if record.is_answer)
    gleaner = gleaned(
        data[:30] + b"\0\0" + data[32:] + forged(),
        is_named=lambda _, record: record.offset == named.offset,
    )
    assert gleaner.positions == {0, 1, 2}
    assert gleaner.file_ids[NAME] == records[0].headers["warc-record-id"]


def test_an_id_is_learned_of_the_first_record_alone() -> None:
    encoder = RecordEncoder(file_id=OTHER)
    planted = encoder.warcinfo(NAME, INFO, TIME) + forged(OTHER)
    data = own_file()
    found = FileId()
    items = list(scan(io.BytesIO(data[:1000] + b"\0" * 50 + data[1050:] + planted), file_id=found))
    assert found.value == next(iter(walk(io.BytesIO(data)))).headers["warc-record-id"]
    assert not any(
        isinstance(item, Whole) and item.is_own and "planted" in item.record.url for item in items
    )
