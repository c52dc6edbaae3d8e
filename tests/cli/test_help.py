"""Help has colours on a terminal and the same words without one; shells can complete `krake`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pythons import ROOT
from tests.screens import KRAKE, SIZES, run_in_terminal

STYLE = re.compile(r"\x1b\[[\d;]*m")


@pytest.mark.parametrize("words", [["--help"], ["import", "--help"], ["status", "--bad"]])
@pytest.mark.parametrize("size", SIZES)
def test_help_is_coloured_and_has_the_same_words(words: list[str], size: tuple[int, int]) -> None:
    """Brackets, as in *.warc[.gz], are no markup."""
    terminal = run_in_terminal(KRAKE, words, size)
    code = terminal.finish()
    environment = {**os.environ, "COLUMNS": str(size[1])}
    command = [sys.executable, "-c", KRAKE, *words]
    piped = subprocess.run(command, env=environment, cwd=ROOT, text=True, capture_output=True)
    assert piped.returncode == code
    assert STYLE.search(terminal.written)
    shown = STYLE.sub("", terminal.written)
    assert "".join(shown.split()) == "".join((piped.stdout + piped.stderr).split()), (
        "lines may end elsewhere"
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("krake segment ", {"list", "get", "dump", "drop", "compact"}),
        ("krake stat", {"status"}),
        ("krake status --w", {"--watch"}),
        ("krake --config k", {"krake.yml"}),
        ("krake fsck --repair --only q", {"queue"}),
    ],
)
def test_a_shell_completes(line: str, words: set[str], tmp_path: Path) -> None:
    (tmp_path / "krake.yml").touch()
    found = tmp_path / ".found"
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(found),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    environment = {**os.environ, **asked, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", KRAKE], env=environment, cwd=tmp_path, check=False)
    assert {word.strip() for word in found.read_text().split("\013")} - {"-h", "--help"} == words


def test_a_completion_loads_nothing_heavy() -> None:
    """A person waits for it: numpy, Arrow and rich take a second."""
    program = "import sys; from crawl_lib.cli.parser import build_parser; build_parser(); print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, text=True, capture_output=True, check=True
    )
    assert not {"rich", "numpy", "pyarrow", "crawl_lib.cli.common"} & set(loaded.stdout.split())
