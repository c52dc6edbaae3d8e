"""The walls of the house: `crawl_lib` without Airflow, its public names, and lists that are in two places."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import crawl_lib
from crawl_lib import errors, states
from crawl_lib.errors import KrakeError
from crawl_lib.states import KEY_STATE_OF_OUTCOME, WITH_RESPONSE, KeyState, Outcome
from crawl_lib.urls import rejections

ROOT = Path(__file__).resolve().parents[1]

WITHOUT_AIRFLOW = """
import sys

class NoAirflow:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("airflow", "krake_airflow"):
            raise ModuleNotFoundError(f"the library asks for {name}")

sys.meta_path.insert(0, NoAirflow())
"""

IMPORT_ALL = """
import importlib, importlib.util, pkgutil
import crawl_lib

EXTRAS = {"crawl_lib.engine.spark": "pyspark"}  # modules that need an extra, which need not be there

def fail(name):
    raise ImportError(name)

found = [module.name for module in pkgutil.walk_packages(crawl_lib.__path__, "crawl_lib.", onerror=fail)]
for name in found:
    if not name.endswith("__main__") and (name not in EXTRAS or importlib.util.find_spec(EXTRAS[name])):
        importlib.import_module(name)
print("\\n".join(found))
"""

LOOK_AT_SIDE_EFFECTS = """
import logging, os, signal, socket, sys, threading

def state():
    loggers = [logging.root, *(one for one in logging.Logger.manager.loggerDict.values() if hasattr(one, "handlers"))]
    handlers = {one.name: list(one.handlers) for one in loggers}
    kinds = {name: {type(one).__name__ for one in found} - {"NullHandler"} for name, found in handlers.items()}
    handlers = {name: found for name, found in handlers.items() if kinds[name]}
    signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    return handlers, logging.root.level, signals, threading.active_count(), os.getcwd(), dict(os.environ)

seen = []
writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT

def hook(event, arguments):
    if event.startswith(("socket.", "subprocess.", "os.system", "os.mkdir", "os.rename", "os.remove")):
        seen.append((event, str(arguments)))
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & writing:
        seen.append((event, str(arguments)))

asked = []

class Watched(type(os.environ)):
    def __getitem__(self, key):
        if "KRAKE" in (key if isinstance(key, str) else key.decode()):
            asked.append(key)
        return super().__getitem__(key)

before = state()
os.environ.__class__ = Watched
os.environ.get("KRAKE_SELF_TEST")
assert asked, "the watch on the environment does not work"
asked.clear()
sys.dont_write_bytecode = True
sys.addaudithook(hook)
import crawl_lib.cli.parser, crawl_lib.stages
print("\\n".join(map(str, seen + asked)))
assert state() == before, (before, state())
"""


def run(*code: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(code)],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "KRAKE_CONFIG_PATH": "/there/is/no/such.yml"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def source_modules() -> set[str]:
    files = (ROOT / "crawl_lib").rglob("*.py")
    names = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for file in files
    }
    return names - {"crawl_lib"}


def test_every_module_of_the_library_is_imported_where_there_is_no_airflow(tmp_path: Path) -> None:
    assert set(run(WITHOUT_AIRFLOW, IMPORT_ALL, cwd=tmp_path).split()) == source_modules()


def test_the_blocker_of_that_test_blocks(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="the library asks for airflow"):
        run(WITHOUT_AIRFLOW, "import airflow.sdk", cwd=tmp_path)


def test_importing_opens_no_socket_reads_no_config_and_leaves_no_trace(tmp_path: Path) -> None:
    """No file written, no process, thread, signal handler or logging handler, no `KRAKE_...` variable asked for."""
    assert run(LOOK_AT_SIDE_EFFECTS, cwd=tmp_path).split() == []
    assert list(tmp_path.iterdir()) == []


def test_importing_loads_no_pandas(tmp_path: Path) -> None:
    """Arrow loads it at its first array, which takes each program a third of a second."""
    assert (
        run(IMPORT_ALL, "import sys; print('pandas' in sys.modules)", cwd=tmp_path).split()[-1]
        == "False"
    )


def test_the_public_names_are_these() -> None:
    """A name that is added or goes is a change of the library's face, and belongs into this list."""
    assert crawl_lib.__all__ == [
        "Config",
        "Fetched",
        "KeyState",
        "KrakeError",
        "Outcome",
        "QueuedUrl",
        "Secrets",
        "Stores",
        "TakenUrl",
        "__version__",
        "from_mapping",
        "load_config",
        "open_stores",
    ]


@pytest.mark.parametrize("name", crawl_lib.__all__)
def test_a_public_name_is_there_and_documented(name: str) -> None:
    value = getattr(crawl_lib, name)
    assert name == "__version__" or inspect.getdoc(value)


def test_public_names_are_sorted() -> None:
    assert crawl_lib.__all__ == sorted(set(crawl_lib.__all__))


def member_docs(name: str, module: ModuleType = states) -> dict[str, str]:
    """The text below each member of an enumeration, by member name."""
    tree = ast.parse(inspect.getsource(module))
    [found] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    docs = {}
    for assigned, text in zip(found.body, found.body[1:], strict=False):
        if isinstance(assigned, ast.Assign) and isinstance(text, ast.Expr):
            docs[assigned.targets[0].id] = " ".join(text.value.value.split())
    return docs


def outcome_rows() -> dict[str, tuple[str, str]]:
    rows = re.findall(
        r"^\| `(\w+)` \| ([^|]*) \| (.*) \|$",
        (ROOT / "docs" / "outcomes.md").read_text(),
        re.MULTILINE,
    )
    assert len({row[0] for row in rows}) == len(rows)
    return {row[0]: row[1:] for row in rows}


def test_the_documented_outcomes_are_those_of_the_code_in_its_words_and_order() -> None:
    words = {outcome.value: member_docs("Outcome")[outcome.name] for outcome in Outcome}
    assert {outcome: row[1] for outcome, row in outcome_rows().items()} == words
    assert list(outcome_rows()) == [str(outcome) for outcome in Outcome]


def test_the_documented_rejections_are_those_of_the_code_in_its_words_and_order() -> None:
    text = (ROOT / "docs" / "outcomes.md").read_text()
    docs = member_docs("Rejection", rejections)
    words = [(str(rejection), docs[rejection.name]) for rejection in rejections.Rejection]
    assert re.findall(r"^\| `(\w+)` \| ([^|]*) \|$", text, re.MULTILINE) == words


@pytest.mark.parametrize("outcome", Outcome)
def test_an_outcome_says_what_the_warc_has_and_what_the_key_becomes(outcome: Outcome) -> None:
    main = "revisit" if outcome is Outcome.NOT_MODIFIED else "response"
    holds = f"request, {main}, metadata" if outcome in WITH_RESPONSE else "metadata"
    assert outcome_rows()[outcome][0] == holds
    assert KEY_STATE_OF_OUTCOME[outcome] in set(KeyState) - {KeyState.QUEUED}


def test_every_key_state_has_its_line_of_meaning() -> None:
    assert set(member_docs("KeyState")) == {state.name for state in KeyState}


def drawn_tree() -> dict[str, str]:
    """Child -> parent, as the docstring of `errors` draws them."""
    parents, above = {}, {}
    for indent, name in re.findall(
        r"^    ((?:\|   |    )*(?:[|`]-- )?)(\w+Error)\b", errors.__doc__ or "", re.MULTILINE
    ):
        depth = len(indent) // 4
        above[depth] = name
        parents[name] = above[depth - 1] if depth else "Exception"
    return parents


def test_the_drawn_tree_of_errors_is_the_tree() -> None:
    classes = [
        value
        for _, value in inspect.getmembers(errors, inspect.isclass)
        if issubclass(value, KrakeError)
    ]
    assert drawn_tree() == {one.__name__: one.__mro__[1].__name__ for one in classes}


def test_every_drawn_error_says_who_must_act() -> None:
    for line in (errors.__doc__ or "").splitlines():
        if re.match(r"    [|`]", line):
            assert re.search(r"-- \w+Error +\S.{10}", line), line


def test_a_class_name_belongs_to_one_module() -> None:
    modules: dict[str, list[str]] = {}
    for path in sorted((ROOT / "crawl_lib").rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                modules.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in modules.items() if len(paths) > 1} == {}
