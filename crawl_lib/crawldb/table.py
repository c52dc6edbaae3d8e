"""The table: the columns of a row."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import pyarrow as pa

from crawl_lib.dataclass import dataclass
from crawl_lib.derived import SEGMENTS
from crawl_lib.stores import Stores
from crawl_lib.versions import SCORE, TIME, Family, TableOutput, Version, VersionFacts, Versions

NEVER = datetime(9999, 12, 31, tzinfo=UTC)
"""The `fetch_time` of a requisite without a request from a page."""


class Status(StrEnum):
    """The status of a URL in the CrawlDb."""

    UNFETCHED = "unfetched"
    """No visit has brought anything yet."""
    FETCHED = "fetched"
    """The last visit brought content, the first or another one than before."""
    NOT_MODIFIED = "not_modified"
    """The last visit found the earlier content."""
    REDIRECTED_TEMPORARY = "redirected_temporary"
    """A temporary redirect."""
    REDIRECTED_PERMANENT = "redirected_permanent"
    """A permanent redirect (301, 308)."""
    GONE = "gone"
    """There is nothing, or nothing that may be fetched; it is tried again, at longer and longer intervals."""
    PARSE_FAILED = "parse_failed"
    """The answer could not be read."""
    DUPLICATE = "duplicate"
    """A better URL has the same content."""
    ORPHAN = "orphan"
    """No page links to the URL any more, and the URL is no seed."""
    REQUISITE = "requisite"
    """A requisite of pages, such as an image, without a link from a page; `fetch_status` has the status by visits."""


_FIELDS: "list[pa.Field[Any]]" = [
    pa.field("key", pa.binary(20), nullable=False),
    pa.field("url", pa.string(), nullable=False),
    pa.field("host", pa.string(), nullable=False),
    pa.field("domain", pa.string(), nullable=False),
    pa.field("status", pa.string(), nullable=False),
    pa.field("fetch_time", TIME, nullable=False),
    pa.field("modified_time", TIME),
    pa.field("retries", pa.int32(), nullable=False),
    pa.field("interval_s", pa.int64(), nullable=False),
    pa.field("score", SCORE, nullable=False),
    pa.field("signature", pa.binary()),
    pa.field("fetched_time", TIME),
    pa.field("etag", pa.string()),
    pa.field("last_modified", pa.string()),
    pa.field("redirect_url", pa.string()),
    pa.field("redirects", pa.int32(), nullable=False),
    pa.field("capture_segment", pa.string()),
    pa.field("capture_file", pa.string()),
    pa.field("capture_offset", pa.int64()),
    pa.field("capture_time", TIME),
    pa.field("capture_digest", pa.binary()),
    pa.field("depth", pa.int32(), nullable=False),
    pa.field("metadata", pa.string()),
    pa.field("fetch_status", pa.string(), nullable=False),
    pa.field("inlinks", pa.int64(), nullable=False),
]
CRAWLDB_SCHEMA = pa.schema(_FIELDS)
"""Null where unknown. `fetch_time`: from when on it is to be visited next; `fetched_time`: of the last visit, whatever
came of it; `modified_time`: of the visit that found the known content. `retries`: visits in a row with a passing
failure. `redirects`: hops since the last link. `capture_*`: the last full capture; `capture_segment` is
`<folder>/<node>`. `depth`: links from a seed, whose own is 0. `fetch_status`: the status as the visits left it,
where `status` is `duplicate`, `orphan` or `requisite`. A requisite has the `fetch_time` `NEVER` until a page asks
for it, and its `depth` counts the steps from a page that needs it. `inlinks`: followed links and redirects to it on
the newest captures of other pages; of a sitemap also in how many segments a robots.txt has named it."""


CRAWLDB = Family(
    folder="crawldb",
    name="the CrawlDb",
    schema=CRAWLDB_SCHEMA,
    made_again="the earlier version counts, and the next update adds missing rows",
    rebuilt="run `krake crawldb rebuild`",
    dictionary=(
        "host",
        "domain",
        "status",
        "fetch_status",
        "capture_segment",
        "capture_file",
        "metadata",
    ),
    counted={"status": "statuses"},
)
"""A version's manifest has `parent` (a number, or null), `now` (POSIX seconds), `config_digest`, `segments` (those
taken in: `<folder>/<node>` and the digest of its manifest), `seeds` (names of folders taken in), `statuses` (rows by
status), `ruled` where there are such rules (see `filtering`), `revised` (see `revise`), and `ranked`, the rank that the
scores are since an earlier version (see `rank_of`)."""
CRAWLDB_OUTPUT = TableOutput("crawldb", (SEGMENTS, "text"), CRAWLDB)


def newest_version(stores: Stores) -> Version | None:
    """Return the newest complete CrawlDb, None before the first.

    Raises as `Versions.newest` does.
    """
    return Versions(stores, CRAWLDB).newest()


def rank_of(version: Version | None) -> str | None:
    """Return the rank behind a version's scores.

    The name is that of `revise`. None: scores follow from links.
    """
    manifest = {} if version is None else version.manifest
    found: str | None = manifest.get("revised", {}).get("score") or manifest.get("ranked")
    return found


@dataclass(frozen=True)
class CrawlDbCounts(VersionFacts):
    """The counts of a version for tasks and commands. `statuses`: rows of each status."""

    statuses: dict[str, int]
    segments: int


def counts_of(version: Version) -> CrawlDbCounts:
    """Return the counts of a version for tasks and commands."""
    manifest = version.manifest
    return CrawlDbCounts(
        **vars(version.facts), statuses=manifest["statuses"], segments=len(manifest["segments"])
    )
