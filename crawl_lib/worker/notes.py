"""Which large pages are being read: noted in the spool before, so that one that kills its reader is known by it.

A file of lines next to the parts of one worker: `+<batch position>` before a page is read, `-<batch position>` when
that has ended well. It must outlive a process, not a power loss, so nothing is synced. A page whose reading was begun
`MOST_TRIES` times without an end is not read again: by this attempt, nor by one that makes the same rows again.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from crawl_lib.durable import reached
from crawl_lib.errors import os_errors

MOST_TRIES = 2


class ReadingNotes:
    """The notes in the file `path`, which need not exist. Raises StorageError naming it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begun: Counter[int] = Counter()
        with os_errors(path, "cannot be read"):
            text = path.read_text(encoding="ascii", errors="replace") if path.exists() else ""
        for line in text.split("\n")[:-1]:
            self._count(line[:1], line[1:])

    def is_barred(self, position: int) -> bool:
        """Whether the page of this batch position is not to be read any more."""
        return self._begun[position] >= MOST_TRIES

    def begin(self, position: int) -> None:
        """Reading this page begins."""
        self._write("+", position)
        reached("page.noted")

    def end(self, position: int) -> None:
        """It has ended well."""
        self._write("-", position)

    def _write(self, sign: str, position: int) -> None:
        with os_errors(self._path, "cannot be written"), self._path.open("ab", buffering=0) as file:
            file.write(b"%s%d\n" % (sign.encode(), position))
        self._count(sign, str(position))

    def _count(self, sign: str, position: str) -> None:
        if not position.isdecimal():  # a line that a full disk cut
            return
        if sign == "+":
            self._begun[int(position)] += 1
        else:
            self._begun.pop(int(position), None)
