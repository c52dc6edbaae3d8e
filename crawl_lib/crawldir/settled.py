"""Marks on the DFS of what each node had settled: what `start` can know of disks that are not its own.

A node writes its mark at the end of `settle`: nothing of it is open, and it has taken in what the mark lists. It takes
the mark away before it takes URLs again, so a mark never says of a node at work that it rests. A mark is
`<crawl>/settled/<node>/<n>`, written once; the largest `n` holds, and its writer deletes those before it. Only
the holder of the node's lock writes or deletes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crawl_lib.crawldir.directory import CrawlDirectory, awaited
from crawl_lib.crawldir.register import Register
from crawl_lib.durable import reached
from crawl_lib.errors import DamagedFileError
from crawl_lib.frontier import TakenIn
from crawl_lib.sealed import sealed_json, unsealed

SETTLED_FOLDER = "settled"


@dataclass(frozen=True)
class Mark:
    """What a node's mark says.

    `newest`: the youngest iteration's folder when it settled, "" if there was none. `queue`: URLs that wait in its
    queue; `undecided`: those whose key servers did not answer. `taken_in`: what it had taken in. `retired`:
    its queue was handed to others, it takes part no more; `lost`: the same, and its directory is gone, or still has the
    queue: the node is refused until it is admitted.
    """

    node: str
    newest: str
    queue: int
    undecided: int
    taken_in: TakenIn
    retired: bool = False
    lost: bool = False

    def to_mapping(self) -> dict[str, Any]:
        """The form of the file."""
        return {**self.__dict__, "taken_in": self.taken_in.to_mapping()}


def _register(crawl: CrawlDirectory, node: str) -> Register:
    return Register(crawl.storage, crawl.at(SETTLED_FOLDER, node))


def read_mark(crawl: CrawlDirectory, node: str) -> Mark | None:
    """A node's newest mark, None if it has none. Raises DamagedFileError naming the path."""
    register = _register(crawl, node)
    number, data = register.newest()
    if not number:
        return None
    try:
        value = unsealed(data)
        taken_in = value.pop("taken_in")
        return Mark(**value, taken_in=TakenIn(taken_in["complete"], taken_in["partial"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedFileError(
            f"{register.path(number)}: is not the mark of a node: {error}; delete it, and settle the node"
        ) from error


def write_mark(crawl: CrawlDirectory, mark: Mark) -> None:
    """Replace a node's mark, unless it says the same already. The caller holds the node's lock."""
    register, data = _register(crawl, mark.node), sealed_json(mark.to_mapping())
    numbers = register.numbers()
    newest, written = register.newest()
    if written == data:
        return
    register.write(newest + 1, data)
    reached("settle.marked")
    register.delete(numbers)


def take_mark_away(crawl: CrawlDirectory, node: str) -> None:
    """Before the node takes URLs again. The caller holds its lock."""
    register = _register(crawl, node)
    register.delete(register.numbers())
    reached("settle.mark_away")


def marked_nodes(crawl: CrawlDirectory) -> list[str]:
    """Nodes that have a mark, sorted."""
    return crawl.names(SETTLED_FOLDER)


def newest_folder(crawl: CrawlDirectory) -> str:
    """The youngest iteration's folder, "" if there is none."""
    return (crawl.folders() or [""])[-1]


def still_awaited(crawl: CrawlDirectory, index: dict[str, Any], present: Sequence[str]) -> list[str]:
    """Nodes that a folder was committed without, and whose segments may still come: not those that are lost."""
    found = []
    for node in awaited(index, present):
        mark = read_mark(crawl, node)
        if mark is None or not mark.lost:
            found.append(node)
    return found


def urls_of_lost_queue(crawl: CrawlDirectory, node: str) -> int | None:
    """How many URLs waited in the queue of a node that is on no disk any more, as far as its mark says; else 0.

    None: the crawl has nothing of that node, or it was retired, so there is no queue to be missed.
    """
    try:
        mark = read_mark(crawl, node)
    except DamagedFileError:
        return 0
    if mark is not None:
        return None if mark.retired else mark.queue + mark.undecided
    folders = reversed(crawl.folders())
    return 0 if any(node in crawl.folder(folder).segments() for folder in folders) else None


def seeds_of_other_nodes(crawl: CrawlDirectory, nodes: Sequence[str]) -> list[str]:
    """Injected folders that were divided among other nodes than these."""
    found = []
    for digest in crawl.seeds():
        manifest = crawl.seeds_manifest(digest)
        if set(manifest.get("nodes", ())) != set(nodes):
            found.append(digest)
    return found


def refusal(mark: Mark | None) -> str | None:
    """Why a node may not take part, in words, with what to do; None if it may."""
    if mark is None or not mark.lost:
        return None
    return (
        f"node {mark.node} was retired as lost, and its URLs went to others: take it out of servers, or run"
        f" `krake nodes admit {mark.node}` on its machine, with an empty directory"
    )
