"""Reading archives takes time linear in their bytes, whatever a stranger put into them."""

from __future__ import annotations

import gzip
import io
import struct
import time
from collections.abc import Callable
from random import Random
from statistics import median
from typing import Any

import pytest

from crawl_lib.warc import Damage, WarcRecord, read_archive, scan

SIZE = 1 << 15
GROWTH = 4
MOST = 2.5**2
"""How much more time that many times the bytes may take: 2.5 for twice the bytes. Quadratic work takes 16 times."""
NOISE_S = 0.0005
MEMBER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
RECORD = b"WARC/1.0\r\nWARC-Type: response\r\nContent-Length: 0\r\n\r\n\r\n\r\n"
ARC = b"filedesc://x 0.0.0.0 20200101000000 text/plain 12\n1 0 x\nURL IP\n\n"


def stored(data: bytes) -> bytes:
    """A block of deflate that is not compressed, and not the last one."""
    return b"\0" + struct.pack("<HH", len(data), len(data) ^ 0xFFFF) + data


def claiming(size: int) -> bytes:
    return b"WARC/1.0\r\nWARC-Type: response\r\nContent-Length: %d\r\n\r\n" % size


def nested(content: bytes) -> bytes:
    """Members that each run on to the end of the file, and hold all that follow."""
    unit = MEMBER + stored(content) + stored(MEMBER)[: -len(MEMBER)]
    return unit * (SIZE // len(unit))


def runs() -> bytes:
    """Several such nests, of many lengths, with noise between them."""
    rng = Random(1)
    return b"".join(
        nested(claiming(9))[: rng.randrange(2000, 9000)] + rng.randbytes(50) for _ in range(6)
    )


def repeated(unit: bytes, times: int = 1) -> Callable[[], bytes]:
    return lambda: unit * (SIZE * times // len(unit))


def grown(make: Callable[[], bytes]) -> bytes:
    """The same archive, GROWTH times as long."""
    global SIZE  # noqa: PLW0603 - so that each maker is written once
    SIZE *= GROWTH
    try:
        return make()
    finally:
        SIZE //= GROWTH


ARCHIVES: dict[str, Callable[[], bytes]] = {
    "nested members": lambda: nested(claiming(10**7)),
    "nested tiny members": lambda: nested(b"WARC/"),
    "nested whole records": lambda: nested(RECORD),
    "nested, cut": lambda: nested(claiming(10**7))[:-7],
    "nested in a whole member": lambda: gzip.compress(nested(claiming(9)), 0, mtime=0),
    "nested above a bomb": lambda: (
        nested(claiming(10**7)) + gzip.compress(bytes(1000 * SIZE), mtime=0)[10:]
    ),
    "nests": lambda: b"".join(runs() for _ in range(SIZE // (1 << 15))),
    "tiny members": repeated(gzip.compress(b"", mtime=0)),
    "tiny records": repeated(gzip.compress(RECORD, mtime=0)),
    "beginnings of members": repeated(MEMBER),
    "magic bytes": repeated(MEMBER[:4]),
    "members of the word WARC": repeated(MEMBER + stored(b"WARC/") + b"\7"),
    "lines that begin as records": repeated(b"WARC/1.0\n"),
    "heads without an end": lambda: b"WARC/1.0\r\n" + b"WARC/1.0\r\na: b\r\n" * (SIZE // 16),
    "lengths that are not there": repeated(claiming(10**8) + b"x\n"),
    "lengths that are there": lambda: (claiming(SIZE) + b"x\n") * (SIZE // 64),
    "the same, compressed": lambda: gzip.compress((claiming(SIZE) + b"x\n") * (SIZE // 64), 1),
    "plain records": repeated(RECORD),
    "a length and small records": lambda: claiming(10**8) + RECORD * (SIZE // 64),
    "empty lines": lambda: RECORD + b"\r\n" * SIZE * 8,
    "ARC records": lambda: (
        ARC + b"http://a/ 0.0.0.0 20200101000000 text/html 5\nhello\n" * (SIZE // 64)
    ),
    "ARC, a long line": lambda: ARC + b"x" * SIZE * 32,
}
READERS: dict[str, Callable[[Any], Any]] = {"archive": read_archive, "own": scan}


def seconds(read: Callable[[Any], Any], data: bytes) -> float:
    start = time.process_time()
    for _ in read(io.BytesIO(data)):
        pass
    return time.process_time() - start


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", ARCHIVES)
def test_time_grows_as_the_bytes_do(name: str, reader: str) -> None:
    read, small, large = READERS[reader], ARCHIVES[name](), grown(ARCHIVES[name])
    for _ in range(3):
        ratio = median(seconds(read, large) / max(NOISE_S, seconds(read, small)) for _ in range(3))
        if ratio <= MOST:
            return
    pytest.fail(f"{name}: {ratio:.1f} times the time for {GROWTH} times the bytes")


def test_members_behind_a_nest_are_read() -> None:
    """What was looked at too often is passed over, and no more."""
    good = gzip.compress(RECORD, mtime=0)
    data = good + nested(claiming(9)) + b"\xff" * 20 + Random(1).randbytes(400_000) + good * 3
    for read in (read_archive, scan):
        found = list(read(io.BytesIO(data)))
        assert [isinstance(item, Damage) for item in found[-3:]] == [False] * 3
        damage = [item for item in found if isinstance(item, Damage)]
        assert any(one.reason == "too_many_members_within_each_other" for one in damage)
    assert isinstance(found[0].record, WarcRecord)
