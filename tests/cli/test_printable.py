"""What strangers wrote reaches no terminal, log or error in a form that a terminal would obey."""

from __future__ import annotations

import ast
import io
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from crawl_lib.cli.common import print_counts, say
from crawl_lib.cli.tables import console
from crawl_lib.errors import DamagedFileError, KrakeError, printable
from crawl_lib.parse import decode_content, parse_head
from crawl_lib.worker import aside

CLI = Path(__file__).resolve().parents[2] / "crawl_lib/cli"
HOSTILE = "a\x1b]0;title\x07\x9b2J\r\u202eb\x7f"


def is_harmless(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


@given(st.text())
def test_no_error_has_what_a_terminal_would_obey(text: str) -> None:
    assert printable(text).isprintable()
    error = KrakeError(f"http://a.test/: {text}", text)
    assert is_harmless(str(error))
    assert len(error.lines) == 2


def test_a_coding_that_a_server_names_is_shown_harmlessly(
    capsys: pytest.CaptureFixture[str],
) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gz\x1b]0;x\x07ip\r\n\r\n"
    error = decode_content(parse_head(head), b"x", max_bytes=100).error
    assert error
    say(f"krake: {error}")
    assert is_harmless(capsys.readouterr().out)


def test_lines_tables_and_counts_are_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    say(HOSTILE)
    table = Table(HOSTILE, title=HOSTILE)
    table.add_row(HOSTILE)
    console().print(HOSTILE)
    console().print(table)
    print_counts(HOSTILE, {"url": HOSTILE, "more": [HOSTILE]})
    assert is_harmless(capsys.readouterr().out)


def test_what_a_page_raises_in_the_process_that_reads_it_is_logged_harmlessly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged = io.BytesIO()

    def fail(*_: object) -> None:
        raise DamagedFileError(HOSTILE) from ValueError(HOSTILE)

    monkeypatch.setattr(aside, "_read", fail)
    for name in ("set_limits", "refuse_calls"):
        monkeypatch.setattr(aside, name, lambda **_: None)
    monkeypatch.setattr(aside.signal, "alarm", lambda _: 0)
    monkeypatch.setattr(aside.os, "write", lambda number, data: logged.write(data))
    file = os.open(tmp_path / "answer", os.O_CREAT | os.O_WRONLY)
    assert aside._read_limited(["x", 0, 0, 0, "http://a.test/", "ok", True], None, file, 0) == 1  # type: ignore[arg-type]
    assert b"a.test" in logged.getvalue()
    assert is_harmless(logged.getvalue().decode())


@pytest.mark.parametrize("file", sorted(CLI.glob("*.py")), ids=lambda file: file.name)
def test_commands_print_by_say_alone(file: Path) -> None:
    names = [
        node.id for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Name)
    ]
    assert names.count("print") == (file.name == "common.py")


def test_results_for_programs_are_harmless_too(capsys: pytest.CaptureFixture[str]) -> None:
    say(json.dumps({"url": HOSTILE}))
    assert is_harmless(capsys.readouterr().out)
