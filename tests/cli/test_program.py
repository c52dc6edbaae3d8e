"""The installed program, in a process of its own."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from crawl_lib.cli import main
from crawl_lib.cli.common import print_counts
from crawl_lib.cli.parser import _COMMANDS, build_parser, command_of
from crawl_lib.version import VERSION

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(sys.executable).with_name("krake")


def test_the_program_shows_its_commands_and_needs_no_config_for_that() -> None:
    if not PROGRAM.exists():
        pytest.skip("krake is not installed next to this Python: make setup does it")
    shown = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, cwd="/")
    assert shown.returncode == 0
    for command in (
        "inject",
        "crawl",
        "settle",
        "export",
        "graph",
        "fsck",
        "status",
        "show",
        "keys",
        "nodes",
    ):
        assert f"\n    {command} " in shown.stdout
    assert (
        subprocess.run([PROGRAM, "--version"], capture_output=True, text=True).stdout
        == f"krake {VERSION}\n"
    )


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and those of all commands below it."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from commands(command)


def test_the_help_of_each_command_says_what_it_does_and_what_each_argument_is() -> None:
    found = list(commands(build_parser()))
    assert len(found) > 25
    for command in found:
        assert command.description, command.prog
        for action in command._actions:
            is_list_of_commands = isinstance(action, argparse._SubParsersAction)
            assert action.help or is_list_of_commands, f"{command.prog}: {action.dest}"


def test_the_function_of_each_command_is_there() -> None:
    for _, function, _, _ in _COMMANDS:
        module, _, name = function.partition(".")
        assert callable(getattr(import_module(f"crawl_lib.cli.{module}"), name)), function


def test_a_result_is_shown_to_its_last_digit(capsys: pytest.CaptureFixture[str]) -> None:
    print_counts("web graph of x", {"nodes": 1234, "average_degree": 0.043})
    assert "1,234" in (shown := capsys.readouterr().out)
    assert "0.043" in shown


def test_tables_are_drawn_on_terminals_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe gets a line for each value, with nothing around the value; and its command does not load rich."""
    counts = {"nodes": 1234, "by_state": {"queued": 5}, "at": ["a\nb", "c"], "none": []}
    print_counts("graph", counts)
    assert (
        capsys.readouterr().out
        == "graph\n  nodes            1,234\n  by_state.queued  5\n  at               a\\x0ab\n  at               c\n"
    )
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_counts("graph", counts)
    assert "│ by_state.queued │ 5      │" in capsys.readouterr().out
    program = (
        "import sys; import crawl_lib.cli.crawling, crawl_lib.cli.segments; print(*sys.modules)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, text=True, capture_output=True, check=True
    )
    assert "rich" not in loaded.stdout.split()


def test_a_config_behind_the_command_is_told_where_it_belongs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args(["status", "--config", "mine.yml"])
    assert ended.value.code == 2
    assert "krake --config FILE COMMAND" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        build_parser().parse_args(["status", "--fast"])
    assert "--config FILE COMMAND" not in capsys.readouterr().err


def test_an_error_is_one_line_and_no_traceback(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "import sys; from crawl_lib.cli import main; sys.exit(main(sys.argv[1:]))",
    ]
    done = subprocess.run(
        [*command, "--config", tmp_path / "none.yml", "status"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"krake: {tmp_path}/none.yml: ")
    assert done.stderr.count("\n") == 1


INTERRUPTED = """
import os, sys

FIRST = {"crawl_lib", *(f"crawl_lib.{name}" for name in ("lazy", "version", "cli", "exiting", "signals"))}
"What is loaded before signals are handled, next to Python's own modules."

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name not in FIRST and name.partition(".")[0] not in sys.stdlib_module_names:
            os.kill(os.getpid(), int(sys.argv[1]))

sys.meta_path.insert(0, Interrupt())
from crawl_lib.cli import main
sys.exit(main(["config"]))
"""
"""`krake`, which gets a signal when it begins to load what takes its time."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_first_second_ends_it_without_a_traceback(number: signal.Signals) -> None:
    command = [sys.executable, "-c", INTERRUPTED, str(int(number))]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", "")


def test_a_reader_who_goes_away_early_causes_no_traceback(tmp_path: Path) -> None:
    """`krake status | head -1`: what cannot be written any more is no one's error."""
    config = tmp_path / "krake.yml"
    config.write_text("servers: [node-a]\ndfs_primary: dfs\nkey_storage: {servers: [./0.sqlite]}\n")
    code = "import sys; from crawl_lib.cli import main; sys.exit(main(['--config', sys.argv[1], 'keys', 'create']))"
    with subprocess.Popen(
        [sys.executable, "-c", code, config],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["stauts"], "the nearest choice is status (all: krake --help)"),
        (["segment", "lst"], "the nearest choice is list (all: krake segment --help)"),
        (["linker"], "`linker` is `krake graph link`"),
        (
            ["keys", "dump", "file"],
            "is gone: keys are rebuilt from segments and queues; run `krake fsck --repair --fast",
        ),
        (
            ["keys", "load", "file"],
            "is gone: keys are rebuilt from segments and queues; run `krake fsck --repair --fast",
        ),
        (["nothing-like-it"], "(choose from 'init', 'inject', "),
    ],
)
def test_a_command_that_is_mistyped_names_the_nearest_one(
    capsys: pytest.CaptureFixture[str], words: list[str], hint: str
) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(words)
    assert hint in capsys.readouterr().err


def test_the_parser_of_one_command_reads_it_as_the_whole_parser_does() -> None:
    for words, _, _, options in _COMMANDS:
        line = ["--config", "status", *words.split()]
        for option, settings in options:
            if settings.get(
                "required", option[0] != "-" and settings.get("nargs") not in {"*", "?"}
            ):
                line += [option] * (option[0] == "-") + [
                    next(
                        iter(
                            settings.get(
                                "choices", ["127.0.0.1:1" if option == "--listen" else "1"]
                            )
                        )
                    )
                ]
        whole, alone = (
            vars(build_parser(first).parse_args(line)) for first in ("", command_of(line))
        )
        assert whole.keys() == alone.keys()
        assert all(whole[name] == alone[name] for name in whole.keys() - {"run"}), words


@pytest.mark.parametrize(
    ("line", "first"),
    [
        ("crawl --iterations 2", "crawl"),
        ("--config crawl inject x", "inject"),
        ("--config=crawl graph link", "graph"),
        ("", ""),
        ("--config", ""),
        ("--help crawl", ""),
        ("--conf x crawl", ""),
        ("nonsense crawl", "nonsense"),
    ],
)
def test_what_is_no_command_is_left_to_the_whole_parser(line: str, first: str) -> None:
    assert command_of(line.split()) == first


def test_an_unknown_command_is_told_of_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["crwal", "status"])
    assert "the nearest choice is crawl" in capsys.readouterr().err
