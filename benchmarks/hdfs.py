"""Files to a real HDFS of one namenode and one datanode on this machine; CPU is the client's."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.report import Row, measure
from crawl_lib.config import Config
from crawl_lib.segment import Manifest
from crawl_lib.segment.publish import upload_checked
from crawl_lib.storage import open_storage
from tests.cluster.hdfs import Hdfs, resolve_jars, why_not

MEGABYTES = 512
MB = 1 << 20


def transfer(address: str, local: str) -> dict[str, tuple[float, float]]:
    """MB/s and milliseconds of CPU a MB of each way to send or read a file of `MEGABYTES`."""
    storage = open_storage(Config(servers=("node",), dfs_primary=address))
    storage.write_bytes("warm", b"1")
    source = Path(local)

    def stream() -> None:
        with storage.open_write("streamed") as target, source.open("rb") as file:
            while data := file.read(MB):
                target.write(data)

    def read() -> None:
        with storage.open_read("uploaded") as file:
            while file.read(MB):
                pass

    steps: dict[str, Callable[[], None]] = {
        "upload of a file": lambda: storage.upload(source, "uploaded"),
        "streamed write": stream,
        "read": read,
        "upload as a WARC file is sealed: digest, upload, read back": lambda: upload_checked(
            storage, source, "sealed", Manifest.entry_of(source), None
        ),
    }
    return {name: _rate(step) for name, step in steps.items()}


def _rate(step: Callable[[], None]) -> tuple[float, float]:
    begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
    step()
    wall_s, cpu_s = time.perf_counter() - begun_s, time.process_time() - begun_cpu_s
    return MEGABYTES / wall_s, cpu_s / MEGABYTES * 1000


def run(directory: Path) -> list[Row]:
    """Half a gigabyte each way; one line if Java, Maven or Hadoop is not there."""
    missing = why_not()
    if not missing:
        try:
            resolve_jars()
        except AssertionError as error:
            missing = str(error).splitlines()[0]
    if missing:
        return [Row("HDFS", f"not measured: {missing}")]
    local = directory / "data"
    local.write_bytes(os.urandom(MEGABYTES * MB))
    with Hdfs(directory / "hdfs") as cluster:
        figures = measure(transfer, f"{cluster.address}/krake/bench", str(local)).result
    return [
        Row(f"HDFS: {name}", f"{rate:,.0f} MB/s, {cpu:.2f} ms CPU a MB")
        for name, (rate, cpu) in figures.items()
    ]
