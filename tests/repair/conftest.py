"""A crawl half done, made once; each test damages a copy of it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from crawl_lib.frontier import Queue
from demo import Serving, SynthWeb
from tests.cli.conftest import Krake, krake, run_in_process
from tests.e2e.crawl import Result, make_config, run_crawl
from tests.pythons import impatient
from tests.repair.crawled import copy_of
from tests.repair.killed import run_killed

__all__ = ["krake"]

ROUNDS = 3
RUN = ("crawl", "--run-id", "one", "--batch-size", "5")


@pytest.fixture(scope="session")
def web() -> Iterator[Serving]:
    with Serving(SynthWeb(seed=7, sites=2, pages_per_site=12, specials=False, busy=4)) as serving:
        yield serving


def configure(krake: Krake, **more: object) -> None:
    krake.configure(
        servers=["node-a"],
        key_storage={"servers": ["keys/0.sqlite", "keys/1.sqlite"], "replication": 2},
        urls={"scope": "hosts", "max_pages_per_host": 1000},
        batch={"max_per_host": 3},
        **more,
    )


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the Python of `impatient` is."""
    return tmp_path_factory.mktemp("python") / "python"


@pytest.fixture(scope="session")
def half_done(web: Serving, python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a crawl of three rounds, exported. Its queue is not empty, and has failures that are not due."""
    directory = tmp_path_factory.mktemp("crawl")
    krake = Krake(directory, lambda words: run_killed(words, None))
    configure(krake)
    krake.ok("inject", "\n".join(web.seeds), "--run-id", "one")
    with impatient(python):
        krake.ok(*RUN, "--iterations", str(ROUNDS))
    for words in (["export", "--label", "e"], ["graph", "link"], ["graph", "finalize"]):
        krake.ok(*words)
    return directory


@pytest.fixture(scope="session")
def settled(half_done: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, and what the last round found is taken in."""
    directory = tmp_path_factory.mktemp("settled") / "crawl"
    shutil.copytree(half_done, directory)
    Krake(directory, lambda words: run_killed(words, None)).ok("settle")
    return directory


@pytest.fixture(scope="session")
def whole(settled: Path) -> tuple[Counter[str], Counter[str]]:
    """What was crawled to an end, and what waits, in the crawl that nothing happened to."""
    pages: Counter[str] = Counter()
    for path in settled.glob("dfs/crawl/1*/node-a/pages.parquet"):
        rows = pq.read_table(path, columns=["url", "retry_at"]).to_pylist()
        pages.update(row["url"] for row in rows if row["retry_at"] is None)
    return pages, Counter(one.url for one in Queue(settled / "queue" / "node-a", "node-a"))


def kill(half_done: Path, directory: Path, step: str) -> Path:
    """Copy the crawl half done, and have its next round die at a step."""
    shutil.copytree(half_done, directory)
    done = run_killed(
        ["--config", str(directory / "krake.yml"), *RUN, "--iterations", str(ROUNDS + 1)], step
    )
    assert done.code == -9, (step, done)
    return directory


@pytest.fixture(scope="session")
def killed(half_done: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The same, whose next round died at a step; made once for each step, and never changed."""
    return cache(lambda step: kill(half_done, tmp_path_factory.mktemp("killed") / "crawl", step))


@pytest.fixture
def copy(
    half_done: Path,
    settled: Path,
    killed: Callable[[str], Path],
    python: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Callable[..., Krake]]:
    """A copy of that crawl with its `krake`: settled, or with the next round killed at the step `kill_at`."""

    def make(kill_at: str | None = None) -> Krake:
        copied = tmp_path / "crawl"
        if kill_at and kill_at.startswith(
            "queue.move."
        ):  # an open move knows its files from copies of them
            kill(half_done, copied, kill_at)
        else:
            shutil.copytree(killed(kill_at) if kill_at else settled, copied)
        return Krake(copied, lambda words: run_in_process(capsys, words))

    with impatient(python):
        yield make


@pytest.fixture(scope="session")
def repair_web() -> Iterator[Serving]:
    with Serving(SynthWeb(seed=11, sites=3, pages_per_site=14, specials=True)) as found:
        yield found


@pytest.fixture(scope="session")
def crawled(repair_web: Serving, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Another crawl: three iterations of two nodes, with pages of all kinds; never changed."""
    config = make_config(tmp_path_factory.mktemp("crawled"), nodes=2, fetch={"host_delay_s": 0.0})
    return run_crawl(config, "\n".join(repair_web.seeds), 3)


@pytest.fixture
def crawl(crawled: Result, tmp_path: Path) -> Result:
    """A copy of it that a test may damage."""
    return copy_of(crawled, tmp_path / "crawl")
