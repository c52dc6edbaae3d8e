"""Queues of nodes: what a repair keeps of a damaged one, and a queue that is lost, or an older copy."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from zlib import crc32

import pytest

from crawl_lib.frontier import Queue, Shares, Take, TakeHeader
from crawl_lib.frontier.journal import CLAIM, INSERT, READ, Journal
from crawl_lib.records import QueuedUrl
from crawl_lib.repair.queue.queue import repair_queue
from crawl_lib.sealed import sealed_json, unsealed
from crawl_lib.urlfiles import encode_line, encode_meta
from demo import Serving
from tests.cli.conftest import Krake
from tests.frontier.helpers import Keys, held, key, source, take_in, urls_of
from tests.harms import flip
from tests.repair.checked import (
    REPAIR,
    findings,
    found,
    into_queue,
    newest_folder,
    node_a,
    snapshot,
    visited,
    waiting,
)
from tests.repair.conftest import configure
from tests.repair.killed import run_killed
from tests.repair.test_damages import DAMAGES

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


def test_decided_urls_keep_their_meta_and_a_torn_line_is_no_url(queue: Queue) -> None:
    lay(queue, [1, 2], tail=b"http://a.example/torn")
    (queue.directory / "intake").write_bytes(b"{")
    report = repair_queue(held(queue))
    assert list(queue) == [url(1), url(2)]
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
    for name, there in (("intake", journals), ("undecided", halves)):
        assert [
            path.read_bytes() for path in sorted(queue.directory.glob(f"{name}.broken*"))
        ] == there


def test_candidates_that_may_have_been_claimed_are_kept(queue: Queue) -> None:
    """The claim may have reached the key servers: a second one would call our own keys known."""
    lay(queue, [1])
    claims(queue, [2, 3])
    (queue.directory / "intake").write_bytes(b"{")
    repair_queue(held(queue))
    assert list(queue) == [url(1), url(2), url(3)]


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
    assert list(queue) == [url(1), url(2), *([url(7)] if phase == CLAIM else [])]
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


CRAWL = ("crawl", "--iterations", "1", "--batch-size", "5")
TASKS = [CRAWL, ("settle",)]
RESTART = ("nodes", "restart", "node-a")


def all_of_it(directory: Path) -> None:
    shutil.rmtree(node_a(directory))


def what_is_in_it(directory: Path) -> None:
    shutil.rmtree(node_a(directory))
    node_a(directory).mkdir()


@pytest.mark.parametrize("lose", [all_of_it, what_is_in_it])
def test_a_lost_queue_is_refused_named_and_found_again(
    lose: Callable[[Path], None], copy: Callable[..., Krake]
) -> None:
    krake = copy()
    queued, crawled = waiting(krake), visited(krake)
    assert queued
    lose(krake.directory)
    for words in TASKS:
        assert "run `krake nodes restart node-a`" in krake(*words).error()
    assert found(krake, "--fast") == found(krake) == {"queue_missing": 1}
    before = snapshot(krake.directory)
    assert f"{queued.total()} URLs waited" in krake.ok(*RESTART, "--dry-run").out
    assert snapshot(krake.directory) == before
    for _ in range(2):
        assert f"{queued.total()} URLs are in no file" in krake.ok(*RESTART).out
    assert set(found(krake)) == {"urls_lost"}
    krake.ok(*REPAIR)
    krake.ok("settle")
    assert found(krake) == {}
    assert waiting(krake) == queued
    krake.ok("crawl", "--iterations", "1")
    assert max(visited(krake).values()) == 1
    assert set(visited(krake)) > set(crawled)


@pytest.mark.parametrize(
    "step", ["intake.chunk.inserted", "take.written", "segment.publish.uploaded"]
)
def test_a_queue_lost_in_the_first_iteration_of_its_node_is_missed_too(
    step: str, krake: Krake, web: Serving
) -> None:
    """The node has neither settled nor a segment, and the keys of the seeds are known: an empty queue loses them."""
    configure(krake)
    krake.ok("inject", "\n".join(web.seeds))
    assert (
        run_killed(
            ["--config", str(krake.file), "crawl", "--run-id", "one", "--iterations", "1"], step
        ).code
        == -9
    )
    shutil.rmtree(node_a(krake.directory))
    for words in TASKS:
        assert "run `krake nodes restart node-a`" in krake(*words).error()
    assert "queue_missing" in found(krake)
    krake.ok(*RESTART)
    krake.ok(*REPAIR)
    krake.ok("settle")
    assert found(krake) == {}
    assert set(waiting(krake)) == set(web.seeds)


def test_the_queue_that_comes_back_is_gone_on_with(copy: Callable[..., Krake]) -> None:
    """As after a wrong `queue.local_dir`: what the refused tasks left is in no one's way."""
    krake = copy()
    queued = waiting(krake)
    away = krake.directory / "away"
    node_a(krake.directory).rename(away)
    assert "holds no queue" in krake("settle").error()
    shutil.copytree(away, node_a(krake.directory), dirs_exist_ok=True)
    krake.ok("settle")
    assert found(krake) == {}
    assert waiting(krake) == queued


def test_a_queue_that_stands_is_not_lost(copy: Callable[..., Krake]) -> None:
    krake = copy()
    queued = waiting(krake)
    assert "holds a queue" in krake(*RESTART).error()
    assert waiting(krake) == queued


def record_damaged(krake: Krake) -> None:
    (node_a(krake.directory) / "state.krake").write_bytes(b"{")
    krake.ok(*REPAIR)


def record_deleted(krake: Krake) -> None:
    """What waits is still there, and adopted."""
    (node_a(krake.directory) / "state.krake").unlink()


def queue_lost(krake: Krake) -> None:
    shutil.rmtree(node_a(krake.directory))
    krake.ok(*RESTART)
    krake.ok(*REPAIR)


def all_anew(krake: Krake) -> None:
    krake.ok("settle", "--all-again")


@pytest.mark.parametrize("read_again", [record_damaged, record_deleted, queue_lost, all_anew])
def test_what_was_handed_on_is_not_crawled_again_when_all_is_read_again(
    read_again: Callable[[Krake], None], copy: Callable[..., Krake]
) -> None:
    """A page that was put into the queue by hand once more is crawled once more, not whenever all is read again."""
    krake = copy()
    [again, *_] = visited(krake)
    (node_a(krake.directory) / "handed_on").write_bytes(encode_line(QueuedUrl(again), "h") + b"\n")
    krake.ok("crawl", "--iterations", "3")
    krake.ok("settle")
    assert visited(krake)[again] == 2
    queued = waiting(krake)
    read_again(krake)
    krake.ok("settle")
    assert waiting(krake) == queued
    krake.ok("crawl", "--iterations", "2")
    assert visited(krake)[again] == 2
    assert found(krake) == {}


@pytest.mark.parametrize(
    "step", [None, "intake.record_begun", "intake.planned", "intake.chunk.inserted"]
)
def test_an_empty_queue_whose_record_is_gone_crawls_nothing_again(
    copy: Callable[..., Krake], step: str | None
) -> None:
    """It looks as one that has yet to begin; what was handed on to it would come past the key check once more."""
    krake = copy()
    directory = node_a(krake.directory)
    [again, *_] = visited(krake)
    (directory / "handed_on").write_bytes(encode_line(QueuedUrl(again), "h") + b"\n")
    krake.ok("crawl", "--iterations", "3")
    krake.ok("settle")
    assert visited(krake)[again] == 2
    for number in range(len((directory / "state").read_text().split()) - 1):
        (directory / str(number)).unlink()
        (directory / f"{number}.meta").unlink(missing_ok=True)
    (directory / "0").touch()
    (directory / "state").write_text("0\n0\n")
    (directory / "state.krake").unlink()
    if step:
        assert run_killed(["--config", str(krake.file), "settle"], step).code != 0
    krake.ok("settle")
    assert not waiting(krake)


def put_back_after(krake: Krake, commands: Sequence[tuple[str, ...]]) -> None:
    """Keep a copy of the queue, run commands, put the copy in the queue's place."""
    kept = krake.directory / "kept"
    shutil.copytree(node_a(krake.directory), kept)
    for words in commands:
        krake.ok(*words)
    shutil.rmtree(node_a(krake.directory))
    kept.rename(node_a(krake.directory))


@pytest.mark.parametrize(
    "commands", [(CRAWL,), (CRAWL, CRAWL)], ids=["one iteration", "two iterations"]
)
def test_an_older_copy_is_refused_named_and_begun_anew(
    commands: Sequence[tuple[str, ...]], copy: Callable[..., Krake]
) -> None:
    """Nothing is fetched twice, and nothing is lost: what it had taken in since is found again in the segments."""
    krake = copy()
    put_back_after(krake, commands)
    crawled = visited(krake)
    folders = sorted((krake.directory / "dfs" / "crawl").iterdir())
    for words in TASKS:
        problem = krake(*words).error()
        assert "holds an older copy of the queue: its newest take was of" in problem
        assert "run `krake nodes restart node-a`" in problem
    assert set(found(krake, "--fast")) == {"queue_rolled_back"}
    assert "queue_rolled_back" in found(krake)
    assert visited(krake) == crawled
    assert sorted((krake.directory / "dfs" / "crawl").iterdir()) == folders
    node_a(krake.directory).rename(krake.directory / "away")
    for words in (("nodes", "restart", "node-a"), ("fsck", "--repair"), ("settle",)):
        krake.ok(*words)
    assert found(krake) == {}
    while any(one.due <= time.time() for one in Queue(node_a(krake.directory), "node-a")):
        krake.ok(*CRAWL)
    assert max(visited(krake).values()) == 1
    assert set(visited(krake)) > set(crawled)


def test_a_copy_of_before_the_settling_is_refused(copy: Callable[..., Krake]) -> None:
    """No segment tells, since there is none since; the mark does."""
    krake = copy()
    put_back_after(krake, (("inject", "http://new.example/", "--run-id", "two"), ("settle",)))
    assert "has settled since" in krake("settle").error()
    assert set(found(krake, "--fast")) == {"queue_rolled_back"}


@pytest.mark.parametrize("kill_at", [None, "take.written"])
def test_a_crawl_that_is_not_on_the_dfs_is_missed(
    kill_at: str | None, copy: Callable[..., Krake]
) -> None:
    """A disk that is not mounted, another `dfs_primary`: nothing is fetched into the wrong place."""
    krake = copy(kill_at)
    dfs, away = krake.directory / "dfs", krake.directory / "away"
    dfs.rename(away)
    before = waiting(krake)
    for words in TASKS:
        problem = krake(*words).error()
        assert f"is of a crawl of which nothing is in {dfs}/crawl" in problem
        assert "put dfs_primary" in problem
    assert "crawl_missing" in found(krake, "--fast")
    assert waiting(krake) == before
    assert not list(dfs.rglob("*.parquet"))
    shutil.rmtree(dfs)
    away.rename(dfs)
    krake.ok("crawl", "--run-id", "one", "--iterations", "4") if kill_at else krake.ok(*CRAWL)
    assert found(krake) == {}


def test_folders_that_were_deleted_by_hand_are_not_missed(copy: Callable[..., Krake]) -> None:
    krake = copy()
    for folder in [
        *(krake.directory / "dfs" / "crawl").glob("1*"),
        krake.directory / "dfs" / "crawl" / "seeds",
    ]:
        shutil.rmtree(folder)
    assert "crawl_missing" not in found(krake, "--fast")
    krake.ok(*CRAWL)
    krake.ok(*CRAWL)


def test_the_newest_copy_is_gone_on_with(copy: Callable[..., Krake]) -> None:
    krake = copy()
    put_back_after(krake, (("fsck",),))
    krake.ok("settle")
    krake.ok(*CRAWL)
    assert found(krake) == {}


def test_a_node_that_left_without_being_retired_is_named_until_it_is(
    copy: Callable[..., Krake],
) -> None:
    krake = copy()
    assert "node_not_retired" not in findings(krake)
    krake.change(servers=["node-b"])
    found = findings(krake)["node_not_retired"]
    assert found["severity"] == "warning"
    assert "`krake nodes retire node-a`" in found["repair"]
    krake.ok("nodes", "retire", "node-a")
    assert "node_not_retired" not in findings(krake)


def test_the_directory_of_a_node_that_left_is_looked_at_and_repaired(
    copy: Callable[..., Krake],
) -> None:
    """Its damage was not found, and `nodes retire` and `fsck --repair` named each other."""
    krake = copy()
    krake.change(servers=["node-b"])
    (krake.directory / "queue" / "node-a" / "state").write_text("x\n")
    assert {"state_damaged", "node_not_retired"} <= findings(krake).keys()
    assert "krake fsck --repair" in krake("nodes", "retire", "node-a").error()
    krake("fsck", "--repair")
    assert findings(krake).keys() == {"node_not_retired"}
    krake.ok("nodes", "retire", "node-a")
    assert findings(krake) == {}


def test_a_repair_of_a_whole_queue_changes_nothing_that_counts(
    copy: Callable[..., Krake], whole: tuple[Counter[str], Counter[str]]
) -> None:
    krake = copy()
    for _ in range(2):
        krake.ok(*REPAIR)
    krake.ok("settle")
    assert waiting(krake) == whole[1]
    assert found(krake) == Counter()


def test_a_page_that_the_key_tables_call_crawled_is_not_fetched_again(
    copy: Callable[..., Krake],
) -> None:
    """Neither `state` nor the record can be read: what was processed comes from the key tables."""
    krake = copy()
    before = waiting(krake)
    for name in ("state", "state.krake"):
        into_queue(name, b"{")(krake.directory)
    assert "are known as crawled" in krake.ok(*REPAIR).out
    krake.ok("settle")
    assert waiting(krake) == before


def test_no_take_is_made_again_that_is_not_the_queue_s(
    copy: Callable[..., Krake], whole: tuple[Counter[str], Counter[str]]
) -> None:
    """Not for a moment: killed then, the next task would take URLs for fetched that were not. The newest segment's take
    was moved past, which the record does not say any more."""
    krake = copy()
    into_queue("take", b"{")(krake.directory)
    path = node_a(krake.directory) / "state.krake"
    record = unsealed(path.read_bytes())
    assert record["last_move"]
    path.write_bytes(sealed_json(record | {"last_move": ""}))
    assert run_killed(["--config", str(krake.file), *REPAIR], "take.written").code == 0
    krake.ok("settle")
    assert waiting(krake) == whole[1]
    assert found(krake) == Counter()


def test_a_take_whose_folder_is_gone(copy: Callable[..., Krake]) -> None:
    """Its URLs are still in the queue: nothing is lost where the file is moved away, as the finding says."""
    krake = copy("take.written")
    queued = waiting(krake)
    shutil.rmtree(newest_folder(krake.directory))
    assert found(krake) == found(krake, "--fast") == {"take_folder_gone": 1}
    assert "was deleted" in krake("settle").error() or "is gone" in krake("settle").error()
    [finding] = krake("fsck", "--json").json["findings"]
    assert "delete" not in finding["repair"]
    (node_a(krake.directory) / "take").rename(krake.directory / "take")
    krake.ok("settle")
    assert found(krake) == {}
    assert waiting(krake) == queued
    krake.ok("crawl", "--iterations", "1")
    assert max(visited(krake).values()) == 1


def test_a_spool_that_an_earlier_repair_put_aside_stays(copy: Callable[..., Krake]) -> None:
    krake = copy("take.leftover")
    node = node_a(krake.directory)
    names = {path.name for path in (node / "spool").iterdir()}
    (node / "spool.broken").mkdir()
    (node / "spool.broken/a.warc.gz").write_bytes(b"records")
    (node / "take").write_bytes(b"{")
    krake.ok(*REPAIR)
    assert (node / "spool.broken/a.warc.gz").read_bytes() == b"records"
    assert {path.name for path in (node / "spool.broken-2").iterdir()} == names
    assert found(krake) == {}


def test_a_take_that_begins_elsewhere(copy: Callable[..., Krake]) -> None:
    """Somebody moved the queue on by hand while a take was open."""
    krake = copy("take.written")
    state = node_a(krake.directory) / "state"
    processed, rest = state.read_bytes().split(b"\n", 1)
    state.write_bytes(b"%d\n" % (int(processed) + 1) + rest)
    assert found(krake, "--fast") == {"take_position": 1, "state_damaged": 1}
    krake.ok(*REPAIR)
    krake.ok("crawl", "--run-id", "one", "--iterations", "4")
    assert found(krake) == {}
    assert max(visited(krake).values()) == 1


def test_a_node_with_a_file_in_place_of_its_directory_is_one_that_is_not_here(
    copy: Callable[..., Krake],
) -> None:
    krake = copy("take.written")
    node, away = node_a(krake.directory), krake.directory / "away"
    node.rename(away)
    missing = found(krake)
    node.write_text("no directory")
    assert found(krake) == missing
    node.unlink()
    away.rename(node)
    krake.ok("settle")
    assert found(krake) == {}


def test_zeros_in_a_queue_are_no_url(copy: Callable[..., Krake]) -> None:
    """Its digest is compared by `krake fsck` only: a crawl before that fetched the URL with the zeros in it."""
    krake = copy()
    data = max(node_a(krake.directory).glob("[0-9]"))
    lines = data.read_bytes().split(b"\n")
    data.write_bytes(b"\n".join(line[:-2] + b"\0\0" if line else line for line in lines))
    error = krake("crawl", "--run-id", "two", "--iterations", "1").error()
    assert "is not a URL" in error
    assert "krake fsck --repair" in error
    krake.ok(*REPAIR)
    krake.ok("settle")
    assert found(krake) == {}
    krake.ok("crawl", "--run-id", "two", "--iterations", "1")
    assert not any("\0" in url for url in visited(krake))


def test_records_that_cannot_be_read_again_in_their_place_stay_next_to_the_spool(
    copy: Callable[..., Krake],
) -> None:
    """The spool goes with its take. Records behind an open part would count twice, so all of it is fetched again."""
    krake = copy("seal.written")
    node = node_a(krake.directory)
    [log] = (node / "spool").glob("*-00000.warc.gz")
    records = log.read_bytes()
    log.with_name(log.name.replace("-00000.", "-00001.")).touch()  # the next part is begun
    [links] = (node / "spool").glob("*.links.arrow")
    flip(links)
    assert found(krake) == {"spool_damaged": 1}
    krake.ok(*REPAIR)
    assert (node / f"{log.name}.broken").read_bytes() == records
    assert not log.exists()
    krake.ok("crawl", "--run-id", "one", "--iterations", "4")
    assert found(krake) == {}
    assert max(visited(krake).values()) == 1
    assert (node / f"{log.name}.broken").read_bytes() == records


def test_a_queue_is_not_judged_by_tables_that_lack_pages(
    copy: Callable[..., Krake], whole: tuple[Counter[str], Counter[str]]
) -> None:
    """Neither `state` nor the record says what was processed, and the tables that would are gone too."""
    krake = copy()
    for name in ("state", "state.krake"):
        into_queue(name, b"{")(krake.directory)
    DAMAGES["no key tables"].do(krake.directory)
    krake.ok(*REPAIR)
    krake.ok("settle")
    assert waiting(krake) == whole[1]
    assert found(krake) == {}


def test_what_is_repaired_says_first_how_many_urls_are_fetched_again(
    copy: Callable[..., Krake],
) -> None:
    krake = copy("take.leftover")
    DAMAGES["positions of a part: cut"].do(krake.directory)
    lines = krake.ok(*REPAIR).out.splitlines()
    [told] = [number for number, line in enumerate(lines) if "URLs are fetched again" in line]
    assert "at most 5 URLs" in lines[told]
    assert told == 0
