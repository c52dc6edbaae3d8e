"""A node's directory on its own disk: every file in it by name, and nothing else knows these names."""

from pathlib import Path
from typing import overload

from crawl_lib.dataclass import dataclass
from crawl_lib.errors import ConfigError, os_error

META, HANDED_ON_SUFFIX = ".meta", ".handed_on"
"""The suffix of the file that goes with a file of URLs: its meta, and those of its URLs that other nodes own."""


class _File:
    """A file (or folder) of a node's directory, as a property that gives its path."""

    def __init__(self, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, directory: None, owner: "type[NodeDirectory]") -> str: ...
    @overload
    def __get__(self, directory: "NodeDirectory", owner: "type[NodeDirectory]") -> Path: ...
    def __get__(
        self, directory: "NodeDirectory | None", owner: "type[NodeDirectory]"
    ) -> Path | str:
        return self.name if directory is None else directory.path / self.name


@dataclass(frozen=True)
class NodeDirectory:
    """The paths of a node's files. The format of `0`, `1`... and `state` is fixed, for all; the others are ours.

    Any file of URLs that becomes a data file has its meta next to it: see `meta_of`.
    """

    path: Path

    state = _File("state")
    """URLs of file 0 that are processed, then the number of URLs of each data file."""
    record = _File("state.krake")
    """Digest of the `state` written last, sizes, byte offsets, what was taken in, id of the last move, counts."""
    lock = _File("lock")
    """Names who works on the node."""
    move = _File("move")
    """An open move: the list of steps by which the queue changes."""
    empty = _File("empty")
    """A data file without URLs, on its way to be `0`."""

    take = _File("take")
    """The URLs that are being fetched."""
    leftover = _File("leftover")
    """The decision that the fetching of the take is over, with what was not fetched."""
    put_back = _File("put_back")
    """The leftover as a data file, before its move."""
    spool = _File("spool")
    """A folder: what the take's fetches gave (`segment.parts`)."""
    spool_scope = _File("spool/scope")
    """The hosts whose links the fetching processes follow in this take."""
    spool_segment = _File("spool/segment")
    """A folder: the segment that is made of the spool."""

    journal = _File("intake")
    """How far an open intake got. The files `new`, `new.*` are its own."""
    new = _File("new")
    """URLs that an intake decided to queue."""
    new_meta = _File(f"new{META}")
    new_undecided = _File("new.undecided")
    """The file that becomes `undecided` after the intake."""
    new_claim = _File("new.claim")
    """URLs whose keys are being claimed (`local` routing)."""
    new_hosts = _File("new.hosts")
    """URLs by host, to be added to `host_counts` by the open move."""
    undecided = _File("undecided")
    """URLs whose key servers did not answer; the next intake begins with them."""

    adopted = _File("adopted")
    """The queue of an adoption under way."""
    adopted_handed_on = _File(f"adopted{HANDED_ON_SUFFIX}")
    adopted_scope = _File("adopted.scope")
    adopted_counted = _File("adopted.counted")
    """The digest of lines whose hosts an adoption has counted."""
    rehomed = _File("rehomed")
    """The queue of a rehoming under way."""
    rehomed_handed_on = _File(f"rehomed{HANDED_ON_SUFFIX}")
    made_due = _File("made_due")
    """The queue with other times, before its move (`krake retry --now`)."""
    handed_on = _File("handed_on")
    """Queued URLs that other nodes own; the next segment carries them."""
    scope_added = _File("scope_added")
    """Hosts of adopted URLs; the next segment carries them."""

    retire = _File("retire")
    """A decision to hand all of it over to the other nodes."""
    host_counts = _File("hostcounts.sqlite")
    """URLs admitted by host."""
    hosts = _File("hosts")
    """A folder: when hosts were asked last (`fetch`). It and the spool are what fetching processes write to."""
    live = _File("live")
    """A folder: what fetchers of real time brought, until it is collected (`realtime.collect`)."""
    progress = _File("progress.json")
    """The progress of the task, for `krake status`."""
    crawl = _File("_crawl")
    """The name of the crawl that the node belongs to."""
    lost = _File("lost")
    """How many URLs a repair found gone; `krake fsck --repair` deletes it."""
    rescued = _File("rescued")
    """A file that a repair is writing."""

    def data(self, number: int) -> Path:
        """Return the path of a data file: one URL a line."""
        return self.path / str(number)

    def meta(self, number: int) -> Path:
        """Return the path of a data file's meta.

        Line for line it has via key, depth, redirects and seed metadata.
        """
        return self.path / f"{number}{META}"

    def meta_of(self, data: Path) -> Path:
        """Return the meta of a data file, existing or not."""
        return data.with_name(f"{data.name}{META}")

    def data_files(self) -> list[int]:
        """Return the numbers of the existing data files, ascending."""
        return sorted(int(path.name) for path in self.path.iterdir() if path.name.isdecimal())

    @staticmethod
    def make(local_dir: Path, node: str) -> Path:
        """Return a node's directory `<local_dir>/<node>`; make both folders if they are missing.

        Raises ConfigError (the parent of `local_dir` is missing, or a file is in the way) or StorageError, naming the
        path.
        """
        for path in (local_dir, local_dir / node):
            try:
                path.mkdir(exist_ok=True)
            except (FileNotFoundError, FileExistsError, NotADirectoryError) as error:
                raise os_error(
                    error, f"queue.local_dir: {path}", "cannot be made", ConfigError
                ) from error
            except OSError as error:
                raise os_error(error, f"queue.local_dir: {path}", "cannot be made") from error
        return local_dir / node
