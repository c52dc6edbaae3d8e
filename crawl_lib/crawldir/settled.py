"""Notes on the DFS of each node's state after settle: the knowledge of `start` about disks of other machines.

A node writes its note at the end of `settle`: the node has no open work, and has taken in the sources in the note. The
node deletes the note before it takes URLs again, so a node at work never has a note of rest. A note is
`<crawl>/settled/<node>/<n>`, written once; the largest `n` counts, and its writer deletes earlier notes. Only the
holder of the node's lock writes or deletes notes.

The folder `<crawl>/settled/<node>` exists before any key of URLs sent to the node is known, and stays: if the queue of
a node with such a folder is gone, the queue is missed.
"""

from contextlib import suppress

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

    `newest`: the newest iteration's folder at the settle, or "". `queue`: waiting URLs in the queue; `undecided`: URLs
    without an answer of their key servers. `taken_in`: the sources taken in. `retired`: the queue was handed to others,
    and the node takes part no more; `lost`: the same, and the directory is gone, or still has the queue: the node is
    refused until it is admitted.
    """

    node: str
    newest: str
    queue: int
    undecided: int
    taken_in: TakenIn
    retired: bool = False
    lost: bool = False

    def to_mapping(self) -> dict[str, object]:
        """Return the content of the file as a mapping."""
        return {**vars(self), "taken_in": self.taken_in.to_mapping()}

    @property
    def refusal(self) -> str | None:
        """The reason why the node may not take part, with the remedy.

        None: the node may take part.
        """
        if not self.lost:
            return None
        return (
            f"node {self.node} was retired as lost, and its URLs went to others: take it out of servers, or run"
            f" `krake nodes admit {self.node}` on its machine, with an empty directory"
        )

    def write(self, crawl: CrawlDirectory) -> None:
        """Replace the node's note, unless the note has the same content.

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
    """The notes of a node that has settled. Only the holder of the node's lock changes the notes."""

    crawl: CrawlDirectory
    node: str

    @staticmethod
    def nodes(crawl: CrawlDirectory) -> list[str]:
        """Return all nodes with a present or earlier note, sorted."""
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

    def unsettle(self) -> None:
        """Delete the notes before a repair changes the queue.

        The note of a retired node stays.
        """
        settled = None
        with suppress(DamagedFileError):
            settled = self.read()
        if settled is None or not settled.retired:
            self.delete()

    def begin(self) -> None:
        """Make the folder of the notes, once the node has a queue.

        The keys of URLs sent to the node must not be known yet. Raises StorageError.
        """
        self.crawl.storage.make_dirs(self.crawl.at(FileName.SETTLED, self.node))
        reached("intake.begun")

    def urls_of_lost_queue(self) -> int | None:
        """Count the URLs of a lost queue, by the note.

        0 without a count. None: the crawl has no trace of the node, or the node was retired, so no queue is missing.
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
