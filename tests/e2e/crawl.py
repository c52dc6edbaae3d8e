"""Run a whole crawl through `crawl_lib.stages`, as the DAG does, and read what it left."""

import gzip
import hashlib
import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml
from fastwarc.warc import ArchiveIterator
from warcio.archiveiterator import ArchiveIterator as WarcioIterator

from crawl_lib import stages
from crawl_lib.config import Config, from_mapping
from crawl_lib.export import ContentReader, WebGraph
from crawl_lib.export.readers import UrlMapping
from crawl_lib.stores import open_stores
from tests.segment.helpers import check_with_warcio

MOST_ITERATIONS = 60
_THREADS = ThreadPoolExecutor(64, "node")
"""A thread keeps the fork server of its last take (`crawl_lib.worker`), whose modules take a quarter second to load."""


def make_config(
    directory: Path, *, nodes: int, routing: str = "host", **sections: dict[str, Any]
) -> Config:
    """A config whose files all lie below `directory`; loopback is allowed, delays are short, one process a node.

    `sections`: options that differ, by section: `fetch={"host_delay_s": 0.1}`.
    """
    mapping: dict[str, Any] = {
        "servers": [f"node-{number}" for number in range(nodes)],
        "dfs_primary": "dfs",
        "key_storage": {"servers": ["keys/0.sqlite"]},
        "queue": {"local_dir": "queue"},
        "scratch": {"directory": "scratch"},
        "batch": {"size": 100_000, "time_limit_s": 600},
        "frontier": {"routing": routing},
        "urls": {"scope": "hosts"},
        "segment": {"sync_interval_s": 0.5},
        "retry": {"max": 0},
        "crawl": {"max_iterations": MOST_ITERATIONS},
        "fetch": {
            "contact": "tests@localhost",
            "host_delay_s": 0.02,
            "ip_delay_s": 0.0,
            "processes": 1,
            "time_limit_s": 10,
            "allow_networks": ["127.0.0.0/8"],
        },
    }
    for name, options in sections.items():
        mapping[name] = {**mapping.get(name, {}), **options}
    return from_mapping(mapping, base=directory)


def write_config(config: Config, directory: Path) -> Path:
    """The config as a file, for other processes."""
    path = directory / "krake-config.yml"
    path.write_text(yaml.safe_dump(config.to_mapping()))
    return path


@dataclass
class Result:
    """What a crawl left. `commits`: what each commit returned; `export`: the export's name, "" if there is none."""

    config: Config
    commits: list[dict[str, Any]] = field(default_factory=list)
    export: str = ""

    @property
    def crawl_dir(self) -> Path:
        return Path(self.config.dfs_primary) / self.config.crawl.directory

    def segments(self) -> list[Path]:
        """The committed segments, by iteration and node."""
        return sorted(path.parent for path in self.crawl_dir.glob("[0-9]*/[!.]*/manifest.json"))

    def manifests(self) -> list[dict[str, Any]]:
        return [json.loads((segment / "manifest.json").read_text()) for segment in self.segments()]

    def rows(
        self, table: str, columns: Sequence[str], segment: Path | None = None
    ) -> list[dict[str, Any]]:
        """Rows of `pages` or `links` of one or of all segments."""
        rows: list[dict[str, Any]] = []
        for path in [segment] if segment else self.segments():
            if (path / f"{table}.parquet").exists():  # a node that took no URL has no tables
                rows += (
                    pq.ParquetFile(path / f"{table}.parquet")
                    .read(columns=list(columns))
                    .to_pylist()
                )
        return rows

    def taken(self) -> list[Path]:
        """The segments of nodes that took URLs; the others have no tables and no index."""
        counts = [manifest["counts"] for manifest in self.manifests()]
        return [path for path, count in zip(self.segments(), counts, strict=True) if count["taken"]]

    def visited(self) -> Counter[str]:
        """How many final rows of `pages` each URL has."""
        return Counter(
            row["url"] for row in self.rows("pages", ["url", "retry_at"]) if row["retry_at"] is None
        )

    def retried(self) -> Counter[str]:
        """How many rows each URL has that say when it is tried again."""
        return Counter(
            row["url"]
            for row in self.rows("pages", ["url", "retry_at"])
            if row["retry_at"] is not None
        )

    def outcomes(self) -> dict[str, str]:
        rows = self.rows("pages", ["url", "outcome", "retry_at"])
        return {row["url"]: row["outcome"] for row in rows if row["retry_at"] is None}

    def digests(self) -> dict[str, bytes]:
        """The digest of the content of each URL that answered 200, as `pages` says."""
        rows = self.rows("pages", ["url", "status", "digest"])
        return {row["url"]: row["digest"] for row in rows if row["status"] == 200}

    def url_of_key(self) -> dict[bytes, str]:
        rows = self.rows("pages", ["url", "key"])
        assert all(hashlib.sha1(row["url"].encode()).digest() == row["key"] for row in rows)
        return {row["key"]: row["url"] for row in rows}

    def _exported(self, name: str) -> Path:
        return Path(self.config.dfs_primary) / self.config.export.directory / self.export / name

    def node_urls(self) -> list[str]:
        """The URL of each NodeID."""
        urls = self.url_of_key()
        with UrlMapping(self._exported("urlmapping")) as mapping:
            return [urls[key] for key in mapping]

    def arcs(self) -> set[tuple[str, str]]:
        """The arcs of the web graph, as URLs; checks that in- and out-neighbours are the same arcs."""
        urls = self.node_urls()
        out: list[tuple[str, str]] = []
        into: list[tuple[str, str]] = []
        with WebGraph(self._exported("webgraph")) as graph:
            assert len(graph) == len(urls)
            for node in graph:
                out += [(urls[node.node_id], urls[other]) for other in node.out_neighbours]
                into += [(urls[other], urls[node.node_id]) for other in node.in_neighbours]
        assert sorted(out) == sorted(into)
        assert len(out) == len(set(out))
        return set(out)

    def contents(self) -> dict[str, bytes]:
        """SHA-1 of each page in the content file."""
        with ContentReader(self._exported("content"), self._exported("offsets")) as pages:
            return {
                url: hashlib.sha1(page).digest()
                for url, page in zip(self.node_urls(), pages, strict=True)
            }

    def warcs(self) -> list[Path]:
        return sorted(self.crawl_dir.glob("[0-9]*/[!.]*/*.warc.gz"))


def settle(config: Config) -> list[dict[str, Any]]:
    """Settle each node; returns what each says."""
    return [stages.settle_node(open_stores(config), node=node) for node in config.servers]


def run_crawl(
    config: Config,
    seeds: str | Sequence[str],
    iterations: int | None = None,
    *,
    run_id: str = "run-1",
    result: Result | None = None,
    process: bool = True,
) -> Result:
    """Inject, crawl, settle and export; with a CrawlDb as the DAG `recrawl` does.

    `seeds`: URLs, or what `stages.inject` takes. `iterations`: None goes on until an iteration finds nothing to fetch,
    now or later. `result`: of an earlier run of the same crawl. `process`: also maintenance, export, linker and
    finalizer.
    """
    result = result or Result(config)
    stages.inject(
        open_stores(config),
        run_id=run_id,
        seeds=seeds if isinstance(seeds, str) else "\n".join(seeds),
    )
    has_crawldb = config.order.has_crawldb
    for number in range(1, (iterations or MOST_ITERATIONS) + 1):
        if has_crawldb and "ended" in stages.generate(
            open_stores(config), run_id=run_id, iteration=number
        ):
            break
        commit = run_iteration(config, run_id, number)
        result.commits.append(commit)
        if has_crawldb:
            stages.update_crawldb(open_stores(config))
        elif iterations is None and commit["taken"] == commit["passed_over"] == 0:
            break
    else:
        assert iterations is not None, f"the crawl did not end in {MOST_ITERATIONS} iterations"
    settle(config)
    if process:
        stages.maintain_keys(open_stores(config))
        result.export = stages.export_pages(open_stores(config), run_id=run_id)["export"]
        stages.link_export(open_stores(config), export=result.export)
        stages.finalize_export(open_stores(config), export=result.export)
    return result


def run_iteration(config: Config, run_id: str, number: int) -> dict[str, Any]:
    """All nodes at the same time, commit."""
    tasks = [
        _THREADS.submit(
            stages.crawl_node, open_stores(config), run_id=run_id, iteration=number, node=node
        )
        for node in config.servers
    ]
    wait(tasks)
    for task in tasks:
        task.result()
    return stages.commit_iteration(open_stores(config), run_id=run_id, iteration=number)


def check_warcs(result: Result) -> Counter[str]:
    """Every WARC passes `warcio check` (see there), every record is read by FastWARC with its digests; by type."""
    files = [Path(path) for path in result.warcs()]
    check_with_warcio(files)
    counts: Counter[str] = Counter()
    for file in files:
        with file.open("rb") as stream:
            for record in ArchiveIterator(stream, verify_digests=True):
                assert record.headers["WARC-Type"]
                assert len(record.reader.read()) == record.content_length
                counts[record.headers["WARC-Type"]] += 1
    return counts


def cdxj_entries(segment: Path) -> Iterator[dict[str, Any]]:
    """The JSON blocks of a segment's index; its lines must be sorted."""
    lines = (segment / "index.cdxj").read_text().splitlines()
    lines = [line for line in lines if not line.startswith("!")]
    assert lines == sorted(lines)
    for line in lines:
        yield json.loads(line.split(" ", 2)[2])


def record_at(path: Path, offset: int, length: int) -> tuple[str, str]:
    """Type and target URI of the one record in these bytes, which must be one whole gzip member."""
    with path.open("rb") as stream:
        stream.seek(offset)
        member = stream.read(length)
    assert gzip.decompress(member)
    [record] = [
        (found.rec_type, found.rec_headers.get_header("WARC-Target-URI"))
        for found in WarcioIterator(io.BytesIO(member))
    ]
    return record


def check_cdxj(result: Result) -> int:
    """Every entry of every index hits the record of its URL, every response of `pages` has one; returns how many."""
    entries = 0
    for segment in result.taken():
        indexed: set[tuple[str, int]] = set()
        for entry in cdxj_entries(segment):
            offset, length = int(entry["offset"]), int(entry["length"])
            kind, url = record_at(segment / entry["filename"], offset, length)
            assert (kind, url) == (
                "revisit" if entry["mime"] == "warc/revisit" else "response",
                entry["url"],
            )
            indexed.add((entry["filename"], offset))
            entries += 1
        for row in pq.ParquetFile(segment / "pages.parquet").read().to_pylist():
            kind, url = record_at(
                segment / row["warc_file"], row["warc_offset"], row["warc_length"]
            )
            assert url == row["url"]
            answer = "revisit" if row["refers_to"] else "response"
            assert kind == (answer if row["status"] is not None else "metadata")
            assert ((row["warc_file"], row["warc_offset"]) in indexed) == (
                row["status"] is not None
            )
    return entries


def check_counts(result: Result) -> None:
    """Taken = each outcome + deferred in every manifest, and the tables have as many rows as it says, final and not."""
    for segment, manifest in zip(result.segments(), result.manifests(), strict=True):
        counts = manifest["counts"]
        if not counts["taken"]:
            names = {file["name"] for file in manifest["files"]}
            assert names - {"outlinks"} == {"iteration.json", "scope"}
            continue
        assert counts["taken"] == sum(counts["outcomes"].values()) + counts["deferred"]
        assert counts["pages"] == pq.ParquetFile(segment / "pages.parquet").metadata.num_rows
        assert counts["links"] == pq.ParquetFile(segment / "links.parquet").metadata.num_rows
        assert counts["pages"] == sum(counts["outcomes"].values())
        tries = [
            row["outcome"]
            for row in result.rows("pages", ["outcome", "retry_at"], segment)
            if row["retry_at"]
        ]
        assert Counter(tries) <= Counter(counts.get("retried", {})), (
            "those that a list asked for are among these too"
        )
        for file in manifest["files"]:
            data = (segment / file["name"]).read_bytes()
            assert (len(data), hashlib.sha256(data).hexdigest()) == (
                file["size_bytes"],
                file["sha256"],
            )
