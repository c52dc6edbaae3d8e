"""The name of the next folder: one after another, however many starts overlap, and however late one goes on.

Each attempt to start an iteration sums up the folders that exist (`start`), and prepares a hidden folder of its own: no
one sees what another one is still writing. Its sums hold only as long as no folder comes after the newest of them:
`crawl.max_pages` leaves less then, and the iteration may have its folder already. Then

1. the file `<crawl>/started/<folder>-<n>` names the hidden folder that follows this newest folder ("0": the first of
   all); the first to write it decides (`start.decided`). `n` is 1;
2. the next one, the chooser or another attempt, renames the chosen folder to its time (`start.renamed`), which
   only one can do. All others sum up again, and find their own iteration, or what is left for it.

The file stays: an attempt that slept through all of it, and through later folders, sees that another one follows. If
the folder that followed was deleted by hand, and no folder came after it, `n + 1` chooses again.

A clock that is set back names a folder by the newest one, plus one second; by more than a day, nothing
(`Starts.require_clock`). A deleted folder counts as long as a node's note says that the node has taken the folder in:
no node would take in another folder of that name.
"""

import hashlib
import re
import time
from collections.abc import Callable
from typing import ClassVar

from crawl_lib.crawldir.directory import CrawlDirectory, FileName, Iteration
from crawl_lib.crawldir.register import Register
from crawl_lib.crawldir.settled import SettledNotes
from crawl_lib.dataclass import dataclass
from crawl_lib.dfsfiles import read_json
from crawl_lib.durable import reached
from crawl_lib.errors import DamagedFileError, PathNotFoundError, StorageError, TargetExistsError

_MOST_AHEAD_S = 86400.0


@dataclass(frozen=True)
class Starts:
    """The attempts to start iterations in a crawl, and the names of the folders that follow."""

    NONE: ClassVar[str] = "0"
    """Placeholder if there is no newest folder."""
    FOLLOWS: ClassVar[str] = "follows"
    """In `iteration.json`: the newest of the folders that an attempt has summed up, or `NONE`."""

    crawl: CrawlDirectory

    @staticmethod
    def hidden_prefix(run_id: str, iteration: int) -> str:
        """Return the prefix of hidden folders of an iteration's attempts."""
        return (
            f"{FileName.START_PREFIX}{hashlib.sha1(f'{iteration} {run_id}'.encode()).hexdigest()}-"
        )

    @staticmethod
    def is_choice(data: bytes) -> bool:
        """Return whether a file of `started` holds a hidden folder's name."""
        return re.fullmatch(rb"\.start-[0-9a-f]{40}-[0-9a-f]{32}", data) is not None

    @staticmethod
    def follower(folders: list[str], choice: str) -> str | None:
        """Return the folder that a file of `started` chose.

        None: no folder follows yet.

        `folders`: all, oldest first.
        """
        newest = choice.rpartition("-")[0]
        return next(
            (folder for folder in folders if newest.isdecimal() and int(folder) > int(newest)), None
        )

    def require_clock(self, folders: list[str], now_s: float) -> None:
        """Raise StorageError if the newest folder is a day ahead.

        One of two clocks is wrong then. Each later folder would be named after the wrong time, and for months no name
        would be a time.
        """
        newest = int((folders or [self.NONE])[-1])
        if newest - now_s > _MOST_AHEAD_S:
            ahead, today = (
                (newest - now_s) / _MOST_AHEAD_S,
                time.strftime("%Y-%m-%d", time.gmtime(now_s)),
            )
            raise StorageError(
                f"{self.crawl.path}/{newest}: the newest folder has the name of a time {ahead:.1f} days after this"
                f" machine's clock ({today}). Set the clock if it is wrong; else the one that named the folder was:"
                " once all nodes have settled after it, move the folder away; `krake import` brings its WARC files back"
            )

    def give_name(self, newest: str, hidden: str, clock: Callable[[], float]) -> None:
        """Give the next visible name to an attempt's folder.

        If another attempt's folder was chosen, the folder of this one is deleted. In the second case the folder of this
        attempt is deleted.

        `newest`: of the folders that this attempt summed up, or `NONE`. `hidden`: name of its hidden folder, written to
        the end.

        Raises StorageError (run `start` again then), DamagedFileError if a choice or a node's note cannot be read.
        """
        chosen = self._choose(newest, hidden)
        if chosen is not None:
            self._show(chosen, clock)
        if chosen != hidden:
            self.crawl.storage.delete(self.crawl.at(hidden))

    def finish_open(self, clock: Callable[[], float] = time.time) -> None:
        """Make the folder visible that a start had chosen before it died.

        The next start would do so, with the earlier nodes.

        Raises StorageError, DamagedFileError if a node's note cannot be read.
        """
        _, data = self.choices(self.crawl.newest() or self.NONE).newest()
        if self.is_choice(data):
            self._show(data.decode("ascii"), clock)

    def give_up(self, current: Iteration) -> None:
        """Delete the folder of an empty iteration, and its choice."""
        crawl, storage = self.crawl, self.crawl.storage
        storage.delete(crawl.at(current.folder))
        crawl.forget(current.folder)
        older = [folder for folder in crawl.folders() if int(folder) < int(current.folder)]
        prefix = self.hidden_prefix(current.run_id, current.iteration).encode()
        register = self.choices((older or [self.NONE])[-1])
        register.delete(
            [
                n
                for n in register.numbers()
                if storage.read_bytes(register.path(n)).startswith(prefix)
            ]
        )

    def is_passed_over(self, hidden: str) -> bool:
        """Return whether another folder follows instead of an attempt's hidden folder."""
        try:
            follows = read_json(self.crawl.storage, self.crawl.at(hidden, FileName.ITERATION)).get(
                self.FOLLOWS
            )
        except (DamagedFileError, PathNotFoundError):
            return False
        return (
            isinstance(follows, str)
            and self.follower(self.crawl.folders(), f"{follows}-") is not None
        )

    def choices(self, newest: str) -> Register:
        """Return the files that chose what follows a folder."""
        return Register(self.crawl.storage, self.crawl.at(FileName.STARTED), prefix=f"{newest}-")

    def _choose(self, newest: str, hidden: str) -> str | None:
        """Choose a hidden folder and return its name.

        None: the folder that follows already has its visible name.
        """
        crawl, register = self.crawl, self.choices(newest)
        number, data = register.newest()
        while True:
            if number:
                if not self.is_choice(data):
                    raise DamagedFileError(
                        f"{register.path(number)}: names no attempt of a start; `krake fsck` says what to do"
                    )
                chosen = data.decode("ascii")
                if crawl.storage.exists(crawl.at(chosen)):
                    return chosen
                if self.follower(crawl.folders(), f"{newest}-{number}"):
                    return None
            try:
                register.write_next(number, hidden.encode())
            except TargetExistsError:
                number, data = register.newest()
                continue
            reached("start.decided")
            return hidden

    def _show(self, chosen: str, clock: Callable[[], float]) -> None:
        """Name a chosen folder by time, unless another attempt has.

        The name is max(now, newest folder + 1).
        """
        crawl = self.crawl
        notes = [
            note for node in SettledNotes.nodes(crawl) if (note := SettledNotes(crawl, node).read())
        ]
        folders = [
            *crawl.folders(),
            *(folder for note in notes for folder in note.taken_in.folders()),
        ]
        name = max([int(clock()), *(int(folder) + 1 for folder in folders)])
        while True:
            try:
                crawl.storage.rename(crawl.at(chosen), crawl.at(str(name)))
                reached("start.renamed")
                return
            except TargetExistsError:
                name += 1
            except PathNotFoundError:
                return
