"""`docs/security.md`: each promise names tests, and each test that is named is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "security.md").read_text()
[PROMISES] = re.findall(r"<!-- promises:begin -->\n(.*?)<!-- promises:end -->", TEXT, re.DOTALL)
NAMED = sorted(set(re.findall(r"`(tests/[^`]*)`", TEXT)))


def rows() -> list[tuple[str, str]]:
    """Promise and tests of each row."""
    found = re.findall(r"^\| (.*?) \| (.*) \|$", PROMISES, re.MULTILINE)
    return [row for row in found if row[0] != "promise"]


def functions_of(file: Path) -> set[str]:
    """The names of the test functions and methods in a file."""
    tree = ast.parse(file.read_text())
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


@pytest.mark.parametrize(("promise", "tests"), rows())
def test_each_promise_has_a_test_that_tries_to_break_it(promise: str, tests: str) -> None:
    assert re.fullmatch(r"`tests/[\w/]+\.py::test_\w+`(, `tests/[\w/]+\.py::test_\w+`)*", tests), (
        promise
    )


@pytest.mark.parametrize("name", NAMED)
def test_a_test_that_is_named_is_there(name: str) -> None:
    file, _, function = name.partition("::")
    assert (ROOT / file).is_file(), f"docs/security.md names {file}, which is not there"
    assert function in functions_of(ROOT / file), (
        f"docs/security.md names {function}, which is not in {file}"
    )


def test_the_rooms_at_the_edge_are_all_among_them() -> None:
    files = {name.partition("::")[0] for name in NAMED}
    assert {Path(file).parts[1] for file in files} >= {
        "fetch",
        "parse",
        "segment",
        "seeds",
        "keys",
        "worker",
        "e2e",
    }
    assert len(rows()) > 25
