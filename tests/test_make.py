"""`make` before there is anything: a slip in a variable, another Python, no network are one clear sentence each."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAKEFILE = (ROOT / "Makefile").read_text()
DEAD = "http://127.0.0.1:9/simple"
"""No one listens on the port of `discard`."""
SET_UP_FROM = ("Makefile", "requirements.lock", "requirements.build.lock", "pyproject.toml")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """As much of the project as `make setup` reads before it has downloaded anything."""
    for name in SET_UP_FROM:
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def make(project: Path, *words: str, **variables: str) -> tuple[int, list[str]]:
    """The exit code, and the lines but for those that make adds of itself."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PIP_", "UV_", "MAKE"))
    }
    done = subprocess.run(
        ["make", *words],
        cwd=project,
        env={**inherited, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    lines = [
        line
        for line in done.stdout.splitlines()
        if not re.match(r"make: \*\*\* \[|Setting up", line)
    ]
    return done.returncode, lines


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["crawl", "SEED=a.txt"],
            "make crawl knows no variable SEED, only CONFIG SEEDS ITERATIONS PYTHON",
        ),
        (
            ["crawl", "seeds=x", "CONFIG=y"],
            "make crawl knows no variable seeds, only CONFIG SEEDS ITERATIONS PYTHON",
        ),
        (["ui", "SEEDS=x"], "make ui knows no variable SEEDS, only CONFIG PYTHON"),
        (["CONFIG=x"], "make setup knows no variable CONFIG, only PYTHON"),
    ],
)
def test_a_variable_that_the_target_does_not_know_is_refused_before_anything_is_done(
    project: Path, words: list[str], says: str
) -> None:
    code, [line] = make(project, *words)
    assert code == 2
    assert re.fullmatch(rf"Makefile:\d+: \*\*\* {re.escape(says)}\.  Stop\.", line)
    assert not (project / ".venv").exists()


def test_each_target_knows_the_variables_that_its_recipe_uses() -> None:
    known = dict(re.findall(r"^VARIABLES_([\w-]+) := (.*)$", MAKEFILE, re.MULTILINE))
    recipes = re.findall(r"^([\w-]+):.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    options = {name for names in known.values() for name in names.split()}
    used = {
        target: options.intersection(re.findall(r"\$\(([A-Z_]+)\)", recipe))
        for target, recipe in recipes
    }
    assert {target: names for target, names in used.items() if names} == {
        target: set(names.split()) for target, names in known.items()
    }


@pytest.mark.parametrize("python", ["no-such-python", "OTHER"])
def test_another_python_is_one_sentence(project: Path, python: str) -> None:
    other = project / "python"
    other.write_text(
        f"#!/bin/sh\nexec {sys.executable} -c 'raise SystemExit(1)'\n"
    )  # as an older one answers
    other.chmod(0o755)
    python = python.replace("OTHER", str(other))
    code, [line] = make(project, "setup", f"PYTHON={python}")
    assert code == 2
    assert line.startswith(
        f"make: Krake needs Python 3.11 with venv and pip, which {python} is not: install it"
    )
    assert not (project / ".venv").exists()


def test_no_network_is_one_sentence(project: Path) -> None:
    python = Path(sys.base_prefix) / "bin" / "python3.11"
    dead = {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": DEAD, "PIP_RETRIES": "1"}
    code, [line] = make(project, "setup", f"PYTHON={python}", **dead)
    assert code == 2
    assert line.startswith(
        "make: packages cannot be downloaded, since their index does not answer: see to the network"
    )
    assert "NewConnectionError" in (project / ".venv" / "download.log").read_text()


@pytest.mark.parametrize("target", ["test", "test-cluster"])
def test_files_that_are_named_are_all_that_is_tested(target: str) -> None:
    code, lines = make(ROOT, "--dry-run", target, "PYTEST_ARGS=tests/cluster/test_storage.py -q")
    assert code == 0, lines
    [command] = [shlex.split(line) for line in lines if " -m pytest " in line]
    assert [word for word in command if word.startswith("tests/")] == [
        "tests/cluster/test_storage.py"
    ]


def test_the_search_page_shows_the_crawl_of_the_synthetic_web() -> None:
    code, lines = make(ROOT, "--dry-run", "search")
    assert code == 0, lines
    steps = [line.partition("--config ")[2] for line in lines if "config/demo.yml" in line]
    assert steps == [
        "config/demo.yml",
        "config/demo.yml index update",
        "config/demo.yml serve search",
    ]


def test_the_real_time_service_runs_over_the_synthetic_web() -> None:
    code, lines = make(ROOT, "--dry-run", "realtime")
    assert code == 0, lines
    assert shlex.split(lines[-1])[1:] == [".venv/bin/python", "-m", "demo", "realtime"]
