"""Pages that would hold the loop: their answers are read aside, and links are written a slice at a time.

Such a page waits here with the place of its records, not with its body. One at a time is read, while the loop goes on
with others; `drain` takes over at any point, and waits.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path

from crawl_lib.durable import reached
from crawl_lib.errors import StoppedError, os_errors
from crawl_lib.records import Fetched, TakenUrl
from crawl_lib.segment import Position
from crawl_lib.worker.aside import Aside
from crawl_lib.worker.reading import UNREADABLE, Pieces, Reading, barred

MOST_TRIES = 2
Handled = tuple[TakenUrl, Fetched, Position]
"""A URL, what its fetch ended in, and where its records are."""


class ReadingNotes:
    """Which large pages are being read: noted in the spool before, so that one that kills its reader is known by it.

    A file of lines next to the parts of one worker: `+<batch position>` before a page is read, `-<batch position>` when
    that has ended well. It must outlive a process, not a power loss, so nothing is synced. A page whose reading was
    begun `MOST_TRIES` times without an end is not read again: by this attempt, nor by one that makes the same rows
    again. `path` need not exist. Raises StorageError naming it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begun: Counter[str] = Counter()
        with os_errors(path, "cannot be read"):
            text = path.read_text(encoding="ascii", errors="replace") if path.exists() else ""
        for line in text.split("\n")[:-1]:
            self._count(line)

    def is_barred(self, position: int) -> bool:
        """Whether the page of this batch position is not to be read any more."""
        return self._begun[str(position)] >= MOST_TRIES

    def begin(self, position: int) -> None:
        """Reading this page begins."""
        self._write(f"+{position}")
        reached("page.noted")

    def end(self, position: int) -> None:
        """It has ended well."""
        self._write(f"-{position}")

    def _write(self, line: str) -> None:
        with os_errors(self._path, "cannot be written"), self._path.open("ab", buffering=0) as file:
            file.write(line.encode() + b"\n")
        self._count(line)

    def _count(self, line: str) -> None:
        if line.startswith("+"):  # what follows is no position in a line that a full disk cut
            self._begun[line[1:]] += 1
        else:
            self._begun.pop(line[1:], None)


class LargePages:
    """The pages of one worker that wait, in the order they came.

    `write`: makes the rows of an answer, step by step: a step holds the loop for a moment only.

    Without an `aside` no page is read here, and links are written at once.
    """

    def __init__(
        self, aside: Aside | None, notes: ReadingNotes, write: Callable[[Handled, Reading, Pieces], Iterator[None]]
    ) -> None:
        self._aside = aside
        self._notes = notes
        self._write = write
        self._waiting: deque[Handled] = deque()
        self._read: tuple[Handled, bool] | None = None
        """The answer that is being read aside, and whether its links are."""
        self._steps: deque[Iterator[None]] = deque()
        """Of rows that are being written."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self.failed: BaseException | None = None
        """What was raised in a turn of the loop."""
        self._turn: asyncio.Handle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits, is read, or is being written, and all went well."""
        return not (self._waiting or self._read or self._steps or self.failed)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Work in the turns of a loop from now on."""
        self._loop = loop
        if self._aside is not None:
            loop.add_reader(self._aside.fileno(), self._in_turn, True)

    def detach(self) -> None:
        """The loop ends. What is left waits for `drain`."""
        if self._loop is not None and self._aside is not None:
            self._loop.remove_reader(self._aside.fileno())
        if self._turn is not None:
            self._turn.cancel()
        self._loop = self._turn = None

    def read(self, taken: TakenUrl, fetched: Fetched, position: Position) -> None:
        """Have an answer read aside, and its rows written."""
        self._waiting.append((taken, fetched.without_body(), position))
        self._ask()
        self._go_on()

    def add(self, steps: Iterator[None]) -> None:
        """Go through steps, one a turn of the loop."""
        self._steps.append(steps)
        self._go_on()

    def drain(self) -> None:
        """Bring all to its end now. Raises what was raised in a turn: rows are missing then, and no part may close."""
        while not self.is_idle:
            if self.failed is not None:
                raise self.failed
            if self._steps:
                self._step()
            else:
                self._hear()

    def withdraw(self) -> None:
        """The worker ends before an answer is there, which is not the page's fault: it counts as not begun."""
        if self._read is not None and self._read[1]:
            self._notes.end(self._read[0][0].position)
        self._read = None

    def _go_on(self) -> None:
        if self._loop is None:
            self.drain()
        elif self._steps and self._turn is None:
            self._turn = self._loop.call_soon(self._in_turn, False)

    def _in_turn(self, is_heard: bool) -> None:
        """Called by the loop: for a step, or for an answer, which `drain` may have taken in since."""
        try:
            if not is_heard:
                self._turn = None
                if self._steps:
                    self._step()
                self._go_on()
            elif self._aside is not None and self._aside.is_ready():
                self._hear()
        except BaseException as error:
            self.failed = self.failed or error

    def _step(self) -> None:
        if next(self._steps[0], self) is self:
            self._steps.popleft()

    def _ask(self) -> None:
        """Begin with the next answer, if none is being read."""
        if self._read is None and self._waiting:
            assert self._aside is not None
            taken, fetched, position = handled = self._waiting.popleft()
            links = not self._notes.is_barred(taken.position)
            if links:
                self._notes.begin(taken.position)
            self._read = handled, links
            self._aside.ask(fetched, position, links=links)

    def _hear(self) -> None:
        """Take in what was found, or that nothing was; begin with the next one."""
        assert self._aside is not None
        assert self._read is not None
        asked, self._read = self._read, None
        handled, links = asked
        try:
            answer = self._aside.answer()
        except StoppedError:
            self._read = asked  # for `withdraw`; where the reader died, the page may be why
            raise
        if links and answer is None:
            self._waiting.appendleft(handled)  # again, or, if that was the last time, for the facts alone
        else:
            reading, pieces = answer or (UNREADABLE, iter(()))
            if links:
                self._notes.end(handled[0].position)
            elif answer is not None:
                reading = barred(reading)
            self._steps.append(self._write(handled, reading, pieces))
        self._ask()
        self._go_on()
