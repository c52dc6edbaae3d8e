"""What a repair takes out of an intake that cannot go on: everything that may be the only copy of a URL."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest

from crawl_lib.frontier import Queue, Shares, Take, TakeHeader
from crawl_lib.frontier.journal import CLAIM, INSERT, READ, Journal
from crawl_lib.records import QueuedUrl
from crawl_lib.repair.queue.queue import repair_queue
from crawl_lib.urlfiles import encode_line, encode_meta
from tests.frontier.helpers import Keys, held, key, source, take_in, urls_of

VIA = b"v" * 20


def url(number: int) -> QueuedUrl:
    return QueuedUrl(f"http://a.example/{number}", VIA, number, 0, '{"a": "b"}')


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    found = Queue(tmp_path, "node-a")
    held(found).queue.create()
    return found


def lay(queue: Queue, numbers: list[int], tail: bytes = b"") -> tuple[int, int]:
    """`new` with its meta; returns their sizes without the tail."""
    data = b"".join(url(number).url.encode() + b"\n" for number in numbers)
    meta = b"".join(encode_meta(url(number)) + b"\n" for number in numbers)
    (queue.directory / "new").write_bytes(data + tail)
    (queue.directory / "new.meta").write_bytes(meta)
    (queue.directory / "new.undecided").write_bytes(b"")
    return len(data), len(meta)


def claims(queue: Queue, numbers: list[int]) -> None:
    (queue.directory / "new.claim").write_bytes(
        b"".join(encode_line(url(number)) + b"\n" for number in numbers)
    )


def waiting(queue: Queue) -> list[QueuedUrl]:
    return list(queue)


def test_decided_urls_keep_their_meta_and_a_torn_line_is_no_url(queue: Queue) -> None:
    lay(queue, [1, 2], tail=b"http://a.example/torn")
    (queue.directory / "intake").write_bytes(b"{")
    report = repair_queue(held(queue))
    assert waiting(queue) == [url(1), url(2)]
    assert report.lost == 0
    assert not (queue.directory / "new").exists()
    assert (queue.directory / "intake.broken").exists()


def test_what_an_earlier_repair_put_aside_stays(queue: Queue) -> None:
    """Half a line as well; what is aside already, since a repair was killed, is not put there twice."""
    journals, halves = [b"{1", b"{2"], [b"http://a.example/half", b"http://b.example/half"]
    for journal, half in zip(journals, halves, strict=True):
        lay(queue, [1])
        (queue.directory / "intake").write_bytes(journal)
        (queue.directory / "undecided").write_bytes(half)
        repair_queue(held(queue))
    (queue.directory / "undecided").write_bytes(halves[0])
    repair_queue(held(queue))
    for name, found in (("intake", journals), ("undecided", halves)):
        assert [
            path.read_bytes() for path in sorted(queue.directory.glob(f"{name}.broken*"))
        ] == found


def test_candidates_that_may_have_been_claimed_are_kept(queue: Queue) -> None:
    """The claim may have reached the key servers: a second one would call our own keys known."""
    lay(queue, [1])
    claims(queue, [2, 3])
    (queue.directory / "intake").write_bytes(b"{")
    repair_queue(held(queue))
    assert waiting(queue) == [url(1), url(2), url(3)]


@pytest.mark.parametrize("phase", [READ, INSERT, CLAIM])
def test_a_journal_that_promises_more_than_there_is_counts_what_is_gone(
    queue: Queue, phase: str
) -> None:
    size, meta_size = lay(queue, [1, 2])
    claims(queue, [7])
    Journal(
        [("1", "node-a")], new_count=5, new_bytes=size + 99, meta_bytes=meta_size, phase=phase
    ).write(queue.directory)
    report = repair_queue(held(queue))
    assert report.lost == 3
    assert waiting(queue) == [url(1), url(2), *([url(7)] if phase == CLAIM else [])]
    assert queue.taken_in().to_mapping() == {"complete": [], "partial": {}}, (
        "every segment is read again"
    )


def test_a_whole_intake_is_left_to_go_on(queue: Queue) -> None:
    size, meta_size = lay(queue, [1, 2], tail=b"http://a.example/not-decided\n")
    journal = Journal(
        [("1", "node-a")], new_count=2, new_bytes=size, meta_bytes=meta_size, phase=INSERT
    )
    for name, count in (("new", size), ("new.meta", meta_size)):
        journal.sums[name] = crc32((queue.directory / name).read_bytes()[:count])
    journal.write(queue.directory)
    before = {path.name: path.read_bytes() for path in queue.directory.iterdir()}
    repair_queue(held(queue))
    after = {path.name: path.read_bytes() for path in queue.directory.iterdir()}
    assert {name: data for name, data in after.items() if name not in {"state", "state.krake"}} == {
        name: data for name, data in before.items() if name not in {"state", "state.krake"}
    }


def test_what_was_undecided_before_an_intake_is_asked_again(queue: Queue) -> None:
    """What it left undecided itself is read again from its sources, which are not taken in."""
    lay(queue, [1])
    lines = [encode_line(url(number)) + b"\n" for number in (5, 6)]
    (queue.directory / "undecided").write_bytes(lines[0])
    (queue.directory / "new.undecided").write_bytes(lines[1])
    repair_queue(held(queue))
    assert (queue.directory / "undecided").read_bytes() == lines[0]
    assert not (queue.directory / "new.undecided").exists()


GREEDY, OTHERS = (
    [f"http://g.test/{number}" for number in range(9)],
    [f"http://{host}.test/" for host in "abcd"],
)


def take_two(queue: Queue, name: str) -> list[str]:
    """Take one URL of each of the next two hosts; the rest of what was looked at is passed over."""
    header = TakeHeader(name, "r", 1, name, 1)
    taken = held(queue).takes.make(Shares(2, lambda host: 1, None, 4, 0.0, 0.0), header)
    return [one.queued.url for one in taken.urls()]


@pytest.fixture
def partly_taken(queue: Queue) -> Queue:
    """A queue of one file, of which a first take is over, and a second one is open."""
    lines = [*GREEDY[:3], OTHERS[0], GREEDY[3], *OTHERS[1:3], *GREEDY[4:]]
    take_in(
        queue,
        Keys(),
        *(source(str(number), "n", [line]) for number, line in enumerate(lines)),
        chunk_lines=1,
    )
    assert take_two(queue, "1") == [GREEDY[0], OTHERS[0]]
    first = Take.open(queue.directory)
    assert first is not None
    held(queue).takes.advance(first)
    held(queue.directory).takes.close()
    assert take_two(queue, "2") == [GREEDY[3], OTHERS[1]]
    return queue


@pytest.mark.parametrize("lost", [["state"], ["state", "state.krake"]])
def test_what_takes_passed_over_hides_nothing_that_was_crawled(
    partly_taken: Queue, lost: list[str]
) -> None:
    """Where no one says any more how much of file 0 is processed, its URLs that were crawled are not fetched again."""
    queue, crawled = partly_taken, {key(url) for url in (GREEDY[0], OTHERS[0])}
    before = urls_of(queue)
    for name in lost:
        (queue.directory / name).unlink()
    repair_queue(held(queue), crawled.intersection)
    assert set(urls_of(queue)) == set(before)
    again = Take.open(queue.directory)
    assert again is not None
    assert again.header.looked_at == again.count + again.passed_over
    held(queue).takes.advance(again)
    assert set(urls_of(queue)) == {*before} - {GREEDY[3], OTHERS[1]}
