"""`krake fsck` and the service: each file that fetcher and collection leave is damaged, found, and repaired."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from crawl_lib.cli.program import run as krake
from crawl_lib.config import Config
from crawl_lib.durable import KILL_VARIABLE
from crawl_lib.frontier import NodeDirectory, NodeLock
from crawl_lib.realtime import collect_parts, repair_live
from crawl_lib.realtime.places import FETCHER
from crawl_lib.realtime.store import connect_pages
from tests.e2e.crawl import write_config
from tests.forked import run_forked
from tests.realtime.test_collect import (
    HOST,
    collect_until,
    config_of,
    fetch,
    keys,
    node_dir,
    pages,
    submissions,
    submitted,
)
from tests.repair.crawled import stores_of

URLS = [f"{HOST}/{number}" for number in range(1, 5)]
Fsck = Callable[..., dict]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return config_of(tmp_path)


@pytest.fixture
def fsck(config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Fsck:
    file = str(write_config(config, tmp_path))

    def run(*words: str) -> dict:
        krake(["--config", file, "fsck", "--json", *words])
        return json.loads(capsys.readouterr().out)

    return run


def names(report: dict) -> set[str]:
    return {finding["name"] for finding in report["findings"]}


def live(config: Config) -> Path:
    return NodeDirectory(node_dir(config)).live / FETCHER


def spoil(path: Path) -> None:
    """Change the last bytes of a file."""
    path.write_bytes(path.read_bytes()[:-9] + b"something")


def killed(config: Config, tmp_path: Path, step: str) -> None:
    """A collection of two parts that was killed; a third part came since."""
    fetch(config, *URLS[:2])
    fetch(config, URLS[2], prefix="krake-2000-live-0-0")
    submitted(config, *URLS[:3])
    assert run_forked(collect_until, tmp_path, step) == -9
    fetch(config, URLS[3], prefix="krake-3000-live-0-0")
    submitted(config, URLS[3])


def test_whole_files_are_clean(config: Config, tmp_path: Path, fsck: Fsck) -> None:
    killed(config, tmp_path, "realtime.collect.moved")
    report = fsck()
    assert names(report) & {"live_part_damaged", "live_run_damaged", "pages_damaged"} == set()
    assert report["checked"]["parts in real time"] == 3


@pytest.mark.parametrize(
    ("step", "pattern", "name", "lost"),
    [
        ("realtime.collect.moved", "spool/*.rowless.json", "live_part_damaged", 0),
        ("realtime.collect.moved", "spool/*.warc.gz", "live_part_damaged", 1),
        (
            "realtime.collect.moved",
            "collect/spool/krake-1000*.rowless.json",
            "live_part_damaged",
            0,
        ),
        ("realtime.collect.moved", "collect/spool/krake-1000*.warc.gz", "live_part_damaged", 1),
        ("realtime.collect.moved", "collect/run.json", "live_run_damaged", 0),
        ("start.renamed", "collect/run.json", "live_run_damaged", 0),
        ("realtime.collect.decided", "collect/run.json", "live_run_damaged", 0),
        ("segment.publish.renamed", "collect/run.json", "live_run_damaged", 0),
        ("segment.build.manifest", "collect/spool/krake-1000*.closed.json", "live_part_damaged", 0),
        ("segment.build.manifest", "collect/spool/krake-1000*.pages.arrow", "live_part_damaged", 0),
        ("segment.build.manifest", "collect/segment/pages.parquet", "live_run_damaged", 0),
        ("segment.build.manifest", "collect/segment/manifest.json", "live_run_damaged", 0),
        (
            "segment.publish.renamed",
            "collect/spool/krake-1000*.closed.json",
            "live_part_damaged",
            0,
        ),
    ],
)
def test_a_damaged_file_is_found_and_repaired(
    config: Config, tmp_path: Path, fsck: Fsck, step: str, pattern: str, name: str, lost: int
) -> None:
    killed(config, tmp_path, step)
    (path,) = live(config).glob(pattern)
    spoil(path)
    assert name in names(fsck())
    fsck("--repair", "--dry-run")
    assert name in names(fsck()), "a dry run changes nothing"
    assert name not in names(fsck("--repair"))
    collect_parts(stores_of(config), FETCHER)
    collect_parts(stores_of(config), FETCHER)
    assert len(pages(config)) == len(set(pages(config))) == len(URLS) - lost
    assert submissions(config) == keys(*URLS)
    if path.name.endswith(".warc.gz"):
        assert (live(config) / "damaged" / path.name).exists()


def repair_until(directory: Path, step: str) -> None:
    """Repair in this process, which is killed at a step."""
    os.environ[KILL_VARIABLE] = step
    repair_live(stores_of(config_of(directory)), say=lambda line: None, dry_run=False)


def test_a_killed_repair_loses_nothing_more(config: Config, tmp_path: Path) -> None:
    killed(config, tmp_path, "realtime.collect.moved")
    (path,) = live(config).glob("collect/spool/krake-1000*.warc.gz")
    spoil(path)
    assert run_forked(repair_until, tmp_path, "realtime.repair.opened") == -9
    collect_parts(stores_of(config), FETCHER)
    collect_parts(stores_of(config), FETCHER)
    assert len(pages(config)) == len(URLS) - 1
    assert (live(config) / "damaged" / path.name).exists()


def test_a_repair_leaves_a_service_at_work_alone(
    config: Config, tmp_path: Path, fsck: Fsck
) -> None:
    fetch(config, *URLS)
    (path,) = live(config).glob("spool/*.warc.gz")
    spoil(path)
    with NodeLock(node_dir(config), "node-0", 1.0, what="krake serve realtime"):
        report = fsck("--repair")
    assert any("krake serve realtime" in text for text in report["skipped"])
    assert "live_part_damaged" in names(report)


def test_a_damaged_table_and_a_lost_one_name_the_fill(config: Config, fsck: Fsck) -> None:
    fetch(config, *URLS)
    assert "pages_missing" in names(fsck())
    table = connect_pages(config.key_storage, None, config.key_storage.servers[0])
    table.ensure()
    table.close()
    assert not {name for name in names(fsck()) if name.startswith("pages")}
    data = bytearray(table.path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    table.path.write_bytes(data)
    (finding,) = [one for one in fsck("--repair")["findings"] if one["name"] == "pages_damaged"]
    assert "krake realtime fill" in finding["repair"]
