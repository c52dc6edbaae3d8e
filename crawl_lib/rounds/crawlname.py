"""The owner of a place: `crawl.name`, noted at first use wherever two crawls would spoil each other's work.

The crawl directory's note also says which frontier the crawl has, if that is `crawldb`: there is no way back, since
queues and key tables do not know what was crawled since.

The crawl directory, the directories of exports and (where they are made) of texts, and each node's have a file
`_crawl`; a key server keeps the name next to its keys (`keys.ring`). Nothing else is told apart: scratch room, workers,
and databases of one MySQL server are for several crawls. Places that were used before there were names get one at their
next use, and so does one whose file cannot be read: the file does nothing but refuse.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from crawl_lib.errors import ConfigError, PathNotFoundError, StorageError, TargetExistsError
from crawl_lib.frontier import NodeDirectory
from crawl_lib.keys import open_key_store
from crawl_lib.sealed import sealed_json, unsealed
from crawl_lib.storage import LocalStorage, Storage
from crawl_lib.stores import Stores

NAME_FILE = NodeDirectory.crawl
"""No iteration, export or node may be called so."""


_Folder = tuple[Storage, str, str]
Noted = list[tuple[_Folder, dict[str, str] | None]]
"""Places, each with the note of the place, or None where no note can be read."""


class CrawlName:
    """The notes of the crawl's name, in each place that two crawls would spoil for each other."""

    def __init__(self, stores: Stores) -> None:
        self._stores, self._config = stores, stores.config

    def others(self, noted: Noted | None = None) -> list[str]:
        """Return the places of another crawl, each with the remedy.

        Nothing is written.

        `noted`: what the notes on the DFS say, if they were read just now. Those of nodes only where they are on this
        machine; a key server that does not answer is left out.
        """
        config = self._config
        nodes = LocalStorage(Path(config.queue.local_dir))
        noted = noted or [(place, _noted(*place[:2])) for place in self._on_the_dfs()]
        problems = [self._problem(place, note) for place, note in noted]
        for node in config.servers:
            with suppress(StorageError):  # what is wrong with it is said by its own task
                problems.append(
                    self._problem((nodes, node, "queue.local_dir"), _noted(nodes, node))
                )
        with open_key_store(
            config.key_storage, self._stores.secrets.key_storage_password, crawl=config.crawl.name
        ) as keys:
            return [*filter(None, problems), *keys.other_crawls()]

    def require(self, noted: Noted | None = None) -> None:
        """Raise ConfigError with all places of other crawls. `noted`: see `others`."""
        if problems := self.others(noted):
            raise ConfigError(*problems)

    def note(self) -> None:
        """Note the crawl's name in its directories of the DFS.

        Raises ConfigError with all places of other crawls.
        """
        noted = [(place, _noted(*place[:2])) for place in self._on_the_dfs()]
        self.require(noted)
        for place in [place for place, note in noted if note is None]:
            self._note(*place)

    def note_texts(self) -> None:
        """Note the crawl's name in the directory of texts.

        Before one is made that the config does not ask for. Raises ConfigError if it is another crawl's.
        """
        self._note(self._stores.storage, self._config.text.directory.strip("/"), "text.directory")

    def has_own_texts(self) -> bool:
        """Say whether the texts in `text.directory` are this crawl's.

        Its note says so, or only the config does.
        """
        noted = _noted(self._stores.storage, self._config.text.directory.strip("/"))
        return (
            self._asks_for_texts() if noted is None else noted["crawl"] == self._config.crawl.name
        )

    def _asks_for_texts(self) -> bool:
        """Say whether a run of the crawl makes texts."""
        return self._config.crawldb.signature == "text" or not {"text", "index"}.isdisjoint(
            self._config.outputs.tasks
        )

    def note_on_node(self, directory: Path) -> None:
        """Note the crawl's name in a node's directory too.

        Its key servers are checked when they are opened. Raises ConfigError.
        """
        for place in (
            *self._on_the_dfs(),
            (LocalStorage(directory.parent), directory.name, "queue.local_dir"),
        ):
            self._note(*place)

    def _on_the_dfs(self) -> Iterator[tuple[Storage, str, str]]:
        """Yield the crawl's directories, each with its option."""
        yield self._stores.storage, self._stores.crawl.path, "crawl.directory"
        yield (
            self._stores.storage,
            self._config.export.directory.strip("/"),
            "export.directory",
        )
        if self._asks_for_texts():
            yield (
                self._stores.storage,
                self._config.text.directory.strip("/"),
                "text.directory",
            )

    def _problem(self, of: tuple[Storage, str, str], theirs: dict[str, str] | None) -> str | None:
        """Return why a place cannot be used, or None.

        `theirs`: what its note says.
        """
        storage, path, option = of
        ours, place = self._ours(option), f"{storage.name}/{path}"
        if theirs is None or theirs == ours:
            return None
        if theirs["crawl"] != ours["crawl"]:
            was, is_now = theirs["crawl"], ours["crawl"]
            return f"{option}: {place} is of the crawl {was!r}, and crawl.name is {is_now!r}: name another place"
        if "order" in ours:
            return (
                f"frontier.order: {place} was begun with fifo: its "
                f"CrawlDb has to be made first: run `krake crawldb init`"
            )
        return (
            f"frontier.order: {place} is crawled with a CrawlDb, and there is no way back to fifo, which would crawl"
            " all of it again: set frontier.order: crawldb"
        )

    def _ours(self, option: str) -> dict[str, str]:
        """Return this crawl's note for a place."""
        order = {"order": self._config.frontier.order}
        is_told = option == "crawl.directory" and self._config.order.makes_lists
        return {"crawl": self._config.crawl.name, **(order if is_told else {})}

    def note_crawldb(self) -> None:
        """Note that the crawl has a CrawlDb.

        Called once, when that is made from what was crawled with `fifo`.
        """
        storage, path, option = next(self._on_the_dfs())
        storage.delete(f"{path}/{NAME_FILE}")
        self._note(storage, path, option)

    def _note(self, storage: Storage, path: str, option: str) -> None:
        """Write the name if the directory has no name.

        Raises ConfigError if the directory has another name, even one written by another process just now.
        """
        file = f"{path}/{NAME_FILE}"
        while (noted := _noted(storage, path)) is None:
            try:
                storage.write_bytes(file, sealed_json(self._ours(option)))
            except TargetExistsError:
                if _noted(storage, path) is None:  # damaged
                    storage.delete(file)
        if problem := self._problem((storage, path, option), noted):
            raise ConfigError(problem)


def _noted(storage: Storage, path: str) -> dict[str, str] | None:
    """Return a directory's note, or None if missing or unreadable."""
    with suppress(PathNotFoundError, ValueError, KeyError, TypeError):
        note = unsealed(storage.read_bytes(f"{path}/{NAME_FILE}"))
        return {
            "crawl": str(note["crawl"]),
            **({"order": str(note["order"])} if "order" in note else {}),
        }
    return None
