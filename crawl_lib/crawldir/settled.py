"""Notes on the DFS of what each node had settled: what `start` can know of disks that are not its own.

A node writes its note at the end of `settle`: nothing of it is open, and it has taken in what the note lists. It
deletes the note before it takes URLs again, so a note never says of a node at work that it rests. A note is
`<crawl>/settled/<node>/<n>`, written once; the largest `n` holds, and its writer deletes those before it. Only
the holder of the node's lock writes or deletes them.

The folder `<crawl>/settled/<node>` is there before the keys of anything that the node was sent are known, and stays: if
the queue of a node with such a folder is gone, it is missed.
"""

from crawl_lib.crawldir.directory import CrawlDirectory, FileName
from crawl_lib.crawldir.register import Register
from crawl_lib.dataclass import dataclass
from crawl_lib.durable import reached
from crawl_lib.errors import DamagedFileError
from crawl_lib.sealed import sealed_json, unsealed
from crawl_lib.urlfiles import TakenIn


@dataclass(frozen=True)
class Settled:
    """The content of a node's note.

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
        """Return the mapping that the file holds."""
        return {**vars(self), "taken_in": self.taken_in.to_mapping()}

    @property
    def refusal(self) -> str | None:
        """Why the node may not take part, and what to do.

        None: it may.
        """
        if not self.lost:
            return None
        return (
            f"node {self.node} was retired as lost, and its URLs went to others: take it out of servers, or run"
            f" `krake nodes admit {self.node}` on its machine, with an empty directory"
        )

    def write(self, crawl: CrawlDirectory) -> None:
        """Replace the node's note, unless that says the same.

        The caller holds the node's lock. Raises StorageError.
        """
        register, data = register_of(crawl, self.node), sealed_json(self.to_mapping())
        numbers = register.numbers()
        newest, written = register.newest()
        if written == data:
            return
        register.write_next(newest, data)
        reached("settle.marked")
        register.delete(numbers)


def register_of(crawl: CrawlDirectory, node: str) -> Register:
    """Return the register of a node's notes."""
    return Register(crawl.storage, crawl.at(FileName.SETTLED, node))


@dataclass(frozen=True)
class SettledNotes:
    """The notes of a node that has settled. Only the holder of the node's lock changes them."""

    crawl: CrawlDirectory
    node: str

    @staticmethod
    def nodes(crawl: CrawlDirectory) -> list[str]:
        """Return the nodes that have, or had, a note, sorted."""
        return crawl.names(FileName.SETTLED)

    def read(self) -> Settled | None:
        """Read the newest note, None without one.

        Raises DamagedFileError naming the path.
        """
        register = register_of(self.crawl, self.node)
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

    def delete(self) -> None:
        """Delete the notes before the node takes URLs again."""
        register = register_of(self.crawl, self.node)
        register.delete(register.numbers())
        reached("settle.mark_away")

    def begin(self) -> None:
        """Make the folder of the notes, once the node has a queue.

        The keys of URLs that were sent to the node must not be known yet. Raises StorageError.
        """
        self.crawl.storage.make_dirs(self.crawl.at(FileName.SETTLED, self.node))
        reached("intake.begun")

    def urls_of_lost_queue(self) -> int | None:
        """Count the URLs of a lost queue, as the note says.

        0 where no queue was lost. None: the crawl has nothing of that node, or the node was retired, so no queue is
        missing.
        """
        crawl, node = self.crawl, self.node
        try:
            settled = self.read()
        except DamagedFileError:
            return 0
        if settled is not None:
            return None if settled.retired else settled.queue + settled.undecided
        if crawl.storage.exists(crawl.at(FileName.SETTLED, node)):
            return 0
        return (
            0
            if any(crawl.segment(folder, node).exists() for folder in reversed(crawl.folders()))
            else None
        )
