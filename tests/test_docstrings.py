"""Every public name of `crawl_lib` says what it is, and which errors it raises, so that a caller knows who must act."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / "crawl_lib"
FILES = sorted(ROOT.rglob("*.py"))
Function = ast.FunctionDef | ast.AsyncFunctionDef


PACKAGES = [file for file in FILES if file.name == "__init__.py" and file.parent != ROOT]
LONGEST = 15


@cache
def trees() -> dict[Path, ast.Module]:
    """Read by the tests: each process of tests imports this module, and one runs it."""
    return {file: ast.parse(file.read_text()) for file in FILES}


@cache
def classes() -> dict[str, ast.ClassDef]:
    return {
        node.name: node
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }


def is_public(name: str) -> bool:
    return not name.startswith("_")


def public(
    body: list[ast.stmt], owner: ast.ClassDef | None = None
) -> Iterator[tuple[ast.ClassDef | None, ast.stmt]]:
    """Public classes and functions, and public methods with their class."""
    for node in body:
        if isinstance(node, ast.ClassDef | Function) and is_public(node.name):
            yield owner, node
            if isinstance(node, ast.ClassDef):
                yield from public(node.body, node)


def lineage(owner: ast.ClassDef | None) -> list[ast.ClassDef]:
    """A class and those it is made of, as far as they are ours."""
    if owner is None:
        return []
    bases = [base.id for base in owner.bases if isinstance(base, ast.Name)]
    return [owner, *(above for base in bases for above in lineage(classes().get(base)))]


def told(owner: ast.ClassDef | None, node: ast.ClassDef | Function) -> str:
    """The docstring; of a method also that of the method it stands for in the classes above."""
    same = [
        method
        for above in lineage(owner)
        for method in above.body
        if getattr(method, "name", "") == node.name
    ]
    return "\n".join(
        filter(None, (ast.get_docstring(one) for one in [node, *same] if isinstance(one, Function)))
    )


def raised(node: ast.AST) -> set[str]:
    """The names of the exceptions of our tree, and of ValueError and its like, that come after `raise`."""
    made = [one.exc for one in ast.walk(node) if isinstance(one, ast.Raise)]
    called = [exc.func if isinstance(exc, ast.Call) else exc for exc in made]
    return {name.id for name in called if isinstance(name, ast.Name) and name.id[0].isupper()}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_public_names_are_documented_with_what_they_raise(file: Path) -> None:
    assert ast.get_docstring(trees()[file]), "a module says what it is"
    missing = []
    for owner, node in public(trees()[file].body):
        assert isinstance(node, ast.ClassDef | Function)
        if isinstance(node, ast.ClassDef):
            if not ast.get_docstring(node):
                missing.append(f"{node.name}: no docstring")
            continue
        text = told(owner, node)
        whole = "\n".join([text, *(ast.get_docstring(above) or "" for above in lineage(owner))])
        if not text:
            missing.append(f"{node.name}: no docstring")
        missing += [
            f"{node.name}: raises {name}, and does not say so"
            for name in raised(node)
            if name not in whole
        ]
    assert missing == []


@pytest.mark.parametrize("file", PACKAGES, ids=lambda file: str(file.parent.relative_to(ROOT)))
def test_a_package_says_in_few_lines_how_data_flows(file: Path) -> None:
    """What is longer belongs to `docs/`."""
    assert len((ast.get_docstring(trees()[file]) or "").splitlines()) <= LONGEST


def test_the_library_tells_the_life_of_a_url_in_numbered_steps() -> None:
    text = ast.get_docstring(trees()[ROOT / "__init__.py"]) or ""
    assert re.findall(r"^(\d+)\. ", text, re.MULTILINE) == [str(number) for number in range(1, 17)]
