"""The child processes that read pages, and how their answers come back in order."""

import json
import os
import select
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from crawl_lib.stopping import Work
from crawl_lib.text.child import LENGTH_BYTES, message
from crawl_lib.walls import clean_environment

MOST_ANSWER_BYTES = 256 << 20
_WALL_FACTOR = 12
"""The limit by the clock, as a multiple of the limit of CPU time: a machine may have much other work."""
_POLL_MS = 100
_READ_BYTES = 1 << 18


class ChildLimits(NamedTuple):
    """Limits of a child: bytes of memory, and seconds of CPU time a page; then the fields of `ExtractOptions`."""

    memory_bytes: int
    cpu_s: int
    max_bytes: int
    max_chars: int
    wet_text: str
    user_agent: str


class Child:
    """A process that reads a page at a time; a new process replaces a dead one. For use as a context."""

    def __init__(self, limits: ChildLimits, work: Work) -> None:
        self._limits, self._work = limits, work
        self._asked, self._is_new = b"", True
        self._start()

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *rest: object) -> None:
        self._end()

    def ask(self, question: bytes) -> None:
        """Send a page. Call `answer` before the next page."""
        self._asked = message(question)
        self._send()

    def answer(self) -> list[Any] | None:
        """Return the child's answer (`PageText`).

        None: the page killed a process that had read no other page. Raises StoppedError.
        """
        while True:
            was_new, self._is_new = self._is_new, False
            data = self._receive()
            if data is not None:
                return list(json.loads(data))
            self._end()
            self._start()
            if was_new:
                return None
            self._send()  # earlier pages may have left too little memory

    def _start(self) -> None:
        self._is_new = True
        arguments = map(str, (os.getpid(), *self._limits))
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "crawl_lib.text.child", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=clean_environment(os.environ),
        )

    def _end(self) -> None:
        self._process.kill()
        with suppress(BrokenPipeError), self._process:
            pass

    def _send(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the process is dead, and `answer` notices
            self._process.stdin.write(self._asked)
            self._process.stdin.flush()

    def _receive(self) -> bytes | None:
        """Return the child's answer.

        None: the child is dead, or sends no complete answer in time.
        """
        assert self._process.stdout is not None
        file, data, size = self._process.stdout.fileno(), bytearray(), LENGTH_BYTES
        poll = select.poll()
        poll.register(file, select.POLLIN)
        end_s = time.monotonic() + self._limits.cpu_s * _WALL_FACTOR
        while len(data) < size:
            if poll.poll(_POLL_MS):
                piece = os.read(file, min(_READ_BYTES, size - len(data)))
                data += piece
                if not piece:
                    return None
            elif time.monotonic() > end_s:
                return None
            self._work.go_on()
            if len(data) == size == LENGTH_BYTES:
                size += int.from_bytes(data, "big")
                if size > MOST_ANSWER_BYTES:
                    return None
        return bytes(data[LENGTH_BYTES:])


def answers(children: Sequence[Child], questions: Iterable[bytes]) -> Iterator[list[Any] | None]:
    """Return the answers of `children`, in the order of pages.

    The children take turns.
    """
    asked: deque[Child] = deque()
    for number, question in enumerate(questions):
        if len(asked) == len(children):
            yield asked.popleft().answer()
        child = children[number % len(children)]
        child.ask(question)
        asked.append(child)
    for child in asked:
        yield child.answer()
