"""The index that answers, and the threads that searches run in."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import Event

import pytest

from crawl_lib.errors import BusyError, DamagedFileError, InputError, StorageError
from crawl_lib.search import IndexReader, OpenIndex, SearchPool
from tests.search.made import opened, page

INDEX = opened([page("a", "apples")])


@dataclass
class Versions:
    """Versions of an index that a test makes and breaks."""

    numbers: list[int] = field(default_factory=list)
    unreadable: set[int] = field(default_factory=set)
    differing: set[int] = field(default_factory=set)
    is_down: bool = False

    def newest(self, bad: frozenset[int]) -> int | None:
        if self.is_down:
            raise StorageError("the store is away")
        return max((number for number in self.numbers if number not in bad), default=None)

    def open(self, number: int) -> OpenIndex:
        if number in self.unreadable:
            raise DamagedFileError(f"version {number} cannot be read")
        return replace(INDEX, number=number)

    def verify(self, number: int) -> None:
        if number in self.differing:
            raise DamagedFileError(f"version {number} has other digests")


@dataclass
class Clock:
    """Seconds that a test lets pass."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


def at_once(work: Callable[[], None]) -> None:
    """Stands for the background thread where a test has no lock to wait for."""
    later.append(work)


later: list[Callable[[], None]] = []


@pytest.fixture
def clock() -> Clock:
    later.clear()
    return Clock()


def test_a_newer_version_is_found_after_two_seconds(clock: Clock) -> None:
    versions = Versions([1])
    reader = IndexReader(versions, clock, at_once)
    assert reader.current().number == 1
    versions.numbers.append(2)
    clock.now_s = 1.9
    assert reader.current().number == 1
    clock.now_s = 2.0
    assert reader.current().number == 2


def test_before_the_first_version_a_reader_says_what_to_do(clock: Clock) -> None:
    versions = Versions()
    reader = IndexReader(versions, clock, at_once)
    with pytest.raises(InputError, match="there is no index yet"):
        reader.current()
    versions.numbers.append(1)
    assert reader.current().number == 1


@pytest.mark.parametrize("damage", ["unreadable", "down", "gone"])
def test_the_open_version_goes_on_where_no_newer_one_opens(
    clock: Clock, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    versions = Versions([1])
    reader = IndexReader(versions, clock, at_once)
    reader.current()
    versions.numbers, versions.unreadable, versions.is_down = [1, 2], {2}, damage == "down"
    if damage == "gone":
        versions.numbers = []
    clock.now_s = 2.0
    with caplog.at_level(logging.WARNING):
        assert reader.current().number == 1
    assert ("version 1 of the index goes on answering" in caplog.text) == (damage != "gone")


def test_a_version_whose_digests_differ_ends_and_an_older_one_answers(clock: Clock) -> None:
    versions = Versions([1, 2], differing={2})
    reader = IndexReader(versions, clock, at_once)
    assert reader.current().number == 2
    later.pop()()
    assert reader.current().number == 1
    clock.now_s = 2.0
    assert reader.current().number == 1


def test_a_command_compares_no_digests(clock: Clock) -> None:
    reader = IndexReader(Versions([1], differing={1}), clock, None)
    assert reader.current().number == 1


def nonsense_of_two(index: OpenIndex) -> int:
    """What Tantivy does where the files of version 2 are damaged."""
    if index.number == 2:
        raise ValueError("Data corrupted")
    return index.number


def test_where_files_make_no_sense_an_older_version_answers_the_question(clock: Clock) -> None:
    assert IndexReader(Versions([1, 2], differing={2}), clock, None).ask(nonsense_of_two) == 1
    with pytest.raises(
        DamagedFileError, match="version 2 has other digests; no other version answers"
    ):
        IndexReader(Versions([2], differing={2}), clock, None).ask(nonsense_of_two)
    with pytest.raises(ValueError, match="Data corrupted"):
        IndexReader(Versions([1, 2]), clock, None).ask(nonsense_of_two)


def test_a_pool_runs_and_waits_as_many_as_it_may_and_refuses_the_next() -> None:
    go = Event()
    with SearchPool(threads=2) as pool:
        futures = [pool.submit(go.wait) for _ in range(6)]
        with pytest.raises(BusyError) as caught:
            pool.submit(go.wait)
        assert caught.value.retry_after_s == 1
        go.set()
        assert all(future.result(30) for future in futures)
        assert pool.submit(lambda: 7).result(30) == 7


def test_a_search_that_fails_frees_its_place() -> None:
    with SearchPool(threads=1) as pool:
        for _ in range(10):
            with pytest.raises(ZeroDivisionError):
                pool.submit(lambda: 1 / 0).result(30)
