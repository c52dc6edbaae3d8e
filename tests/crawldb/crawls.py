"""Crawls written by hand for the tests of the CrawlDb: seeds, iterations, segments with tables alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha1
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crawl_lib.crawldb import newest_version
from crawl_lib.crawldir import Scopes
from crawl_lib.dfsfiles import write_json_bytes
from crawl_lib.sealed import SEALED_VERSION
from crawl_lib.seeds import Division, inject, parse_seeds
from crawl_lib.segment import LINKS_SCHEMA, PAGES_SCHEMA
from crawl_lib.stores import Stores
from crawl_lib.urls import host_of
from crawl_lib.versions import Version
from tests.export.crawls import key, manifest

STATUS = {"ok": 200, "redirect": 302, "gone": 404, "not_modified": 304, "client_error": 403}


@dataclass
class Visit:
    """A row of `pages` with its links. `at`: seconds after the iteration's start; `body`: what its digest is of.
    `links`: URLs, or each with its text; `needs`: URLs of requisites.

    `link`: other columns of its links. `retry_s`: seconds after the visit at which it is tried again, for a failure
    that passes. `refers_to`: the segment and file of the full capture that this one refers to.
    """

    url: str
    outcome: str = "ok"
    body: str = ""
    links: Sequence[str | tuple[str, str]] = ()
    needs: Sequence[str] = ()
    link: dict[str, Any] = field(default_factory=dict)
    at: float = 10.0
    status: int | None = None
    redirect_url: str | None = None
    retry_s: int | None = None
    parse_error: str | None = None
    refers_to: tuple[str, str, int] | None = None
    more: dict[str, Any] = field(default_factory=dict)

    def row(self, folder: int, offset: int) -> dict[str, Any]:
        """Its row."""
        time = datetime.fromtimestamp(folder, UTC) + timedelta(seconds=self.at)
        is_full = self.outcome == "ok" and self.refers_to is None
        refers = (
            dict(zip(("segment", "file", "offset"), self.refers_to, strict=True))
            if self.refers_to
            else None
        )
        return {
            "key": key(self.url),
            "url": self.url,
            "host": host_of(self.url),
            "time": time,
            "depth": 0,
            "outcome": self.outcome,
            "status": self.status or STATUS.get(self.outcome),
            "attempts": 1,
            "duration_ms": 1,
            "warc_file": "0.warc.gz",
            "warc_offset": offset,
            "warc_length": 1,
            "digest": sha1(self.body.encode()).digest() if is_full else None,
            "redirect_url": self.redirect_url,
            "parse_error": self.parse_error,
            "refers_to": refers,
            "retry_at": None if self.retry_s is None else time + timedelta(seconds=self.retry_s),
            **self.more,
        }


@dataclass
class Crawl:
    """A crawl directory that grows by hand."""

    stores: Stores
    known_seeds: list[str] = field(default_factory=list)

    @property
    def root(self) -> Path:
        """The crawl directory."""
        return Path(self.stores.config.dfs_primary) / "crawl"

    def seeds(self, text: str, run_id: str = "run") -> str:
        """Inject; the next iteration has them in its scope."""
        division = Division.of(self.stores.config)
        digest = inject(self.stores.crawl, run_id, parse_seeds(text), division).said["digest"]
        self.known_seeds.append(digest)
        return str(digest)

    def iteration(self, folder: int) -> None:
        """An iteration's folder."""
        path = self.root / str(folder)
        if not path.exists():
            path.mkdir(parents=True)
            (self.root / "scope").mkdir(exist_ok=True)
            (self.root / "scope" / Scopes.digest(b"")).write_bytes(b"")
            facts = {
                "run_id": "run",
                "iteration": 1,
                "kind": "crawl",
                "nodes": ["node-a"],
                "routing": "host",
                "config_digest": "",
            }
            sums = {"batch_sizes": {}, "taken_before": 0, "summed": [], "seeds": self.known_seeds}
            value = {
                **facts,
                **sums,
                "format_version": SEALED_VERSION,
                Scopes.DIGEST: Scopes.digest(b""),
            }
            (path / "iteration.json").write_bytes(write_json_bytes(value))

    def segment(self, folder: int, visits: Iterable[Visit], node: str = "node-a") -> str:
        """A segment of an iteration; returns its name."""
        self.iteration(folder)
        place = self.root / str(folder) / node
        place.mkdir()
        visits = list(visits)
        rows = [visit.row(folder, number) for number, visit in enumerate(visits)]
        links = [
            {
                "source": key(visit.url),
                "target": key(url),
                "target_url": url,
                "followed": True,
                "element": "a",
            }
            | {"anchor": anchor}
            | visit.link
            for visit in visits
            for url, anchor in (
                (link, None) if isinstance(link, str) else link for link in visit.links
            )
        ]
        links += [
            {
                "source": key(visit.url),
                "target": key(url),
                "target_url": url,
                "followed": False,
                "rule": "requisite",
            }
            for visit in visits
            for url in visit.needs
        ]
        pq.write_table(pa.Table.from_pylist(rows, PAGES_SCHEMA), place / "pages.parquet")
        pq.write_table(pa.Table.from_pylist(links, LINKS_SCHEMA), place / "links.parquet")
        (place / "manifest.json").write_bytes(
            manifest(str(folder), node, pages=len(rows), links=len(links))
        )
        return f"{folder}/{node}"

    def rows(self, version: Version | None = None) -> dict[str, dict[str, Any]]:
        """The rows of a version, or of the newest one, by URL."""
        version = version or newest_version(self.stores)
        root = Path(self.stores.config.dfs_primary)
        found = [row for path in version.paths for row in pq.read_table(root / path).to_pylist()]
        keys = [row["key"] for row in found]
        assert keys == sorted(set(keys))
        return {row["url"]: row for row in found}
