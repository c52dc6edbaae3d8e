"""Once there are other nodes, queued URLs of hosts that are theirs are handed on, once; all others stay in order."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl_lib.errors import QueueError
from crawl_lib.frontier import Queue, TakeHeader
from crawl_lib.records import QueuedUrl
from crawl_lib.urlfiles import Source, decode_line
from crawl_lib.urls import Owners, host_of
from tests.frontier.helpers import Keys, hand_made, held, lines_of, source, take_in, urls_of
from tests.frontier.shares import head

URLS = [f"http://h{number % 9}.test/{number}" for number in range(40)]


def filled(directory: Path, *files: list[str]) -> Queue:
    queue = Queue(directory)
    directory.mkdir(exist_ok=True)
    for number, urls in enumerate(files):
        items = [QueuedUrl(url, bytes(20), 3, 1, '{"a": "b"}') for url in urls]
        take_in(queue, Keys(), source(str(number), "n1", items))
    return queue


def handed(queue: Queue) -> list[str]:
    return [decode_line(line)[0].url for line in queue.handed_on()]


@pytest.mark.parametrize("nodes", [["n1", "n2"], ["n1", "n2", "n3"], ["n2"], ["n1"]])
def test_each_url_stays_or_goes_to_its_owner_with_all_that_is_known_of_it(
    nodes: list[str], tmp_path: Path
) -> None:
    queue = filled(tmp_path / "n1", URLS[:15], URLS[15:])
    owners = Owners(nodes)
    mine = [url for url in URLS if owners.owner(host_of(url)) == "n1"]
    theirs = [url for url in URLS if url not in mine]
    assert held(queue).rewrites.rehome(owners) == len(theirs)
    assert urls_of(queue) == mine
    assert handed(queue) == theirs
    for line in queue.handed_on():
        assert decode_line(line)[1] == "h"
        assert decode_line(line)[0].depth == 3
    assert all(
        (item.via, item.depth, item.metadata) == (bytes(20), 3, '{"a": "b"}') for item in queue
    )
    assert queue.record().report().handed_on == len(theirs)
    assert queue.is_ours()
    assert not [path.name for path in queue.directory.iterdir() if path.name.startswith("rehomed")]
    assert held(queue).rewrites.rehome(owners) == 0
    assert (urls_of(queue), handed(queue)) == (mine, theirs)


def test_a_queue_partly_processed_keeps_what_is_processed_away(tmp_path: Path) -> None:
    queue = filled(tmp_path / "n1", ["http://a.test/", "http://b.test/"])
    held(queue).takes.advance(
        held(queue).takes.make(
            head(1), TakeHeader(take_id="t", run_id="r", iteration=1, folder="1", processes=1)
        )
    )
    held(queue.directory).takes.close()
    held(queue).rewrites.rehome(Owners(["n2"]))
    assert handed(queue) == ["http://b.test/"]


def test_nothing_is_read_again_until_something_else_comes(tmp_path: Path) -> None:
    """URLs that were divided among other nodes are looked through, however late they come; others are not."""
    queue = filled(tmp_path / "n1", URLS[:5])
    owners = Owners(["n1", "n2"])
    held(queue).rewrites.rehome(owners)
    before = handed(queue)
    foreign = next(url for url in URLS[20:] if owners.owner(host_of(url)) == "n2")

    def late(folder: str, nodes: tuple[str, ...]) -> Source:
        return Source(folder, "n1", lambda: lines_of([QueuedUrl(f"{foreign}?{folder}")]), nodes)

    take_in(queue, Keys(), late("8", ("n2", "n1")))
    assert held(queue).rewrites.rehome(owners) == 0, (
        "it was divided among these nodes, so it is this one's"
    )
    take_in(queue, Keys(), late("9", ("n1",)))
    assert held(queue).rewrites.rehome(owners) == 2
    assert handed(queue) == [*before, f"{foreign}?8", f"{foreign}?9"]


def test_what_was_undecided_is_looked_through(tmp_path: Path) -> None:
    """No one knows among which nodes it was divided."""
    queue = filled(tmp_path / "n1", URLS[:1])
    owners = Owners(["n1", "n2"])
    held(queue).rewrites.rehome(owners)
    foreign = next(url for url in URLS[20:] if owners.owner(host_of(url)) == "n2")
    (queue.directory / "undecided").write_bytes(f"{foreign}\t\t0\t0\t\t\n".encode())
    take_in(queue, Keys())
    assert held(queue).rewrites.rehome(owners) == 1


def test_with_local_routing_all_stays_and_a_later_change_looks_again(tmp_path: Path) -> None:
    queue = filled(tmp_path / "n1", URLS)
    assert held(queue).rewrites.rehome(None) == 0
    assert urls_of(queue) == URLS
    assert held(queue).rewrites.rehome(Owners(["n2"])) == len(URLS)


def test_a_queue_made_by_hand_waits_for_its_adoption_and_an_open_move_is_finished_first(
    tmp_path: Path,
) -> None:
    queue = hand_made(tmp_path / "n1", ["HTTP://A.test"])
    assert held(queue).rewrites.rehome(Owners(["n2"])) == 0
    take_in(queue, Keys())
    queue.files.move.write_bytes(b"{}")
    with pytest.raises(QueueError, match="a move is open"):
        held(queue).rewrites.rehome(Owners(["n2"]))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sets(st.sampled_from(["n1", "n2", "n3", "n4"]), min_size=1), max_size=5),
    st.integers(0, 12),
)
def test_no_list_of_changes_loses_or_doubles_a_url(changes: list[set[str]], taken: int) -> None:
    import tempfile  # noqa: PLC0415 - a fresh directory for each example

    with tempfile.TemporaryDirectory() as folder:
        queue = filled(Path(folder) / "n1", URLS[:10], URLS[10:])
        for nodes in changes:
            held(queue).rewrites.rehome(Owners(sorted(nodes)))
        assert sorted([*urls_of(queue), *handed(queue)]) == sorted(URLS)
        take = held(queue).takes.make(
            head(taken), TakeHeader(take_id="t", run_id="r", iteration=1, folder="9", processes=1)
        )
        assert take.count == min(taken, queue.length())
