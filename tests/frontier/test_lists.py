"""A line that a list asked for says so on all its ways, and passes wherever crawled pages are dropped."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_lib.errors import DamagedFileError
from crawl_lib.frontier import Queue, Shares, TakeHeader
from crawl_lib.frontier.fairness import choose
from crawl_lib.frontier.hostcounts import HostCounts
from crawl_lib.records import Earlier, QueuedUrl
from crawl_lib.repair.queue.queue import repair_queue
from crawl_lib.states import KeyState
from crawl_lib.urlfiles import (
    HANDED_ON,
    decode_line,
    decode_meta,
    due_of,
    encode_line,
    encode_meta,
    is_listed,
    join_line,
    split_line,
)
from crawl_lib.urls import Owners
from tests.frontier.helpers import Keys, held, key, source, take_in, to_be_adopted, urls_of
from tests.frontier.shares import head

URLS = [f"http://{host}.example/{page}" for page in range(3) for host in "abc"]
EARLIER = Earlier("7/node-a", "x.warc.gz", 9, 1.5, "00ff" * 10, '"a\tb\\n\u2028"', "yesterday")
LISTED = [
    QueuedUrl(u, b"v" * 20, 2, 0, '{"a": "b"}', list_name="retry-1-x", earlier=EARLIER.to_text())
    for u in URLS
]
NAMES = st.sampled_from(["", "retry-1795000000-0123456789ab", "17-2"])
CAPTURES = st.builds(
    Earlier,
    st.text(min_size=1),
    st.text(min_size=1),
    st.integers(0, 2**40),
    st.floats(0, 2**32),
    st.sampled_from(["", "00ff" * 10]),
    st.none() | st.text(min_size=1),
    st.none() | st.text(min_size=1),
)


PLACE = {"segment": "7/a", "file": "x", "offset": 1, "time": 1}
WRONG: tuple[dict[str, Any], ...] = (
    {"time": 1e300},
    {"time": -1},
    {"digest": "00ff"},
    {"digest": "x" * 40},
)
ODD = [json.dumps({**PLACE, **wrong}) for wrong in WRONG]


def without_a_list(queued: QueuedUrl) -> QueuedUrl:
    return queued if queued.list_name else replace(queued, earlier="")


QUEUED = st.builds(
    QueuedUrl,
    st.sampled_from(URLS),
    st.none() | st.just(b"v" * 20),
    st.integers(0, 9),
    st.integers(0, 9),
    st.sampled_from(["", '{"a": "b"}']),
    st.integers(0, 5),
    st.integers(0, 2**31),
    NAMES,
    st.just("") | CAPTURES.map(Earlier.to_text),
).map(without_a_list)


class AllCrawled(Keys):
    """Key servers that know every key, and call its page crawled."""

    def unknown(self, keys: Any) -> Any:
        self._add(keys)
        return super().unknown(keys)

    def states(self, keys: Sequence[bytes]) -> dict[bytes, KeyState | None]:
        return dict.fromkeys(keys, KeyState.CRAWLED)


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    """A queue that has taken in a list."""
    found = Queue(tmp_path / "node-a", "node-a")
    found.directory.mkdir()
    report = take_in(found, AllCrawled(), source("retry-1-x", "lists", LISTED, HANDED_ON))
    assert (report.new, report.past_check, report.known) == (9, 9, 0)
    return found


def listed(queue: Queue) -> set[str]:
    found = {
        queued.url: Earlier.of(queued.earlier)
        for queued in queue
        if queued.list_name == "retry-1-x"
    }
    assert set(found.values()) <= {EARLIER}
    return set(found)


@given(QUEUED, st.sampled_from(["", HANDED_ON]))
def test_lines_there_and_back(queued: QueuedUrl, flags: str) -> None:
    line, meta = encode_line(queued, flags), encode_meta(queued)
    assert decode_line(line) == (queued, flags)
    assert decode_meta(queued.url.encode(), meta, "") == queued
    url, meta_again, split_flags = split_line(line)
    assert (meta_again, join_line(url, meta, split_flags)) == (meta, line)
    assert due_of(meta) == queued.due
    assert is_listed(line) == is_listed(meta, is_meta=True) == bool(queued.list_name)


@given(CAPTURES)
def test_an_earlier_capture_there_and_back(capture: Earlier) -> None:
    assert Earlier.of(capture.to_text()) == capture
    assert not set("\t\n\r") & set(capture.to_text())


@pytest.mark.parametrize(
    "text", ["", "null", "[1]", "{", '{"segment": "7/a", "file": "x"}', '{"segment": 1}', *ODD]
)
def test_what_names_no_capture_makes_the_visit_one_without_conditions(text: str) -> None:
    assert Earlier.of(text) is None


@pytest.mark.parametrize("end", [b"\t1", b"\t1\t2\tx\ty\tz", b"\t1\tx\tlist"])
def test_another_number_of_fields_is_no_line(end: bytes) -> None:
    with pytest.raises(DamagedFileError, match="not a line of meta"):
        decode_meta(b"http://a.example/", b"\t0\t0\t" + end, "x")


def test_the_mark_survives_the_take_what_is_left_over_and_what_is_tried_again(queue: Queue) -> None:
    take = held(queue).takes.make(head(4), TakeHeader("t", "r", 1, "9", 1))
    assert all(taken.queued.list_name == "retry-1-x" for taken in take.urls())
    held(queue).takes.advance(take, take.select([0, 1]), take.select([2]))
    held(queue.directory).takes.close()
    assert len(listed(queue)) == 8


def test_it_survives_rehoming_and_the_next_owner_takes_it_in_past_the_key_check(
    queue: Queue, tmp_path: Path
) -> None:
    owners = Owners(["node-a", "node-b", "node-c"])
    assert (moved := held(queue).rewrites.rehome(owners)) > 0
    lines = list(queue.handed_on())
    assert len(lines) == moved
    assert all(map(is_listed, lines))
    other = Queue(tmp_path / "node-b", "node-b")
    other.directory.mkdir()
    take_in(
        other,
        AllCrawled(),
        source("9", "node-a", [decode_line(line)[0] for line in lines], HANDED_ON),
    )
    assert len(listed(other)) == moved


def test_it_survives_adoption_and_repair(queue: Queue) -> None:
    to_be_adopted(queue.directory)
    held(queue).rewrites.adopt(AllCrawled(), None)  # type: ignore[arg-type]
    assert listed(queue) == set(URLS)
    (queue.directory / "state").write_text("nothing\n")
    repair_queue(held(queue), set)
    assert listed(queue) == set(URLS)
    (queue.directory / "state").write_text("nothing\n")
    (queue.directory / "state.krake").unlink()
    report = repair_queue(held(queue), set)
    assert any("0 of its URLs are known as crawled" in line for line in report.done)
    assert set(urls_of(queue)) == set(URLS)


def test_a_repair_still_counts_other_crawled_urls_as_processed(tmp_path: Path) -> None:
    queue = Queue(tmp_path, "node-a")
    take_in(queue, Keys(), source("1", "n", [f"http://a.example/{n}" for n in range(3)]))
    (queue.directory / "state").write_text("nothing\n")
    (queue.directory / "state.krake").unlink()
    repair_queue(held(queue), lambda keys: set(keys) - {key("http://a.example/2")})
    assert urls_of(queue) == ["http://a.example/2"]


def test_what_waits_is_not_queued_again_and_after_a_loss_all_is(queue: Queue) -> None:
    held(queue).intake.take_in_again()
    again = source("retry-1-x", "lists", LISTED, HANDED_ON)
    handed = source("8", "node-b", ["http://d.example/"], HANDED_ON)
    assert take_in(queue, AllCrawled(), again).known == 9, "they wait"
    held(queue).takes.advance(held(queue).takes.make(head(9), TakeHeader("t", "r", 1, "9", 1)))
    held(queue.directory).takes.close()
    take_in(queue, AllCrawled(), handed)
    held(queue).takes.advance(held(queue).takes.make(head(9), TakeHeader("u", "r", 2, "10", 1)))
    held(queue.directory).takes.close()
    held(queue).intake.take_in_again()
    take_in(queue, AllCrawled(), again, handed)
    assert listed(queue) == set(URLS), (
        "and a line that was handed on otherwise is dropped: its page was crawled"
    )
    assert len(urls_of(queue)) == 9


def test_it_is_not_counted_again_for_its_host(tmp_path: Path) -> None:
    queue = Queue(tmp_path, "node-a")
    report = take_in(queue, Keys(), source("1", "n", URLS), max_pages_per_host=3)
    assert report.new == 9
    counts = HostCounts(queue.directory).all()
    held(queue).takes.advance(held(queue).takes.make(head(9), TakeHeader("t", "r", 1, "9", 1)))
    held(queue.directory).takes.close()
    report = take_in(
        queue, AllCrawled(), source("x", "lists", LISTED, HANDED_ON), max_pages_per_host=3
    )
    assert (report.new, report.rejected) == (9, {})
    assert HostCounts(queue.directory).all() == counts


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=30),
    *[st.integers(0, 8)] * 3,
)
def test_of_what_no_list_asked_for_no_more_than_allowed_is_taken(
    lines: list[tuple[str, bool]], size: int, new: int, of_host: int
) -> None:
    """And the batch is full where there is enough for it."""
    urls = [
        QueuedUrl(f"http://{host}.example/{n}", list_name="x" * one)
        for n, (host, one) in enumerate(lines)
    ]
    pairs = [(queued.url.encode(), encode_meta(queued)) for queued in urls]
    shares = Shares(size, lambda host: max(1, of_host), None, 100, 0.0, 0.0, min(size, new))
    taken = [
        queued for queued, is_taken in zip(urls, choose(pairs, shares), strict=False) if is_taken
    ]
    of_lists = sum(bool(queued.list_name) for queued in urls)
    assert sum(not queued.list_name for queued in taken) <= new
    assert len(taken) == min(size, of_lists + min(new, len(urls) - of_lists))
