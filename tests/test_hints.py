"""Hints name commands that exist where people read them: an installed wheel has no Makefile."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawl_lib.version import in_checkout
from tests.pythons import ROOT

OF_MAKE = {"run.py", "ui.py", "remote.py", "compose_env.py"}
"""Modules of the plugin that make alone starts."""
MAKE = re.compile(r"\bmake (crawl|ui|setup|cluster|test)\b")
FILES = [
    *(ROOT / "crawl_lib").rglob("*.py"),
    *(path for path in (ROOT / "plugins").rglob("*.py") if path.name not in OF_MAKE),
    *(ROOT / "dags").glob("*.py"),
]


def texts(tree: ast.Module) -> Iterator[str]:
    """Yield the texts of a module that are no docstrings."""
    docs = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docs:
            yield node.value


def test_who_names_make_asks_whether_this_is_a_checkout() -> None:
    for path in FILES:
        source = path.read_text()
        if any(MAKE.search(text) for text in texts(ast.parse(source))):
            assert "in_checkout()" in source, path


@pytest.mark.parametrize("is_checkout", [True, False])
def test_a_checkout_has_a_makefile(is_checkout: bool, tmp_path: Path) -> None:
    if is_checkout:
        (tmp_path / "Makefile").write_text("")
    assert in_checkout(tmp_path / "crawl_lib") is is_checkout
