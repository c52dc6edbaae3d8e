"""The program of `make crawl`: runs the crawling DAG of a config, with its progress on the terminal.

While `make ui` runs, the run is triggered and carried out there (`remote`). Otherwise Airflow runs the tasks one after
another in this process (`dag.test()`), without a scheduler, and `make ui` shows the run later, from the same database.
All output of Airflow goes to a log file. The exit code is 0 only if the whole run succeeded.

SIGINT (Ctrl-C) and SIGTERM act as in all programs, see `crawl_lib.signals`. Once a run is stopped, or has failed for
good, the process ends in the middle of `dag.test()`, which would sleep for a second for each row of tasks without a
run.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from rich.console import Console

from crawl_lib.config import Config, ConfigPlace, load_config, short_path
from crawl_lib.durable import delete_durable, write_durable
from crawl_lib.errors import ConfigError, InputError, KrakeError, LockedError, os_errors
from crawl_lib.sealed import sealed_json, unsealed
from crawl_lib.seeds import find_files, parse_seeds
from crawl_lib.signals import StopSignal, stop_on_signals
from crawl_lib.states import Outcome
from crawl_lib.stores import open_stores
from krake_airflow.alone import alone
from krake_airflow.configs import crawl_dag_id, dag_file, link_configs
from krake_airflow.database import DatabaseMark
from krake_airflow.display import HINTS, Display, summary
from krake_airflow.remote import Airflow, RemoteRun
from krake_airflow.server import password_of
from krake_airflow.settings import (
    DATABASE_FILE,
    LOCK_FILE,
    PROJECT,
    URL_FILE,
    airflow_home,
    config_path,
    environment,
    home_errors,
)
from krake_airflow.watching import watch_with

DEFAULT_ITERATIONS = 3
DEMO_CONFIG = PROJECT / "config" / "demo.yml"
DEMO_WEB: dict[str, Any] = {"seed": 1, "sites": 12, "pages_per_site": 100}
"""The parameters of the synthetic web."""
DEMO_ITERATIONS = 6
"""More iterations would only follow a rare redirect chain of the demo web, a URL in each iteration."""
PLAIN_WIDTH = 200
"""Characters of a line if the output is no terminal, so that paths stay whole."""
_RETRY_WAIT_S = 2.0
STOPPED = "Stopped. Fetched pages are kept; the same command goes on."
_MOST_FORM_BYTES = 1 << 20
"""The most bytes of seeds in a form, which Airflow's database keeps."""


def parser() -> argparse.ArgumentParser:
    """Return the command line of `python -m krake_airflow crawl`."""
    found = argparse.ArgumentParser(
        prog="make crawl", description="Crawl, export and link, through Airflow's DAG."
    )
    found.add_argument(
        "--config", type=Path, help="config file; default: as krake finds it, else the demo"
    )
    found.add_argument(
        "--seeds", help="URLs, or the path of a file or folder of seeds; default: the synthetic web"
    )
    found.add_argument(
        "--iterations", type=int, help="rounds of this run; default: 3, of the synthetic web 6"
    )
    found.add_argument("--label", help="name of the export's folder")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run a crawl; return 0 (done), 1 (a task failed), 2 (bad config or arguments), 130 or 143 (stopped)."""
    given = parser().parse_args(arguments)
    try:
        path = _config_path(given)
        config = load_config(path)
        if config.realtime is not None:
            raise ConfigError(
                f"{path}: realtime: a service fetches for this config: run `krake serve realtime`"
            )
        is_demo = not given.seeds and path == DEMO_CONFIG.resolve()
        params = _params(given, config, DEMO_ITERATIONS if is_demo else DEFAULT_ITERATIONS)
        home = airflow_home(os.environ)
        log = _new_log(home)
    except KrakeError as error:
        sys.stderr.write(f"make crawl: {error}\n")
        return 2
    with ExitStack() as stack:
        console = stack.enter_context(_airflow_prints_to(log))
        try:
            with home_errors(home):
                stack.enter_context(alone(lock_of(home, path), f"make crawl of {path}"))
                link_configs(home, path)
            if is_demo:
                params["seeds"] = stack.enter_context(_synthetic_web(config, console))
            crawl = _Crawl(stack, console, path, config, log)
            if url := _url_of_ui(stack, home, f"make crawl of {path}"):
                _say(
                    console,
                    f"Config {short_path(path)}. `make ui` runs, at {url}: the run is there.",
                )
                code = crawl.run_in_ui(home, url, params)
            else:
                os.environ.update(environment(home, path))
                _say(
                    console,
                    f"Config {short_path(path)}. Starting Airflow (its log: {short_path(log)}) ...",
                )
                code = crawl.run(home, params)
            if is_demo and not code:
                _report(config, console)
            return code
        except KrakeError as error:
            _say(console, str(error), "red")
            return 1


def _new_log(home: Path) -> Path:
    """Make the file for Airflow's output. Raises ConfigError if the file cannot be made."""
    log = home / "logs" / f"crawl-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}.log"
    with home_errors(home):
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
    return log


def _url_of_ui(stack: ExitStack, home: Path, what: str) -> str | None:
    """Return the address of `make ui`'s Airflow; wait for an Airflow that is starting.

    None without an Airflow; none starts then before the stack ends, because its scheduler would take up our run.
    """
    while True:
        with suppress(LockedError):
            stack.enter_context(alone(home / LOCK_FILE, what, shared=True, patience_s=0))
            return None
        with suppress(FileNotFoundError):
            return (home / URL_FILE).read_text().strip()
        time.sleep(0.5)


def _config_path(given: argparse.Namespace) -> Path:
    if given.config is not None:
        return Path(given.config).resolve()
    found, is_named = config_path(os.environ), os.environ.get(ConfigPlace.VARIABLE)
    is_default = not is_named and found.parts[-2:] == ConfigPlace.DEFAULT.parts
    return (DEMO_CONFIG if is_default and not given.seeds else found).resolve()


def _params(given: argparse.Namespace, config: Config, usual: int) -> dict[str, Any]:
    most = config.crawl.max_iterations
    iterations = given.iterations if given.iterations is not None else min(usual, most)
    if not 1 <= iterations <= most:
        raise KrakeError(
            f"ITERATIONS is {iterations}; it must be within 1 and crawl.max_iterations, {most}"
        )
    seeds = seeds_text(given.seeds or "")
    if seeds:
        parse_seeds(
            seeds
        )  # refuse unusable seeds now: Airflow would fail task after task, a second each
    return {"seeds": seeds, "iterations": iterations, "label": given.label}


def seeds_text(given: str) -> str:
    """Return seeds of a command line for the param `seeds`: an absolute path, or URLs, a line each."""
    if given and Path(given).exists():
        return str(Path(given).resolve())
    words = given.split()
    return "\n".join(words) if all("://" in word for word in words) else given


def _seeds_for_form(seeds: str, config: Config) -> str:
    """Return seeds for the form of a DAG: for files outside of `inject.directory`, their content.

    Raises InputError if the content is too large for a form.
    """
    files, below = find_files(seeds, None), Path(config.inject.directory).resolve()
    if files is None or Path(seeds).resolve().is_relative_to(below):
        return seeds
    texts = list[bytes]()
    for file in files:
        with file.open() as opened, os_errors(f"seeds: {file.name}", "cannot be read", InputError):
            texts.append(opened.read(_MOST_FORM_BYTES + 1))
        if sum(map(len, texts)) > _MOST_FORM_BYTES:
            raise InputError(
                f"seeds: {seeds}: has more than {_MOST_FORM_BYTES:,} bytes: put it into {below}"
            )
    return b"\n".join(texts).decode("utf-8", "surrogateescape")


@contextmanager
def _airflow_prints_to(log: Path) -> Iterator[Console]:
    """Send standard output and error of this process and its children to a file; yield a console on the old output.

    By descriptor, because Airflow, its libraries and the workers each print in their own way. The console takes nothing
    in brackets for a style: errors and foreign paths have brackets too.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    with (
        os.fdopen(os.dup(1), "w", encoding="utf-8") as terminal,
        log.open("a", encoding="utf-8") as file,
    ):
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            yield Console(
                file=terminal, width=None if terminal.isatty() else PLAIN_WIDTH, markup=False
            )
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, descriptor in enumerate(kept, start=1):
                os.dup2(descriptor, number)
                os.close(descriptor)


@contextmanager
def _synthetic_web(config: Config, console: Console) -> Iterator[str]:
    """Serve the demo's web in its own process; yield the seeds of the web.

    The URLs have the web's port, which is noted with the crawl's data: the next demo goes on with the same web. Raises
    KrakeError if another program has the port now.
    """
    from demo import Serving, SynthWeb  # noqa: PLC0415

    noted = _next_to(config, "web-port")
    port = int(noted.read_text()) if noted.exists() else 0
    web = SynthWeb(**DEMO_WEB)
    with ExitStack() as stack:
        try:
            server = stack.enter_context(Serving(web, port=port))
        except KrakeError as error:
            raise KrakeError(
                f"the synthetic web had port {port} when it was crawled first, and its URLs hold it: end the program"
                f" that listens there now, or delete what is in {noted.parent} to begin another demo"
                if port
                else str(error)
            ) from error
        with os_errors(noted, "cannot be written"):
            noted.parent.mkdir(parents=True, exist_ok=True)
            write_durable(noted, f"{server.port}\n".encode())
        text = f"crawling a synthetic web of {web.sites} sites on this machine, port {server.port}."
        _say(console, f"No SEEDS given: {text}")
        yield "\n".join(server.seeds)


def _report(config: Config, console: Console) -> None:
    """Leave a page with plots of the demo."""
    from crawl_lib.export import newest_export  # noqa: PLC0415 - numpy and Arrow take a moment
    from crawl_lib.report import write_report  # noqa: PLC0415

    stores, target = open_stores(config), _next_to(config, "report.html")
    write_report(stores, name=newest_export(stores), target=target)
    _say(console, f"Plots of it, for your browser: {target.as_uri()}")


def _next_to(config: Config, name: str) -> Path:
    """Return the path of a file of the demo, deleted together with the demo's data."""
    return Path(config.queue.local_dir).parent / name


@dataclass
class _Crawl:
    """One run. `stack`: undone at the end. `path`: the config. `code`: the exit code without success."""

    stack: ExitStack
    console: Console
    path: Path
    config: Config
    log: Path
    code: int = 1
    ending: Lock = field(default_factory=Lock)

    def run(self, home: Path, params: dict[str, Any]) -> int:
        """Run the DAG; return the exit code."""
        began_s = time.monotonic()
        dag = prepare_dag(home, crawl_dag_id(self.config))
        unfinished, begun = _join(self.console, home, self.config, params)
        display = Display(self.console, lambda: self._end_at_once(display))
        with display, stop_on_signals() as stop:
            Thread(target=self._stop, args=(stop, display), name="stop", daemon=True).start()
            watch_with(display)
            run = dag.test(run_conf=params, logical_date=begun, run_after=begun)
        if display.stopping or str(run.state) != "success":
            return self._say_failure(display)
        self.console.print(summary(self.config, display.results, self._hints(display.results)))
        self._say(f"{time.monotonic() - began_s:.0f} s in all, as run {run.run_id}")
        # Deleted last: after an earlier kill, the same command finds everything done, and prints the summary.
        delete_durable(unfinished)
        return 0

    def run_in_ui(self, home: Path, url: str, params: dict[str, Any]) -> int:
        """Trigger a run in the Airflow of `make ui`, and watch the run; return the exit code."""
        began_s, dag_id = time.monotonic(), crawl_dag_id(self.config)
        params = {**params, "seeds": _seeds_for_form(params["seeds"], self.config)}
        display = Display(self.console, lambda: None)
        with display, stop_on_signals() as stop:
            stop.text = STOPPED  # printed too if Airflow answers too slowly
            airflow = Airflow(url, password_of(home))
            airflow.parse_again(dag_id, stop)
            if stop.is_set():
                display.stopping, self.code = True, stop.code
                return self._say_failure(display)
            run = RemoteRun(airflow, dag_id, params, display)
            state = run.watch(stop, self._say)
        display.stopping, self.code = not state, self.code if state else stop.code
        if state != "success":
            return self._say_failure(display)
        self.console.print(summary(self.config, display.results, self._hints(display.results)))
        self._say(f"{time.monotonic() - began_s:.0f} s in all, as run {run.run_id}")
        return 0

    def _hints(self, results: Mapping[str, Mapping[str, Any]]) -> Mapping[str, str]:
        """Return hints for outcomes; for refused addresses, with the very networks and hosts."""
        commits = [
            result
            for result in results.values()
            if Outcome.ADDRESS_REFUSED in result.get("outcomes", {})
        ]
        if not commits:
            return HINTS
        from crawl_lib.ask import refused_hosts  # noqa: PLC0415 - Arrow, for this outcome alone
        from crawl_lib.fetch import how_to_allow, inner_networks  # noqa: PLC0415

        with suppress(KrakeError):
            hosts = refused_hosts(
                open_stores(self.config), {str(result.get("folder")) for result in commits}
            )
            if networks := inner_networks(" ".join(hosts.values())):
                allow = how_to_allow(networks, short_path(self.path))
                again = f"run `krake forget {' '.join(sorted(hosts)[:3])} --yes`, and the same command again"
                return {
                    Outcome.ADDRESS_REFUSED: f" (if {', '.join(networks)} is yours: {allow}; {again})"
                }
        return HINTS

    def _stop(self, stop: StopSignal, display: Display) -> None:
        """Wait for a signal, and pass it on; in a thread, since the main thread may be in a long query."""
        stop.wait()
        self.code = stop.code
        display.note("Stopping ...")
        display.stop()

    def _end_at_once(self, display: Display) -> None:
        """End the process in the middle of Airflow: none of Airflow's state in this process is used again."""
        if not self.ending.acquire(blocking=False):
            return  # another thread is ending the process
        display.close()
        code = self._say_failure(display)
        self.stack.close()
        os._exit(code)

    def _say_failure(self, display: Display) -> int:
        if display.stopping:
            self._say(STOPPED)
            return self.code
        for task_id, message in sorted(display.failures.items()):
            self._say(f"{task_id}: {message}", "red")
        self._say("The run failed.", "red")
        self._say(f"Everything that was said: {self.log}")
        self._say("Correct the named problem, then run the same command again to continue.")
        return self.code

    def _say(self, text: str, style: str = "") -> None:
        _say(self.console, text, style)


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(text, style=style, highlight=False, soft_wrap=not console.is_terminal)


def _join(
    console: Console, home: Path, config: Config, params: dict[str, Any]
) -> tuple[Path, datetime]:
    """Return the note of the unfinished run with these parameters, and the time in the run's name.

    The next run with the same config and parameters continues a run that did not end well: the name of the run is all
    that the stages need to find its work. Other parameters begin a new run, which first finishes open work. So do other
    nodes, or another routing, since an iteration keeps its nodes and its routing.
    """
    path = home / f"unfinished-{_digest(os.environ[ConfigPlace.VARIABLE])}.json"
    wanted = {"params": params, "nodes": sorted(config.servers), "routing": config.frontier.routing}
    with suppress(FileNotFoundError, ValueError, KeyError, TypeError):
        noted = unsealed(path.read_bytes())
        begun = datetime.fromisoformat(noted.pop("begun"))
        if noted == wanted:
            _say(console, f"Going on with the unfinished run of {begun.isoformat()}.")
            return path, begun
    begun = datetime.now(UTC)
    write_durable(path, sealed_json({"begun": begun.isoformat(), **wanted}))
    return path, begun


def lock_of(home: Path, config: Path) -> Path:
    """Return the file locked by a run of this config, since a crawl has one run at a time."""
    return home / f"lock-{_digest(config)}"


def _digest(path: Path | str) -> str:
    """Return a digest of a config file's path, for names of files of its crawl."""
    return hashlib.sha256(str(path).encode()).hexdigest()[:16]


def prepare_dag(home: Path, dag_id: str) -> Any:
    """Make Airflow's database if this version lacks one; return the DAG, with retries for a waiting person.

    This person is a user of the machine, so seeds may be any file with his read right.

    The environment must be `settings.environment`'s. Raises KrakeError with Airflow's words if the DAG does not parse.
    """
    from airflow.dag_processing.dagbag import DagBag  # noqa: PLC0415 - reads the environment when it is imported
    from airflow.utils.db import initdb  # noqa: PLC0415

    mark = DatabaseMark(home, home / DATABASE_FILE)
    if not mark.is_set():
        initdb()
        mark.set()
    bag = DagBag(dag_folder=str(PROJECT / "dags" / dag_file(dag_id)), bundle_name="dags-folder")
    dag = bag.dags.get(dag_id)
    if dag is None:
        raise KrakeError("; ".join(bag.import_errors.values()) or f"the DAG {dag_id} is not there")
    for task in dag.tasks:
        task.retries, task.retry_exponential_backoff = 1, 0
        task.retry_delay = type(task.retry_delay)(seconds=_RETRY_WAIT_S)
    dag.get_task("inject").any_path = True  # type: ignore[union-attr]
    return dag
