"""The codec of URL lines, and the parts of the file `outlinks`."""

from __future__ import annotations

import gzip
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_lib.errors import DamagedFileError
from crawl_lib.records import QueuedUrl
from crawl_lib.urlfiles import (
    OutlinkWriter,
    decode_line,
    decode_meta,
    encode_line,
    encode_meta,
    join_line,
    part_mapping,
    read_outlinks,
    split_line,
)
from crawl_lib.urlfiles.outlinks import OutlinkPart

plain = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1)
urls = st.builds(
    QueuedUrl,
    plain,
    st.none() | st.binary(min_size=20, max_size=20),
    st.integers(0, 10**6),
    st.integers(0, 20),
    st.just("") | plain.map(lambda text: f'{{"k": "{text}"}}'),
)


def test_the_line_as_it_is_written() -> None:
    seed = QueuedUrl("http://a.test/")
    found = QueuedUrl("http://a.test/x", bytes(range(20)), 3, 1, '{"a": "b"}')
    assert encode_line(seed) == b"http://a.test/\t\t0\t0\t\t"
    via = b"000102030405060708090a0b0c0d0e0f10111213"
    assert encode_line(found, "h") == b"http://a.test/x\t" + via + b'\t3\t1\th\t{"a": "b"}'
    assert encode_meta(found) == via + b'\t3\t1\t{"a": "b"}'


@given(urls, st.sampled_from(["", "h"]))
def test_lines_come_back(queued: QueuedUrl, flags: str) -> None:
    line = encode_line(queued, flags)
    assert decode_line(line) == (queued, flags)
    url, meta, found_flags = split_line(line)
    assert join_line(url, meta, found_flags) == line
    assert decode_meta(url, meta, "x") == queued


@given(st.dictionaries(st.sampled_from("abcd"), st.lists(urls, max_size=5)))
def test_parts_come_back_from_their_bytes_alone(parts: dict[str, list[QueuedUrl]]) -> None:
    file = io.BytesIO()
    writer = OutlinkWriter(file)
    for owner, items in parts.items():
        writer.add_part(owner, map(encode_line, items))
    data = file.getvalue()
    lines = [line for items in parts.values() for line in map(encode_line, items)]
    assert gzip.decompress(data).splitlines() == lines, "the whole file is gzip for everybody"
    for owner, items in parts.items():
        part = part_mapping(writer.to_mapping()[owner], "manifest")
        piece = io.BytesIO(data[part.offset : part.offset + part.length])
        assert [decode_line(line)[0] for line in read_outlinks(piece, count=part.count)] == items
        assert piece.closed
    assert sum(part.length for part in writer.parts.values()) == len(data)


def _part(count: int = 30_000) -> tuple[bytes, OutlinkPart]:
    file = io.BytesIO()
    part = OutlinkWriter(file).add_part(
        "n", (encode_line(QueuedUrl(f"http://a.test/{n}")) for n in range(count))
    )
    return file.getvalue(), part


def test_a_part_larger_than_a_block_comes_back() -> None:
    data, part = _part()
    lines = list(read_outlinks(io.BytesIO(data), count=part.count))
    assert (len(lines), lines[29_999]) == (30_000, b"http://a.test/29999\t\t0\t0\t\t")


@pytest.mark.parametrize("damage", ["cut", "flip", "count", "no gzip", "cut member"])
def test_damage_is_named(damage: str) -> None:
    data, part = _part()
    broken = {
        "cut": data[:-1000],
        "cut member": data[:-4],
        "flip": data[:5000] + bytes([data[5000] ^ 255]) + data[5001:],
        "count": data,
        "no gzip": b"http://a.test/\n",
    }[damage]
    with pytest.raises(DamagedFileError, match="the part"):
        list(read_outlinks(io.BytesIO(broken), "the part", part.count + (damage == "count")))


@pytest.mark.parametrize(
    "line", [b"", b"http://a.test/", b"http://a.test/\tzz\t0\t0\t\t", b"http://a.test/\t\tx\t0\t\t"]
)
def test_a_line_that_is_none_is_named(line: bytes) -> None:
    with pytest.raises(DamagedFileError):
        decode_line(line)
