"""How many URLs a repair found gone from a node's files: the file `lost`."""

from contextlib import suppress
from pathlib import Path

from crawl_lib.durable import reached, write_durable
from crawl_lib.errors import DamagedFileError
from crawl_lib.frontier.directory import NodeDirectory


class LostUrls:
    """The count of URLs that repairs of a node found gone, since the last search for such URLs."""

    def __init__(self, directory: Path) -> None:
        """Name the file. `directory`: the node's."""
        self.path = NodeDirectory(directory).lost

    def count(self) -> int:
        """Return the number of URLs; 0 if none are lost. Raises DamagedFileError."""
        try:
            return int(self.path.read_bytes()) if self.path.exists() else 0
        except ValueError as error:
            raise DamagedFileError(f"{self.path}: is no number: {error}") from error

    def note(self, count: int) -> None:
        """Record the loss of more URLs.

        The caller holds the node's lock.
        """
        with suppress(DamagedFileError):
            count += self.count()
        write_durable(self.path, b"%d\n" % count)
        reached("queue.lost")

    @staticmethod
    def advice(count: int) -> str:
        """Return the advice about URLs that are gone."""
        return (
            f"{count} URLs are in no file of this node any more, and their keys may be known: run"
            " `krake fsck --repair`, then `krake settle` (where queues are on several machines, run"
            " `krake settle --all-again` on this machine instead): the node finds the URLs again in seeds and segments"
            " (with frontier.order: crawldb: once the leases of their lists are over)"
        )
