"""The scanner as a program of its own, compiled with the sanitizers of addresses and of undefined behaviour."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

from crawl_lib.parse.native.compile import HERE, build

SANITIZERS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


class Answer(NamedTuple):
    """What the program said of a page."""

    status: int
    data: bytes
    links_cut: int
    steps: int


def compiled(folder: Path, *flags: str) -> Path:
    """Compile the program into `folder`; skips the test where there is no gcc."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    target = folder / "driver"
    build(["gcc"], target, "-Werror", f"-I{HERE}", str(Path(__file__).with_suffix(".c")), *flags)
    return target


class Driver:
    """One run of the program, for many pages."""

    def __init__(self, program: Path) -> None:
        self._program = program

    def tokens(self, pages: Iterable[tuple[bytes, int, str]]) -> list[Answer]:
        """The tokens of pages; each with the state it begins in, and the name of the last start tag."""
        return self._run(
            b"tokens %d %d %b\n" % (len(page), state, (name or "-").encode()) + page
            for page, state, name in pages
        )

    def links(self, pages: Iterable[bytes], max_links: int = 50_000, how: int = 0) -> list[Answer]:
        """Return the links of pages. `how`: as `scan` has it."""
        return self._run(b"links %d %d %d\n" % (len(page), max_links, how) + page for page in pages)

    def css(self, sheets: Iterable[bytes], how: int, most: int = 50_000) -> list[Answer]:
        """Return the requisites of style sheets. `how`: as `scan_css` has it."""
        return self._run(b"css %d %d %d\n" % (len(sheet), most, how) + sheet for sheet in sheets)

    def rows(self, pages: Iterable[tuple[bytes, int, str]]) -> list[Answer]:
        """Return the rows of pages, one after the other; each has links as bytes, `how` of rows.h, and a folder."""
        return self._run(
            b"rows %d %d %b\n" % (len(links), how, folder.encode()) + links
            for links, how, folder in pages
        )

    def _run(self, pages: Iterable[bytes]) -> list[Answer]:
        done = subprocess.run([self._program], input=b"".join(pages), capture_output=True)
        assert done.returncode == 0, done.stderr.decode()[-3000:]
        rest, answers = done.stdout, []
        place = 0
        while place < len(rest):
            end = rest.index(b"\n", place)
            status, length, cut, steps = map(int, rest[place:end].split())
            place = end + 1 + length
            answers.append(Answer(status, rest[end + 1 : place], cut, steps))
        return answers
