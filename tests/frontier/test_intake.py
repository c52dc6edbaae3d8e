"""What intake lets into the queue, counts, and remembers."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path

import pytest

from crawl_lib.errors import DamagedFileError, QueueError, StoppedError, StorageError
from crawl_lib.frontier import Journal, Queue, TakeHeader
from crawl_lib.frontier.check import check_queue
from crawl_lib.frontier.hostcounts import HostCounts, host_of_line
from crawl_lib.keys import Claim, ShardedKeyStore, SqliteKeyServer
from crawl_lib.records import QueuedUrl
from crawl_lib.repair.queue.queue import repair_queue
from crawl_lib.states import KeyState
from crawl_lib.urlfiles import OutlinkWriter, Source, TakenIn, read_outlinks
from crawl_lib.urls import host_of
from tests.frontier.helpers import Keys, held, key, lines_of, source, take_in, urls_of
from tests.frontier.shares import head

A, B, C, D = (f"http://{name}.test/" for name in "abcd")


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    (tmp_path / "n1").mkdir()
    return Queue(tmp_path / "n1")


def adds_up(report) -> bool:
    parts = (
        report.new
        + report.known
        + report.duplicates
        + report.undecided
        + sum(report.rejected.values())
    )
    return report.seen == parts


def test_known_urls_are_dropped_and_new_ones_keep_their_order(queue: Queue) -> None:
    keys = Keys()
    keys._add([key(B)])
    report = take_in(queue, keys, source("1", "n1", [C, B, A, C]), source("1", "n2", [A, D]))
    assert urls_of(queue) == [C, A, D]
    assert (report.seen, report.new, report.known, report.duplicates) == (6, 3, 1, 2)
    assert keys.keys == {key(url) for url in (A, B, C, D)}
    assert adds_up(report)


def test_each_source_is_taken_in_once(queue: Queue) -> None:
    keys = Keys()
    take_in(queue, keys, source("1", "n1", [A]))
    assert ("1", "n1") in queue.taken_in()
    keys.memory.clear()
    before = (queue.directory / "state.krake").read_bytes()
    take_in(queue, keys, source("1", "n1", [A]))
    assert urls_of(queue) == [A]
    assert (queue.directory / "state.krake").read_bytes() == before, "nothing to do writes nothing"
    take_in(queue, keys, source("1", "n1", [A]), source("1", "n2", [B]))
    assert urls_of(queue) == [A, B]


def test_an_intake_of_empty_sources_is_noted_without_a_move(queue: Queue, tmp_path: Path) -> None:
    """The record is that of an intake which reads the sources."""
    (tmp_path / "n2").mkdir()
    other = Queue(tmp_path / "n2")
    empty = [Source("1", node, lambda: iter(()), ("a", "b"), is_empty=True) for node in "ab"]
    take_in(queue, Keys(), *empty, complete_folders=["1"])
    take_in(other, Keys(), *(replace(one, is_empty=False) for one in empty), complete_folders=["1"])
    found, wanted = queue.record(), other.record()
    assert found.taken_in.to_mapping() == wanted.taken_in.to_mapping()
    assert (found.nodes, queue.record().report()) == (wanted.nodes, other.record().report())
    assert (bool(found.last_move), bool(wanted.last_move)) == (False, True)
    take_in(queue, Keys(), source("2", "a", [A, B]))
    assert urls_of(queue) == [A, B]


def test_a_complete_folder_is_one_name(queue: Queue) -> None:
    take_in(queue, Keys(), source("1", "n1", [A]), source("1", "n2", []), complete_folders=["1"])
    assert queue.taken_in().to_mapping() == {"complete": ["1"], "partial": {}}
    assert ("1", "n1") in queue.taken_in()
    assert ("2", "n1") not in queue.taken_in()


def test_taken_in_does_not_call_a_folder_complete_that_it_never_saw() -> None:
    taken = TakenIn().with_sources([("1", "a")], ["1", "2"])
    assert ("2", "a") not in taken
    assert ("1", "b") in taken


def test_undecided_urls_wait_and_come_first_next_time(queue: Queue) -> None:
    keys = Keys(down=[key(A), key(C)])
    report = take_in(queue, keys, source("1", "n1", [A, B, C]))
    assert (report.undecided, urls_of(queue)) == (2, [B])
    assert adds_up(report)
    keys.down = {key(C)}
    report = take_in(queue, keys, source("2", "n1", [D]))
    assert urls_of(queue) == [B, A, D]
    assert adds_up(report)
    keys.down = set()
    take_in(queue, keys)
    assert urls_of(queue) == [B, A, D, C]
    assert not (queue.directory / "undecided").exists()


def test_no_answer_at_all_loses_nothing(queue: Queue) -> None:
    items = [QueuedUrl(A, bytes(range(20)), 3, 1, '{"a": "b"}')]
    keys = Keys(down=[key(A)])
    take_in(queue, keys, source("1", "n1", items))
    assert queue.length() == 0
    keys.down = set()
    take_in(queue, keys)
    assert list(queue) == items


def test_a_handed_on_url_passes_the_key_check_and_its_key_is_inserted(queue: Queue) -> None:
    keys = Keys()
    keys._add([key(A)])
    report = take_in(
        queue, keys, source("1", "n1", [A, B], "h"), source("1", "n2", [A, B]), chunk_lines=2
    )
    assert urls_of(queue) == [A, B]
    assert (report.past_check, report.new, report.known) == (2, 2, 2)
    assert key(B) in keys.keys


def test_handed_on_wins_over_the_same_url_found(queue: Queue) -> None:
    keys = Keys()
    keys._add([key(A)])
    report = take_in(queue, keys, source("1", "n1", [A]), source("1", "n2", [A], "h"))
    assert urls_of(queue) == [A]
    assert adds_up(report)


def test_the_host_limit_counts_what_was_admitted_over_all_intakes(queue: Queue) -> None:
    def pages(first: int, count: int) -> list[str]:
        return [f"http://a.test/{n}" for n in range(first, first + count)]

    report = take_in(queue, Keys(), source("1", "n", [*pages(0, 2), B]), max_pages_per_host=3)
    assert report.rejected == {}
    keys = Keys()
    report = take_in(
        queue, keys, source("2", "n", [*pages(2, 3), C]), max_pages_per_host=3, chunk_lines=2
    )
    assert report.rejected == {"host_limit": 2}
    assert urls_of(queue) == [*pages(0, 1), B, *pages(1, 2), C]
    assert HostCounts(queue.directory).all() == {"a.test": 3, "b.test": 1, "c.test": 1}
    assert keys.keys == {key(C), key(pages(2, 1)[0])}, "a rejected URL stays unknown"
    assert adds_up(report)


def test_host_counts_are_added_once_a_move(tmp_path: Path) -> None:
    counts = HostCounts(tmp_path)
    for move in ("x", "x", "y", "y"):
        counts.add(move, lambda: [(b"a.test", 2)])
    assert counts.all() == {"a.test": 4}
    assert counts.get([b"a.test", b"b.test"]) == {b"a.test": 4}


@pytest.mark.parametrize(
    "url",
    ["http://a.b/", "https://a.b:81/x:y", "http://[::1]/", "http://[::1]:80/a", "http://1.2.3.4/"],
)
def test_the_host_of_a_line_is_the_host_of_its_url(url: str) -> None:
    assert host_of_line(url.encode()).decode() == host_of(url)


def test_local_routing_drops_only_what_another_node_has(queue: Queue) -> None:
    keys = Keys(others=[key(B)])
    keys._add([key(A)])
    report = take_in(queue, keys, source("1", "n1", [A, B, C, D]), routing="local", chunk_lines=3)
    assert urls_of(queue) == [C, D]
    assert (report.known, report.new) == (2, 2)
    assert adds_up(report)


def test_local_routing_keeps_what_a_lost_answer_leaves_open(queue: Queue) -> None:
    class Lossy(Keys):
        def claim(self, keys):
            return Claim(unsure=set(keys), unreached={key(B)})

    report = take_in(queue, Lossy(), source("1", "n1", [A, B]), routing="local")
    assert urls_of(queue) == [A]
    assert (report.unsure, report.undecided) == (1, 1)
    assert (queue.directory / "undecided").read_bytes().startswith(B.encode())
    assert adds_up(report)


def test_two_nodes_with_local_routing_divide_what_both_find(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys")
    urls = [f"http://a.test/{n}" for n in range(50)]
    queues = [Queue(tmp_path / name) for name in ("n1", "n2")]
    for queue in queues:
        queue.directory.mkdir()
        take_in(queue, keys, source("1", queue.node, urls), routing="local", chunk_lines=7)
    assert sorted(urls_of(queues[0]) + urls_of(queues[1])) == sorted(urls)


def test_counts_stay_until_a_segment_has_reported_them(queue: Queue) -> None:
    take_in(queue, Keys(), source("1", "n1", [A]))
    take_in(queue, Keys(), source("2", "n1", [B]))
    assert queue.record().report().new == 2
    take = held(queue).takes.make(
        head(1), TakeHeader(take_id="t", run_id="r", iteration=1, folder="3", processes=1)
    )
    assert queue.record().report().new == 2
    held(queue).takes.advance(take)
    assert queue.record().report().seen == 0


def test_a_stopped_intake_goes_on_where_it_was(queue: Queue) -> None:
    urls = [f"http://a.test/{n}" for n in range(10)]
    stops = iter([False, True])
    with pytest.raises(StoppedError):
        take_in(queue, Keys(), source("1", "n1", urls), chunk_lines=3, stop=lambda: next(stops))
    assert queue.length() == 0
    assert Journal.open_plan(queue.directory) == [("1", "n1")]
    assert ("1", "n1") not in queue.taken_in()
    take_in(queue, Keys(), source("1", "n1", urls), source("2", "n1", [B]))
    assert urls_of(queue) == [*urls[:7], B, *urls[7:]]
    assert Journal.open_plan(queue.directory) == []


def test_half_a_source_that_is_gone_is_an_error(queue: Queue) -> None:
    with pytest.raises(StoppedError):
        take_in(queue, Keys(), source("1", "n1", [A, B, C]), chunk_lines=2, stop=lambda: True)
    with pytest.raises(StorageError, match="half of 1/n1"):
        take_in(queue, Keys())


def test_a_planned_source_that_is_not_offered_any_more_stays_untaken(queue: Queue) -> None:
    with pytest.raises(StoppedError):
        take_in(
            queue,
            Keys(),
            source("1", "n1", [A]),
            source("2", "n1", [B]),
            chunk_lines=1,
            stop=lambda: True,
        )
    take_in(queue, Keys(), source("1", "n1", [A]))
    assert ("2", "n1") not in queue.taken_in()
    take_in(queue, Keys(), source("2", "n1", [B]))
    assert urls_of(queue) == [A, B]


def test_a_key_server_that_fails_while_inserting_loses_nothing(queue: Queue) -> None:
    class Failing(Keys):
        def insert(self, keys, state=None):
            raise StorageError("down")

    with pytest.raises(StorageError):
        take_in(queue, Failing(), source("1", "n1", [A, B]))
    keys = Keys()
    report = take_in(queue, keys, source("1", "n1", [A, B]))
    assert urls_of(queue) == [A, B]
    assert keys.keys == {key(A), key(B)}
    assert adds_up(report)


def test_a_torn_line_is_named(queue: Queue) -> None:
    with pytest.raises(DamagedFileError, match="not a line of outlinks"):
        take_in(queue, Keys(), Source("1", "n1", lambda: iter([b"http://a.test/\t\t0"])))


def test_a_lost_file_of_an_open_intake_is_named(queue: Queue) -> None:
    with pytest.raises(StoppedError):
        take_in(queue, Keys(), source("1", "n1", [A, B, C]), chunk_lines=2, stop=lambda: True)
    os.truncate((queue.directory / "new"), 3)
    with pytest.raises(QueueError, match="journal"):
        take_in(queue, Keys(), source("1", "n1", [A, B, C]))


@pytest.mark.parametrize("name", ["new", "new.meta", "new.undecided"])
def test_wrong_bytes_in_a_file_of_an_open_intake_are_named(queue: Queue, name: str) -> None:
    """Zeroed bytes in `new` crashed the next task, and lost its URLs."""
    keys = Keys(down=[key(B)])
    with pytest.raises(StoppedError):
        take_in(queue, keys, source("1", "n1", [A, B, C, D]), chunk_lines=3, stop=lambda: True)
    path = queue.directory / name
    path.write_bytes(bytes(4) + path.read_bytes()[4:])
    with pytest.raises(QueueError, match=r"journal.*krake fsck --repair"):
        take_in(queue, keys, source("1", "n1", [A, B, C, D]))
    assert [(one.name, one.where) for one in check_queue(queue.directory, "n1")] == [
        ("intake_short", str(path))
    ]
    assert repair_queue(held(queue)).lost == (1 if name == "new" else 0)
    take_in(queue, Keys(), source("1", "n1", [A, B, C, D]))
    assert set(urls_of(queue)) == {A, B, C, D}


def test_a_journal_that_is_gone_is_named_before_what_it_spoke_of_is_overwritten(
    queue: Queue,
) -> None:
    """The keys of these URLs are known: read again, they would be dropped."""
    keys = Keys()
    with pytest.raises(StoppedError):
        take_in(queue, keys, source("1", "n1", [A, B, C, D]), chunk_lines=3, stop=lambda: True)
    queue.files.journal.unlink()
    with pytest.raises(QueueError, match=r"`intake` is gone; run `krake fsck --repair`"):
        take_in(queue, keys, source("1", "n1", [A, B, C, D]))
    assert [one.name for one in check_queue(queue.directory, "n1")] == ["intake_missing"]
    repair_queue(held(queue))
    take_in(queue, keys, source("1", "n1", [A, B, C, D]))
    assert set(urls_of(queue)) == {A, B, C, D}


def test_wrong_bytes_in_candidates_that_were_claimed_are_named(queue: Queue) -> None:
    class Dying(Keys):
        def claim(self, keys):
            raise StorageError("down")

    with pytest.raises(StorageError):
        take_in(queue, Dying(), source("1", "n1", [A, B]), routing="local")
    path = queue.directory / "new.claim"
    path.write_bytes(path.read_bytes().replace(b"a.test", b"c.test"))
    with pytest.raises(QueueError, match=r"journal.*krake fsck --repair"):
        take_in(queue, Keys(), source("1", "n1", [A, B]), routing="local")
    assert [one.name for one in check_queue(queue.directory, "n1")] == ["intake_short"]
    assert repair_queue(held(queue)).lost == 1
    take_in(queue, Keys(), source("1", "n1", [A, B]), routing="local")
    assert {A, B} <= set(urls_of(queue))


def test_with_real_key_servers_and_one_down(queue: Queue, tmp_path: Path) -> None:
    servers = [SqliteKeyServer(str(tmp_path / f"{n}.sqlite")) for n in range(2)]
    urls = [f"http://a.test/{n}" for n in range(200)]
    with ShardedKeyStore(servers, 1) as keys:
        keys.create()
        take_in(queue, keys, source("1", "n1", urls[:100]), chunk_lines=30)
        report = take_in(queue, keys, source("1", "n2", urls[50:]), chunk_lines=30)
        assert report.known == 50
        assert urls_of(queue) == urls
        report = take_in(queue, keys, source("2", "n2", urls), routing="local")
        assert report.new == 200


def test_a_part_of_a_file_is_a_source(queue: Queue, tmp_path: Path) -> None:
    with (tmp_path / "outlinks").open("wb") as file:
        writer = OutlinkWriter(file)
        writer.add_part("n1", lines_of([QueuedUrl(A)]))
        part = writer.add_part("n2", lines_of([QueuedUrl(B), QueuedUrl(C)]))

    def open_part():
        return io.BytesIO(
            (tmp_path / "outlinks").read_bytes()[part.offset : part.offset + part.length]
        )

    take_in(queue, Keys(), Source("1", "n9", lambda: read_outlinks(open_part(), count=part.count)))
    assert urls_of(queue) == [B, C]


def test_what_was_handed_on_and_waits_here_already_is_not_queued_twice(
    queue: Queue, tmp_path: Path
) -> None:
    """It may come from a node that divided its queue again, and once more when that node is retired as lost."""
    with ShardedKeyStore([SqliteKeyServer(str(tmp_path / "0.sqlite"))]) as keys:
        keys.create()
        take_in(queue, keys, source("1", "n2", [A, B], "h"))
        take_in(
            queue,
            keys,
            source("2", "n2", [A, C, C], "h"),
            source("2", "n3", [B, C, D], "h"),
            chunk_lines=2,
        )
        assert urls_of(queue) == [A, B, C, D]
        report = queue.record().pending
        assert (report["seen"], report["new"], report["past_check"]) == (8, 4, 4)
        assert (report["known"], report["duplicates"]) == (4, 0)
        begun = held(queue).takes.make(
            head(4), TakeHeader(take_id="t", run_id="r", iteration=1, folder="9", processes=1)
        )
        held(queue).takes.advance(begun)
        held(queue.directory).takes.close()
        take_in(queue, keys, source("3", "n2", [A], "h"))
        assert urls_of(queue) == [A], "what waits no more, and is to be crawled again, has its way"


def test_of_a_source_read_once_more_only_what_is_nowhere_goes_past_the_key_check(
    queue: Queue, tmp_path: Path
) -> None:
    """Else everything that other nodes ever handed on would be crawled again: of A to E it is D that is lost."""
    e = "http://e.test/"
    handed = source("1", "n2", [A, B, C, D, C, D], "h")
    with ShardedKeyStore([SqliteKeyServer(str(tmp_path / "0.sqlite"))]) as keys:
        keys.create()
        take_in(queue, keys, handed, source("1", "n3", [e], "h"))
        keys.set_state([key(A)], KeyState.CRAWLED)
        keys.set_state([key(B)], KeyState.GONE)
        kept = [item for item in queue if item.url in {C, e}]
        for name in ("0", "0.meta", "state"):
            (queue.directory / name).unlink()
        (queue.directory / "0").write_bytes(b"".join(item.url.encode() + b"\n" for item in kept))
        (queue.directory / "state").write_bytes(b"0\n2\n")
        held(queue).intake.take_in_again()
        take_in(
            queue,
            keys,
            handed,
            source("1", "n3", [e], "h"),
            source("2", "n2", [A], "h"),
            chunk_lines=2,
        )
        assert urls_of(queue) == [C, e, D, A], (
            "what comes for the first time has its way past the check"
        )
        held(queue).intake.take_in_again()
        take_in(queue, keys, handed, source("1", "n3", [e], "h"), source("2", "n2", [A], "h"))
        assert urls_of(queue) == [C, e, D, A]
