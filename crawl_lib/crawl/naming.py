"""Which folder is an iteration's: one, however many attempts of its `start` overlap, and however late one goes on.

Each attempt prepares a hidden folder of its own, so that none shows what another one is still writing. Then

1. the file `<crawl>/started/<digest>-<n>` names the hidden folder that is chosen; whoever writes it first decides
   (`start.decided`). `digest` is of the run and the iteration, `n` is 1;
2. whoever comes next, the chooser or another attempt, renames the chosen folder to its time (`start.renamed`), which
   only one can do; the others find it.

The file stays: an attempt that slept through all of it, and through later iterations, sees that its own folder is not
the chosen one, and deletes it. Where the iteration's folder was deleted by hand, `n + 1` chooses again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from crawl_lib.crawl.places import Iteration, find_iteration, list_folders, read_iteration
from crawl_lib.durable import reached
from crawl_lib.errors import PathNotFoundError, TargetExistsError
from crawl_lib.stores import Stores

STARTED_FOLDER = "started"


def hidden_prefix(run_id: str, iteration: int) -> str:
    """How the hidden folders of the attempts to start an iteration begin."""
    return f".start-{_digest(run_id, iteration)}-"


def give_name(stores: Stores, run_id: str, iteration: int, hidden: str, clock: Callable[[], float]) -> Iteration:
    """Make the iteration's folder visible, of this attempt or of another one; returns the iteration that holds.

    `hidden`: name of this attempt's hidden folder, written to the end. Raises StorageError; run `start` again then.
    """
    storage, crawl_dir = stores.storage, stores.crawl_dir
    while True:
        chosen = _choose(stores, run_id, iteration, hidden)
        named = chosen if isinstance(chosen, Iteration) else _rename_to_time(stores, chosen, clock)
        if named is not None:
            storage.delete(f"{crawl_dir}/{hidden}")
            return named


def give_up_name(stores: Stores, own: Iteration) -> None:
    """Delete the folder of an iteration in which nothing was done, and what says that it has one."""
    stores.storage.delete(f"{stores.crawl_dir}/{own.folder}")
    base = f"{stores.crawl_dir}/{STARTED_FOLDER}"
    for entry in stores.storage.list(base):
        if entry.name.startswith(f"{_digest(own.run_id, own.iteration)}-"):
            stores.storage.delete(f"{base}/{entry.name}")


def _choose(stores: Stores, run_id: str, iteration: int, hidden: str) -> str | Iteration:
    """The name of the chosen hidden folder, or the iteration whose folder has its name already."""
    storage, crawl_dir = stores.storage, stores.crawl_dir
    path = f"{crawl_dir}/{STARTED_FOLDER}/{_digest(run_id, iteration)}"
    number = _newest(stores, f"{_digest(run_id, iteration)}-")
    while True:
        if number:
            chosen = storage.read_bytes(f"{path}-{number}").decode()
            if storage.exists(f"{crawl_dir}/{chosen}"):
                return chosen
            if found := find_iteration(storage, crawl_dir, run_id, iteration, stores.stop):
                return found
        number += 1
        try:
            storage.write_bytes(f"{path}-{number}", hidden.encode())
        except TargetExistsError:
            continue
        reached("start.decided")
        return hidden


def _newest(stores: Stores, prefix: str) -> int:
    try:
        entries = stores.storage.list(f"{stores.crawl_dir}/{STARTED_FOLDER}")
    except PathNotFoundError:
        return 0
    return max((int(entry.name.removeprefix(prefix)) for entry in entries if entry.name.startswith(prefix)), default=0)


def _rename_to_time(stores: Stores, hidden: str, clock: Callable[[], float]) -> Iteration | None:
    """Name a folder by max(now, newest folder + 1); None if another attempt was faster."""
    storage, crawl_dir = stores.storage, stores.crawl_dir
    name = max(int(clock()), *(int(folder) + 1 for folder in list_folders(storage, crawl_dir)[-1:]), 0)
    while True:
        try:
            storage.rename(f"{crawl_dir}/{hidden}", f"{crawl_dir}/{name}")
        except TargetExistsError:
            name += 1
        except PathNotFoundError:
            return None
        else:
            reached("start.renamed")
            return read_iteration(storage, crawl_dir, str(name))


def _digest(run_id: str, iteration: int) -> str:
    return hashlib.sha1(f"{iteration} {run_id}".encode()).hexdigest()
