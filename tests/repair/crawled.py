"""A small crawl that tests damage copies of."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from warcio.archiveiterator import ArchiveIterator

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.crawldir import SegmentRef
from crawl_lib.findings import Severity
from crawl_lib.segment import check_segment
from crawl_lib.stores import Stores, open_stores
from tests.e2e.crawl import Result

TABLES = ("pages.parquet", "links.parquet", "index.cdxj", "outlinks", "manifest.json")


def copy_of(crawl: Result, directory: Path) -> Result:
    """The crawl again, in a directory of its own: queues, keys and segments."""
    home = Path(crawl.config.dfs_primary).parent
    shutil.copytree(home, directory, dirs_exist_ok=True)

    def moved(place: str) -> str:
        return str(directory / Path(place).relative_to(home))

    config = crawl.config
    return Result(
        replace(
            config,
            dfs_primary=moved(config.dfs_primary),
            key_storage=replace(
                config.key_storage, servers=tuple(map(moved, config.key_storage.servers))
            ),
            queue=replace(config.queue, local_dir=moved(config.queue.local_dir)),
            scratch=replace(config.scratch, directory=moved(config.scratch.directory)),
        )
    )


def stores_of(config: Config) -> Stores:
    return open_stores(config)


def largest(crawl: Result) -> tuple[Path, SegmentRef]:
    """The segment with the most pages."""
    path = max(
        crawl.segments(), key=lambda segment: pq.read_metadata(segment / "pages.parquet").num_rows
    )
    return path, stores_of(crawl.config).crawl.segment(path.parent.name, path.name)


def rows(segment: Path, table: str = "pages") -> list[dict[str, Any]]:
    found = pq.ParquetFile(segment / f"{table}.parquet").read().to_pylist()
    return sorted(found, key=repr)


def problems(config: Config, name: SegmentRef) -> list[str]:
    """What the full check finds wrong with a segment."""
    stores = stores_of(config)
    found = check_segment(stores.storage, name.path, full=True)
    return [finding.to_text() for finding in found if finding.severity is Severity.ERROR]


def require_file_ids(segment: Path) -> None:
    """Each record names the warcinfo record of its file, and the manifest names that record too."""
    said = json.loads((segment / "manifest.json").read_bytes())["warcinfo_ids"]
    for warc in sorted(segment.glob("*.warc.gz")):
        with warc.open("rb") as file:
            first, *rest = ArchiveIterator(file)
        file_id = first.rec_headers.get_header("WARC-Record-ID")
        assert (first.rec_type, said[warc.name]) == ("warcinfo", file_id)
        assert {one.rec_headers.get_header("WARC-Warcinfo-ID") for one in rest} <= {file_id}


def export_all(config: Config, label: str) -> dict[str, Any]:
    """Export, link and finalize everything."""
    found = stages.export_pages(open_stores(config), label=label)
    stages.link_export(open_stores(config), export=label)
    stages.finalize_export(open_stores(config), export=label)
    return found


def exported(config: Config, label: str) -> dict[str, str]:
    """Digests of an export's files."""
    folder = Path(config.dfs_primary) / config.export.directory / label
    return {
        name: sha256((folder / name).read_bytes()).hexdigest()
        for name in ("urlmapping", "content", "offsets", "webgraph")
    }


def warc_of(segment: Path) -> Path:
    return next(iter(sorted(segment.glob("*.warc.gz"))))
