"""Programs on a pseudo-terminal, and the screen that a person sees there."""

from __future__ import annotations

import codecs
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.pythons import ROOT

SIZES = [(24, 80), (50, 200)]
"""Rows and columns of the terminals that tests use."""
KRAKE = "import sys; from crawl_lib.cli import main; sys.exit(main(sys.argv[1:]))"
"""The command `krake`, as a Python program."""
_TOKEN = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")
_UNFINISHED = re.compile(r"\x1b(\[[?\d;]*)?$")


@dataclass
class Screen:
    """A terminal that knows what rich and Krake send. `lines`: all lines since it began, with what scrolled away."""

    rows: int
    columns: int
    lines: list[str] = field(default_factory=lambda: [""])
    cursor_is_shown: bool = True
    is_alternate: bool = False
    _rest: str = ""
    _row: int = 0
    _column: int = 0
    _kept: tuple[list[str], int, int] = ([], 0, 0)

    def feed(self, text: str) -> None:
        """Take what a program writes, in pieces of any size."""
        text, self._rest = self._rest + text, ""
        if unfinished := _UNFINISHED.search(text):
            text, self._rest = text[: unfinished.start()], unfinished[0]
        for arguments, command, control, printed in _TOKEN.findall(text):
            if command:
                self._obey(arguments, command)
            elif control == "\n":
                self._down()
            elif control:
                self._column = 0
            else:
                self._print(printed)

    @property
    def shown(self) -> list[str]:
        """The lines within the terminal's height."""
        return [line.rstrip() for line in self.lines[self._top :]]

    @property
    def _top(self) -> int:
        return max(0, len(self.lines) - self.rows)

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self.lines):
            self.lines.append("")

    def _print(self, text: str) -> None:
        for character in text:
            if self._column == self.columns:
                self._column = 0
                self._down()
            line = self.lines[self._row].ljust(self._column)
            self.lines[self._row] = f"{line[: self._column]}{character}{line[self._column + 1 :]}"
            self._column += 1

    def _obey(self, arguments: str, command: str) -> None:
        if command == "A":
            self._row = max(self._top, self._row - int(arguments or 1))
        elif command == "K":
            self.lines[self._row] = (
                "" if arguments == "2" else self.lines[self._row][: self._column]
            )
        elif command == "H":
            self._row, self._column = self._top, 0
        elif command == "J":
            keep = self._top if arguments == "2" else self._row + 1
            self.lines[keep:] = [""] if arguments == "2" else []
            self._row = min(self._row, len(self.lines) - 1)
        elif arguments == "?25":
            self.cursor_is_shown = command == "h"
        elif arguments == "?1049":
            self._switch(alternate=command == "h")

    def _switch(self, *, alternate: bool) -> None:
        self.is_alternate = alternate
        if alternate:
            self._kept = (self.lines, self._row, self._column)
            self.lines, self._row, self._column = [""], 0, 0
        else:
            self.lines, self._row, self._column = self._kept


@dataclass
class Terminal:
    """A program on a terminal of its own; `written`: all that it wrote there so far."""

    process: subprocess.Popen[bytes]
    master: int
    screen: Screen
    written: str = ""
    decoder: codecs.IncrementalDecoder = field(
        default_factory=codecs.getincrementaldecoder("utf-8")
    )

    def until(self, is_there: Callable[[Screen], bool]) -> Screen:
        """Read until the screen shows something, or the program has ended; returns the screen."""
        while not is_there(self.screen):
            try:
                data = os.read(self.master, 1 << 16)
            except OSError:  # EIO: nobody has the terminal open any more
                break
            text = self.decoder.decode(data)
            self.written += text
            self.screen.feed(text)
        return self.screen

    def finish(self) -> int:
        """Read to the end; returns the exit code."""
        self.until(lambda screen: False)
        os.close(self.master)
        return self.process.wait()

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.process.send_signal(signal.SIGINT)


def run_in_terminal(
    program: str,
    arguments: Sequence[str | Path] = (),
    size: tuple[int, int] = SIZES[0],
    cwd: Path = ROOT,
) -> Terminal:
    """Start a Python program whose input, output and errors are a terminal. `size`: its rows and columns."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, size)
    names = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    path = os.pathsep.join((str(ROOT), str(ROOT / "plugins")))
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=cwd,
        start_new_session=True,
        env={**environment, "TERM": "xterm-256color", "PYTHONPATH": path},
    )
    os.close(slave)
    return Terminal(process, master, Screen(*size))
