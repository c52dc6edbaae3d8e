"""What the tests of Spark share: its defaults, crawls to export, and how two exports are compared.

The classes that Spark loads are kept parsed and verified in an archive (class data sharing), as those of HDFS are.
"""

from __future__ import annotations

import dataclasses
import fcntl
import random
import shlex
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from crawl_lib.config import Config
from crawl_lib.config.model import SparkConfig
from crawl_lib.engine import Workplace, open_engine
from crawl_lib.export import export_pages
from crawl_lib.graph import finalize_export, link_export
from crawl_lib.segment.manifest import DroppedLists
from crawl_lib.segment.schema import LINKS_SCHEMA
from crawl_lib.storage import LocalStorage, Storage
from tests.cluster.hdfs import TARGET, Hdfs
from tests.e2e.crawl import make_config
from tests.export.crawls import Capture, CrawlMaker, key
from tests.stores import stores_on

FILES = 9
ARCHIVE = TARGET / f"spark-{pyspark.__version__}.jsa"
NO_CONF = TARGET / "no-conf"
"""An empty folder of configuration: the first on Spark's class path, which the archive has to fit."""
DEFAULTS = """spark.sql.shuffle.partitions 3
spark.sql.adaptive.enabled false
spark.sql.autoBroadcastJoinThreshold -1
spark.sql.codegen.cache.maxEntries 5000
spark.driver.defaultJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:cds=off
"""
"""Small tables are sorted and joined by three tasks, as large ones are; what was compiled for a query is kept for the
next one like it, beyond the hundred newest classes; and Java starts faster."""
LIMIT_S = 1200


def give_defaults(
    patch: pytest.MonkeyPatch, folder: Path, text: str, java: str = f"SharedArchiveFile={ARCHIVE}"
) -> None:
    """Spark takes its defaults from a file, as an operator gives them. `java`: what Java does with the archive."""
    file = folder / "defaults.conf"
    file.write_text(text.replace("-Xlog:cds=off", f"-Xlog:cds=off -XX:{java}"))
    NO_CONF.mkdir(parents=True, exist_ok=True)
    patch.setenv("PYSPARK_SUBMIT_ARGS", f"--properties-file {shlex.quote(str(file))} pyspark-shell")
    patch.setenv("SPARK_CONF_DIR", str(NO_CONF))
    patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")  # whatever this machine's name is


def make_archive(folder: Path) -> None:
    """Make the archive if it is not there, by one small export; processes that need it at once wait."""
    with Path(__file__).open("rb") as one_at_a_time, pytest.MonkeyPatch.context() as patch:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        if ARCHIVE.exists():
            return
        give_defaults(patch, folder, DEFAULTS, java=f"ArchiveClassesAtExit={ARCHIVE}")
        config = with_spark(make_config(folder, nodes=1))
        Path(config.dfs_primary).mkdir()
        maker = CrawlMaker(Path(config.dfs_primary))
        one_page(maker)
        storage = LocalStorage.open(maker.root)
        with open_engine(config, Workplace(storage, folder, "hidden", 1 << 30)) as running:
            keep_warm(running, patch)
            all_stages(storage, config, maker, "spark")


def with_spark(config: Config, **options: Any) -> Config:
    spark = SparkConfig(**{"master": "local[2]", **options})
    return dataclasses.replace(
        config, batch=dataclasses.replace(config.batch, engine="spark"), spark=spark
    )


def spark_url(hdfs: Hdfs, config: Config) -> str:
    """`spark.dfs_url` for a config whose `dfs_primary` is in this HDFS."""
    return f"hdfs://127.0.0.1:{hdfs.rpc['nn1']}" + config.dfs_primary.removeprefix(hdfs.address)


# What they export.


def random_crawl(maker: CrawlMaker, seed: int) -> None:
    """Pages crawled again and again, often at the same time, in any order of folders, nodes and files; some dropped."""
    rng = random.Random(seed)
    urls = [f"http://h{number % 5}.example/{number}" for number in range(120)]
    aims = [*urls, *(f"http://gone.example/{number}" for number in range(20))]
    for folder, node in [("9", "node-b"), ("10", "node-a"), ("10", "node-b"), ("11", "node-a")]:
        captures = [
            Capture(
                url,
                f"{folder} {node} {number}".encode(),
                time=rng.choice([1.0, 1.000001, 2.0]),
                status=rng.choice([200, 200, 200, 404, None]),
                mime=rng.choice(["text/html", "Text/HTML", "image/png", None]),
                outcome=rng.choice(["ok", "ok", "ok", "gone", "redirect", "timeout"]),
                refers_to=rng.choice(["", "", "9/node-b", "10/node-a", "8/gone"])
                if int(folder) > 9
                else "",
                retry_at=rng.choice([None, None, None, 9.0]),
                links=rng.choices(aims, k=rng.randint(0, 12)),
                file=rng.randrange(3),
            )
            for number, url in enumerate(rng.choices(urls, k=150))
        ]
        place = maker.segment(folder, node, sorted(captures, key=lambda capture: capture.file))
        drop_some(place, rng.sample(urls, 10))
        forget_some_targets(place / "links.parquet", rng)


def drop_some(place: Path, urls: list[str]) -> None:
    """Pages that `krake segment drop` took out."""
    DroppedLists(LocalStorage.open(place.parent), place.name).write([key(url) for url in urls])


def forget_some_targets(file: Path, rng: random.Random) -> None:
    """Links to what is no URL that can be crawled have no target."""
    rows = pq.read_table(file).to_pylist()
    for row in rows:
        if rng.random() < 0.1:
            row["target"] = None
    pq.write_table(pa.Table.from_pylist(rows, LINKS_SCHEMA), file)


def one_page(maker: CrawlMaker) -> None:
    maker.segment(
        "1",
        "node-a",
        [Capture("http://a.example/", b"x", links=["http://a.example/", "http://b.example/"])],
    )


def no_page(maker: CrawlMaker) -> None:
    maker.segment(
        "1", "node-a", [Capture("http://a.example/", status=404, links=["http://a.example/"])]
    )
    maker.segment("1", "node-b", [])


def no_segment(maker: CrawlMaker) -> None:
    """Nothing at all."""


# How the bytes are compared.


def all_stages(storage: Storage, config: Config, maker: CrawlMaker, name: str) -> None:
    export_pages(stores_on(storage, config), name=name, segments=maker.segments)
    link_export(stores_on(storage, config), name=name)
    finalize_export(stores_on(storage, config), name=name)


def files_of(storage: Storage, name: str) -> dict[str, bytes]:
    """Every file of an export, hidden ones too."""
    return {
        entry.name: storage.read_bytes(f"export/{name}/{entry.name}")
        for entry in storage.list(f"export/{name}")
    }


def assert_same_bytes(storage: Storage, name: str, other: str) -> None:
    one, two = files_of(storage, name), files_of(storage, other)
    assert len(one) == FILES
    assert sorted(one) == sorted(two)
    assert [file for file in one if one[file] != two[file]] == []


def keep_warm(running: Any, patch: pytest.MonkeyPatch) -> None:
    """From now on stages find Spark running, and leave it so."""

    class Warm(type(running)):  # type: ignore[misc]
        def close(self) -> None:
            self.clean()

    patch.setattr(
        "crawl_lib.engine._open_spark",
        lambda config, room: Warm(running._session, room, config.spark.dfs_url),
    )


def in_scratch(config: Config) -> list[str]:
    return [
        path.name for path in Path(config.scratch.directory).iterdir() if path.suffix != ".lock"
    ]


def never(*arguments: object) -> None:
    raise AssertionError(f"copied to scratch: {arguments}")
