"""Notes on the DFS of what each node had settled: what `start` can know of disks that are not its own.

A node writes its note at the end of `settle`: nothing of it is open, and it has taken in what the note lists. It
deletes the note before it takes URLs again, so a note never says of a node at work that it rests. A note is
`<crawl>/settled/<node>/<n>`, written once; the largest `n` holds, and its writer deletes those before it. Only
the holder of the node's lock writes or deletes them.

The folder `<crawl>/settled/<node>` is there before the keys of anything that the node was sent are known, and stays: if
the queue of a node with such a folder is gone, it is missed.
"""

from crawl_lib.crawldir.directory import CrawlDirectory
from crawl_lib.crawldir.register import Register
from crawl_lib.dataclass import dataclass
from crawl_lib.durable import reached
from crawl_lib.errors import DamagedFileError
from crawl_lib.sealed import sealed_json, unsealed
from crawl_lib.urlfiles import TakenIn

SETTLED_FOLDER = "settled"


@dataclass(frozen=True)
class Settled:
    """What a node had settled.

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

    def to_mapping(self) -> dict[str, object]:
        """The form of the file."""
        return {**vars(self), "taken_in": self.taken_in.to_mapping()}

    @property
    def refusal(self) -> str | None:
        """Why the node may not take part, in words, with what to do; None if it may."""
        if not self.lost:
            return None
        return (
            f"node {self.node} was retired as lost, and its URLs went to others: take it out of servers, or run"
            f" `krake nodes admit {self.node}` on its machine, with an empty directory"
        )


def _register(crawl: CrawlDirectory, node: str) -> Register:
    return Register(crawl.storage, crawl.at(SETTLED_FOLDER, node))


def read_settled(crawl: CrawlDirectory, node: str) -> Settled | None:
    """What a node's newest note says, None if it has none. Raises DamagedFileError naming the path."""
    register = _register(crawl, node)
    number, data = register.newest()
    if not number:
        return None
    try:
        value = unsealed(data)
        return Settled(**{**value, "taken_in": TakenIn(**value["taken_in"])})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedFileError(
            f"{register.path(number)}: is not the note of a settled node: {error}; delete it, and settle the node"
        ) from error


def write_settled(crawl: CrawlDirectory, settled: Settled) -> None:
    """Replace a node's note, unless it says the same already. The caller holds the node's lock."""
    register, data = _register(crawl, settled.node), sealed_json(settled.to_mapping())
    numbers = register.numbers()
    newest, written = register.newest()
    if written == data:
        return
    register.write_next(newest, data)
    reached("settle.marked")
    register.delete(numbers)


def delete_settled(crawl: CrawlDirectory, node: str) -> None:
    """Before the node takes URLs again. The caller holds its lock."""
    register = _register(crawl, node)
    register.delete(register.numbers())
    reached("settle.mark_away")


def note_begun(crawl: CrawlDirectory, node: str) -> None:
    """Make the folder of a node's notes, once it has a queue and before the keys of what it was sent are known.

    The caller holds its lock. Raises StorageError.
    """
    crawl.storage.make_dirs(crawl.at(SETTLED_FOLDER, node))
    reached("intake.begun")


def settled_nodes(crawl: CrawlDirectory) -> list[str]:
    """Nodes that have, or had, a note, sorted."""
    return crawl.names(SETTLED_FOLDER)


def urls_of_lost_queue(crawl: CrawlDirectory, node: str) -> int | None:
    """How many URLs waited in the queue of a node that is on no disk any more, as far as its note says; else 0.

    None: the crawl has nothing of that node, or it was retired, so there is no queue to be missed.
    """
    try:
        settled = read_settled(crawl, node)
    except DamagedFileError:
        return 0
    if settled is not None:
        return None if settled.retired else settled.queue + settled.undecided
    if crawl.storage.exists(crawl.at(SETTLED_FOLDER, node)):
        return 0
    return 0 if any(crawl.segment(folder, node).exists() for folder in reversed(crawl.folders())) else None
