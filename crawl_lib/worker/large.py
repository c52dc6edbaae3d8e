"""Pages that would hold the loop: their answers are read aside, and links are written a slice at a time.

A large page waits here with the place of its records, without the body. Pages are read one by one, while the loop goes
on; `drain` takes over at any point, and waits.
"""

import asyncio
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Generator
from contextlib import AbstractContextManager
from pathlib import Path

from crawl_lib.durable import reached
from crawl_lib.errors import KrakeError, StoppedError, os_error, os_errors
from crawl_lib.records import Fetched, TakenUrl
from crawl_lib.segment import Position, payload_of
from crawl_lib.worker.aside import Aside
from crawl_lib.worker.reading import UNREADABLE, Pieces, Reading, barred

MOST_TRIES = 2
TURN_S = 0.02
"""After so much CPU time a turn begins no further step."""
Handled = tuple[TakenUrl, Fetched, Position]
"""A URL, the result of the fetch, and the place of its records."""
Steps = Generator[None, None, None]
"""Work in steps that each hold the loop for a moment only."""


class ReadingNotes:
    """Notes in the spool of pages in work, to recognise a page that kills its process.

    A large page is noted while it is read, every page while its links are resolved, and so are redirects and the
    sitemaps of a robots.txt. The file has lines and lies next to the parts of one worker: `+<name>` before the work,
    `-<name>` after it has ended well; the name is the batch position, or the URL of a robots.txt. The file must outlive
    a process, not a power loss, so nothing is synced. After `MOST_TRIES` begun tries without an end, neither this
    attempt nor a later attempt works on the page again. Pages of a group are noted in one write; if their process dies,
    the next try notes each alone. `path` need not exist. Raises StorageError naming the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._closer: Callable[[], object] = lambda: None
        self._begun: dict[str, int] = {}
        with os_errors(path, "cannot be read"):
            text = path.read_text(encoding="ascii", errors="replace") if path.exists() else ""
        for line in text.split("\n")[:-1]:
            self._count(line)

    def is_barred(self, name: int | str) -> bool:
        """Return whether a page may no longer be worked on."""
        return bool(self._begun) and self._begun.get(str(name), 0) >= MOST_TRIES

    def over(self, name: int | str) -> AbstractContextManager["Noted"]:
        """Note a page for the duration of a `with` block.

        A disk error or a stop is not the page's fault.
        """
        return Noted(self, {name})

    def in_turn(self, names: Collection[int | str] = ()) -> AbstractContextManager["Noted"]:
        """Note one page after another (`Noted.go_on`) in a `with` block.

        `names`: pages noted together, unless a process died at any of them. The last page is noted until the block
        ends.
        """
        is_new = not self._begun or self._begun.keys().isdisjoint(map(str, names))
        return Noted(self, names if is_new else ())

    def note(self, *, ended: Collection[int | str] = (), begun: Collection[int | str] = ()) -> None:
        """Note the successful end of work on pages, and the begin of work on others.

        Finished work counts as not begun. Earlier work without an end still counts.
        """
        lines = [*(f"-{name}" for name in ended), *(f"+{name}" for name in begun)]
        if lines:
            self._write(lines)

    def close(self) -> None:
        """Close the file. The next note opens the file again."""
        self._closer()
        self._descriptor = None

    def _write(self, lines: list[str]) -> None:
        try:  # a context manager would take as long as all else
            if self._descriptor is None:
                self._descriptor = os.open(
                    self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666
                )
                self._closer = weakref.finalize(self, os.close, self._descriptor)
            os.write(self._descriptor, "\n".join([*lines, ""]).encode())
        except OSError as error:
            raise os_error(error, self._path, "cannot be written") from error
        for line in lines:
            self._count(line)

    def _count(self, line: str) -> None:
        name, before = line[1:], self._begun.get(line[1:], 0)
        if line.startswith("+"):  # in a line that a full disk cut, what follows is no name
            self._begun[name] = before + 1
        elif before > 1:
            self._begun[name] = before - 1
        else:
            self._begun.pop(name, None)


class Noted(AbstractContextManager["Noted"]):
    """The noted pages in a `with` block: see `ReadingNotes.over`. A generator would take half as long again."""

    __slots__ = ("_names", "_notes")

    def __init__(self, notes: ReadingNotes, names: Collection[int | str]) -> None:
        self._notes, self._names = notes, frozenset(names)

    def __enter__(self) -> "Noted":
        self._notes.note(begun=self._names)
        return self

    def go_on(self, name: int | str) -> None:
        """Note that work moves on to another page, unless the page is noted."""
        if name not in self._names:
            self._notes.note(ended=self._names, begun=(name,))
            self._names = frozenset((name,))

    def end(self) -> None:
        """Note the good end of work on the noted pages."""
        self._notes.note(ended=self._names)
        self._names = frozenset()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, (KrakeError, OSError, GeneratorExit)):
            self.end()


class LargePages:
    """The waiting pages of a worker, in order of arrival.

    `write`: makes the rows of an answer, step by step: a step holds the loop for a moment only.

    Without an `aside` no page is read here, and links are written at once.
    """

    def __init__(
        self,
        aside: Aside | None,
        notes: ReadingNotes,
        write: Callable[[Handled, Reading, Pieces], Steps],
    ) -> None:
        self._aside = aside
        self._notes = notes
        self._write = write
        self._waiting: deque[Handled] = deque()
        self._read: tuple[Handled, bool] | None = None
        """The answer that is being read aside, and whether its links are."""
        self._steps: deque[Steps] = deque()
        """Of rows that are being written."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self.failed: BaseException | None = None
        """Error raised in a turn of the loop."""
        self._turn: asyncio.Handle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no page waits or is worked on, and no work failed."""
        return not (self._waiting or self._read or self._steps or self.failed)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Work in the turns of a loop from now on."""
        self._loop = loop
        if self._aside is not None:
            loop.add_reader(self._aside.fileno(), self._in_turn, True)

    def detach(self) -> None:
        """Detach from the loop, which ends.

        `drain` does waiting pages.
        """
        if self._loop is not None and self._aside is not None:
            self._loop.remove_reader(self._aside.fileno())
        if self._turn is not None:
            self._turn.cancel()
        self._loop = self._turn = None

    def read(self, taken: TakenUrl, fetched: Fetched, position: Position) -> None:
        """Have an answer read aside, and write the rows."""
        payload_of(fetched)  # found out while the body is there
        self._waiting.append((taken, fetched.without_body(), position))
        self._ask()
        self._go_on()

    def add(self, steps: Steps) -> None:
        """Go through steps, some in each turn of the loop."""
        self._steps.append(steps)
        self._go_on()

    def drain(self) -> None:
        """Finish all work now.

        Raises the error of a turn: rows are missing then, and no part may close.
        """
        while not self.is_idle:
            if self.failed is not None:
                raise self.failed
            if self._steps:
                self._step()
            else:
                self._hear()

    def withdraw(self) -> None:
        """Withdraw the open request of an ending worker.

        An unanswered request is not the page's fault, so the page counts as not begun.
        """
        if self._read is not None and self._read[1]:
            self._notes.note(ended=(self._read[0][0].position,))
        self._read = None
        for steps in self._steps:
            steps.close()
        self._steps.clear()

    def _go_on(self) -> None:
        if self._loop is None:
            self.drain()
        elif self._steps and self._turn is None:
            self._turn = self._loop.call_soon(self._in_turn, False)

    def _in_turn(self, is_heard: bool) -> None:
        """Do a step, or take an answer, when the loop calls.

        `drain` may have taken the answer meanwhile.
        """
        try:
            if not is_heard:
                self._turn = None
                if self._steps:
                    self._step()
            elif self._aside is not None and self._aside.is_ready():
                self._hear()
            self._go_on()
        except BaseException as error:
            self.failed = self.failed or error

    def _step(self) -> None:
        """Go through at least one step, for about `TURN_S`."""
        end_s = time.thread_time() + TURN_S
        while self._steps:
            if next(self._steps[0], self) is self:
                self._steps.popleft()
            if time.thread_time() >= end_s:
                return

    def _ask(self) -> None:
        """Begin with the next answer, if none is being read."""
        if self._read is None and self._waiting:
            assert self._aside is not None
            taken, fetched, position = handled = self._waiting.popleft()
            links = not self._notes.is_barred(taken.position)
            if links:
                self._notes.note(begun=(taken.position,))
                reached("page.noted")
            self._read = handled, links
            self._aside.ask(fetched, position, links=links)

    def _hear(self) -> None:
        """Take the result of the open request, and send the next."""
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
            self._waiting.appendleft(
                handled
            )  # again, or, if that was the last time, for the facts alone
        else:
            reading, pieces = answer or (UNREADABLE, iter(()))
            if links:
                self._notes.note(ended=(handled[0].position,))
            elif answer is not None:
                reading = barred(reading)
            self._steps.append(self._write(handled, reading, pieces))
        self._ask()
