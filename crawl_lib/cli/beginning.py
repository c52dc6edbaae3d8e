"""`krake init`: a folder with a config whose paths are its own, so that a new crawl shares nothing by accident."""

import argparse
import json
import re
import shlex
import sys
from pathlib import Path

import yaml

from crawl_lib.cli.common import ask, say
from crawl_lib.config import CRAWL_NAME_PATTERN, from_mapping, short_path
from crawl_lib.errors import ConfigError, os_errors
from crawl_lib.version import in_checkout

_TEXT = """\
# The crawl {name}. Options that are not here have their defaults; config/krake-config.yml of Krake explains them all.
# Relative paths are relative to this file.

servers: [node-a, node-b]       # the nodes: on one machine, folders with a queue each
dfs_primary: data/dfs           # where segments and exports go

crawl:
  name: {name}  # its DAGs are <name>_(re)crawl and <name>_process; it stays as it is once the crawl has begun

fetch:
  # A URL or mail address where the people you crawl can reach you; without it only seeds on this machine are taken.
  contact: {contact}

urls:
  scope: domains                # hosts | domains (of all seeds, and of where they redirect) | any

inject: {{directory: seeds}}      # files of seeds that a trigger in Airflow may name
key_storage: {{servers: [data/keys/0.sqlite]}}
queue: {{local_dir: data/queue}}
scratch: {{directory: data/scratch}}
"""


def init(arguments: argparse.Namespace) -> int:
    """Make DIR with `data/`, `seeds/` and a config named as DIR is. Raises ConfigError where there is one."""
    directory = Path(arguments.directory).resolve()
    name, file = directory.name, directory / f"{directory.name}.yml"
    if not re.fullmatch(CRAWL_NAME_PATTERN, name):
        raise ConfigError(
            f"{directory}: its name is to be the crawl's, and {name!r} does not match {CRAWL_NAME_PATTERN}"
        )
    if file.exists():
        raise ConfigError(f"{file}: is there already; choose another folder, or edit it")
    text = _TEXT.format(name=json.dumps(name), contact=json.dumps(_contact(arguments)))
    from_mapping(yaml.safe_load(text), directory, str(file))
    with os_errors(directory, "cannot be made", ConfigError):
        for folder in (directory / "data", directory / "seeds"):
            folder.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    file = Path(short_path(file))
    say(f"{file} is the config of the crawl {name}. Next:")
    say(f"  {_next_command(name, file)}")
    say(f"  # without Airflow: krake --config {shlex.quote(str(file))} inject https://...")
    return 0


def _next_command(name: str, file: Path) -> str:
    """Return the command that begins a crawl in Airflow, as this installation has it."""
    if in_checkout():
        return f"make crawl CONFIG={shlex.quote(str(file))} SEEDS=https://..."
    conf = json.dumps({"seeds": "https://..."})
    return f"airflow dags unpause {name}_crawl && airflow dags trigger {name}_crawl --conf {shlex.quote(conf)}"


def _contact(arguments: argparse.Namespace) -> str | None:
    """What the user types, on a terminal; elsewhere nothing is asked."""
    if not sys.stdin.isatty():
        return None
    return ask(arguments, "A URL or mail address where the people you crawl can reach you (empty: later): ") or None
