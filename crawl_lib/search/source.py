"""The versions of a crawl's index, as a reader asks for them."""

import logging

from crawl_lib.dfsfiles import stored_digest
from crawl_lib.errors import DamagedFileError
from crawl_lib.index import INDEX, delete_other_copies, local_folder, verify_copy
from crawl_lib.search.opened import OpenIndex, open_index
from crawl_lib.stores import Stores
from crawl_lib.versions import Versions

log = logging.getLogger(__name__)


class IndexVersions:
    """The index versions of a crawl directory."""

    def __init__(self, stores: Stores) -> None:
        """Open nothing yet."""
        self._stores, self._versions = stores, Versions(stores, INDEX)

    def newest(self, bad: frozenset[int]) -> int | None:
        """Return the newest complete version not in `bad`, or None.

        Raises DamagedFileError where there are others, and none is whole; StorageError.
        """
        damage: DamagedFileError | None = None
        for number in self._versions.numbers():
            try:
                if number not in bad:
                    return self._versions.read(number).number
            except DamagedFileError as error:
                log.warning("%s", error)
                damage = damage or error
        if damage is not None:
            raise damage
        return None

    def open(self, number: int) -> OpenIndex:
        """Open a version. Raises DamagedFileError, StorageError."""
        version = self._versions.read(number)
        folder = local_folder(self._stores, version)
        opened = open_index(folder, number, version.manifest["settings"]["languages"])
        delete_other_copies(self._stores, number)  # what is open stays readable
        return opened

    def verify(self, number: int) -> None:
        """Compare the digest of each file of a version. Raises DamagedFileError, StorageError."""
        version = self._versions.read(number)
        verify_copy(self._stores, version)
        for part, path in zip(version.manifest["parts"], version.paths, strict=True):
            if stored_digest(self._stores.storage, path, self._stores) != part["sha256"]:
                raise DamagedFileError(
                    f"{path}: differs from the written file (SHA-256); {INDEX.remedy}"
                )
