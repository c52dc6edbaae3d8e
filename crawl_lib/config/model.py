"""The options of a crawl, as frozen dataclasses: one class a section of `config/krake-config.yml`.

Names contain units. `metadata` of a field holds what `load` checks: `minimum`, `maximum`, `choices`, `path`
(relative paths are taken relative to the config file), `pattern`.
"""

from dataclasses import MISSING, dataclass, field
from typing import Any

from crawl_lib.records import MAX_BODY_BYTES


def option(default: Any = MISSING, **checks: Any) -> Any:
    """A dataclass field with checks; without a default the option is mandatory."""
    return field(default=default, metadata=checks)


NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]*"
FOLDER_PATTERN = r"(?!.*(^|/)\.)[^/:][^:]*"
"""A folder below `dfs_primary`: no part begins with a dot, since such names belong to unfinished work."""
TOKEN_PATTERN = r"[A-Za-z_-]+"


@dataclass(frozen=True)
class CrawlConfig:
    """Where the crawl lies on the DFS, and when it ends."""

    directory: str = option("crawl", pattern=FOLDER_PATTERN)
    max_iterations: int = option(20, minimum=1, maximum=1000)
    schedule: str | None = option(None)
    max_pages: int | None = option(None, minimum=1)
    min_nodes: float = option(1.0, minimum=0.01, maximum=1)


@dataclass(frozen=True)
class DfsConfig:
    """How HDFS is spoken to; a local directory needs none of it."""

    user: str = option("krake", pattern=r"[^\s/:@]+")
    security: str = option("simple", choices=("simple", "kerberos"))
    ca_file: str | None = option(None, path="file")
    cert_file: str | None = option(None, path="file")
    key_file: str | None = option(None, path="file")
    connect_timeout_s: float = option(10.0, minimum=0.1)
    timeout_s: float = option(60.0, minimum=0.1)
    wait_s: float = option(120.0, minimum=0)


@dataclass(frozen=True)
class InjectConfig:
    """Where files of seeds lie that the DAG's param `seeds` may name."""

    directory: str = option("../seeds", path="directory")


@dataclass(frozen=True)
class ExportConfig:
    """What the export takes in, and where its folders lie on the DFS."""

    directory: str = option("export", pattern=FOLDER_PATTERN)
    mime_types: tuple[str, ...] | None = option(None)
    max_content_bytes: int = option(1 << 30, minimum=1, maximum=(1 << 31) - 1)


@dataclass(frozen=True)
class KeyStorageConfig:
    """The key servers: `host[:port]` of MySQL servers, or paths of SQLite files."""

    servers: tuple[str, ...] = option(("../data/keys/0.sqlite",), nonempty=True, unique=True, path="servers")
    database: str = option("krake", pattern=r"[A-Za-z0-9_]+")
    user: str = option("krake")
    tls: str = option("prefer", choices=("verify", "require", "prefer", "off"))
    ca_file: str | None = option(None, path="file")
    replication: int = option(1, minimum=1)
    timeout_s: float = option(30.0, minimum=0.1)
    connections: int = option(8, minimum=1, maximum=1000)


@dataclass(frozen=True)
class QueueConfig:
    """The nodes' queues: `<local_dir>/<node>/`."""

    local_dir: str = option("../data/queue", path="directory")
    lock_timeout_s: float = option(900.0, minimum=0)


@dataclass(frozen=True)
class BatchConfig:
    """What one node takes in one iteration, and what does the batch stages."""

    size: int = option(1000, minimum=1)
    time_limit_s: float = option(600.0, minimum=1)
    engine: str = option("duckdb", choices=("duckdb", "spark"))


@dataclass(frozen=True)
class WatermarksConfig:
    """Free room below which a node's task pauses, and for how long it does before it stops."""

    min_free_local_bytes: int = option(512 << 20, minimum=0)
    min_free_dfs_bytes: int = option(1 << 30, minimum=0)
    max_pause_s: float = option(900.0, minimum=0)


@dataclass(frozen=True)
class SparkConfig:
    """Where Spark runs the batch stages, if `batch.engine` says so."""

    master: str = option("local[*]", pattern=r"\S+")
    dfs_url: str | None = option(None, pattern=r"hdfs://[^\s]+")


@dataclass(frozen=True)
class FrontierConfig:
    """Which node a new URL goes to."""

    routing: str = option("host", choices=("host", "local"))


@dataclass(frozen=True)
class RuleConfig:
    """One rule of `urls.rules`: `action` is `+` or `-`, `kind` regex, domain, prefix or suffix."""

    action: str = option(choices=("+", "-"))
    kind: str = option(choices=("regex", "domain", "prefix", "suffix"))
    value: str = option()


@dataclass(frozen=True)
class UrlsConfig:
    """Which URLs belong to the crawl."""

    scope: str = option("domains", choices=("hosts", "domains", "any"))
    rules: tuple[RuleConfig, ...] = option(())
    max_depth: int | None = option(None, minimum=0)
    max_pages_per_host: int | None = option(None, minimum=1)
    max_length_chars: int = option(2000, minimum=16, maximum=65535)


@dataclass(frozen=True)
class HostConfig:
    """One entry of `fetch.hosts`: what is otherwise for hosts that match. `kind`: regex or domain; null: as usual."""

    kind: str = option(choices=("regex", "domain"))
    value: str = option()
    delay_s: float | None = option(None, minimum=0)
    connections: int | None = option(None, minimum=1, maximum=1000)


@dataclass(frozen=True)
class FetchConfig:
    """How pages are fetched: who we say we are, how polite we are, how much we take."""

    user_agent: str = option("krake", pattern=TOKEN_PATTERN)
    contact: str | None = option(None, pattern=r"[ -~]+")
    host_delay_s: float = option(1.0, minimum=0)
    ip_delay_s: float = option(0.25, minimum=0)
    max_crawl_delay_s: float = option(30.0, minimum=0)
    adaptive_delay_factor: float | None = option(None, minimum=0.01)
    robots: str = option("obey", choices=("obey", "ignore"))
    robots_ttl_s: float = option(86400.0, minimum=0)
    max_robots_bytes: int = option(512 * 1024, minimum=500 * 1024, maximum=MAX_BODY_BYTES)
    connections: int = option(64, minimum=1, maximum=10000)
    connections_per_host: int = option(1, minimum=1, maximum=1000)
    hosts: tuple[HostConfig, ...] = option(())
    processes: int | None = option(None, minimum=1, maximum=256)
    max_body_bytes: int = option(16 << 20, minimum=1, maximum=MAX_BODY_BYTES)
    max_inflight_bytes: int = option(128 << 20, minimum=1 << 20)
    max_decompressed_bytes: int = option(64 << 20, minimum=1)
    max_header_bytes: int = option(64 << 10, minimum=1024, maximum=300_000)
    max_redirects: int = option(10, minimum=0)
    connect_timeout_s: float = option(15.0, minimum=0.1)
    time_limit_s: float = option(60.0, minimum=0.1)
    dns_ttl_s: float = option(600.0, minimum=0)
    dns_timeout_s: float = option(5.0, minimum=0.1)
    mime_types: tuple[str, ...] | None = option(None)
    proxy: str | None = option(None)
    verify_tls: bool = option(True)
    allow_networks: tuple[str, ...] = option((), networks=True)


@dataclass(frozen=True)
class ParseConfig:
    """What is read out of a page."""

    follow_nofollow: bool = option(False)
    max_links_per_page: int = option(50_000, minimum=1)
    max_anchor_chars: int = option(200, minimum=0)


@dataclass(frozen=True)
class SegmentConfig:
    """How a segment's files are cut and made durable."""

    max_warc_bytes: int = option(1 << 30, minimum=1 << 16)
    gzip_level: int = option(2, minimum=0, maximum=3)
    sync_interval_s: float = option(5.0, minimum=0)


@dataclass(frozen=True)
class ScratchConfig:
    """Local room that the batch stages may use."""

    directory: str = option("../data/scratch", path="directory")
    memory_bytes: int = option(1 << 30, minimum=64 << 20)
    max_bytes: int | None = option(None, minimum=64 << 20)


@dataclass(frozen=True)
class Config:
    """All options of one crawl. `servers` are the nodes, and the names of their queues in Airflow."""

    servers: tuple[str, ...] = option(nonempty=True, unique=True, pattern=NAME_PATTERN)
    dfs_primary: str = option(path="dfs")
    dfs: DfsConfig = DfsConfig()
    crawl: CrawlConfig = CrawlConfig()
    inject: InjectConfig = InjectConfig()
    export: ExportConfig = ExportConfig()
    key_storage: KeyStorageConfig = KeyStorageConfig()
    queue: QueueConfig = QueueConfig()
    batch: BatchConfig = BatchConfig()
    frontier: FrontierConfig = FrontierConfig()
    urls: UrlsConfig = UrlsConfig()
    fetch: FetchConfig = FetchConfig()
    parse: ParseConfig = ParseConfig()
    segment: SegmentConfig = SegmentConfig()
    scratch: ScratchConfig = ScratchConfig()
    spark: SparkConfig = SparkConfig()
    watermarks: WatermarksConfig = WatermarksConfig()
