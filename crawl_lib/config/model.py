"""The options of a crawl, as frozen dataclasses: one class a section of `config/krake-config.yml`.

Names contain units. `metadata` of a field holds what `load` checks: `minimum`, `maximum`, `choices`, `path`
(relative paths are taken relative to the config file), `pattern`, and as `form` what `load` has words for.
"""

import json
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, ClassVar, TypeVar, cast, dataclass_transform

from crawl_lib.config.order import FIFO, ORDERS, Order
from crawl_lib.errors import ConfigError
from crawl_lib.records import MAX_BODY_BYTES

Section = TypeVar("Section")


@dataclass_transform(frozen_default=True)
def section(kind: type[Section]) -> type[Section]:
    """Make a class a frozen dataclass with shared methods.

    All sections have the same functions as methods. Python would compile six methods for each class. Each program of
    Krake loads 46 sections, which took 12 ms.
    """
    made = dataclass(init=False, eq=False, repr=False)(kind)
    for name, method in _METHODS.items():
        setattr(made, name, method)
    return made


def _init(one: object, *values: object, **named: object) -> None:
    names = [item.name for item in fields(one)]  # type: ignore[arg-type] # each section is a dataclass
    given = {**dict(zip(names, values, strict=False)), **named}
    found = {item.name: given.pop(item.name, item.default) for item in fields(one)}  # type: ignore[arg-type]
    missing = [name for name, value in found.items() if value is MISSING]
    if given or missing or len(values) > len(names):
        raise TypeError(
            f"{type(one).__name__}: unknown {sorted(given)}, missing {missing}, {len(values)} values"
        )
    vars(one).update(found)


def _refuse(one: object, name: str, value: object = None) -> None:
    raise FrozenInstanceError(f"{type(one).__name__}.{name} cannot be changed")


def _equals(one: object, other: object) -> bool:
    return vars(one) == vars(other) if type(one) is type(other) else NotImplemented


def _hash(one: object) -> int:
    return hash(tuple(vars(one).values()))


def _text(one: object) -> str:
    return f"{type(one).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(one).items())})"


_METHODS: dict[str, Any] = {
    "__init__": _init,
    "__setattr__": _refuse,
    "__delattr__": _refuse,
    "__eq__": _equals,
    "__hash__": _hash,
    "__repr__": _text,
}


def option(default: Any = MISSING, **checks: Any) -> Any:
    """Return a dataclass field with checks.

    Without a default the option is mandatory.
    """
    return field(default=default, metadata=checks)


class Pattern(StrEnum):
    """Regular expressions that texts in a config match as a whole."""

    NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
    CRAWL_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
    """Part of Airflow's ids, which have up to 250 characters."""
    ADDRESS = r"(?:[^\s/:@\[\]]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}"
    """A host name or address, and a port."""
    INDEX_NAME = r"[a-z0-9][a-z0-9._-]{0,99}"
    """An alias of OpenSearch. Names of indexes begin with the alias, and have up to 255 bytes."""
    FOLDER = r"(?!.*(^|/)\.)[^/:][^:]*"
    """A folder below `dfs_primary`: no part begins with a dot, since such names belong to unfinished work."""
    TOKEN = r"[A-Za-z_-]+"


STATUSES = (
    "unfetched",
    "fetched",
    "not_modified",
    "redirected_temporary",
    "redirected_permanent",
    "gone",
    "parse_failed",
    "duplicate",
    "orphan",
    "requisite",
)
"""The statuses of a URL in the CrawlDb (`crawldb.Status`)."""
OUTPUT_TASKS = ("text", "index", "push", "commoncrawl", "graphs", "captures")
"""Names that `outputs.tasks` may have, in the order in which the tasks run."""
COMMONCRAWL_MADE = ("index", "wet")
"""Names that `commoncrawl.make` may have."""
GRAPHS_MADE = ("hosts", "domains", "bv")
"""Names that `graphs.make` may have."""
INDEX_LANGUAGES = ("da", "de", "en", "es", "fi", "fr", "hu", "it", "nl", "no", "pt", "ru", "sv")
"""Languages that an index can have stems of (`crawl_lib.index.LANGUAGES`)."""


@section
class CrawlConfig:
    """The name of the crawl, its place on the DFS, and its end."""

    name: str = option("krake", pattern=Pattern.CRAWL_NAME)
    directory: str = option("crawl", pattern=Pattern.FOLDER)
    max_iterations: int = option(5, minimum=1, maximum=1000)
    schedule: str | None = option(None)
    max_pages: int | None = option(None, minimum=1)
    min_nodes: float = option(1.0, minimum=0.01, maximum=1)
    min_success: float = option(0.0, minimum=0, maximum=1)
    requisite_rounds: int = option(7, minimum=0, maximum=100)


@section
class DfsConfig:
    """How HDFS is spoken to. An object store has its time limits and `wait_s`; a local directory needs nothing."""

    user: str = option("krake", pattern=r"[^\s/:@]+")
    security: str = option("simple", choices=("simple", "kerberos"))
    ca_file: str | None = option(None, path="file")
    cert_file: str | None = option(None, path="file")
    key_file: str | None = option(None, path="file")
    connect_timeout_s: float = option(10.0, minimum=0.1)
    timeout_s: float = option(60.0, minimum=0.1)
    wait_s: float = option(120.0, minimum=0)


@section
class S3Config:
    """The object store to use if `dfs_primary` begins with `s3://`. Credentials are no options."""

    endpoint: str | None = option(None, pattern=r"https?://[^\s/@?#]+/?")
    region: str | None = option(None, pattern=r"[A-Za-z0-9-]+")
    addressing: str = option("auto", choices=("auto", "path", "virtual"))


@section
class InjectConfig:
    """The folder of seed files that the DAG's param `seeds` may name."""

    directory: str = option("../seeds", path="directory")


@section
class ExportConfig:
    """The content of exports, and the place of their folders on the DFS."""

    directory: str = option("export", pattern=Pattern.FOLDER)
    mime_types: tuple[str, ...] | None = option(None)
    max_content_bytes: int = option(1 << 30, minimum=1, maximum=(1 << 31) - 1)
    keep: int | None = option(None, minimum=1)
    duplicates: str = option("keep", choices=("keep", "drop"))


@section
class KeyStorageConfig:
    """The key servers: `host[:port]` of MySQL servers, or paths of SQLite files."""

    servers: tuple[str, ...] = option(
        ("../data/keys/0.sqlite",), nonempty=True, unique=True, path="servers"
    )
    database: str = option("krake", pattern=r"[A-Za-z0-9_]+")
    user: str = option("krake")
    tls: str = option("prefer", choices=("verify", "require", "prefer", "off"))
    ca_file: str | None = option(None, path="file")
    replication: int = option(1, minimum=1)
    timeout_s: float = option(30.0, minimum=0.1)
    connections: int = option(8, minimum=1, maximum=1000)

    @property
    def by_short_name(self) -> dict[str, str]:
        """Servers by their short names: `server_1` and so on.

        Lists and metrics have these names, which follow the config's order. Their own names may be long paths; `krake
        keys check` prints both.
        """
        return {f"server_{number}": name for number, name in enumerate(self.servers, start=1)}

    @staticmethod
    def is_sqlite(server: str) -> bool:
        """Return whether a key server is a SQLite file.

        A path has a slash or ends in .sqlite.
        """
        return "/" in server or server.endswith(".sqlite")

    @property
    def is_embedded(self) -> bool:
        """Whether all key servers are SQLite files."""
        return all(map(self.is_sqlite, self.servers))


@section
class QueueConfig:
    """The nodes' queues: `<local_dir>/<node>/`."""

    local_dir: str = option("../data/queue", path="directory")
    lock_timeout_s: float = option(900.0, minimum=0)


@section
class BatchConfig:
    """The size of a node's batch in one iteration, and the engine of the batch stages."""

    size: int = option(1000, minimum=1)
    time_limit_s: float = option(600.0, minimum=1)
    max_per_host: int | None = option(None, minimum=1)
    max_per_domain: int | None = option(None, minimum=1)
    engine: str = option("duckdb", choices=("duckdb", "spark"))


@section
class WatermarksConfig:
    """Free room below which a node's task pauses, and for how long it does before it stops."""

    min_free_local_bytes: int = option(512 << 20, minimum=0)
    min_free_dfs_bytes: int = option(1 << 30, minimum=0)
    max_pause_s: float = option(900.0, minimum=0)


@section
class SparkConfig:
    """The Spark cluster for the batch stages, if `batch.engine` says so."""

    master: str = option("local[*]", pattern=r"\S+")
    dfs_url: str | None = option(None, pattern=r"(?:hdfs|s3a)://[^\s]+")


@section
class FrontierConfig:
    """The order of fetching, and the node that gets a URL."""

    order: str = option(FIFO.name, choices=tuple(ORDERS))
    routing: str = option("host", choices=("host", "local"))


@section
class GenerateConfig:
    """The URLs of the CrawlDb that a list takes, and for how long it holds them."""

    top_n: int | None = option(None, minimum=1)
    order: str = option("breadth", choices=("breadth", "score", "age"))
    lease_s: float = option(604800.0, minimum=0)
    min_score: float | None = option(None)
    statuses: tuple[str, ...] | None = option(None, nonempty=True, unique=True, choices=STATUSES)
    max_per_host: int | None = option(None, minimum=1)
    max_per_failing_host: int | None = option(None, minimum=1)
    max_per_domain: int | None = option(None, minimum=1)
    spread: bool = option(False)
    requisites_top_n: int | None = option(None, minimum=1)


@section
class RuleConfig:
    """One rule of `urls.rules`: `action` is `+` or `-`, `kind` regex, domain, prefix or suffix."""

    action: str = option(choices=("+", "-"))
    kind: str = option(choices=("regex", "domain", "prefix", "suffix"))
    value: str = option()


@section
class StepConfig:
    """One normaliser or filter of a chain. `rules`: what is in `file`, which is read once, with the config."""

    kind: str = option(
        choices=(
            "basic",
            "regex",
            "hosts",
            "query",
            "session",
            "slashes",
            "domain",
            "prefix",
            "suffix",
        )
    )
    file: str | None = option(None, path="file")
    rules: str | None = option(None, content_of="file")


@section
class ChainsConfig:
    """The chain of each scope; null: that of `default`."""

    default: tuple[StepConfig, ...] = option(())
    inject: tuple[StepConfig, ...] | None = option(None)
    fetch: tuple[StepConfig, ...] | None = option(None)
    outlink: tuple[StepConfig, ...] | None = option(None)
    crawldb: tuple[StepConfig, ...] | None = option(None)
    linkdb: tuple[StepConfig, ...] | None = option(None)
    index: tuple[StepConfig, ...] | None = option(None)
    partition: tuple[StepConfig, ...] | None = option(None)


@section
class DomainConfig:
    """One entry of `urls.domains`: other limits for domains that match. `kind`: regex or domain; null: as usual."""

    kind: str = option(choices=("regex", "domain"))
    value: str = option()
    max_pages: int | None = option(None, minimum=1)
    max_hosts: int | None = option(None, minimum=1)


@section
class UrlsConfig:
    """The URLs that belong to the crawl."""

    scope: str = option("domains", choices=("hosts", "domains", "any"))
    rules: tuple[RuleConfig, ...] = option(())
    normalizers: ChainsConfig = ChainsConfig()
    filters: ChainsConfig = ChainsConfig()
    max_depth: int | None = option(None, minimum=0)
    max_pages_per_host: int | None = option(None, minimum=1)
    max_pages_per_domain: int | None = option(100_000, minimum=1)
    max_hosts_per_domain: int | None = option(200, minimum=1)
    domains: tuple[DomainConfig, ...] = option(())
    max_length_chars: int = option(2000, minimum=16, maximum=65535)


@section
class TrapsConfig:
    """Limits for servers that make URLs without end."""

    max_path_segments: int | None = option(20, minimum=1)
    max_repeated: int | None = option(5, minimum=1)
    max_dates: int | None = option(300, minimum=1)
    max_sessions: int | None = option(2, minimum=1)
    max_combined: int | None = option(15, minimum=1)
    max_similar: int | None = option(100, minimum=10)
    max_equal: int | None = option(300, minimum=10)


@section
class HostConfig:
    """One entry of `fetch.hosts`: what is otherwise for hosts that match. `kind`: regex or domain; null: as usual."""

    kind: str = option(choices=("regex", "domain"))
    value: str = option()
    delay_s: float | None = option(None, minimum=0)
    connections: int | None = option(None, minimum=1, maximum=1000)


@section
class FetchConfig:
    """How pages are fetched: who we say we are, how polite we are, how much we take."""

    user_agent: str = option("krake", form="token")
    contact: str | None = option(None, pattern=r"[ -~]+", form="contact")
    host_delay_s: float = option(1.0, minimum=0)
    ip_delay_s: float = option(0.25, minimum=0)
    max_crawl_delay_s: float = option(30.0, minimum=0)
    adaptive_delay_factor: float | None = option(None, minimum=0.01)
    robots: str = option("obey", choices=("obey", "ignore"))
    robots_ttl_s: float = option(86400.0, minimum=0)
    max_robots_bytes: int = option(512 * 1024, minimum=500 * 1024, maximum=MAX_BODY_BYTES)
    connections: int = option(64, minimum=1, maximum=10000)
    connections_per_host: int = option(1, minimum=1, maximum=1000)
    slow_connections: int = option(512, minimum=0, maximum=10000)
    hosts: tuple[HostConfig, ...] = option(())
    processes: int | None = option(None, minimum=1, maximum=256)
    max_body_bytes: int = option(16 << 20, minimum=1, maximum=MAX_BODY_BYTES)
    max_inflight_bytes: int = option(128 << 20, minimum=1 << 20)
    max_decompressed_bytes: int = option(64 << 20, minimum=1)
    max_header_bytes: int = option(64 << 10, minimum=1024, maximum=300_000)
    max_redirects: int = option(10, minimum=0)
    connect_timeout_s: float = option(15.0, minimum=0.1)
    time_limit_s: float = option(60.0, minimum=0.1)
    min_bytes_per_s: int = option(100, minimum=0)
    min_speed_s: float = option(20.0, minimum=1)
    dns_ttl_s: float = option(600.0, minimum=0)
    dns_timeout_s: float = option(5.0, minimum=0.1)
    mime_types: tuple[str, ...] | None = option(None)
    proxy: str | None = option(None)
    verify_tls: bool = option(True)
    allow_networks: tuple[str, ...] = option((), form="network")


@section
class RetryConfig:
    """In how many later iterations a URL is tried again whose failure passes, and after how long at most."""

    max: int = option(4, minimum=0)
    max_wait_s: float = option(86400.0, minimum=0)


@section
class CrawlDbConfig:
    """The table of URLs that `frontier.order: crawldb` works with."""

    keep_versions: int = option(3, minimum=1)
    orphans: str = option("keep", choices=("keep", "gone", "drop"))
    seeds: str = option("keep", choices=("keep", "update", "overwrite"))
    signature: str = option("content", choices=("content", "text"))


@section
class PageRankConfig:
    """How the pages, hosts and domains of an export are ranked."""

    damping: float = option(0.85, minimum=0, maximum=0.999)
    tolerance: float = option(1e-9, minimum=0)
    max_rounds: int = option(200, minimum=1)


@section
class LinkDbConfig:
    """The links that the LinkDb has."""

    max_outlinks: int = option(100, minimum=1)
    max_inlinks: int = option(10_000, minimum=1)
    max_anchor_chars: int = option(100, minimum=0)
    within_host: bool = option(False)


@section
class ScoresConfig:
    """The ranks that become scores of the CrawlDb; what Airflow makes of the links of a crawl, and when."""

    of: str = option("pagerank", choices=("pagerank", "linkrank"))
    tasks: tuple[str, ...] = option(
        (), unique=True, choices=("invert_links", "duplicates", "score")
    )
    when: str = option("run", choices=("run", "segments"))


@section
class OutputsConfig:
    """The outputs that Airflow makes besides the export, and when. `replay_url`: a server of archived pages."""

    tasks: tuple[str, ...] = option((), unique=True, choices=OUTPUT_TASKS)
    when: str = option("run", choices=("run", "segments"))
    replay_url: str | None = option(None, pattern=r"https?://[^\s/@?#]+(/[^\s?#]*)?")

    @property
    def in_order(self) -> list[str]:
        """The wanted outputs, in the order in which their tasks run."""
        return [name for name in OUTPUT_TASKS if name in self.tasks]


@section
class DuplicatesConfig:
    """The pages that count as equal."""

    among: str = option("none", choices=("none", "host", "domain"))
    near: bool = option(False)
    cosine: float = option(0.9, minimum=0.5, maximum=1)
    weights: str = option("idf", choices=("idf", "counts"))


@section
class LinkRankConfig:
    """The links that LinkRank has, and how far they pass ranks on."""

    within_host: bool = option(False)
    within_domain: bool = option(False)
    one_per_page: bool = option(True)
    one_per_domain: bool = option(True)
    drop_reciprocal: bool = option(False)
    drop_triangles: bool = option(False)
    duplicates: str = option("keep", choices=("keep", "drop"))
    damping: float = option(0.85, minimum=0, maximum=0.999)
    rounds: int = option(10, minimum=1)


@section
class ScheduleRuleConfig:
    """One entry of `schedule.rules`: the intervals of rows that match all that it names; null: whatever.

    `kind`, `value`: of the host, regex or domain; `mime_type`: a pattern such as `text/*`; `metadata`: `key=value` of
    the seed; `status`: of the CrawlDb.
    """

    kind: str | None = option(None, choices=("regex", "domain"))
    value: str = option("")
    mime_type: str | None = option(None)
    metadata: str | None = option(None, pattern=r"[^=]+=.*")
    status: str | None = option(None, choices=STATUSES)
    fixed_s: int | None = option(None, minimum=1)
    min_s: int | None = option(None, minimum=1)
    max_s: int | None = option(None, minimum=1)


@section
class ScheduleConfig:
    """When a page is visited again."""

    kind: str = option("fixed", choices=("fixed", "adaptive"))
    interval_s: int = option(30 * 86400, minimum=1)
    min_s: int = option(60, minimum=1)
    max_s: int = option(365 * 86400, minimum=1)
    always_s: int = option(90 * 86400, minimum=1)
    faster: float = option(0.2, minimum=0, maximum=1)
    slower: float = option(0.4, minimum=0)
    rules: tuple[ScheduleRuleConfig, ...] = option(())
    sitemaps: bool = option(False)


@section
class ScoringConfig:
    """The plug-ins that score URLs, their order, and options of Krake's own plug-ins."""

    plugins: tuple[str, ...] = option((), unique=True, pattern=Pattern.NAME)
    max_depth: int = option(1000, minimum=0)
    opic_gives: str = option("changed", choices=("changed", "always"))


@section
class ParseConfig:
    """The parts of a page that are read. `REQUISITE_KINDS`: names that `requisite_kinds` may have."""

    REQUISITE_KINDS: ClassVar[tuple[str, ...]] = (
        "style",
        "script",
        "image",
        "font",
        "video",
        "audio",
        "object",
        "frame",
        "other",
    )
    follow_nofollow: bool = option(False)
    max_links_per_page: int = option(50_000, minimum=1)
    max_anchor_chars: int = option(200, minimum=0)
    sitemaps: bool = option(False)
    facts: bool = option(False)
    requisites: str = option("none", choices=("none", "same_site", "all"))
    requisite_kinds: tuple[str, ...] = option(
        tuple(kind for kind in REQUISITE_KINDS if kind not in {"video", "audio"}),
        nonempty=True,
        unique=True,
        choices=REQUISITE_KINDS,
    )
    requisites_per_page: int = option(200, minimum=1, maximum=10_000)

    @property
    def wants_requisites(self) -> bool:
        """Whether the requisites of pages are named, and fetched."""
        return self.requisites != "none"


@section
class TextConfig:
    """The place of pages' texts on the DFS, and the limits of the processes that read them."""

    directory: str = option("text", pattern=Pattern.FOLDER)
    processes: int | None = option(None, minimum=1, maximum=256)
    memory_bytes: int = option(512 << 20, minimum=64 << 20)
    cpu_s: int = option(10, minimum=1)
    max_chars: int = option(1_000_000, minimum=1)


@section
class IndexConfig:
    """The pages in the index, and the languages with fields of their own."""

    languages: tuple[str, ...] = option(
        ("en", "de", "fr", "es", "it", "pt", "ru"), unique=True, choices=INDEX_LANGUAGES
    )
    robots: str = option("obey", choices=("obey", "ignore"))
    canonical: str = option("fold", choices=("fold", "keep"))


@section
class CommonCrawlConfig:
    """Files as Common Crawl has them."""

    make: tuple[str, ...] = option(("index",), nonempty=True, unique=True, choices=COMMONCRAWL_MADE)
    wet_text: str = option("main", choices=("main", "all"))


@section
class GraphsConfig:
    """The place of exports' graphs on the DFS, and the graphs to make."""

    directory: str = option("graphs", pattern=Pattern.FOLDER)
    make: tuple[str, ...] = option(
        ("hosts", "domains"), nonempty=True, unique=True, choices=GRAPHS_MADE
    )


@section
class SiteConfig:
    """One entry of `search.sites`: what the scores of a host's pages, or of a domain's, are multiplied by."""

    site: str = option(pattern=r"[^\s/:@]+")
    factor: float = option(minimum=0)


@section
class SearchConfig:
    """How the index answers queries on this machine."""

    directory: str = option("../data/search", path="directory")
    sites: tuple[SiteConfig, ...] = option(())
    listen: str = option("127.0.0.1:8090", pattern=Pattern.ADDRESS)
    hosts: tuple[str, ...] = option((), unique=True, pattern=r"[^\s/:@\[\]]+|\[[0-9A-Fa-f:.]+\]")
    log_queries: bool = option(False)


@section
class PolicyConfig:
    """One entry of `realtime.policies`: how the URLs of a submission are fetched, and when again."""

    name: str = option(pattern=Pattern.NAME)
    refetch_after_s: float = option(86400.0, minimum=0)
    image: str = option("none", choices=("none", "probe"))
    max_body_bytes: int | None = option(None, minimum=1, maximum=MAX_BODY_BYTES)
    mime_types: tuple[str, ...] | None = option(None)
    time_limit_s: float | None = option(None, minimum=0.1)


@section
class FetcherConfig:
    """One entry of `realtime.fetchers`: a fetcher on another machine. Its segments are of a node of this name."""

    name: str = option(pattern=r"live-[A-Za-z0-9._-]{1,56}")
    address: str = option(pattern=Pattern.ADDRESS)


@section
class RealtimeConfig:
    """How the real-time service of this machine answers, and what may wait in it.

    A config with this section is one of a service: Airflow has no DAG that crawls for it.
    """

    listen: str = option("127.0.0.1:8095", pattern=Pattern.ADDRESS)
    tokens: str = option("../data/realtime/tokens.json", path="file")
    fetchers: tuple[FetcherConfig, ...] = option(())
    certificates: str = option("../data/realtime/certificates", path="directory")
    share_turns: bool = option(False)
    policies: tuple[PolicyConfig, ...] = option(())
    max_waiting: int = option(5000, minimum=1)
    max_wait_s: float = option(300.0, minimum=0)
    give_up_s: float = option(20.0, minimum=0.1)
    keep_s: float = option(7 * 86400.0, minimum=60)
    urls_per_s: float = option(1000.0, minimum=0.01)

    @property
    def policies_by_name(self) -> dict[str, PolicyConfig]:
        """The policies; `default` is always one of them."""
        return {policy.name: policy for policy in (PolicyConfig(name="default"), *self.policies)}


@section
class PushConfig:
    """The OpenSearch that gets the pages of the index, and limits of a push. Credentials are no options."""

    url: str | None = option(None, form="server")
    index: str | None = option(None, pattern=Pattern.INDEX_NAME)
    mapping: str | None = option(None, path="file")
    batch_bytes: int = option(5 << 20, minimum=1 << 16, maximum=100 << 20)
    timeout_s: float = option(60.0, minimum=0.1)
    wait_s: float = option(120.0, minimum=0)


@section
class SegmentConfig:
    """How a segment's files are cut and made durable."""

    max_warc_bytes: int = option(1 << 30, minimum=1 << 16)
    gzip_level: int = option(2, minimum=0, maximum=3)
    sync_interval_s: float = option(5.0, minimum=0)


@section
class ScratchConfig:
    """Local room that the batch stages may use."""

    directory: str = option("../data/scratch", path="directory")
    memory_bytes: int = option(1 << 30, minimum=64 << 20)
    max_bytes: int | None = option(None, minimum=64 << 20)


@section
class Config:
    """All options of one crawl. `servers` are the nodes, and the names of their queues in Airflow."""

    servers: tuple[str, ...] = option(nonempty=True, unique=True, pattern=Pattern.NAME)
    dfs_primary: str = option(path="dfs")
    dfs: DfsConfig = DfsConfig()
    s3: S3Config = S3Config()
    crawl: CrawlConfig = CrawlConfig()
    inject: InjectConfig = InjectConfig()
    export: ExportConfig = ExportConfig()
    key_storage: KeyStorageConfig = KeyStorageConfig()
    queue: QueueConfig = QueueConfig()
    batch: BatchConfig = BatchConfig()
    frontier: FrontierConfig = FrontierConfig()
    generate: GenerateConfig = GenerateConfig()
    urls: UrlsConfig = UrlsConfig()
    traps: TrapsConfig = TrapsConfig()
    fetch: FetchConfig = FetchConfig()
    retry: RetryConfig = RetryConfig()
    crawldb: CrawlDbConfig = CrawlDbConfig()
    pagerank: PageRankConfig = PageRankConfig()
    linkdb: LinkDbConfig = LinkDbConfig()
    scores: ScoresConfig = ScoresConfig()
    outputs: OutputsConfig = OutputsConfig()
    duplicates: DuplicatesConfig = DuplicatesConfig()
    linkrank: LinkRankConfig = LinkRankConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    scoring: ScoringConfig = ScoringConfig()
    parse: ParseConfig = ParseConfig()
    text: TextConfig = TextConfig()
    index: IndexConfig = IndexConfig()
    commoncrawl: CommonCrawlConfig = CommonCrawlConfig()
    graphs: GraphsConfig = GraphsConfig()
    search: SearchConfig = SearchConfig()
    realtime: RealtimeConfig | None = None
    push: PushConfig = PushConfig()
    segment: SegmentConfig = SegmentConfig()
    scratch: ScratchConfig = ScratchConfig()
    spark: SparkConfig = SparkConfig()
    watermarks: WatermarksConfig = WatermarksConfig()

    @property
    def order(self) -> Order:
        """The way in which the crawl finds its next URLs."""
        return ORDERS[self.frontier.order]

    @property
    def shares_addresses(self) -> bool:
        """Whether several nodes or fetchers share the delay of an address."""
        are_several = len(self.servers) > 1 or (
            self.realtime is not None and self.realtime.share_turns
        )
        return are_several and self.fetch.ip_delay_s > 0 and not self.fetch.proxy

    @property
    def shares_hosts(self) -> bool:
        """Whether several nodes share the delay of a host."""
        return len(self.servers) > 1 and self.frontier.routing == "local"

    def require_realtime(self) -> RealtimeConfig:
        """Return the section `realtime`.

        Raises ConfigError for a config without the section.
        """
        if self.realtime is None:
            raise ConfigError(
                "realtime: the config has no such section: add one, at least `realtime: {}`"
            )
        return self.realtime

    def as_fifo(self) -> "Config":
        """Return the config as before `frontier.order` became crawldb."""
        return replace(self, frontier=replace(self.frontier, order=FIFO.name))

    def to_mapping(self) -> dict[str, Any]:
        """Return the plain form of the config.

        `from_mapping(config.to_mapping(), base)` equals `config`.
        """
        return cast(dict[str, Any], json.loads(json.dumps(self, default=vars)))
