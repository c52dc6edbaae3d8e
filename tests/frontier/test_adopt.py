"""A queue made by hand is adopted: canonical, counted, nothing dropped for being known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crawl_lib.errors import DamagedFileError
from crawl_lib.frontier import Queue, TakeHeader
from crawl_lib.frontier.check import check_queue
from crawl_lib.frontier.hostcounts import HostCounts
from crawl_lib.records import QueuedUrl
from crawl_lib.repair.queue.queue import repair_queue
from crawl_lib.urlfiles import decode_line
from crawl_lib.urls import Owners, host_of
from tests.frontier.helpers import Keys, hand_made, held, key, source, take_in, urls_of
from tests.frontier.shares import head

A, B, C = (f"http://{name}.test/" for name in "abc")


def test_lines_become_canonical_and_refusals_name_file_and_line(tmp_path: Path) -> None:
    queue = hand_made(
        tmp_path / "n",
        ["done", "HTTP://A.test", "mailto:x@y", "  "],
        [B, "http://\udce4/".replace("\udce4", "[")],
        processed=1,
    )
    keys = Keys()
    report = take_in(queue, keys)
    assert urls_of(queue) == [A, B]
    assert (report.adopted, sum(report.adopted_refused.values())) == (2, 3)
    assert report.adopted_refused["scheme"] == 1
    assert f"{(queue.directory / '0')}:3: " in report.examples[0]
    assert f"{(queue.directory / '1')}:2: " in report.examples[2]
    assert keys.keys == {key(A), key(B)}
    assert (queue.directory / "state").read_bytes() == b"0\n2\n"
    assert queue.is_ours()


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    queue = hand_made(tmp_path / "n", [A])
    (queue.directory / "0").write_bytes(b"http://\xff\xfe.test/\n" + B.encode() + b"\r\n")
    (queue.directory / "state").write_text("0\n2\n")
    assert take_in(queue, Keys()).adopted_refused
    assert urls_of(queue) == [B]


@pytest.mark.parametrize("tail", [b"\0" * 9, b"\0" * 9 + b"\n"])
def test_a_line_with_zeros_is_damage_not_a_shorter_url(tmp_path: Path, tail: bytes) -> None:
    queue = hand_made(tmp_path / "n", [A])
    (queue.directory / "0").write_bytes(A.encode() + b"\n" + B.encode() + b"pa" + tail)
    (queue.directory / "state").write_text("0\n2\n")
    assert take_in(queue, Keys()).adopted_refused == {"invalid": 1}
    assert urls_of(queue) == [A]


def test_ports_that_browsers_refuse_are_refused(tmp_path: Path) -> None:
    queue = hand_made(
        tmp_path / "n", [A, "http://a.test:25/", "https://[::1]:993/x", f"{A[:-1]}:8080/"]
    )
    assert take_in(queue, Keys()).adopted_refused == {"port": 2}
    assert urls_of(queue) == [A, f"{A[:-1]}:8080/"]


def test_known_urls_stay_and_repeats_go(tmp_path: Path) -> None:
    queue = hand_made(tmp_path / "n", [A, B, A], ["http://A.test", C, B])
    keys = Keys()
    keys._add([key(A), key(C)])
    report = take_in(queue, keys)
    assert urls_of(queue) == [A, B, C]
    assert (report.adopted, report.adopted_duplicates) == (3, 3)


def test_a_damaged_note_of_what_was_counted_is_written_again(tmp_path: Path) -> None:
    queue = hand_made(tmp_path / "n", [A, B])
    queue.files.adopted_counted.write_bytes(b"\xe5")
    take_in(queue, Keys())
    assert urls_of(queue) == [A, B]
    assert not queue.files.adopted_counted.exists()


def test_hosts_that_are_no_text_are_damage(tmp_path: Path) -> None:
    queue = hand_made(tmp_path / "n", [A])
    queue.files.scope_added.write_bytes(b"a.test\n\xe5")
    with pytest.raises(DamagedFileError, match=r"scope_added: .*krake fsck --repair"):
        queue.scope_added()


def test_it_is_adopted_once_and_again_when_it_is_changed(tmp_path: Path) -> None:
    queue = hand_made(tmp_path / "n", [A])
    take_in(queue, Keys())
    assert take_in(queue, Keys()).adopted == 1, "the count is the pending one, it did not grow"
    hand_made(queue.directory, [A, B])
    assert not queue.is_ours()
    assert take_in(queue, Keys()).adopted == 3
    assert queue.is_ours()


def test_what_was_taken_in_stays_known(tmp_path: Path) -> None:
    queue = Queue(tmp_path / "n")
    queue.directory.mkdir()
    take_in(queue, Keys(), source("1", "x", [C]))
    hand_made(queue.directory, [A])
    take_in(queue, Keys(), source("1", "x", [C]), source("2", "x", [B]))
    assert urls_of(queue) == [A, B]


@pytest.mark.parametrize("urls", [[B], [A, B, C], [C, A]])
def test_the_old_meta_of_a_file_that_people_replaced_is_not_its_own(
    tmp_path: Path, urls: list[str]
) -> None:
    queue = Queue(tmp_path / "n")
    queue.directory.mkdir()
    take_in(
        queue,
        Keys(),
        source("1", "x", [QueuedUrl("http://old.test/", depth=7), QueuedUrl(f"{A}x", depth=8)]),
    )
    hand_made(queue.directory, urls)
    take_in(queue, Keys())
    assert [(item.url, item.depth) for item in queue] == [(url, 0) for url in urls]


def test_the_old_meta_of_a_file_that_people_sorted_is_not_its_own(tmp_path: Path) -> None:
    """It has the size that it had before."""
    queue = Queue(tmp_path / "n")
    queue.directory.mkdir()
    take_in(queue, Keys(), source("1", "x", [QueuedUrl(url, depth=7) for url in (C, B, A)]))
    held(queue).takes.advance(
        held(queue).takes.make(
            head(1), TakeHeader(take_id="t", run_id="r", iteration=1, folder="1", processes=1)
        )
    )
    held(queue.directory).takes.close()
    hand_made(queue.directory, sorted([A, B, C]))
    assert check_queue(queue.directory, "n") == []
    take_in(queue, Keys())
    assert [(item.url, item.depth) for item in queue] == [(A, 0), (B, 0), (C, 0)]


def test_meta_stays_where_only_the_state_was_changed_or_repaired(tmp_path: Path) -> None:
    queue = Queue(tmp_path / "n")
    queue.directory.mkdir()
    items = [QueuedUrl(A, depth=7), QueuedUrl(B, bytes(20), 8), QueuedUrl(C, metadata='{"a": "b"}')]
    take_in(queue, Keys(), source("1", "x", items))
    held(queue).takes.advance(
        held(queue).takes.make(
            head(1), TakeHeader(take_id="t", run_id="r", iteration=1, folder="1", processes=1)
        )
    )
    held(queue.directory).takes.close()
    (queue.directory / "state").write_text("0\n3\n")
    assert not queue.is_ours()
    take_in(queue, Keys())
    assert list(queue) == items
    repair_queue(held(queue))
    assert not queue.is_ours()
    take_in(queue, Keys())
    assert list(queue) == items


def test_urls_of_other_nodes_go_to_their_owners_past_the_key_check(tmp_path: Path) -> None:
    owners = Owners(["n1", "n2"])
    urls = [f"http://h{n}.test/" for n in range(20)]
    queue = hand_made(tmp_path / "n1", urls)
    keys = Keys()
    report = take_in(queue, keys, owners=owners)
    mine = [url for url in urls if owners.owner(host_of(url)) == "n1"]
    theirs = [url for url in urls if url not in mine]
    assert mine
    assert theirs
    assert urls_of(queue) == mine
    lines = [decode_line(line) for line in queue.handed_on()]
    assert [(item.url, flags) for item, flags in lines] == [(url, "h") for url in theirs]
    assert report.adopted_handed_on == len(theirs)
    assert queue.scope_added() == sorted(host_of(url) for url in urls)
    assert keys.keys == {key(url) for url in urls}
    other = Queue(tmp_path / "n2")
    other.directory.mkdir()
    take_in(other, keys, source("1", "n1", theirs, "h"))
    assert urls_of(other) == theirs


def test_a_second_adoption_keeps_what_the_first_left_for_the_segment(tmp_path: Path) -> None:
    owners = Owners(["n1", "n2"])
    urls = [f"http://h{n}.test/" for n in range(20)]
    theirs = [url for url in urls if owners.owner(host_of(url)) == "n2"]
    queue = hand_made(tmp_path / "n1", urls[:10])
    take_in(queue, Keys(), owners=owners)
    hand_made(queue.directory, urls)
    take_in(queue, Keys(), owners=owners)
    assert [decode_line(line)[0].url for line in queue.handed_on()] == theirs
    take = held(queue).takes.make(
        head(2), TakeHeader(take_id="t", run_id="r", iteration=1, folder="1", processes=1)
    )
    assert list(queue.handed_on())
    held(queue).takes.advance(take)
    held(queue.directory).takes.close()
    assert (list(queue.handed_on()), queue.scope_added()) == ([], [])


def test_with_local_routing_all_stay(tmp_path: Path) -> None:
    queue = hand_made(tmp_path / "n1", [A, B, C])
    take_in(queue, Keys(), routing="local", owners=Owners(["n1", "n2"]))
    assert urls_of(queue) == [A, B, C]


def test_nothing_usable_leaves_an_empty_queue(tmp_path: Path) -> None:
    queue = hand_made(tmp_path / "n", ["x", "y"])
    take_in(queue, Keys())
    assert (queue.directory / "state").read_bytes() == b"0\n0\n"
    assert (queue.directory / "0").read_bytes() == b""


def test_a_finished_take_of_a_queue_not_adopted_leaves_it_to_be_adopted(tmp_path: Path) -> None:
    queue = hand_made(tmp_path / "n", [A, B, "HTTP://c.test"])
    take = held(queue).takes.make(
        head(1), TakeHeader(take_id="t", run_id="r", iteration=1, folder="1", processes=1)
    )
    held(queue).takes.advance(take)
    held(queue.directory).takes.close()
    assert json.loads((queue.directory / "state.krake").read_text())["state_sha1"] == ""
    take_in(queue, Keys())
    assert urls_of(queue) == [B, C]


def test_urls_that_were_counted_for_their_host_are_not_counted_again(tmp_path: Path) -> None:
    """A queue of ours that people edited: `max_pages_per_host` would else reject what it should not."""
    queue = Queue(tmp_path, "n")
    held(queue).queue.create()
    keys = Keys()
    urls = [f"{A}{number}" for number in range(4)]
    take_in(queue, keys, source("1", "n", urls))
    (queue.directory / "0").write_text("".join(f"{url}\n" for url in [*urls[:3], f"{A}by-hand"]))
    (queue.directory / "state").write_text("0\n4\n")
    take_in(queue, keys)
    assert HostCounts(tmp_path).all() == {"a.test": 5}
    assert not (queue.directory / "adopted.counted").exists()
