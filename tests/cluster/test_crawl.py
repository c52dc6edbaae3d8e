"""A whole crawl of the synthetic web on HDFS finds what it finds on a local directory: its truth."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.config.model import DfsConfig
from crawl_lib.storage import LocalStorage, Storage, open_storage
from crawl_lib.stores import open_stores
from demo import Serving, SynthWeb, Truth, TruthOptions
from tests.e2e.crawl import Result, check_cdxj, check_counts, check_warcs, make_config, run_crawl

WEB = SynthWeb(seed=20, sites=7, pages_per_site=20)
MAX_REDIRECTS = 4


def copy_of(storage: Storage, path: str, local: Storage) -> None:
    """Copy a folder of one store to another."""
    for entry in storage.list(path):
        below = f"{path}/{entry.name}"
        if entry.is_dir:
            copy_of(storage, below, local)
        else:
            with storage.open_read(below) as source, local.open_write(below) as target:
                while data := source.read(1 << 20):
                    target.write(data)


def test_crawl_export_linker_and_finalizer_on_hdfs(hdfs, tmp_path):
    """What lies in HDFS at the end is compared with the truth; an export that is asked for again is the same."""
    address, dfs = f"{hdfs.address}/krake/crawl-1", DfsConfig(wait_s=30.0)
    (tmp_path / "remote").mkdir()
    with Serving(WEB) as serving:
        fetch = {"host_delay_s": 0.02, "max_redirects": MAX_REDIRECTS}
        local = make_config(tmp_path / "remote", nodes=2, fetch=fetch)
        config = dataclasses.replace(local, dfs_primary=address, dfs=dfs)
        done = run_crawl(config, serving.seeds)
        truth = serving.truth(options=TruthOptions(max_redirects=MAX_REDIRECTS))
    again = stages.export_pages(open_stores(config), run_id="run-1")
    assert again["export"] == done.export
    result = check_truth(config, done, truth, tmp_path / "copied")
    check_counts(result)
    assert stages.status_of(config)["crawl"].startswith(address)


def check_truth(config: Config, done: Result, truth: Truth, copy: Path) -> Result:
    """A crawl and its export, copied from the store to a folder of the disk, are what they must be."""
    copied = LocalStorage.open(copy)
    for folder in (config.crawl.directory, config.export.directory):
        copy_of(open_storage(config), folder, copied)
    result = dataclasses.replace(done, config=dataclasses.replace(config, dfs_primary=str(copy)))
    visited = result.visited()
    assert set(visited) == set(truth.visits)
    assert set(visited.values()) == {1}
    assert result.outcomes() == {url: str(outcome) for url, outcome in truth.outcomes().items()}
    assert result.arcs() == truth.arcs
    assert result.contents() == truth.contents()
    assert check_warcs(result)["response"] > 0
    assert check_cdxj(result) > 0
    assert list(copy.rglob(".*")) == []
    return result
