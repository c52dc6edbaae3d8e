"""Small crawls for the tests of the DAGs: their web, their config, and what must be equal when a run was troubled."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from crawl_lib.config import Config
from demo import SynthWeb
from tests.dags.api import Api
from tests.e2e.crawl import Result, make_config, write_config

WEB = SynthWeb(seed=8, sites=2, pages_per_site=4, specials=False)
NODES = 2
ITERATIONS = 2
"""Rounds that reach all of `WEB`."""
MOST_ITERATIONS = 3
EXPORTED = ("urlmapping", "content", "offsets", "webgraph")
_VARYING = {"time", "duration_ms", "warc_file", "warc_offset", "warc_length"}


def small_config(directory: Path, **sections: Any) -> tuple[Config, Path]:
    """A config of two nodes below `directory`, and its file."""
    directory.mkdir(parents=True, exist_ok=True)
    crawl = {"max_iterations": MOST_ITERATIONS, **sections.pop("crawl", {})}
    fetch = {"host_delay_s": 0.0, "ip_delay_s": 0.0, **sections.pop("fetch", {})}
    config = make_config(directory, nodes=NODES, crawl=crawl, fetch=fetch, **sections)
    return config, write_config(config, directory)


def reschedule(api: Api, file: Path, schedule: str | None) -> None:
    """Change `crawl.schedule` in a config file, and wait until Airflow has seen it."""
    mapping = yaml.safe_load(file.read_text())
    mapping["crawl"]["schedule"] = schedule
    written = file.with_suffix(".new")
    written.write_text(yaml.safe_dump(mapping))
    written.replace(file)  # tasks of other runs read it meanwhile
    api.parse_again(lambda dag: (dag["timetable_summary"] or "None") == str(schedule))


def wipe(config: Config) -> None:
    """Delete a crawl's data: the next run begins a new crawl."""
    for path in (config.dfs_primary, config.queue.local_dir, config.scratch.directory):
        shutil.rmtree(path, ignore_errors=True)
    for server in config.key_storage.servers:
        shutil.rmtree(Path(server).parent, ignore_errors=True)


def exported_bytes(config: Config, export: str) -> dict[str, bytes]:
    """The files of an export whose formats are fixed."""
    folder = Path(config.dfs_primary) / config.export.directory / export
    return {name: (folder / name).read_bytes() for name in EXPORTED}


def exports(config: Config) -> list[str]:
    """The names of the exports that are there."""
    folder = Path(config.dfs_primary) / config.export.directory
    return sorted(
        path.name for path in folder.glob("*") if path.is_dir() and not path.name.startswith(".")
    )


def rows(config: Config, table: str) -> list[tuple[int, str, list[Any]]]:
    """The rows of `pages` or `links` of each segment, by iteration and node, without what no two runs share.

    Their order within a segment is the order in which fetches ended, so they are sorted.
    """
    result = Result(config)
    folders = sorted({segment.parent.name for segment in result.segments()}, key=int)

    return [
        (
            folders.index(segment.parent.name),
            segment.name,
            sorted(
                sorted((name, repr(value)) for name, value in row.items() if name not in _VARYING)
                for path in segment.glob(f"{table}.parquet")  # none where the node took no URL
                for row in pq.ParquetFile(path).read().to_pylist()
            ),
        )
        for segment in result.segments()
    ]


def taken_in_order(config: Config) -> list[tuple[str, int]]:
    """Run id and iteration of each folder, oldest first."""
    folders = sorted(
        Result(config).crawl_dir.glob("[0-9]*/iteration.json"),
        key=lambda path: int(path.parent.name),
    )
    found = [json.loads(path.read_text()) for path in folders]
    return [(entry["run_id"], entry["iteration"]) for entry in found]
