"""`krake init`: a folder with a config whose paths are its own, so that a new crawl shares nothing by accident."""

import argparse
import json
import re
import shlex
import sys
from pathlib import Path

import yaml

from crawl_lib.cli.common import ask, say
from crawl_lib.config import Pattern, from_mapping, short_path
from crawl_lib.errors import ConfigError, os_errors
from crawl_lib.version import in_checkout

_TEXT = """\
# The crawl {name}. Missing options have defaults; Krake's config/krake-config.yml explains all options.
# Relative paths are relative to this file.

servers: [node-a, node-b]       # the nodes: on one machine, folders with a queue each
dfs_primary: data/dfs           # where segments and exports go

crawl:
  name: {name}  # the DAGs are <name>_(re)crawl and <name>_process; never rename a begun crawl

fetch:
  # A URL or mail address where the people you crawl can reach you; without one, Krake takes only seeds on this machine.
  contact: {contact}

urls:
  scope: domains                # hosts | domains (of all seeds and their redirects' targets) | any

inject: {{directory: seeds}}      # files of seeds for triggers in Airflow
key_storage: {{servers: [data/keys/0.sqlite]}}
queue: {{local_dir: data/queue}}
scratch: {{directory: data/scratch}}
"""

_REALTIME_TEXT = """\
# The crawl {name}, for the real-time service (docs/realtime.md). Missing options have defaults;
# config/krake-config.yml of Krake explains all options. Relative paths are relative to this file.

servers: [live]                 # the node of the service: the machine of `krake serve realtime`
dfs_primary: data/dfs           # where `krake realtime collect` puts segments

crawl:
  name: {name}  # the DAG is <name>_collect; never rename a begun crawl

frontier: {{order: crawldb}}      # the service needs this order
urls:
  scope: any                    # the service fetches each URL unless a rule refuses the URL

fetch:
  # A URL or mail address where the people you fetch from can reach you.
  contact: {contact}
  # Thousands of hosts lie behind one address of a CDN, and would share four requests a second with the usual delay.
  # The delay of each host, host_delay_s, still holds.
  ip_delay_s: 0
  # Requests at once. People wait for each URL here, instead of a batch: 150 URLs/s with redirects and
  # robots.txt are 430 requests/s, and hosts that answer in half a second hold 215 connections.
  connections: 500
  hosts: []                     # paces of shorteners and large sites, if the operators agree. For example:
                                #   - {{kind: domain, value: shortener.example, delay_s: 0.05}}
                                #   - {{kind: domain, value: videos.example, delay_s: 0, connections: 4}}

realtime:
  listen: 127.0.0.1:8095        # put a proxy with TLS before it, for other machines
  tokens: data/tokens.json      # `krake realtime tokens --add NAME` adds one
  policies:
    - {{name: default, refetch_after_s: 86400}}       # seconds until a submission fetches a URL again
    - {{name: preview, refetch_after_s: 86400, image: probe}}  # with type and size of the page's picture

key_storage: {{servers: [data/keys/0.sqlite]}}  # krakepages lies next to it; for more load: servers of MariaDB
queue: {{local_dir: data/queue}}
scratch: {{directory: data/scratch}}
"""


def init(arguments: argparse.Namespace) -> int:
    """Make DIR with `data/`, `seeds/` and a config of that name.

    Raises ConfigError if the config exists.
    """
    directory = Path(arguments.directory).resolve()
    name, file = directory.name, directory / f"{directory.name}.yml"
    if not re.fullmatch(Pattern.CRAWL_NAME, name):
        raise ConfigError(
            f"{directory}: the folder names the crawl, and {name!r} does not match {Pattern.CRAWL_NAME}"
        )
    if file.exists():
        raise ConfigError(f"{file}: is there already; choose another folder, or edit the file")
    template = _REALTIME_TEXT if arguments.realtime else _TEXT
    text = template.format(name=json.dumps(name), contact=json.dumps(_contact(arguments)))
    from_mapping(yaml.safe_load(text), directory, str(file))
    with os_errors(directory, "cannot be made", ConfigError):
        for folder in ("data",) if arguments.realtime else ("data", "seeds"):
            (directory / folder).mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    file = Path(short_path(file))
    say(f"{file} is the config of the crawl {name}. Next:")
    if arguments.realtime:
        command = f"krake --config {shlex.quote(str(file))}"
        say(f"  {command} realtime tokens --add NAME")
        say(f"  {command} serve realtime")
        return 0
    say(f"  {_next_command(name, file)}")
    say(f"  # without Airflow: krake --config {shlex.quote(str(file))} inject https://...")
    return 0


def _next_command(name: str, file: Path) -> str:
    """Return the command that begins a crawl in Airflow.

    The command depends on the installation.
    """
    if in_checkout():
        return f"make crawl CONFIG={shlex.quote(str(file))} SEEDS=https://..."
    conf = json.dumps({"seeds": "https://..."})
    return f"airflow dags unpause {name}_crawl && airflow dags trigger {name}_crawl --conf {shlex.quote(conf)}"


def _contact(arguments: argparse.Namespace) -> str | None:
    """Ask for the contact on a terminal; elsewhere return None."""
    if not sys.stdin.isatty():
        return None
    return (
        ask(
            arguments,
            "A URL or mail address where the people you crawl can reach you (empty: later): ",
        )
        or None
    )
