"""What `make cluster` and `make cluster-crawl` run: the topology in the foreground, and a crawl on it by REST.

    python -m tests.cluster.run                      until Ctrl-C
    python -m tests.cluster.run crawl [--seeds ..]   one crawl; on the cluster of another terminal if there is one

Everything is kept in a directory, `.cluster`: started again, it goes on with the same data and the run that was not
finished. Without seeds a synthetic web is crawled, as the crawl `demo`; with seeds it is the crawl `crawl`.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import re
import shutil
import signal
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from krake_airflow.display import summary
from krake_airflow.run import DEMO_CONFIG, DEMO_ITERATIONS, DEMO_WEB, PLAIN_WIDTH, seeds_text
from krake_airflow.settings import PROJECT, USER
from rich.console import Console

from crawl_lib.config import Config, load_config
from crawl_lib.errors import KrakeError
from crawl_lib.seeds.lines import parse_seeds
from crawl_lib.stores import PASSWORD_VARIABLE
from demo import Serving, SynthWeb
from tests.cluster.processes import is_free
from tests.cluster.topology import BATCH, Topology, why_not
from tests.contracts.mariadb import PASSWORD
from tests.dags.api import Api
from tests.s3 import credential_variables

OWN = ("servers", "dfs_primary", "dfs", "s3", "key_storage", "queue", "scratch", "inject")
"""Sections of a config file that the topology decides."""
NODES = 3
INTERRUPTED = 130
DEMO, CRAWL = "demo", "crawl"
SHOWN = re.compile(r"\.commit$|^(export|linker|finalizer)$")
"""Tasks whose results are shown at the end."""
PROGRESS_S = 5.0
PARSED_S = 120.0


class StoppedByUserError(Exception):
    """A signal came."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(
        prog="make cluster", description="Krake on many machines, as processes of this one"
    )
    found.add_argument("what", nargs="?", choices=("serve", "crawl"), default="serve")
    found.add_argument(
        "--directory", type=Path, help="where its data lie; default: .cluster, or .cluster-s3"
    )
    found.add_argument(
        "--dfs", choices=("hdfs", "s3"), default="hdfs", help="the kind of store; default: hdfs"
    )
    found.add_argument(
        "--config",
        type=Path,
        help="options of the crawl; the cluster decides stores and directories",
    )
    found.add_argument(
        "--seeds",
        default="",
        help="URLs, or the path of a file or folder; default: a synthetic web",
    )
    found.add_argument("--iterations", type=int, help="rounds of the crawl")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run; returns the exit code (0: done, 1: something failed, 130: stopped)."""
    given = parser().parse_args(arguments)
    if missing := why_not(on_s3=given.dfs == "s3"):
        say(f"make cluster: {missing}")
        return 1
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    try:
        return Cluster(given, stop).run()
    except StoppedByUserError:
        say("Stopped. The same command goes on.")
        return INTERRUPTED
    except (KrakeError, AssertionError) as error:
        say(f"make cluster: {error}")
        return 1


def say(text: str) -> None:
    """A line for the user."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Cluster:
    """One call of the program."""

    def __init__(self, given: argparse.Namespace, stop: threading.Event) -> None:
        self.given, self.stop = given, stop
        self.on_s3 = given.dfs == "s3"
        usual = PROJECT / (".cluster-s3" if self.on_s3 else ".cluster")
        self.directory: Path = (given.directory or usual).resolve()
        self.directory.mkdir(parents=True, exist_ok=True)
        self.running = False  # by another process

    @cached_property
    def topology(self) -> Topology:
        """What runs here, or is to run."""
        return Topology(
            self.directory,
            nodes=NODES,
            key_servers=NODES,
            running=self.running,
            say=self._starting,
            on_s3=self.on_s3,
        )

    def run(self) -> int:
        """Serve until a signal, or crawl once."""
        with ExitStack() as stack:
            name = self._name()
            self._check(name)
            self.running = not stack.enter_context(self._only_one())
            if name == DEMO:
                stack.enter_context(self._synthetic_web())
            if not self.running:
                config = self.topology.configure(name, options(self._config_file(name)))
                say(
                    f"Starting the cluster, which takes about a minute (its data and logs: {self.directory}) ..."
                )
                stack.enter_context(self.topology)
                self.topology.make_tables(config)
                self._tell()
                stack.callback(say, "Stopping ...")
                api = self.topology.api
            else:
                api, config = self._join(name)
            if self.given.what == "crawl":
                queues = replace(
                    config.queue, local_dir=str(self.directory / "<node>" / name / "queue")
                )
                return Watch(api, replace(config, queue=queues), self._look).crawl(
                    self._seeds(config), self._iterations(config)
                )
            while True:
                self._look()

    def _seeds(self, config: Config) -> str:
        """The param `seeds`: URLs as they are; files are copied to where a run may name them."""
        text = seeds_text(self.given.seeds)
        if not Path(text).is_absolute():
            return text
        place = Path(config.inject.directory) / hashlib.sha256(text.encode()).hexdigest()[:16]
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        for source in (
            [Path(text)] if Path(text).is_file() else filter(Path.is_file, Path(text).iterdir())
        ):
            shutil.copy(source, place)
        return str(place)

    @contextmanager
    def _synthetic_web(self) -> Iterator[None]:
        """Serve the demo's web, always at the same port, unless `make cluster` does; its seeds become ours."""
        web = SynthWeb(**DEMO_WEB)
        port = self.topology.ports.take("web")
        seeds = web.seeds(port)
        self.given.seeds = "\n".join(seeds)
        # Each site has an address of its own; 127.0.0.1 is none of them.
        if self.running and not is_free(port, str(urllib.parse.urlsplit(seeds[0]).hostname)):
            yield
            return
        with Serving(web, port=port):
            say(f"A synthetic web of {web.sites} sites is served at port {port}.")
            yield

    def _name(self) -> str:
        """The crawl that is meant; `make cluster` goes on with the one that was configured last."""
        if self.given.what == "crawl":
            return CRAWL if self.given.seeds else DEMO
        kept = self.directory / "crawl-name"
        return kept.read_text() if kept.exists() and not self.given.config else CRAWL

    def _check(self, name: str) -> None:
        """Raise KrakeError for a config, iterations or seeds that would be refused when all runs already."""
        most = load_config(self._config_path(name)).crawl.max_iterations
        iterations = self.given.iterations
        if iterations is not None and not 1 <= iterations <= most:
            raise KrakeError(
                f"ITERATIONS is {iterations}; it must be within 1 and crawl.max_iterations, {most}"
            )
        if self.given.seeds:
            parse_seeds(seeds_text(self.given.seeds))

    def _config_path(self, name: str) -> Path:
        usual = DEMO_CONFIG if name == DEMO else PROJECT / "config" / "krake-config.yml"
        return Path(self.given.config or usual).resolve()

    def _config_file(self, name: str) -> Path:
        (self.directory / "crawl-name").write_text(name)
        return self._config_path(name)

    def _iterations(self, config: Config) -> int:
        usual = DEMO_ITERATIONS if (self.directory / "crawl-name").read_text() == DEMO else 3
        return int(self.given.iterations or min(usual, config.crawl.max_iterations))

    @contextmanager
    def _only_one(self) -> Iterator[bool]:
        """Whether the directory is ours; else another process runs the cluster there."""
        with (self.directory / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if self.given.what == "serve":
                    raise KrakeError(
                        f"{self.directory}: another process runs the cluster here"
                    ) from None
                yield False
            else:
                yield True

    def _join(self, name: str) -> tuple[Api, Config]:
        """The cluster that another terminal runs, with the config of our crawl."""
        api = self.topology.api
        api.sign_in(USER, self.topology.password)
        say(f"A cluster runs here already: {api.url}")
        if (self.directory / "crawl-name").read_text() != name and active(api):
            raise KrakeError(
                f"the run {active(api)} of another crawl is not finished; wait for it, or end it at {api.url}"
            )
        if active(api):
            return api, load_config(self.topology.config_path(BATCH))
        config = self.topology.configure(name, options(self._config_file(name)))
        self.topology.make_tables(config)
        parse_again(api, config)
        return api, config

    def _look(self) -> None:
        """Let a second pass; workers that ended are started again."""
        if self.stop.wait(1.0):
            raise StoppedByUserError
        self.topology.look_after_all()
        self.topology.still_runs()

    def _starting(self, text: str) -> None:
        if self.stop.is_set():
            raise StoppedByUserError
        say(f"  {text}")

    def _tell(self) -> None:
        topology = self.topology
        say(f"Airflow is at {topology.url}\n  user      {USER}\n  password  {topology.password}")
        gateway, variables = topology.gateway, {PASSWORD_VARIABLE: PASSWORD}
        if gateway is None:
            say(f"HDFS is at {topology.hdfs.address}; nodes: {', '.join(topology.nodes)}")
        else:
            say(f"The object store is at {gateway.address}; nodes: {', '.join(topology.nodes)}")
            variables |= credential_variables()
        given = " ".join(f"{name}={value}" for name, value in variables.items())
        say(
            f"`krake` works on it too: KRAKE_CONFIG_PATH={topology.config_path(BATCH)} {given} krake status"
        )
        say("Ctrl-C stops it.")


def options(path: Path) -> dict[str, Any]:
    """The sections of a config file that are no matter of the topology. Raises ConfigError for a bad file."""
    load_config(path)
    mapping: dict[str, Any] = yaml.safe_load(path.read_text())
    mapping.get("crawl", {}).pop("name", None)  # one crawl at a time, by the DAG krake_crawl
    return {name: section for name, section in mapping.items() if name not in OWN}


def active(api: Api) -> str:
    """A run that is not finished, "" if there is none."""
    return next((run for run, state in api.runs().items() if state in ("queued", "running")), "")


def parse_again(api: Api, config: Config) -> None:
    """Have the DAG parsed with a config of other iterations."""

    def parsed(_: dict[str, Any]) -> bool:
        params = api.ask("GET", f"/api/v2/dags/{api.dag}/details")["params"]
        return bool(params["iterations"]["schema"]["maximum"] == config.crawl.max_iterations)

    if not parsed({}):
        api.parse_again(parsed)


class Watch:
    """Triggers a run, and says what becomes of it. `look`: lets a second pass, or raises to end it."""

    def __init__(self, api: Api, config: Config, look: Callable[[], None]) -> None:
        self.api, self.config, self.look = api, config, look
        self._seen: dict[str, tuple[str, int]] = {}
        self._since_s: dict[str, float] = {}
        self._told_s = time.monotonic()

    def crawl(self, seeds: str, iterations: int) -> int:
        """Trigger a run, or find one that is not finished, and watch it to its end; returns the exit code."""
        began_s = time.monotonic()
        if run := active(self.api):
            say(f"The run {run} is not finished: it goes on.")
        else:
            run = self.api.trigger(seeds=seeds, iterations=iterations)
            say(f"Triggered the run {run}: {iterations} iterations.")
        while (state := self.api.runs()[run]) not in ("success", "failed"):
            self._tell(run)
            self.look()
        self._tell(run)
        say(f"The run is a {state} after {time.monotonic() - began_s:.0f} s.")
        if state == "success":
            shown = [
                task
                for task, (ended, _) in self._seen.items()
                if ended == state and SHOWN.search(task)
            ]
            console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
            console.print(
                summary(self.config, {task: self.api.result(run, task) for task in shown})
            )
        return 0 if state == "success" else 1

    def _tell(self, run: str) -> None:
        tasks = self.api.tasks(run)
        for task, (state, tried) in tasks.items():
            if self._seen.get(task) != (state, tried):
                self._changed(task, state, tried)
        self._seen = tasks
        if time.monotonic() - self._told_s >= PROGRESS_S:
            self._told_s = time.monotonic()
            for task, (state, _) in tasks.items():
                if state == "running" and (now := self._progress(run, task)):
                    say(f"         {task:32} {now}")

    def _changed(self, task: str, state: str, tried: int) -> None:
        now_s = time.monotonic()
        if state == "running":
            self._since_s[task] = now_s
        elif (
            state in ("success", "failed", "up_for_retry", "upstream_failed")
            and task in self._since_s
        ):
            took_s = now_s - self._since_s[task]
            say(
                f"{'done' if state == 'success' else state:8} {task:32} {took_s:5.0f} s"
                + f"  try {tried}" * (tried > 1)
            )

    def _progress(self, run: str, task: str) -> str:
        """What a task said last in the task state store."""
        instance = f"{urllib.parse.quote(run)}/taskInstances/{task}"
        path = f"/api/v2/dags/{self.api.dag}/dagRuns/{instance}/state-store/progress"
        try:
            found = self.api.ask("GET", path)["value"]
        except AssertionError:  # it has said nothing yet
            return ""
        now = json.loads(found) if isinstance(found, str) else found
        return "  ".join(
            f"{name} {now[name]}"
            for name in ("phase", "fetched", "taken", "pages_per_s")
            if name in now
        )


if __name__ == "__main__":
    sys.exit(main())
