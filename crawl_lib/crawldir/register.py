"""Numbered files of which the largest holds: what is replaced on the DFS is there at each moment.

Each file is written once, by a rename that refuses a target: of two writers of a number, one wins.
"""

import re

from crawl_lib.dataclass import dataclass
from crawl_lib.errors import PathNotFoundError
from crawl_lib.storage import Storage


@dataclass(frozen=True)
class Register:
    """The files `<folder>/<prefix><n><suffix>`, n from 1."""

    storage: Storage
    folder: str
    prefix: str = ""
    suffix: str = ""

    def path(self, number: int) -> str:
        """Return the path of a number's file."""
        return f"{self.folder}/{self.prefix}{number}{self.suffix}"

    def numbers(self) -> list[int]:
        """Return the numbers in the folder, ascending.

        A missing folder has none.
        """
        pattern = re.compile(rf"{re.escape(self.prefix)}(\d+){re.escape(self.suffix)}")
        try:
            entries = self.storage.list(self.folder)
        except PathNotFoundError:
            return []
        return sorted(
            int(match[1]) for entry in entries if (match := pattern.fullmatch(entry.name))
        )

    def newest(self) -> tuple[int, bytes]:
        """Return the largest number and its file's bytes.

        The result is (0, b"") without an entry.
        """
        while numbers := self.numbers():
            try:
                return numbers[-1], self.storage.read_bytes(self.path(numbers[-1]))
            except PathNotFoundError:
                continue  # it was replaced, or taken away, since the folder was listed
        return 0, b""

    def write_next(self, newest: int, data: bytes) -> None:
        """Write the content that follows number `newest`.

        Raises TargetExistsError if another process has written it meanwhile.
        """
        self.storage.write_bytes(self.path(newest + 1), data)

    def delete(self, numbers: list[int]) -> None:
        """Delete numbers, in this order."""
        for number in numbers:
            self.storage.delete(self.path(number))
