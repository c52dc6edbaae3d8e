"""The configs of an Airflow: the config that `config_path` finds, or those of a folder, each with its own DAGs.

The name (`crawl.name`) identifies a crawl on every machine: a DAG's id has the name, and a task finds the config of
this name on its worker, whatever the file is called there. An unusable config leaves the DAGs of other configs alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from crawl_lib.config import Config, ConfigPlace, load_config
from crawl_lib.errors import ConfigError
from krake_airflow.settings import config_path

CRAWL, RECRAWL, COLLECT, PROCESS, SCORES, OUTPUTS = (
    "crawl",
    "recrawl",
    "collect",
    "process",
    "scores",
    "outputs",
)
STATISTICS = "statistics"
"""Ends of the ids of a crawl's DAGs, after the name (`kinds_of`). Each crawl has one of the first three."""
LINKS_FOLDER = "configs"
"""In the Airflow home of this machine: links to the configs of all shown crawls."""
_DEFAULT_NAME = "krake"


@dataclass(frozen=True)
class BadConfig:
    """A config without DAGs. `dag_id`: the DAG shown in their place; `lines`: the faults of the config."""

    dag_id: str
    lines: tuple[str, ...]


def crawl_kind(config: Config) -> str:
    """Return the kind of the DAG that brings segments.

    A CrawlDb needs another DAG than queues (`frontier.order`). The DAG of a real-time service only collects, because
    the service fetches.
    """
    if config.realtime is not None:
        return COLLECT
    return RECRAWL if config.order.makes_lists else CRAWL


def crawl_dag_id(config: Config) -> str:
    """Return the id of the DAG that brings segments."""
    return f"{config.crawl.name}_{crawl_kind(config)}"


def kinds_of(config: Config) -> set[str]:
    """Return the kinds of a crawl's DAGs."""
    more = {
        SCORES: config.scores.tasks,
        OUTPUTS: config.outputs.tasks,
        PROCESS: config.realtime is None,
    }
    more[STATISTICS] = config.realtime is not None
    return {crawl_kind(config), *(kind for kind, is_wanted in more.items() if is_wanted)}


def scores_come_first(config: Config) -> bool:
    """Return whether committed segments begin both scores and outputs, so that one DAG has both, in order."""
    is_by_segments = {config.scores.when, config.outputs.when} == {"segments"}
    return is_by_segments and bool(config.scores.tasks) and bool(config.outputs.tasks)


def dag_file(dag_id: str) -> str:
    """Return the name of the file in `dags/` that makes a DAG."""
    return f"krake_{dag_id.rpartition('_')[2]}_dag.py"


def config_files(path: Path) -> list[Path]:
    """Return the file itself; for a folder, its `*.yml` and those in its subfolders, as `krake init` makes them."""
    return ConfigPlace.among(path) if path.is_dir() else [path]


def link_configs(home: Path, path: Path) -> Path:
    """Add a config, or a folder of configs, to the crawls shown by an Airflow; return the folder of all links.

    A link has the name of its crawl. If two configs have the same name, the later link is shown. Links to missing
    configs are deleted.
    """
    folder = home / LINKS_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for link in folder.glob("*.yml"):
        if not link.exists():
            link.unlink(missing_ok=True)
    for file in config_files(path):
        name = file.stem
        with suppress(ConfigError):
            name = load_config(file).crawl.name
        hidden = folder / f".{name}.{os.getpid()}"
        hidden.unlink(missing_ok=True)
        hidden.symlink_to(file.resolve())
        hidden.replace(folder / f"{name}.yml")
    return folder


def read_configs(path: Path) -> tuple[list[Config], list[BadConfig]]:
    """Return the usable configs, and the others. Configs with the same name are all unusable."""
    found: dict[Path, Config] = {}
    wrong: dict[Path, tuple[str, ...]] = {}
    for file in config_files(path):
        try:
            found[file] = load_config(file)
        except ConfigError as error:
            wrong[file] = tuple(error.lines)
    for file, config in found.items():
        same = [
            str(other)
            for other in found
            if other != file and found[other].crawl.name == config.crawl.name
        ]
        if same:
            wrong[file] = (
                f"{file}: crawl.name: {config.crawl.name!r} is also the name of {', '.join(same)}",
            )
    if not found and not wrong:
        wrong[path] = (
            f"{path}: has no config: put one into it, named *.yml (`krake init` makes one)",
        )
    good = [config for file, config in found.items() if file not in wrong]
    return good, [BadConfig(_error_id(file), lines) for file, lines in wrong.items()]


def _error_id(file: Path) -> str:
    return f"{re.sub(r'[^A-Za-z0-9_.-]', '_', file.stem)}_config_error"


def config_named(name: str) -> Config:
    """Return the config of a crawl on this machine. Raises ConfigError naming the places without one.

    The likeliest file is read first: with many configs a task begins as quickly as with one.
    """
    path = config_path(os.environ)
    problems: list[str] = []
    for file in sorted(config_files(path), key=_looks_otherwise(name)):
        try:
            config = load_config(file)
        except ConfigError as error:
            problems += error.lines
            continue
        if config.crawl.name == name:
            return config
        problems.append(f"{file}: is the config of the crawl {config.crawl.name!r}")
    raise ConfigError(
        f"{path}: has no config of the crawl {name!r} that can be used (crawl.name)", *problems
    )


def _looks_otherwise(name: str) -> Callable[[Path], bool]:
    line = re.compile(rf"\bname: *[\"']?{re.escape(name)}[\"']? *([,}}#\n]|$)")

    def otherwise(file: Path) -> bool:
        with suppress(OSError, ValueError):
            text = file.read_text(encoding="utf-8")
            return not (
                line.search(text) or (name == _DEFAULT_NAME and not re.search(r"\bname: ", text))
            )
        return True

    return otherwise
