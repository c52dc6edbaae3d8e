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
from crawl_lib.warc import Damage, WarcRecord, read_archive, scan, walk
from tests.segment.helpers import answered, ids, taken

WARCS = Path(__file__).parents[2].parent / "shared" / "testdata" / "warc"
EXPECTED = {
    "example.warc.gz": (6, {}),
    "example.warc": (6, {}),
    "example-trunc.warc": None,
    "example-bad.warc.gz.bad": (6, {}),
    "example-bad-non-chunked.warc.gz": (6, {}),
}


def foreign() -> list[Path]:
    return sorted(WARCS.iterdir()) if WARCS.is_dir() else []


def in_archive(data: bytes) -> tuple[list[WarcRecord], Counter[str]]:
    """The records of an archive of any writer, and its damaged places by reason."""
    found = list(read_archive(io.BytesIO(data)))
    records = [item for item in found if isinstance(item, WarcRecord)]
    return records, Counter(item.reason for item in found if isinstance(item, Damage))


@pytest.mark.parametrize(
    "path", foreign() or [None], ids=lambda path: path.name if path else "none"
)
def test_foreign_and_damaged_files_are_read_without_a_crash(path):
    if path is None:
        pytest.skip(
            "shared/testdata/warc is not there: it is third-party data, not part of the project"
        )
    records, damage = in_archive(path.read_bytes())
    assert records or damage
    for record in records:
        assert record.type
        if "content-length" in record.headers:  # an ARC has none
            assert len(record.block) == int(record.headers["content-length"])
    if (expected := EXPECTED.get(path.name)) is not None:
        assert (len(records), damage) == expected
    elif path.name in EXPECTED:
        assert damage
    ours = Counter()
    assert [record.block for record in walk(io.BytesIO(path.read_bytes()), ours)] or ours


def one() -> bytes:
    return RecordEncoder(2, ids()).group(answered("http://a.example/", b"x" * 500), taken(0)).data


@given(noise=st.binary(max_size=400))
def test_any_bytes_are_read_without_a_crash(noise):
    for data in (
        noise,
        b"\x1f\x8b\x08" + noise,
        b"WARC/1.0\r\n" + noise,
        one()[:300] + noise,
        one() + noise,
    ):
        for record in [*walk(io.BytesIO(data)), *in_archive(data)[0]]:
            assert len(record.block) == int(record.headers["content-length"])


@pytest.mark.parametrize("cut", [1, 50, 200])
def test_a_cut_member_is_counted(cut):
    damage = Counter()
    assert len(list(walk(io.BytesIO(one()[:-cut]), damage))) == 2
    assert damage == {"member_cut_short": 1}


def test_a_member_beyond_the_limit_is_not_inflated_to_its_end():
    bomb = igzip.compress(b"\0" * 10_000_000)
    assert list(scan(io.BytesIO(bomb), max_record_bytes=1_000_000)) == [
        Damage(0, len(bomb), "record_too_large")
    ]


def test_several_records_in_a_member_are_read_of_others_and_damage_in_our_own():
    data = igzip.compress(igzip.decompress(one()))
    records, damage = in_archive(data)
    assert [record.type for record in records] == ["request", "response", "metadata"]
    assert not damage
    assert not list(walk(io.BytesIO(data), damage))
    assert damage == {"several_records_in_a_member": 1}


def test_plain_and_packed_records_are_the_same():
    plain = igzip.decompress(one())
    packed = [(r.type, r.headers, r.block) for r in walk(io.BytesIO(one()))]
    records, damage = in_archive(plain)
    assert not damage
    assert [(r.type, r.headers, r.block) for r in records] == packed
    assert sum(record.length + len(b"\r\n\r\n") for record in records) == len(plain)
    for record in records:
        assert plain[record.offset :].startswith(b"WARC/1.1\r\n")
