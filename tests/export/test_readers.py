"""Readers of mapping, content and offsets: round trips, and files that are not what they should be."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crawl_lib.config import ScratchConfig
from crawl_lib.errors import DamagedFileError, PathNotFoundError
from crawl_lib.export import ContentReader
from crawl_lib.export.content import Buckets, _write_pages, write_offsets
from crawl_lib.export.readers import UrlMapping
from crawl_lib.stopping import Progress, Work

AGAIN = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def write_mapping(path: Path, keys: list[bytes]) -> Path:
    path.write_bytes(struct.pack(">i", len(keys)) + b"".join(keys))
    return path


def write_content(
    folder: Path, pages: list[bytes], memory_bytes: int = 1 << 30
) -> tuple[Path, Path]:
    """Content and offsets of pages that come in the reverse order, by the writer of the export."""
    buckets = Buckets(
        folder, len(pages), sum(map(len, pages)), ScratchConfig(memory_bytes=memory_bytes)
    )
    for node_id, page in reversed(list(enumerate(pages))):
        buckets.add(node_id, zlib.compress(page))
    buckets.flush()
    content, offsets = io.BytesIO(), io.BytesIO()
    write_offsets(offsets, buckets.sizes, Progress(Work(), "", 0, ""))
    _write_pages(content, buckets.in_order(), Progress(Work(), "", 0, ""))
    (folder / "content").write_bytes(content.getvalue())
    (folder / "offsets").write_bytes(offsets.getvalue())
    return folder / "content", folder / "offsets"


@AGAIN
@given(
    keys=st.sets(st.binary(min_size=20, max_size=20), max_size=50),
    others=st.lists(st.binary(min_size=20, max_size=20), max_size=5),
)
def test_every_key_has_its_rank_and_no_other_has(
    tmp_path: Path, keys: set[bytes], others: list[bytes]
) -> None:
    ordered = sorted(keys)
    with UrlMapping(write_mapping(tmp_path / "urlmapping", ordered)) as mapping:
        assert len(mapping) == len(keys)
        assert list(mapping) == ordered
        for node_id, key in enumerate(ordered):
            assert mapping.key(node_id) == key
            assert mapping.node_id(key) == node_id
        for key in others:
            assert mapping.node_id(key) == (ordered.index(key) if key in keys else None)


@AGAIN
@given(
    pages=st.lists(st.binary(max_size=300), max_size=40),
    memory_bytes=st.sampled_from([16, 256, 1 << 30]),
)
def test_content_is_read_forward_backward_and_at_random(
    tmp_path: Path, pages: list[bytes], memory_bytes: int
) -> None:
    with ContentReader(*write_content(tmp_path, pages, memory_bytes)) as content:
        assert list(content) == pages
        assert list(reversed(content)) == pages[::-1]
        assert len(content) == len(pages)
        for node_id in np.random.default_rng(0).permutation(len(pages)).tolist():
            assert content.content(node_id) == pages[node_id]
            assert zlib.decompress(content.compressed(node_id)) == pages[node_id]
    assert not list(tmp_path.glob("bucket-*"))


def test_nothing_lies_beyond_the_last_page(tmp_path: Path) -> None:
    with UrlMapping(write_mapping(tmp_path / "urlmapping", [b"k" * 20])) as mapping:
        for node_id in (-1, 1):
            with pytest.raises(IndexError, match="there are 1 pages"):
                mapping.key(node_id)
    with ContentReader(*write_content(tmp_path, [b"x"])) as content:
        for node_id in (-1, 1):
            with pytest.raises(IndexError, match="there are 1 pages"):
                content.content(node_id)


def test_a_walk_needs_no_offsets(tmp_path: Path) -> None:
    path, _ = write_content(tmp_path, [b"x", b"y"])
    with ContentReader(path) as content:
        assert list(content) == [b"x", b"y"]
        with pytest.raises(TypeError, match="without its offset file"):
            content.content(0)


@pytest.mark.parametrize(
    "data", [b"", b"\0\0", b"\0\0\0\1", b"\0\0\0\0x", b"\xff\xff\xff\xff", b"\0\0\0\1" + b"k" * 21]
)
def test_a_mapping_of_the_wrong_size_is_damaged(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "urlmapping"
    path.write_bytes(data)
    with pytest.raises(DamagedFileError, match=r"urlmapping: byte 0: "):
        UrlMapping(path)


def test_keys_out_of_order_are_damage(tmp_path: Path) -> None:
    path = write_mapping(tmp_path / "urlmapping", [b"b" * 20, b"a" * 20])
    with (
        UrlMapping(path) as mapping,
        pytest.raises(DamagedFileError, match=r"urlmapping: byte 24: .*NodeID 1"),
    ):
        list(mapping)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PathNotFoundError, match="nothing-here"):
        UrlMapping(tmp_path / "nothing-here")


STREAM = zlib.compress(b"page")
SIZE = struct.pack(">i", len(STREAM))


@pytest.mark.parametrize(
    ("data", "forward", "backward"),
    [
        (SIZE + STREAM + SIZE + SIZE + STREAM, r"byte 36: the file ends", "byte 32: "),
        (SIZE + STREAM + struct.pack(">i", len(STREAM) - 1), r"byte 16: the size before", r"byte "),
        (struct.pack(">i", -1), r"byte 0: a size of -1", r"byte 0: "),
        (
            SIZE + b"x" * len(STREAM) + SIZE,
            r"byte 4: not a zlib stream",
            r"byte 4: not a zlib stream",
        ),
        (SIZE, r"byte 4: ", r"byte 0: "),
        (
            struct.pack(">i", 5) + STREAM[:5] + struct.pack(">i", 5),
            r"byte 4: not one whole zlib",
            r"byte 4: not one whole zlib",
        ),
    ],
)
def test_damaged_content_is_named_with_its_place(
    tmp_path: Path, data: bytes, forward: str, backward: str
) -> None:
    path = tmp_path / "content"
    path.write_bytes(data)
    with ContentReader(path) as content:
        with pytest.raises(DamagedFileError, match=f"content: {forward}"):
            list(content)
        with pytest.raises(DamagedFileError, match=f"content: {backward}"):
            list(reversed(content))


def test_damaged_offsets_are_named_with_their_place(tmp_path: Path) -> None:
    path, offsets = write_content(tmp_path, [b"x", b"y"])
    good = offsets.read_bytes()
    offsets.write_bytes(good[:-1])
    with pytest.raises(DamagedFileError, match="offsets: byte 23: "):
        ContentReader(path, offsets)
    offsets.write_bytes(good[12:] + good[:12])
    with (
        ContentReader(path, offsets) as content,
        pytest.raises(DamagedFileError, match=r"offsets: byte 0: .*says 1"),
    ):
        content.content(0)
    offsets.write_bytes(good[:12] + struct.pack(">iq", 1, 1 << 40))
    with (
        ContentReader(path, offsets) as content,
        pytest.raises(DamagedFileError, match=f"content: byte {1 << 40}: "),
    ):
        content.content(1)
