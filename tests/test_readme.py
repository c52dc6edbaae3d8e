"""What README and the other texts say is true: commands parse, links lead somewhere, the examples run."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from crawl_lib.cli.parser import build_parser
from crawl_lib.config import Config, from_mapping
from demo import Serving, SynthWeb
from tests.test_walls import WITHOUT_AIRFLOW

ROOT = Path(__file__).resolve().parents[1]
TEXTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
PAGES = sorted((ROOT / "docs").glob("*.md"))
MAKEFILE = (ROOT / "Makefile").read_text()


def fences(text: str, language: str) -> list[str]:
    """The code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands(program: str) -> Iterator[tuple[str, str]]:
    """Every command line of a program in the texts, in a code block or between backticks, with its file."""
    for file in TEXTS:
        text = file.read_text()
        blocks = [*fences(text, "sh"), *re.findall(r"(?:^    \S.*\n)+", text, re.MULTILINE)]
        lines = [line.split("#")[0] for block in blocks for line in block.splitlines()]
        plain = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        lines += re.findall(r"`([^`\n]+)`", plain)
        for line in lines:
            for command in line.split("&&"):
                if command.strip().startswith(f"{program} "):
                    yield file.name, command.strip()


def parsed(command: str) -> bool:
    try:
        arguments = build_parser().parse_args(shlex.split(command)[1:])
    except SystemExit as ended:
        return ended.code == 0  # --help
    return callable(arguments.run)


KRAKE_COMMANDS = sorted(set(commands("krake")))
MAKE_COMMANDS = sorted(set(commands("make")))


def test_the_texts_are_read() -> None:
    assert len(KRAKE_COMMANDS) >= 14
    assert {command.split()[1] for _, command in MAKE_COMMANDS} >= {
        "setup",
        "crawl",
        "ui",
        "test",
        "check",
        "bench",
    }


@pytest.mark.parametrize(("file", "command"), KRAKE_COMMANDS)
def test_a_command_of_the_texts_parses(file: str, command: str) -> None:
    # What means one of several, such as [--json], is no command line.
    assert "[" not in command, f"{file}: write the command as it is typed"
    assert parsed(command), f"{file}: {command}"


@pytest.mark.parametrize(
    "command", ["krake seed x", "krake crawl --rounds 3", "krake queue repair"]
)
def test_a_wrong_command_does_not(command: str) -> None:
    assert not parsed(command)


def named_in_code() -> list[str]:
    """Commands between backticks in the messages and docstrings of the sources."""
    found: set[str] = set()
    for folder in ("crawl_lib", "plugins", "dags", "config", "sql"):
        for file in (ROOT / folder).rglob("*"):
            if file.suffix in {".py", ".yml", ".sql"}:
                found.update(re.findall(r"`(krake [a-z][^`\n]*)`", file.read_text()))
    return sorted(found)


@pytest.mark.parametrize("command", named_in_code())
def test_a_command_that_a_message_names_is_there(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its words are commands, its options are options: they are in the help text of the command."""
    words = itertools.takewhile(lambda word: not word.startswith("-"), command.split()[1:])
    names = [word for word in words if re.fullmatch(r"[a-z]+(\|[a-z]+)*", word)]
    for path in _alternatives(names):
        with pytest.raises(SystemExit) as ended:
            build_parser().parse_args([*path, "--help"])
        shown = capsys.readouterr().out
        assert ended.value.code == 0
        assert shown.startswith(f"usage: krake {' '.join(path)} ")
        for option in re.findall(r"--[a-z-]+", command):
            assert option in shown


def _alternatives(names: list[str]) -> list[list[str]]:
    paths: list[list[str]] = [[]]
    for name in names:
        paths = [[*path, one] for path in paths for one in name.split("|")]
    return paths


@pytest.mark.parametrize(("file", "command"), MAKE_COMMANDS)
def test_a_make_target_and_its_variables_are_there(file: str, command: str) -> None:
    targets = set(re.findall(r"^([\w-]+):", MAKEFILE, re.MULTILINE))
    words = shlex.split(command)[1:]
    variables = [word.partition("=")[0] for word in words if "=" in word]
    assert {word for word in words if "=" not in word} <= targets, file
    for name in [*variables, *re.findall(r"\b([A-Z]+_?[A-Z]+)=", command)]:
        assert f"$({name})" in MAKEFILE, file


def test_every_make_target_is_phony_and_explained() -> None:
    targets = set(re.findall(r"^([\w-]+):", MAKEFILE, re.MULTILINE))
    [phony] = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert set(phony.split()) == targets
    assert targets - {"clean"} <= {command.split()[1] for _, command in MAKE_COMMANDS}


def anchors(text: str) -> set[str]:
    """What GitHub makes of the headings."""
    plain = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", plain, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links() -> list[tuple[str, str]]:
    return [
        (str(file.relative_to(ROOT)), target)
        for file in TEXTS
        for target in re.findall(r"\]\(([^)\s]+)\)", file.read_text())
        if "://" not in target
    ]


@pytest.mark.parametrize(("file", "target"), links())
def test_a_link_leads_to_a_file_of_the_project_and_to_a_heading(file: str, target: str) -> None:
    path, _, anchor = target.partition("#")
    there = ((ROOT / file).parent / path).resolve() if path else ROOT / file
    assert there.is_relative_to(ROOT)
    assert there.exists()
    assert not anchor or anchor in anchors(there.read_text())


def test_paths_between_backticks_are_there() -> None:
    """Of CONTRIBUTING: each names a room of the house."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for path in re.findall(r"`([\w./-]+/[\w./-]*)`", text):
        assert (ROOT / path).exists(), path


def test_readme_is_short_and_leads_to_every_page() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    for page in PAGES:
        assert f"](docs/{page.name}" in text, page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_begins_with_its_question_and_ends_with_what_comes_next(page: Path) -> None:
    title, _, question, *_, last = page.read_text().splitlines()
    assert title.startswith("# ")
    assert re.fullmatch(r"\*[^*]+\?\*", question), "the question that the page answers"
    assert re.match(r"Next: \[", last), "links to what the reader needs next"


def first_lines() -> dict[str, str]:
    """The first line of the docstring of each package and module at the top, by the path that the map has."""
    files = {
        f"crawl_lib/{file.parent.name}/": file for file in ROOT.glob("crawl_lib/*/__init__.py")
    }
    files |= {
        f"crawl_lib/{file.name}": file
        for file in ROOT.glob("crawl_lib/*.py")
        if file.stem != "__init__"
    }
    files |= {
        f"{path}/": ROOT / path / "__init__.py"
        for path in ("plugins/krake_airflow", "benchmarks", "demo")
    }
    texts = {
        path: ast.get_docstring(ast.parse(file.read_text())) or "" for path, file in files.items()
    }
    return {path: text.splitlines()[0] for path, text in texts.items()}


def test_the_map_names_every_package_by_the_first_line_of_its_docstring() -> None:
    [rows] = re.findall(
        r"<!-- map:begin.*?-->\n(.*?)<!-- map:end -->",
        (ROOT / "docs" / "architecture.md").read_text(),
        re.DOTALL,
    )
    assert dict(re.findall(r"^\| `([^`]+)` \| (.*) \|$", rows, re.MULTILINE)) == first_lines()


def options() -> list[tuple[str, str]]:
    """What is between backticks and begins with a section of the config, and is the name of no durable step or file."""
    steps = {
        name
        for file in (ROOT / "crawl_lib").rglob("*.py")
        for name in re.findall(r"reached\(\"([\w.]+)\"", file.read_text())
    }
    files = {"index.cdxj", "index.json"}
    sections = "|".join(
        item.name for item in dataclasses.fields(Config) if dataclasses.is_dataclass(item.default)
    )
    return sorted(
        (file.name, text)
        for file in TEXTS
        for text in set(re.findall(rf"`((?:{sections})\.[a-z_]+(?:: [^`\n]*)?)`", file.read_text()))
        - steps
        - files
    )


@pytest.mark.parametrize(("file", "text"), options())
def test_an_option_of_the_texts_is_there_and_takes_the_value(
    file: str, text: str, tmp_path: Path
) -> None:
    name, _, value = text.partition(": ")
    section, _, option = name.partition(".")
    assert option in {item.name for item in dataclasses.fields(getattr(Config, section))}, file
    if value:
        given = {option: yaml.safe_load(value)} | (
            {"host_delay_s": 0} if option == "connections_per_host" else {}
        )
        from_mapping({"servers": ["node"], "dfs_primary": "dfs", section: given}, base=tmp_path)


def test_the_config_for_many_machines_is_one(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "cluster.md").read_text()
    blocks = re.findall(r"^ *```yaml\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        from_mapping(yaml.safe_load(textwrap.dedent(block)), base=tmp_path)


def test_options_are_found() -> None:
    assert len(options()) >= 20


def library_example() -> str:
    text = (ROOT / "docs" / "crawling.md").read_text()
    [block] = re.findall(
        r"<!-- library:begin -->\n```python\n(.*?)```\n<!-- library:end -->", text, re.DOTALL
    )
    return str(block)


def other_examples() -> list[str]:
    return fences((ROOT / "docs" / "results.md").read_text(), "python")


def put(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, f"the example has no longer one {old!r}"
    return text.replace(old, new)


def test_the_example_has_ten_lines() -> None:
    assert len(library_example().splitlines()) == 10


def run(code: str, directory: Path, path: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=directory,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_ten_lines_crawl_a_site_where_there_is_no_airflow(tmp_path: Path) -> None:
    """In an empty directory, word by word but for the address, and leave to fetch from loopback without waiting."""
    wall, work = tmp_path / "wall", tmp_path / "work"
    wall.mkdir()
    work.mkdir()
    (wall / "sitecustomize.py").write_text(WITHOUT_AIRFLOW)  # for child processes too
    web = SynthWeb(seed=3, sites=1, pages_per_site=6, specials=False)
    fetch = {"allow_networks": ["127.0.0.0/8"], "host_delay_s": 0.0, "ip_delay_s": 0.0}
    with Serving(web) as serving:
        code = put(library_example(), "https://example.org/", serving.seeds[0])
        code = put(code, '"fetch": {', f'"fetch": {{**{fetch}, ')
        out = run(code, work, f"{wall}:{ROOT}")
        counts = serving.log().counts()
    first, second = out.splitlines()
    assert "'taken': 1," in first
    assert "'ok': " in second
    pages = [url for url in counts if not url.endswith("/robots.txt")]
    assert len(pages) > 1
    assert set(counts.values()) == {1}
    assert {entry.name for entry in work.iterdir()} >= {"dfs", "queue", "keys.sqlite"}
    shown = [run(put(code, '"data/dfs/', '"dfs/'), work, str(ROOT)) for code in other_examples()]
    rows, rules, records = shown  # of DuckDB, pandas, warcio: word by word, but for the place
    assert re.search(rf"\bok\b\D+\b{len(pages)}\b", rows)
    assert "accepted" in rules
    read = {line.split()[0] for line in records.splitlines()}
    assert {url for url in read if not url.endswith("/robots.txt")} == set(pages)


def test_no_committed_file_names_a_registry_or_a_path_of_one_machine() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
    if listed.returncode:
        pytest.skip("this is no git clone, so which files are committed is not known")
    hosts = [
        "py pi.org",
        "files.python hosted.org",
        "repo1.ma ven.org",
        "repo.ma ven.apache.org",
        "registry.npm js.org",
    ]
    paths = ["/wo rk/", "/ro ot/"]
    needles = [needle.replace(" ", "").encode() for needle in hosts + paths]
    found = []
    for name in filter(None, listed.stdout.decode().split("\0")):
        file = ROOT / name
        data = file.read_bytes() if file.is_file() else b""
        found += [(name, needle) for needle in needles if needle in data]
    assert found == []
