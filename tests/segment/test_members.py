"""Reading WARC files onward: every wanted range as it is in its file, each file opened in order."""

from __future__ import annotations

import io
from typing import BinaryIO

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crawl_lib.errors import DamagedFileError
from crawl_lib.segment import Member, WantedRecord, members
from crawl_lib.storage import Storage


class OneFile:
    """A store whose files all hold `data`; `opened`: path and offset of each opening."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.opened: list[tuple[str, int]] = []

    def open_read(self, path: str, offset: int = 0) -> BinaryIO:
        self.opened.append((path, offset))
        file = io.BytesIO(self.data)
        file.seek(offset)
        return file


def read(store: OneFile, wanted: list[WantedRecord]) -> list[bytes]:
    storage: Storage = store  # type: ignore[assignment]
    return [member.data for member in Member.read_all(storage, wanted)]


@pytest.fixture(params=[1, 4, 64, 1 << 20])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "SKIP_BYTES", request.param)


@pytest.mark.usefixtures("sizes")
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cuts=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 40)), max_size=20))
def test_every_range_is_read_as_it_stands(cuts: list[tuple[int, int]]) -> None:
    data = bytes(number * 7 % 256 for number in range(2200))
    wanted, at = [], 0
    for number, (gap, length) in enumerate(cuts):
        wanted.append(WantedRecord(number, f"file-{number // 7}", at + gap, length))
        at = 0 if number % 7 == 6 else at + gap + length
    store = OneFile(data)
    assert read(store, wanted) == [data[want.offset : want.offset + want.length] for want in wanted]
    assert store.opened == sorted(store.opened)


def test_small_gaps_are_read_over_and_large_ones_skipped() -> None:
    store = OneFile(bytes(3 << 20))
    read(store, [WantedRecord(0, "a", 0, 10), WantedRecord(1, "a", 500_000, 10)])
    assert store.opened == [("a", 0)]
    read(store, [WantedRecord(0, "b", 0, 10), WantedRecord(1, "b", (5 << 19) + 7, 10)])
    assert store.opened[1:] == [("b", 0), ("b", (5 << 19) + 7)]


def test_overlap_and_a_file_that_ends_early_are_damage() -> None:
    with pytest.raises(
        DamagedFileError, match=r"a: `pages` names records that overlap at offset 10"
    ):
        read(OneFile(bytes(99)), [WantedRecord(0, "a", 0, 10), WantedRecord(1, "a", 9, 10)])
    with pytest.raises(DamagedFileError, match=r"a: ends within the record at offset 95"):
        read(OneFile(bytes(99)), [WantedRecord(0, "a", 0, 10), WantedRecord(1, "a", 95, 5)])
