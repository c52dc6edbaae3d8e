"""Which folder comes next: one after another, however many starts overlap, and however late one goes on.

Each attempt to start an iteration sums up the folders that exist (`start`), and prepares a hidden folder of its own:
no one sees what another one is still writing. What it summed up holds only as long as no folder comes after the newest
of them: `crawl.max_pages` leaves less then, and the iteration may have its folder already. Then

1. the file `<crawl>/started/<folder>-<n>` names the hidden folder that follows this newest folder ("0": the first of
   all); the first to write it decides (`start.decided`). `n` is 1;
2. the next one, the chooser or another attempt, renames the chosen folder to its time (`start.renamed`), which
   only one can do. All others sum up again, and find their own iteration, or what is left for it.

The file stays: an attempt that slept through all of it, and through later folders, sees that another one follows.
Where the folder that followed was deleted by hand, and nothing came after it, `n + 1` chooses again.

A clock that is set back names a folder by the newest one, plus one second; by more than a day, nothing
(`require_clock`). One that was deleted counts as long as a node's note says that it has taken it in: another folder of
its name would be taken in by none.
"""

import hashlib
import re
import time
from collections.abc import Callable

from crawl_lib.crawldir.directory import ITERATION_FILE, CrawlDirectory, Iteration
from crawl_lib.crawldir.register import Register
from crawl_lib.crawldir.settled import read_settled, settled_nodes
from crawl_lib.dfsfiles import read_json
from crawl_lib.durable import reached
from crawl_lib.errors import DamagedFileError, PathNotFoundError, StorageError, TargetExistsError

STARTED_FOLDER, START_PREFIX = "started", ".start-"
NONE = "0"
"""In the place of the newest folder, where there is none."""
FOLLOWS = "follows"
"""In `iteration.json`: the newest of the folders that an attempt has summed up, or `NONE`."""
_MOST_AHEAD_S = 86400.0


def hidden_prefix(run_id: str, iteration: int) -> str:
    """How the hidden folders of the attempts to start an iteration begin."""
    return f"{START_PREFIX}{hashlib.sha1(f'{iteration} {run_id}'.encode()).hexdigest()}-"


def require_clock(crawl: CrawlDirectory, folders: list[str], now_s: float) -> None:
    """Raise StorageError if the newest folder is named by a time more than a day after now: one of two clocks is wrong.

    Each folder that followed would be named after it, and in months the names would still not be times.
    """
    newest = int((folders or [NONE])[-1])
    if newest - now_s > _MOST_AHEAD_S:
        ahead, today = (newest - now_s) / _MOST_AHEAD_S, time.strftime("%Y-%m-%d", time.gmtime(now_s))
        raise StorageError(
            f"{crawl.path}/{newest}: the newest folder has the name of a time {ahead:.1f} days after this"
            f" machine's clock ({today}). Set the clock if it is wrong; else the one that named the folder was: once"
            " all nodes have settled after it, move the folder away; `krake import` brings its WARC files back"
        )


def give_name(crawl: CrawlDirectory, newest: str, hidden: str, clock: Callable[[], float]) -> None:
    """Have a folder follow the newest one, visible: this attempt's, or another one's, and then this one's is deleted.

    `newest`: of the folders that this attempt summed up, or `NONE`. `hidden`: name of its hidden folder, written to the
    end. Raises StorageError (run `start` again then), DamagedFileError if a choice or a node's note cannot be read.
    """
    chosen = _choose(crawl, newest, hidden)
    if chosen is not None:
        _show(crawl, chosen, clock)
    if chosen != hidden:
        crawl.storage.delete(crawl.at(hidden))


def finish_open_start(crawl: CrawlDirectory, clock: Callable[[], float] = time.time) -> None:
    """Make the folder visible that a start had chosen before it died: the next start would, with the nodes of before.

    Raises StorageError, DamagedFileError if a node's note cannot be read.
    """
    _, data = choices(crawl, crawl.newest() or NONE).newest()
    if is_choice(data):
        _show(crawl, data.decode("ascii"), clock)


def _show(crawl: CrawlDirectory, chosen: str, clock: Callable[[], float]) -> None:
    """Name a chosen folder by max(now, newest folder + 1), unless another attempt has."""
    notes = [note for node in settled_nodes(crawl) if (note := read_settled(crawl, node))]
    folders = [*crawl.folders(), *(folder for note in notes for folder in note.taken_in.folders())]
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


def give_up_name(crawl: CrawlDirectory, current: Iteration) -> None:
    """Delete the folder of an iteration in which nothing was done, and what says that it has one."""
    storage = crawl.storage
    storage.delete(crawl.at(current.folder))
    crawl.forget(current.folder)
    older = [folder for folder in crawl.folders() if int(folder) < int(current.folder)]
    prefix = hidden_prefix(current.run_id, current.iteration).encode()
    register = choices(crawl, (older or [NONE])[-1])
    register.delete([n for n in register.numbers() if storage.read_bytes(register.path(n)).startswith(prefix)])


def is_choice(data: bytes) -> bool:
    """Whether a file of `started` says what `start` writes: the name of an attempt's hidden folder."""
    return re.fullmatch(rb"\.start-[0-9a-f]{40}-[0-9a-f]{32}", data) is not None


def follower(folders: list[str], choice: str) -> str | None:
    """The folder that a file of `started` has chosen; None if none follows yet. `folders`: all, oldest first."""
    newest = choice.rpartition("-")[0]
    return next((folder for folder in folders if newest.isdecimal() and int(folder) > int(newest)), None)


def is_passed_over(crawl: CrawlDirectory, hidden: str) -> bool:
    """Whether an attempt's hidden folder, written to the end, can become visible no more: another one follows."""
    try:
        follows = read_json(crawl.storage, crawl.at(hidden, ITERATION_FILE)).get(FOLLOWS)
    except (DamagedFileError, PathNotFoundError):
        return False
    return isinstance(follows, str) and follower(crawl.folders(), f"{follows}-") is not None


def _choose(crawl: CrawlDirectory, newest: str, hidden: str) -> str | None:
    """The name of the hidden folder that is chosen; None if the folder that follows has its name already."""
    register = choices(crawl, newest)
    number, data = register.newest()
    while True:
        if number:
            if not is_choice(data):
                raise DamagedFileError(
                    f"{register.path(number)}: names no attempt of a start; `krake fsck` says what to do"
                )
            chosen = data.decode("ascii")
            if crawl.storage.exists(crawl.at(chosen)):
                return chosen
            if follower(crawl.folders(), f"{newest}-{number}"):
                return None
        try:
            register.write_next(number, hidden.encode())
        except TargetExistsError:
            number, data = register.newest()
            continue
        reached("start.decided")
        return hidden


def choices(crawl: CrawlDirectory, newest: str) -> Register:
    """The files that chose what follows a folder."""
    return Register(crawl.storage, crawl.at(STARTED_FOLDER), prefix=f"{newest}-")
