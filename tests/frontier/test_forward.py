"""Requisites come before pages in a queue, and a round of requisites takes no page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_lib.errors import QueueError
from crawl_lib.frontier import Queue, Take, TakeHeader
from crawl_lib.frontier.fairness import choose
from crawl_lib.records import QueuedUrl
from crawl_lib.urlfiles import encode_line, encode_meta, is_requisite
from tests.frontier.helpers import Keys, held, source, take_in, urls_of
from tests.frontier.shares import head

HEADER = TakeHeader(take_id="t", run_id="r", iteration=1, folder="5", processes=1)


def found(folder: str, steps: list[int]) -> list[QueuedUrl]:
    return [
        QueuedUrl(f"http://a.test/{folder}-{n}", b"v" * 20, 1, 0, requisite=step)
        for n, step in enumerate(steps)
    ]


def queue_of(folder: Path, *files: list[int]) -> Queue:
    queue = Queue(folder / "node")
    queue.directory.mkdir()
    keys = Keys()
    for number, steps in enumerate(files, 1):
        take_in(queue, keys, source(str(number), "node", found(str(number), steps)))
    return queue


def names(queue: Queue) -> list[str]:
    return [url.rpartition("/")[2] for url in urls_of(queue)]


def test_requisites_come_first_and_all_lines_keep_their_order(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, [0, 1, 0], [2, 0, 1])
    take = held(queue).takes.make(head(1), HEADER)
    held(queue).takes.advance(take)
    held(queue.directory).takes.close()
    assert held(queue).rewrites.bring_forward() == 3
    assert names(queue) == ["1-1", "2-0", "2-2", "1-2", "2-1"]
    metas = [meta for _, meta in queue.lines(queue.state())]
    assert [is_requisite(meta, is_meta=True) for meta in metas] == [True] * 3 + [False] * 2


def test_a_queue_in_order_is_left_alone(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, [1, 2], [0, 0])
    before = queue.files.record.read_bytes()
    assert held(queue).rewrites.bring_forward() == 2
    assert queue.files.record.read_bytes() == before


def test_an_open_take_is_no_time_for_it(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, [0, 1])
    held(queue).takes.make(head(1), HEADER)
    with pytest.raises(QueueError, match="a take is open"):
        held(queue).rewrites.bring_forward()


def test_a_round_of_requisites_looks_at_no_page(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, [0, 1, 0, 1])
    held(queue).rewrites.bring_forward()
    take = held(queue).takes.make(replace(head(9), only_requisites=True), HEADER)
    assert [taken.queued.url[-3:] for taken in take.urls()] == ["1-1", "1-3"]
    assert (take.header.looked_at, take.passed_over) == (2, 0)
    held(queue).takes.advance(take)
    held(queue.directory).takes.close()
    assert names(queue) == ["1-0", "1-2"]
    take = held(queue).takes.make(replace(head(9), only_requisites=True), HEADER)
    assert (take.count, take.header.looked_at) == (0, 0)
    assert Take.open(queue.directory) is not None
    held(queue).takes.advance(take)
    assert names(queue) == ["1-0", "1-2"]


@given(
    st.builds(
        QueuedUrl,
        st.just("http://a.test/E"),
        st.none() | st.binary(min_size=20, max_size=20),
        st.integers(0, 9),
        st.integers(0, 9),
        st.sampled_from(["", '{"E": "0E1"}']),
        st.integers(0, 2),
        st.integers(0, 2),
        st.sampled_from(["", "retry-1-E"]),
        requisite=st.integers(0, 9),
    )
)
def test_a_line_says_whether_it_is_a_requisite(url: QueuedUrl) -> None:
    assert (
        is_requisite(encode_line(url))
        is is_requisite(encode_meta(url), is_meta=True)
        is (url.requisite > 0)
    )


def test_requisites_that_are_not_due_are_passed_over() -> None:
    metas = [encode_meta(QueuedUrl("", b"v", due=9, requisite=1)), encode_meta(QueuedUrl(""))]
    lines = [(b"http://a.test/%d" % number, meta) for number, meta in enumerate(metas)]
    shares = replace(head(5), only_requisites=True, now=1.0, max_wait_s=100.0)
    assert choose(lines, shares) == b"\0"


def test_a_site_with_many_requisites_holds_back_no_page_of_another(tmp_path: Path) -> None:
    """The requisites of its host beyond its share are looked at, and do not use up how far a take looks."""
    queue = Queue(tmp_path / "node")
    queue.directory.mkdir()
    urls = [QueuedUrl(f"http://bad.test/{n}", b"v" * 20, 1, requisite=1) for n in range(50)]
    take_in(
        queue, Keys(), source("1", "node", [*urls, *(f"http://good.test/{n}" for n in range(3))])
    )
    held(queue).rewrites.bring_forward()
    shares = replace(head(5), of_host=lambda host: 2, look_ahead=10)
    taken = [taken.queued.url for taken in held(queue).takes.make(shares, HEADER).urls()]
    assert sorted(taken) == [
        f"http://{one}"
        for one in ("bad.test/0", "bad.test/1", "bad.test/2", "good.test/0", "good.test/1")
    ]
