"""Reading WARC files, others' and damaged ones too: records or a counted reason, never a crash."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isal import igzip

from crawl_lib.segment.encoder import RecordEncoder
from crawl_lib.segment.warc import members, walk
from tests.segment.helpers import answered, ids, taken

WARCS = Path(__file__).parents[2].parent / "shared" / "testdata" / "warc"
EXPECTED = {
    "example.warc.gz": (6, {}),
    "example.warc": (6, {}),
    "example-trunc.warc": None,
    "example-bad.warc.gz.bad": None,
    "example-bad-non-chunked.warc.gz": None,
}


def foreign() -> list[Path]:
    return sorted(WARCS.iterdir()) if WARCS.is_dir() else []


@pytest.mark.parametrize("path", foreign() or [None], ids=lambda path: path.name if path else "none")
def test_foreign_and_damaged_files_are_read_without_a_crash(path):
    if path is None:
        pytest.skip("shared/testdata/warc is not there: it is third-party data, not part of the project")
    damage = Counter()
    with path.open("rb") as file:
        records = list(walk(file, damage))
    assert records or damage
    for record in records:
        assert record.type
        assert len(record.block) == int(record.headers["content-length"])
    if (expected := EXPECTED.get(path.name)) is not None:
        assert (len(records), damage) == expected
    elif path.name in EXPECTED:
        assert damage


def one() -> bytes:
    return RecordEncoder(2, ids()).group(answered("http://a.example/", b"x" * 500), taken(0)).data


@given(noise=st.binary(max_size=400))
def test_any_bytes_are_read_without_a_crash(noise):
    for data in (noise, b"\x1f\x8b\x08" + noise, b"WARC/1.0\r\n" + noise, one()[:300] + noise, one() + noise):
        damage = Counter()
        for record in walk(io.BytesIO(data), damage):
            assert len(record.block) == int(record.headers["content-length"])


@pytest.mark.parametrize("cut", [1, 50, 200])
def test_a_cut_member_is_counted(cut):
    damage = Counter()
    assert len(list(walk(io.BytesIO(one()[:-cut]), damage))) == 2
    assert damage == {"member_cut_short": 1}


def test_a_member_beyond_the_limit_is_not_inflated_to_its_end():
    damage = Counter()
    bomb = igzip.compress(b"\0" * 10_000_000)
    assert list(members(io.BytesIO(bomb), damage, max_record_bytes=1_000_000)) == []
    assert damage == {"record_too_large": 1}


def test_several_records_in_a_member_are_read_and_counted():
    plain = igzip.decompress(one())
    damage = Counter()
    assert [record.type for record in walk(io.BytesIO(igzip.compress(plain)), damage)] == [
        "request",
        "response",
        "metadata",
    ]
    assert damage == {"several_records_in_a_member": 2}


def test_plain_and_packed_records_are_the_same():
    plain = igzip.decompress(one())
    packed = [(r.type, r.headers, r.block) for r in walk(io.BytesIO(one()))]
    records = list(walk(io.BytesIO(plain)))
    assert [(r.type, r.headers, r.block) for r in records] == packed
    assert sum(record.length for record in records) == len(plain)
    for record in records:
        assert plain[record.offset :].startswith(b"WARC/1.1\r\n")
