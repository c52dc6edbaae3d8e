"""`make cluster` and `make cluster-crawl`: nothing is left behind however they end, and they go on where they were."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
import yaml
from krake_airflow.settings import PROJECT

from demo import Serving
from tests.cluster.run import Cluster, parser
from tests.cluster.topology import why_not
from tests.dags.crawls import ITERATIONS, MOST_ITERATIONS, WEB

pytestmark = pytest.mark.timeout(2400)
Start = Callable[..., subprocess.Popen[str]]
SERVERS = 12
"""PostgreSQL, three key servers, two of HDFS, three of Airflow, and four workers make more than this many processes."""


@pytest.fixture
def directory() -> Iterator[Path]:
    found = Path(tempfile.mkdtemp(prefix="krake-cluster-"))
    found.chmod(0o711)
    yield found
    shutil.rmtree(found)


@pytest.fixture
def start(directory: Path) -> Iterator[Start]:
    """Starts the program of `make cluster`; those that still run end with the test, with their servers."""
    with ExitStack() as ends:

        def started(*arguments: str) -> subprocess.Popen[str]:
            command = [
                sys.executable,
                "-m",
                "tests.cluster.run",
                *arguments,
                "--directory",
                str(directory),
            ]
            variables = {
                **os.environ,
                "PYTHONPATH": str(PROJECT / "plugins"),
            }  # as the Makefile sets it
            process = subprocess.Popen(
                command,
                cwd=PROJECT,
                env=variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            ends.callback(end, process)
            return process

        yield started


def end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=300)
    if process.stdout is not None:
        process.stdout.close()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--iterations", "99"], "ITERATIONS is 99; it must be within 1 and crawl.max_iterations"),
        (["--seeds", "nowhere.txt"], "nowhere.txt: no such file or directory"),
        (["--config", "nowhere.yml"], "nowhere.yml: cannot be read"),
    ],
)
def test_what_would_be_refused_in_the_end_is_refused_before_anything_starts(
    start: Start, directory: Path, arguments: list[str], says: str
) -> None:
    if missing := why_not():
        pytest.skip(missing)
    output, _ = start("crawl", *arguments).communicate(timeout=200)
    assert says in output
    assert len(output.splitlines()) == 1
    assert list(directory.iterdir()) == []


def test_a_crawl_that_joins_a_cluster_finds_the_synthetic_web_served(directory: Path) -> None:
    if missing := why_not():
        pytest.skip(missing)
    given = parser().parse_args(["crawl", "--directory", str(directory)])
    first, second = Cluster(given, threading.Event()), Cluster(given, threading.Event())
    with first._synthetic_web():
        second.running = True
        with second._synthetic_web():
            pass


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """What it says up to a line with this text."""
    said = ""
    assert process.stdout is not None
    for line in process.stdout:
        said += line
        if text in line:
            return said
    raise AssertionError(said)


def servers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    found = psutil.Process(process.pid).children(recursive=True)
    assert len(found) >= SERVERS
    return found


def left_of(servers: list[psutil.Process], timeout_s: float = 180) -> list[psutil.Process]:
    """Those that still live, ended now so that other tests are not disturbed."""
    _, found = psutil.wait_procs(servers, timeout=timeout_s)
    alive = [server for server in found if lives(server)]
    for server in alive:
        server.kill()
    return alive


def lives(server: psutil.Process) -> bool:
    """Whether it does; in some containers no one takes note of the deaths of orphans."""
    try:
        return server.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_killed_without_warning_started_again_crawled_and_stopped(
    jars: None, start: Start, tmp_path: Path
) -> None:
    if missing := why_not():
        pytest.fail(f"the cluster cannot run: {missing}")
    config = {
        "servers": ["ignored"],
        "dfs_primary": "ignored",
        "crawl": {"max_iterations": MOST_ITERATIONS},
        "urls": {"scope": "hosts"},
        "fetch": {
            "host_delay_s": 0.0,
            "ip_delay_s": 0.0,
            "processes": 1,
            "allow_networks": ["127.0.0.0/8"],
        },
    }
    (tmp_path / "config.yml").write_text(yaml.safe_dump(config))
    options = ["--config", str(tmp_path / "config.yml")]

    killed = start(*options)
    read_until(killed, "Ctrl-C stops it")
    servers = servers_of(killed)
    killed.kill()
    killed.communicate()
    assert left_of(servers) == [], "after SIGKILL to the program itself"

    with Serving(WEB) as serving:
        serving_options = ["--seeds", "\n".join(serving.seeds), "--iterations", str(ITERATIONS)]
        again = start(*options)
        said = read_until(again, "Ctrl-C stops it")
        servers = servers_of(again)
        second = start(*options)
        assert "another process runs the cluster here" in second.communicate(timeout=300)[0]
        crawl = start("crawl", *options, *serving_options)
        output, _ = crawl.communicate(timeout=1500)
        assert crawl.returncode == 0, output
        assert "A cluster runs here already" in output
        assert "The run is a success" in output
        pages = len(serving.truth().visits)
        assert f"pages fetched | {pages} " in " ".join(output.replace("│", "|").split())
    again.send_signal(signal.SIGINT)
    rest, _ = again.communicate(timeout=300)
    assert again.returncode == 130, said + rest
    assert "The same command goes on" in rest
    assert left_of(servers, 1) == []
