"""The queue's files, bit for bit, and what is said about a `state` that lies."""

from __future__ import annotations

import shutil
from hashlib import sha1
from pathlib import Path

import pytest

from crawl_lib.errors import ConfigError, DamagedFileError, QueueError, StorageError
from crawl_lib.frontier import (
    NodeDirectory,
    Queue,
    State,
    Take,
    TakeHeader,
    move,
)
from crawl_lib.frontier.check import check_queue
from crawl_lib.frontier.hostcounts import read_counts
from crawl_lib.frontier.move import Move, Step
from crawl_lib.records import QueuedUrl
from crawl_lib.repair.queue.queue import repair_queue
from crawl_lib.urlfiles import join_line
from crawl_lib.urls import Owners
from tests.frontier.helpers import Keys, fill, hand_made, held, source, take_in, urls_of
from tests.frontier.shares import head
from tests.harms import all_flipped, flipped

THE_EXAMPLE = b"230\n1400\n3000\n50\n"


def take(queue: Queue, size: int, take_id: str = "t"):
    return held(queue).takes.make(
        head(size), TakeHeader(take_id=take_id, run_id="r", iteration=1, folder="9", processes=2)
    )


def numbered(first: int, count: int) -> list[str]:
    return [f"http://h{n % 7}.test/{n}" for n in range(first, first + count)]


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    queue = Queue(NodeDirectory.make(tmp_path, "node-a"))
    held(queue).queue.create()
    return queue


def test_the_example_of_the_design_is_written_bit_for_bit(queue: Queue) -> None:
    urls = numbered(0, 1400), numbered(1400, 3000), numbered(4400, 50)
    for number, some in enumerate(urls):
        fill(queue, some, str(number))
    held(queue).takes.advance(take(queue, 230))
    assert (queue.directory / "state").read_bytes() == THE_EXAMPLE
    for number, some in enumerate(urls):
        assert queue.files.data(number).read_bytes() == "".join(f"{url}\n" for url in some).encode()
        assert (queue.directory / f"{number}.meta").read_bytes() == b"\t0\t0\t\n" * len(some)
    assert queue.length() == 4220
    assert urls_of(queue) == [*urls[0][230:], *urls[1], *urls[2]]


def test_an_empty_queue_is_an_empty_file_and_a_state(queue: Queue) -> None:
    assert (queue.directory / "0").read_bytes() == b""
    assert (queue.directory / "state").read_bytes() == b"0\n0\n"
    held(queue).queue.create()
    assert (queue.length(), urls_of(queue), queue.state()) == (0, [], State())


def test_a_used_up_queue_is_an_empty_queue_again(queue: Queue) -> None:
    fill(queue, numbered(0, 5))
    held(queue).takes.advance(take(queue, 9))
    held(queue.directory).takes.close()
    assert (queue.directory / "state").read_bytes() == b"0\n0\n"
    assert [path.name for path in sorted(queue.directory.iterdir()) if path.name[0].isdigit()] == [
        "0"
    ]
    fill(queue, ["http://a.test/"], "2")
    assert (queue.directory / "state").read_bytes() == b"0\n1\n"
    assert (queue.directory / "0").read_bytes() == b"http://a.test/\n"


def test_an_empty_queue_that_is_replaced_by_nothing_keeps_its_file(queue: Queue) -> None:
    """As when a node is retired that holds nothing."""
    change = move.Change("retire-x", queue.state(), queue.record(), ours=True, replaces=True)
    held(queue).queue.change(change)
    assert queue.state() == State()


def test_a_take_may_span_files_which_then_go_and_the_others_move_down(queue: Queue) -> None:
    for number in range(5):
        fill(queue, numbered(number * 10, 10), str(number))
    first = take(queue, 25)
    assert [item.queued.url for item in first.urls()] == numbered(0, 25)
    assert queue.length() == 50, "a take does not move the queue"
    held(queue).takes.advance(first, first.select([3, 4, 24]))
    assert (queue.directory / "state").read_bytes() == b"5\n10\n10\n10\n3\n"
    left = ["http://h3.test/3", "http://h4.test/4", "http://h3.test/24"]
    assert urls_of(queue) == numbered(25, 25) + left
    held(queue.directory).takes.close()
    assert not (queue.directory / "5").exists()
    held(queue).takes.advance(take(queue, 5, "u"))
    assert (queue.directory / "state").read_bytes() == b"0\n10\n10\n3\n", (
        "a file used up exactly is deleted"
    )


def test_meta_travels_with_its_url(queue: Queue) -> None:
    items = [
        QueuedUrl(f"http://a.test/{n}", bytes([n] * 20), n, n % 3, f'{{"n": "{n}"}}')
        for n in range(1, 9)
    ]
    take_in(queue, Keys(), source("1", "n", items))
    assert list(queue) == items
    first = take(queue, 5)
    assert [item.queued for item in first.urls()] == items[:5]
    assert [item.position for item in first.urls()] == [0, 1, 2, 3, 4]
    held(queue).takes.advance(first, first.select([0, 4]))
    assert list(queue) == [*items[5:], items[0], items[4]]


def test_advancing_again_does_nothing_and_advancing_elsewhere_is_an_error(queue: Queue) -> None:
    fill(queue, numbered(0, 10))
    first = take(queue, 4)
    held(queue).takes.advance(first, first.select([1]))
    state = (queue.directory / "state").read_bytes()
    held(queue).takes.advance(first, first.select([1]))
    assert (queue.directory / "state").read_bytes() == state == b"4\n10\n1\n"
    held(queue.directory).takes.close()
    second = take(queue, 2, "u")
    (queue.directory / "state").write_text("5\n10\n1\n")
    with pytest.raises(QueueError, match="krake fsck --repair"):
        held(queue).takes.advance(second)


def test_only_one_take_is_open(queue: Queue) -> None:
    fill(queue, numbered(0, 3))
    opened = take(queue, 1)
    assert Take.open(queue.directory) == opened
    with pytest.raises(QueueError, match="take is open"):
        take(queue, 1, "u")
    with pytest.raises(QueueError, match="take is open"):
        fill(queue, ["http://a.test/"], "2")
    held(queue.directory).takes.close()
    assert Take.open(queue.directory) is None


def test_a_torn_take_is_damaged(queue: Queue) -> None:
    fill(queue, numbered(0, 3))
    opened = take(queue, 3)
    opened.path.write_bytes(opened.path.read_bytes().split(b"\n", 2)[0] + b"\n")
    with pytest.raises(DamagedFileError, match="another digest"):
        list(opened.urls())


def test_any_wrong_bit_in_a_take_is_found_before_its_first_url(queue: Queue) -> None:
    take_in(queue, Keys(), source("1", "n", [QueuedUrl("http://a.test/1", bytes(20), 1)]))
    data = take(queue, 1).path.read_bytes()
    for damaged in all_flipped(data):
        (queue.directory / "take").write_bytes(damaged)
        with pytest.raises(DamagedFileError, match="krake fsck --repair"):
            next((found := Take.open(queue.directory)) and found.urls())


def test_a_scope_with_a_wrong_bit_cut_or_emptied_is_damage(queue: Queue) -> None:
    """All that such a scope lacks, or has under another name, would be dropped as not in scope, and never come back."""
    fill(queue, numbered(0, 3))
    opened = take(queue, 3)
    opened.scope_path.parent.mkdir()
    with pytest.raises(FileNotFoundError):
        opened.scope()
    held(queue).takes.write_scope(opened, ["b.test", "a.test"])
    assert opened.scope() == ["a.test", "b.test"]
    data = opened.scope_path.read_bytes()
    for damaged in [*all_flipped(data), b"", data[:20], b"a.test\n", b"{}\n"]:
        opened.scope_path.write_bytes(damaged)
        with pytest.raises(DamagedFileError, match="krake fsck --repair"):
            opened.scope()


@pytest.mark.parametrize(
    "bit", sorted(set(range(56)) - {48})
)  # of the last newline: another white space
def test_a_wrong_bit_in_state_is_damage_and_the_repair_knows_better(queue: Queue, bit: int) -> None:
    """A person's edit begins with 0: a bit that makes line 1 another number would skip URLs, or fetch them twice."""
    urls = numbered(0, 10)
    fill(queue, urls)
    fill(queue, numbered(10, 1), "2")
    held(queue).takes.advance(take(queue, 5))
    held(queue.directory).takes.close()
    path = queue.directory / "state"
    assert path.read_bytes() == b"5\n10\n1\n"
    path.write_bytes(flipped(path.read_bytes(), bit))
    with pytest.raises(QueueError, match="krake fsck --repair"):
        queue.is_ours()
    assert check_queue(queue.directory, "node-a", full=False)
    repair_queue(held(queue))
    assert (urls_of(queue), path.read_bytes()) == (numbered(5, 6), b"0\n6\n")
    assert not check_queue(queue.directory, "node-a")


def test_the_url_of_another_page_in_a_data_file_is_found(queue: Queue) -> None:
    fill(queue, numbered(0, 3))
    path = queue.directory / "0"
    path.write_bytes(path.read_bytes().replace(b"h1.test/1", b"h1.test/3"))
    assert [finding.name for finding in check_queue(queue.directory, "node-a")] == ["data_changed"]
    assert repair_queue(held(queue)).lost == 1


def test_the_leftover_is_known_by_its_take(queue: Queue) -> None:
    fill(queue, numbered(0, 9))
    opened = take(queue, 9)
    assert opened.leftover() is None
    held(opened.path.parent).takes.leave_over(opened, [7, 1, 2, 3])
    assert opened.leftover() == [1, 2, 3, 7]
    held(queue.directory).takes.close()
    held(opened.path.parent).takes.leave_over(opened, [1])
    assert take(queue, 9, "u").leftover() is None, "a leftover of another take says nothing"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has 0 lines"),
        ("0\n", "has 1 lines"),
        ("x\n3\n", "line 1 is not a number"),
        ("0\n-3\n", "line 2 is not a number"),
        ("0\n3.0\n", "line 2 is not a number"),
        ("0\n\n3\n", "line 2 is not a number"),
        ("4\n3\n", "says 4 URLs of file 0 are processed"),
        ("0\n2\n", "file 0 has 3 URLs, and `state` says 2"),
        ("0\n4\n", "file 0 has 3 URLs, and `state` says 4"),
        ("0\n3\n1\n", "lists 2 data files, and there are 0"),
        ("\xff\xfe\n3\n", "line 1 is not a number"),
    ],
)
def test_a_state_that_lies_is_named_with_the_command_that_repairs_it(
    tmp_path: Path, text: str, problem: str
) -> None:
    queue = hand_made(
        tmp_path / "node-a", ["http://a.test/1", "http://a.test/2", "http://a.test/3"]
    )
    (queue.directory / "state").write_text(text, encoding="latin-1")
    with pytest.raises(QueueError, match="krake fsck --repair") as caught:
        queue.state()
    assert problem in str(caught.value)


def test_a_missing_or_surplus_file_is_named(tmp_path: Path) -> None:
    queue = hand_made(tmp_path / "n", ["http://a.test/1"], ["http://a.test/2"])
    (queue.directory / "2").write_text("http://a.test/3\n")
    with pytest.raises(QueueError, match="lists 2 data files, and there are 0, 1, 2"):
        queue.state()
    (queue.directory / "2").unlink()
    (queue.directory / "0").unlink()
    with pytest.raises(QueueError, match="lists 2 data files, and there are 1"):
        queue.state()
    (queue.directory / "state").unlink()
    with pytest.raises(QueueError, match="no `state`"):
        queue.state()
    with pytest.raises(QueueError, match="no `state`"):
        held(queue).queue.create()


def test_a_data_file_that_changed_under_our_state_is_noticed(queue: Queue) -> None:
    fill(queue, numbered(0, 10))
    with (queue.directory / "0").open("a") as file:
        file.write("http://a.test/\n")
    with pytest.raises(QueueError, match="file 0 has 11 URLs"):
        queue.state()


@pytest.mark.parametrize("bytes_lost", [1, 4])
def test_half_a_url_at_the_end_of_a_file_is_not_adopted(queue: Queue, bytes_lost: int) -> None:
    """It has as many lines as before; only its size says that it was cut."""
    keys = Keys()
    take_in(queue, keys, source("1", "n", numbered(0, 3)))
    data = (queue.directory / "0").read_bytes()
    (queue.directory / "0").write_bytes(data[:-bytes_lost])
    with pytest.raises(QueueError, match=r"file 0 was cut.*`krake fsck --repair`"):
        take_in(queue, keys)
    report = repair_queue(held(queue))
    assert report.lost == 1
    assert any("line 3 is cut" in line for line in report.done)
    assert (queue.directory / "0.broken").read_bytes() == data.splitlines()[-1][
        : 1 - bytes_lost or None
    ] + b"\n"
    assert urls_of(queue) == numbered(0, 2)
    assert repair_queue(held(queue)).lost == 0, "again: nothing more is cut"
    take_in(queue, Keys(), source("1", "n", numbered(0, 3)))
    assert urls_of(queue) == numbered(0, 3), "it is found again where it was found first"


def test_a_cut_file_keeps_how_far_it_was_processed_and_its_meta(queue: Queue) -> None:
    take_in(
        queue,
        Keys(),
        source("1", "n", [QueuedUrl(url, bytes(20), n) for n, url in enumerate(numbered(0, 6), 1)]),
    )
    held(queue).takes.advance(take(queue, 2))
    held(queue.directory).takes.close()
    (queue.directory / "0").write_bytes((queue.directory / "0").read_bytes()[:-4])
    assert repair_queue(held(queue), lambda keys: set()).state == State(0, (3,))
    assert [item.depth for item in queue] == [3, 4, 5]


def test_a_line_that_people_left_without_its_newline_is_believed(queue: Queue) -> None:
    """They changed `state` too, or made the file longer."""
    keys = Keys()
    take_in(queue, keys, source("1", "n", numbered(0, 3)))
    (queue.directory / "0").write_bytes(b"http://a.test/1\nhttp://a.test/2")
    (queue.directory / "state").write_bytes(b"0\n2\n")
    take_in(queue, keys)
    assert urls_of(queue) == ["http://a.test/1", "http://a.test/2"]


def test_people_may_leave_out_the_last_newline(tmp_path: Path) -> None:
    queue = hand_made(tmp_path / "n", ["http://a.test/1", "http://a.test/2"])
    (queue.directory / "0").write_text("http://a.test/1\nhttp://a.test/2")
    (queue.directory / "state").write_text("1\n2")
    assert queue.state() == State(1, (2,))
    assert urls_of(queue) == ["http://a.test/2"]


def test_a_used_up_first_file_is_passed_over(tmp_path: Path) -> None:
    queue = hand_made(tmp_path / "n", ["http://a.test/1"], [], ["http://a.test/2"], processed=1)
    assert urls_of(queue) == ["http://a.test/2"]


def test_directories_are_made_below_an_existing_parent_only(tmp_path: Path) -> None:
    assert NodeDirectory.make(tmp_path / "queue", "a") == tmp_path / "queue" / "a"
    assert NodeDirectory.make(tmp_path / "queue", "a").is_dir()
    with pytest.raises(ConfigError, match=r"/no/queue: cannot be made: No such file"):
        NodeDirectory.make(tmp_path / "no" / "queue", "a")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be made: "):
        NodeDirectory.make(tmp_path / "file", "a")
    with pytest.raises(ConfigError, match="file/queue: cannot be made: Not a directory"):
        NodeDirectory.make(tmp_path / "file" / "queue", "a")


def test_repair_counts_what_is_there_and_keeps_the_position_where_it_may(tmp_path: Path) -> None:
    queue = hand_made(
        tmp_path / "n", ["http://a.test/1", "http://a.test/2"], ["http://a.test/3"], processed=1
    )
    (queue.directory / "1").rename(queue.directory / "4")
    with pytest.raises(QueueError):
        queue.state()
    report = repair_queue(held(queue))
    assert report.state == queue.state() == State(0, (2,))
    assert urls_of(queue) == ["http://a.test/2", "http://a.test/3"]
    (queue.directory / "state").write_text("1\n7\n1\n")
    assert repair_queue(held(queue)).state == State(0, (2,)), (
        "a position in another file 0 means nothing"
    )
    (queue.directory / "state").unlink()
    assert repair_queue(held(queue)).state == State(0, (2,))


def test_repair_does_not_believe_a_meta_that_does_not_fit(queue: Queue) -> None:
    take_in(
        queue, Keys(), source("1", "n", [QueuedUrl(url, bytes(20), 4) for url in numbered(0, 3)])
    )
    meta = queue.directory / "0.meta"
    meta.write_bytes(meta.read_bytes().partition(b"\n")[2])
    done = repair_queue(held(queue)).done
    assert [(item.url, item.depth) for item in queue] == [(url, 0) for url in numbered(0, 3)]
    assert "0.meta: is not what Krake wrote; some entries about URLs are wrong" in done
    assert "0.meta: does not fit 0, whose URLs are kept without it" in done


def test_a_data_file_under_another_number_keeps_its_meta(queue: Queue) -> None:
    """As a move leaves it that was half done, and cannot be read."""
    for number in range(2):
        items = [QueuedUrl(url, bytes(20), number + 4) for url in numbered(number * 30, 3)]
        take_in(queue, Keys(), source(str(number), "n", items))
    for name in ("1", "1.meta"):
        (queue.directory / name).rename(queue.directory / name.replace("1", "0"))
    repair_queue(held(queue))
    assert [(item.url, item.depth) for item in queue] == [(url, 5) for url in numbered(30, 3)]


def test_what_a_repair_set_aside_may_be_deleted(queue: Queue) -> None:
    fill(queue, numbered(0, 3))
    for name in ("intake", "state.krake"):
        (queue.directory / name).write_bytes(b"{")
    assert sum("set aside" in line for line in repair_queue(held(queue)).done) == 2
    for path in queue.directory.glob("*.broken"):
        path.unlink()
    assert check_queue(queue.directory, "node-a") == []


def test_a_journal_that_is_not_there_is_not_set_aside(queue: Queue) -> None:
    (queue.directory / "new").write_bytes(b"http://a.test/\n")
    assert not any("set aside" in line for line in repair_queue(held(queue)).done)
    assert urls_of(queue) == ["http://a.test/"]


def test_an_open_move_is_finished_though_the_counts_of_hosts_are_damaged(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could not add to them, and the repair that counts them again comes after it."""

    def kill(step: str) -> None:
        raise KilledError

    fill(queue, numbered(0, 3))
    with monkeypatch.context() as patch:
        patch.setattr(move, "reached", kill)
        with pytest.raises(KilledError):
            fill(queue, numbered(3, 3), "2")
    queue.files.host_counts.write_bytes(b"no data base" * 100)
    with pytest.raises(StorageError, match=r"hostcounts.*krake fsck --repair"):
        held(queue).queue.finish_open_move()
    assert "move: carried out" in repair_queue(held(queue)).done
    assert urls_of(queue) == numbered(0, 6)
    assert ("2", "n") in queue.taken_in()


def test_repair_finds_the_place_of_an_open_take(queue: Queue) -> None:
    fill(queue, numbered(0, 6))
    take(queue, 2)
    (queue.directory / "state").write_text("1\n9\n")
    repair_queue(held(queue))
    opened = Take.open(queue.directory)
    assert opened
    held(queue).takes.advance(opened)
    assert urls_of(queue) == numbered(2, 4)


def test_repair_lets_nothing_go_for_a_take_that_is_not_next(queue: Queue) -> None:
    fill(queue, numbered(0, 6))
    take(queue, 2)
    hand_made(queue.directory, numbered(50, 3))
    repair_queue(held(queue))
    opened = Take.open(queue.directory)
    assert opened
    held(queue).takes.advance(opened)
    assert urls_of(queue) == numbered(50, 3)
    assert not queue.is_ours(), "a queue that was never adopted stays to be adopted"


def test_a_move_that_does_not_fit_its_files_is_set_aside_by_repair(queue: Queue) -> None:
    fill(queue, numbered(0, 3))
    (queue.directory / "move").write_bytes(
        Move("x", ((Step("1", 1, "0"),),), "0\n1\n", {}).to_bytes()
    )
    with pytest.raises(QueueError, match="krake fsck --repair"):
        fill(queue, ["http://a.test/"], "2")
    repair_queue(held(queue))
    assert (queue.directory / "move.broken").exists()
    assert urls_of(queue) == numbered(0, 3)


class KilledError(Exception):
    """Stands for the death of the process."""


def killed_within_a_move(queue: Queue, begun: Take, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file is written, and nothing of it is done."""

    def kill(step: str) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(move, "reached", kill)
        with pytest.raises(KilledError):
            held(queue).takes.advance(begun)


@pytest.mark.parametrize("copied", [False, True])
def test_a_copy_made_within_a_move_does_not_hand_on_again(
    copied: bool, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The take's segment has carried those URLs. In a copy the move's deletions would find other files."""
    fill(queue, numbered(0, 5))
    (queue.directory / "handed_on").write_bytes(b"http://other.test/\t\t0\t0\th\t\n")
    begun = take(queue, 3)
    killed_within_a_move(queue, begun, monkeypatch)
    assert check_queue(queue.directory, queue.node) == [], "an open move is no damage"
    if copied:
        kept = queue.directory.with_name("kept")
        queue.directory.rename(kept)
        shutil.copytree(kept, queue.directory)
        before = sorted(path.name for path in queue.directory.iterdir())
        with pytest.raises(
            QueueError, match=r"the open move deletes `handed_on`.*copied.*krake fsck --repair"
        ):
            held(queue).takes.advance(begun)
        assert sorted(path.name for path in queue.directory.iterdir()) == before, (
            "nothing is done by halves"
        )
        assert "move_impossible" in {
            finding.name for finding in check_queue(queue.directory, queue.node)
        }
        repair_queue(held(queue))
    opened = Take.open(queue.directory)
    assert opened
    held(queue).takes.advance(opened)
    assert not (queue.directory / "handed_on").exists()
    assert urls_of(queue) == numbered(3, 2)


def test_a_move_that_a_killed_task_left_is_made_durable_before_it_is_carried_out(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was renamed and no more: its steps could outlive it, and `state` would lie."""
    fill(queue, numbered(0, 3))
    killed_within_a_move(queue, take(queue, 3), monkeypatch)
    done: list[str] = []
    fsync_dir, step = move.fsync_dir, move._do
    monkeypatch.setattr(
        move, "fsync_dir", lambda directory: (done.append("fsync"), fsync_dir(directory))
    )
    monkeypatch.setattr(move, "_do", lambda *what: (done.append("step"), step(*what)))
    assert held(queue).queue.finish_open_move()
    assert done[:2] == ["fsync", "step"]
    assert queue.length() == 0


def test_the_record_says_the_digest_of_each_meta_that_krake_wrote(queue: Queue) -> None:
    """Through takes and intakes; another byte in one is found."""
    fill(queue, numbered(0, 3))
    fill(queue, numbered(3, 4), "2")
    for size, files in ((2, 2), (3, 1)):
        held(queue).takes.advance(take(queue, size, f"t{size}"))
        held(queue.directory).takes.close()
        metas = [
            sha1((queue.directory / f"{number}.meta").read_bytes()).hexdigest()
            for number in range(files)
        ]
        assert queue.record().metas == tuple(metas)
    fill(queue, numbered(7, 2), "3")
    assert queue.record().metas[1] == sha1((queue.directory / "1.meta").read_bytes()).hexdigest()
    assert [one.name for one in check_queue(queue.directory, "node-a")] == []
    (queue.directory / "1.meta").write_bytes(
        (queue.directory / "1.meta").read_bytes().replace(b"0", b"1", 1)
    )
    assert [one.name for one in check_queue(queue.directory, "node-a")] == ["meta_changed"]
    repair_queue(held(queue))
    assert check_queue(queue.directory, "node-a") == []


def test_a_wrong_byte_in_what_waits_next_to_the_queue_is_found(queue: Queue) -> None:
    hand_made(queue.directory, numbered(0, 12))
    keys = Keys(down=[sha1(b"http://late.test/").digest()])
    take_in(
        queue, keys, source("1", "n", ["http://late.test/"]), owners=Owners(["node-a", "node-b"])
    )
    assert check_queue(queue.directory, "node-a") == []
    for name in ("undecided", "handed_on", "scope_added"):
        path = queue.directory / name
        data = path.read_bytes()
        for damaged in (data.replace(b"t", b"u", 1), data + data, None):
            path.unlink() if damaged is None else path.write_bytes(damaged)
            assert [one.name for one in check_queue(queue.directory, "node-a")] == [
                f"{name}_damaged"
            ]
        path.write_bytes(data)
    for name in ("undecided", "handed_on", "scope_added"):
        (queue.directory / name).unlink()
        repair_queue(held(queue))
        assert {one.name for one in check_queue(queue.directory, "node-a")} <= {"urls_lost"}
    (queue.directory / "lost").unlink()
    take_in(queue, Keys(), owners=Owners(["node-a", "node-b"]))
    held(queue).takes.advance(take(queue, 1))
    held(queue.directory).takes.close()
    assert not (queue.directory / "handed_on").exists()
    assert check_queue(queue.directory, "node-a") == []


@pytest.mark.parametrize("name", ["new.hosts", "new", "new.meta"])
def test_a_wrong_byte_in_a_file_that_an_open_move_needs_is_found(
    name: str, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(step: str) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(move, "reached", kill)
        with pytest.raises(KilledError):
            fill(queue, numbered(0, 3))
    path = queue.directory / name
    path.write_bytes(path.read_bytes().replace(b"1" if name != "new.meta" else b"0", b"3", 1))
    found = [one.name for one in check_queue(queue.directory, "node-a")]
    assert found == [
        {"new.hosts": "move_impossible", "new": "data_changed", "new.meta": "meta_changed"}[name]
    ]
    if name == "new.hosts":
        with pytest.raises(QueueError, match=r"new.hosts.*krake fsck --repair"):
            held(queue).queue.finish_open_move()
    report = repair_queue(held(queue))
    assert report.lost == (name == "new")
    fill(queue, numbered(0, 3))
    assert set(urls_of(queue)) >= set(numbered(0, 3))


@pytest.mark.parametrize("line", [b"no count\n", b"a.example\t\n", b"\t3\n", b"a.example\t3"])
def test_counts_of_hosts_that_are_none_are_damage(line: bytes, tmp_path: Path) -> None:
    (tmp_path / "new.hosts").write_bytes(b"b.example\t1\n" + line)
    with pytest.raises(DamagedFileError, match="fsck --repair"):
        list(read_counts(tmp_path / "new.hosts"))


def test_a_meta_line_that_is_none_is_damage() -> None:
    with pytest.raises(DamagedFileError, match="fsck --repair"):
        join_line(b"http://a.example/", b"\t1\t0")
