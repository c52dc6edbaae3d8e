"""Sizes of pictures, by their first bytes: right for real ones, linear for hostile ones."""

from __future__ import annotations

import random
import struct
import time
from statistics import median

import pytest

from crawl_lib.realtime.picture import PROBE_BYTES, size_of


def box(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I4s", 8 + len(data), kind) + data


def jpeg(*segments: bytes) -> bytes:
    return b"\xff\xd8" + b"".join(segments)


def segment(marker: int, data: bytes) -> bytes:
    return struct.pack(">BBH", 255, marker, 2 + len(data)) + data


SOF = segment(0xC0, struct.pack(">BHHB", 8, 2, 3, 3))
PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBBBBB", 13, b"IHDR", 3, 2, 8, 6, 0, 0, 0)
ISPE = box(b"iprp", box(b"ipco", box(b"ispe", struct.pack(">III", 0, 3, 2))))
AVIF = box(b"ftyp", b"avif" + bytes(4) + b"avif")
VP8X = b"RIFF" + bytes(4) + b"WEBPVP8X" + bytes(8) + b"\2\0\0\1\0\0"
PICTURES = {
    "png": PNG,
    "gif": b"GIF89a" + struct.pack("<HH", 3, 2) + bytes(3),
    "jpeg": jpeg(segment(0xE1, bytes(60_000)), SOF),
    "webp": VP8X,
    "bmp": b"BM" + bytes(16) + struct.pack("<ii", 3, -2) + bytes(8),
    "svg": b'<svg xmlns="http://www.w3.org/2000/svg" width="3px" height="2">',
    "avif": AVIF + box(b"meta", bytes(4) + ISPE),
}


@pytest.mark.parametrize("kind", PICTURES)
def test_pictures_of_each_kind_have_their_size(kind: str) -> None:
    assert size_of(PICTURES[kind]) == {"width": 3, "height": 2}
    assert size_of(PICTURES[kind] + bytes(200_000)) == {"width": 3, "height": 2}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<!doctype html><title>No picture</title>",
        b"\xff\xd8",
        PNG[:12],
        PNG.replace(struct.pack(">II", 3, 2), struct.pack(">II", 0, 2)),
        PNG.replace(struct.pack(">II", 3, 2), struct.pack(">II", 3, 0xFFFFFFFF)),
        b"GIF89a" + struct.pack("<hh", -3, 2) + bytes(3),
        b"<svg width='100%' height='100%'>",
        b"<svg width='" + b"9" * 900 + b"' height='1'>",
        b"P3 3 2 255\n",
        box(b"ftyp", b"avif") + struct.pack(">I4sQ", 1, b"meta", (1 << 64) - 1),
        b"II+\0\x08\0\0\0" + b"\xff" * 8,
    ],
)
def test_anything_else_has_no_size(data: bytes) -> None:
    assert size_of(data) == {}


def hostile(kind: str, size: int) -> bytes:
    """A beginning of a picture that makes readers work, of about a size."""
    item = struct.pack(">HHH", 1, 0, 65_535)  # 65,535 extents of no bytes
    rng = random.Random(size)
    return {
        "iloc": AVIF
        + box(b"meta", bytes(4) + box(b"iloc", bytes(6) + b"\xff\xff" + item * (size // 6)) + ISPE),
        "boxes": AVIF + box(b"meta", bytes(4) + box(b"free", b"") * (size // 8)),
        "properties": AVIF
        + box(
            b"meta", bytes(4) + box(b"iprp", box(b"ipco", box(b"ispe", bytes(12)) * (size // 20)))
        ),
        "digits": b"P3 " + b"1" * size,
        "fill": jpeg(b"\xff" * size),
        "segments": jpeg(segment(0xE0, b"") * (size // 4)),
        "restarts": jpeg(b"\xff\xd0" * (size // 2)),
        "tags": b"II*\0\x08\0\0\0\xff\xff" + bytes(size),
        "jp2": b"\0\0\0\x0cjP  \r\n\x87\n" + box(b"free", b"") * (size // 8),
        "svg": b"<svg " + b"width='" * (size // 7),
        "random": PNG[:8] + rng.randbytes(size),
    }[kind]


@pytest.mark.parametrize(
    "kind",
    [
        "iloc",
        "boxes",
        "properties",
        "digits",
        "fill",
        "segments",
        "restarts",
        "tags",
        "jp2",
        "svg",
        "random",
    ],
)
def test_hostile_pictures_take_linear_time(kind: str) -> None:
    """64 KB take at most as long as reading each byte by a call of its own."""
    data = hostile(kind, PROBE_BYTES - 100)

    def took(work: object) -> float:
        began = time.process_time()
        work()  # type: ignore[operator]
        return time.process_time() - began

    def by_bytes() -> int:
        return sum(len(data[place : place + 1]) for place in range(len(data)))

    ratio = median(took(lambda: size_of(data)) / took(by_bytes) for _ in range(3))
    assert ratio < 20
    assert size_of(data * 100) == size_of((data * 100)[:PROBE_BYTES])
