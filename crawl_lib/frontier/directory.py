"""A node's directory on its own disk: every file by name. No other module has these names."""

from pathlib import Path
from typing import overload

from crawl_lib.dataclass import dataclass
from crawl_lib.errors import ConfigError, os_error

META, HANDED_ON_SUFFIX = ".meta", ".handed_on"
"""Suffixes of files next to a file of URLs: its meta, and the URLs of other nodes."""


class _File:
    """A file (or folder) of a node's directory, as a property with its path."""

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
    """The paths of a node's files. The formats of `0`, `1`... and `state` are fixed, for all; other files are ours.

    A file of URLs that becomes a data file has its meta next to the file: see `meta_of`.
    """

    path: Path

    state = _File("state")
    """The number of processed URLs in file 0, then the number of URLs of each data file."""
    record = _File("state.krake")
    """Digest of the last written `state`, sizes, byte offsets, sources taken in, id of the last move, counts."""
    lock = _File("lock")
    """Names the holder: the task that works on the node."""
    move = _File("move")
    """An open move: the list of steps for a change of the queue."""
    empty = _File("empty")
    """A data file without URLs, before its rename to `0`."""

    take = _File("take")
    """The URLs under way."""
    leftover = _File("leftover")
    """The decision that the fetching of the take is over, with the unfetched URLs."""
    put_back = _File("put_back")
    """The leftover as a data file, before its move."""
    spool = _File("spool")
    """A folder: the results of the take's fetches (`segment.parts`)."""
    spool_scope = _File("spool/scope")
    """The hosts of this take's scope: fetching processes follow links to these hosts."""
    spool_identity = _File("spool/identity")
    """A folder: copies of `iteration.json` and the scope of this take's iteration, for its segment."""
    spool_segment = _File("spool/segment")
    """A folder: the segment made from the spool."""

    journal = _File("intake")
    """The progress of an open intake. The files `new`, `new.*` belong to the intake."""
    new = _File("new")
    """URLs that an intake has chosen for the queue."""
    new_meta = _File(f"new{META}")
    new_undecided = _File("new.undecided")
    """The next `undecided`, renamed after the intake."""
    new_claim = _File("new.claim")
    """URLs with keys under claim (`local` routing)."""
    new_hosts = _File("new.hosts")
    """URLs by host, which the open move adds to `host_counts`."""
    undecided = _File("undecided")
    """URLs without an answer of their key servers; the next intake begins with these."""

    adopted = _File("adopted")
    """The queue of an adoption under way."""
    adopted_handed_on = _File(f"adopted{HANDED_ON_SUFFIX}")
    adopted_scope = _File("adopted.scope")
    adopted_counted = _File("adopted.counted")
    """The digest of the lines whose hosts an adoption has counted."""
    rehomed = _File("rehomed")
    """The queue of a rehoming under way."""
    rehomed_handed_on = _File(f"rehomed{HANDED_ON_SUFFIX}")
    made_due = _File("made_due")
    """The queue with other due times or another order, before its move (`krake retry --now`, requisites)."""
    handed_on = _File("handed_on")
    """Queued URLs of other nodes; the next segment carries these URLs."""
    scope_added = _File("scope_added")
    """Hosts of adopted URLs; the next segment carries these hosts."""

    retire = _File("retire")
    """A decision to hand everything over to the other nodes."""
    host_counts = _File("hostcounts.sqlite")
    """URLs admitted by host."""
    hosts = _File("hosts")
    """A folder: the times of the last requests to hosts (`fetch`). Fetching processes write here and to the spool."""
    live = _File("live")
    """A folder: the results of real-time fetchers, until their collection (`realtime.collect`)."""
    progress = _File("progress.json")
    """The progress of the task, for `krake status`."""
    crawl = _File("_crawl")
    """The name of the node's crawl."""
    lost = _File("lost")
    """How many URLs a repair found gone; `krake fsck --repair` deletes the file."""
    rescued = _File("rescued")
    """A file under way by a repair."""

    def data(self, number: int) -> Path:
        """Return the path of a data file: one URL a line."""
        return self.path / str(number)

    def meta(self, number: int) -> Path:
        """Return the path of a data file's meta.

        The lines match the data file: via key, depth, redirects and seed metadata.
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
        """Return a node's directory `<local_dir>/<node>`; make both folders if missing.

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
