"""The memory of a process about an object store, to spare requests."""

from collections.abc import Collection

from crawl_lib.storage.filestore import Entry
from crawl_lib.storage.s3_claims import PREFIX


class Memory:
    """Folders and names that a process found or made.

    Another process may have made more since. A missing name only spares a question before a conditional write, or
    chooses the text of an error. `shown`: existing folders without a claim. Another process may have
    deleted such a folder since. While that goes on, or while a rename makes the folder again, only a list finds its
    claim.
    """

    def __init__(self) -> None:
        self.shown = {""}
        self._names: dict[str, set[str]] = {}
        self._folders: dict[str, set[str]] = {}

    def listed(self, folder: str, found: Collection[Entry]) -> None:
        """Note a folder's content and claims from one LIST.

        A claim is asked for again.
        """
        base = f"{folder}/" if folder else ""
        self.shown -= {
            base + one.name.removeprefix(PREFIX) for one in found if one.name.startswith(PREFIX)
        }
        self._names[folder] = {one.name for one in found}
        self._folders[folder] = {base + one.name for one in found if one.is_dir}

    def began(self, folder: str) -> None:
        """Note an empty folder that this process made."""
        self.made(folder)
        self._names[folder] = set()

    def made(self, path: str) -> None:
        """Note that this process makes a file or a folder."""
        folder, _, name = path.rpartition("/")
        self._names.get(folder, set()).add(name)

    def may_exist(self, path: str) -> bool:
        """Say whether an object or claim may be at a path."""
        folder, _, name = path.rpartition("/")
        names = self._names.get(folder)
        return names is None or not names.isdisjoint({name, PREFIX + name})

    def unsure(self, folder: str) -> set[str]:
        """Return a folder and its neighbours with unknown claims."""
        return self._folders.get(folder.rpartition("/")[0], set()) - self.shown

    def forget(self, path: str) -> None:
        """Note that a file or folder is deleted."""
        folder, _, name = path.rpartition("/")
        self._names.get(folder, set()).discard(name)
        for known in (self.shown, self._names, self._folders):
            for one in [one for one in known if one == path or one.startswith(f"{path}/")]:
                known.discard(one) if isinstance(known, set) else known.pop(one)
