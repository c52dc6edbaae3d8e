"""A reader finds the lines that matter: from README by links, names and imports, in five openings of files.

Also that `docs/protocol.md` names the durable steps of the code, that the rooms are in the order that
`docs/architecture.md` gives them, and that no module needs itself.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROTOCOL = (ROOT / "docs" / "protocol.md").read_text()
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
MOST_OPENINGS = 5
OPTIONS = {"queue.local_dir"}

CHAINS = {
    "whether a link is followed": (
        [
            "README.md",
            "docs/urls.md",
            "crawl_lib/worker/discovery.py",
            "crawl_lib/urls/__init__.py",
        ],
        "crawl_lib/urls/filters.py",
        r"return True, ACCEPTED\n        return False, Rejection\.SCOPE",
    ),
    "what happens after a kill between fetch and commit": (
        ["README.md", "docs/protocol.md", "crawl_lib/node/take.py"],
        "crawl_lib/node/take.py",
        r"if \w+\.leftover\(\) is None:",
    ),
    "when a page is visited again": (
        ["README.md", "docs/recrawl.md", "crawl_lib/crawldb/update.py"],
        "sql/crawldb/after.sql",
        r"moment \+ least\(new_interval_s, always_s\) \* interval '1' second",
    ),
    "which text an inlink has": (
        ["README.md", "docs/links-and-ranks.md"],
        "crawl_lib/linkdb/links.py",
        r'batch\["anchor"\], 0, options\.max_anchor_chars',
    ),
}


def linked(file: Path) -> set[Path]:
    """The files that a text links to."""
    targets = re.findall(r"\]\(([^)\s#]+)", file.read_text())
    return {(file.parent / target).resolve() for target in targets if "://" not in target}


def imported(file: Path) -> set[Path]:
    """Find the modules and packages of the project that a module imports from, and the queries that it names."""
    names = [
        node.module
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom)
    ]
    stems = [ROOT / (name or "").replace(".", "/") for name in names]
    modules = {
        path
        for stem in stems
        for path in (stem.with_suffix(".py"), stem / "__init__.py")
        if path.is_file()
    }
    return modules | {
        ROOT / "sql" / f"{query}.sql"
        for query in re.findall(r'"([a-z]+/[a-z_]+)"', file.read_text())
    }


@pytest.mark.parametrize("what", CHAINS)
def test_a_line_that_matters_is_found_from_readme(what: str) -> None:
    before, last, line = CHAINS[what]
    files = list(dict.fromkeys([*before, last]))
    assert len(files) <= MOST_OPENINGS
    for name, following in itertools.pairwise(files):
        file = ROOT / name
        found = linked(file) if file.suffix == ".md" else imported(file)
        assert ROOT / following in found, f"{name} does not lead to {following}"
    assert len(re.findall(line, (ROOT / last).read_text())) == 1, (
        f"{last} has no longer one line {line}"
    )


BY_HAND = ("crawldir.", "curate.", "keys.", "repair.", "rounds.")
"""The first words of steps that commands by hand take."""


def steps_of_the_code() -> set[str]:
    """The names of all durable steps; those of exported files have the word `<file>` for the file."""
    texts = [file.read_text() for file in (ROOT / "crawl_lib").rglob("*.py")]
    found = {step for text in texts for step in re.findall(r'\breached\(f?"([\w.{}]+)"\)', text)}
    return {re.sub(r"\{\w+\}", "<file>", step) for step in found}


def steps_of_the_text() -> set[str]:
    """What `docs/protocol.md` has between backticks and begins as a step does; `x.*` are all that begin so."""
    rooms = "|".join(sorted({step.split(".")[0] for step in steps_of_the_code()}))
    return set(re.findall(rf"`((?:{rooms})\.[\w.<>*]+)`", PROTOCOL)) - OPTIONS


def expanded(names: set[str]) -> Iterator[str]:
    for name in names:
        if name.startswith(BY_HAND) and name.endswith(".*"):
            yield from (
                step for step in steps_of_the_code() if step.startswith(name.removesuffix("*"))
            )
        elif not name.endswith("*"):
            yield name


def test_the_protocol_names_every_durable_step_and_no_other() -> None:
    """One by one; those of commands by hand by their first two words."""
    code, text = steps_of_the_code(), set(expanded(steps_of_the_text()))
    assert len(code) > 60
    assert code - text == set(), "steps of the code that docs/protocol.md does not name"
    assert text - code == set(), "steps that docs/protocol.md names, and the code does not have"
    for name in steps_of_the_text():
        if name.endswith("*"):
            assert any(step.startswith(name.removesuffix("*")) for step in code), (
                f"no step is a {name}"
            )


def test_the_room_repair_alone_takes_the_steps_of_repairs() -> None:
    taking = {
        file.relative_to(ROOT / "crawl_lib").parts[0]
        for file in (ROOT / "crawl_lib").rglob("*.py")
        if 'reached("repair.' in file.read_text()
    }
    assert taking == {"repair"}


def rooms_in_order() -> list[str]:
    """Packages and modules of `crawl_lib`, as the map in `docs/architecture.md` lists them."""
    return re.findall(r"^\| `crawl_lib/(\w+)(?:/|\.py)` \|", ARCHITECTURE, re.MULTILINE)


@pytest.mark.parametrize("room", rooms_in_order())
def test_a_room_imports_only_rooms_after_it(room: str) -> None:
    rooms = rooms_in_order()
    later = set(rooms[rooms.index(room) :]) | {"crawl_lib"}
    folder, module = ROOT / "crawl_lib" / room, ROOT / "crawl_lib" / f"{room}.py"
    for file in folder.rglob("*.py") if folder.is_dir() else [module]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("crawl_lib."):
                assert str(node.module).split(".")[1] in later, (
                    f"{file.relative_to(ROOT)}:{node.lineno}"
                )


def needed(file: Path) -> set[Path]:
    """The modules of the library that a module imports, at its start or later, but for what only type checkers read."""
    tree = ast.parse(file.read_text())
    unread = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for line in node.body
        for inner in ast.walk(line)
    }
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and id(node) not in unread
    ]
    named = [
        ROOT / str(node.module).replace(".", "/") / one.name for node in found for one in node.names
    ]
    files = [
        inner.with_suffix(".py") if inner.with_suffix(".py").is_file() else inner.parent
        for inner in named
    ]
    modules = [file / "__init__.py" if file.is_dir() else file.with_suffix(".py") for file in files]
    return {module for module in modules if module.is_file()}


def test_no_module_needs_itself() -> None:
    """No circles, those of imports within functions neither."""
    needs = {file: needed(file) for file in (ROOT / "crawl_lib").rglob("*.py")}
    assert sum(map(len, needs.values())) > 1000
    while leaves := [file for file, others in needs.items() if not others & needs.keys()]:
        for leaf in leaves:
            del needs[leaf]
    assert not needs, "in a circle, or needing one: " + ", ".join(
        str(file.relative_to(ROOT)) for file in needs
    )
