"""A scoring plug-in, with the eight moments of Nutch's ScoringFilter.

Six moments are about rows of a table (`MOMENTS`): an SQL expression over the moment's columns, in the words common to
DuckDB and Spark, or a function from record batch to record batch. Numbers are doubles; the chain's result is rounded to
nine decimals, half away from zero. Both engines compute `+ - * /` by IEEE 754, and so give the same bytes. Two moments
are about one page, in the crawl: functions over its fields, which note numbers for the page.

Krake's own plug-ins follow. OPIC: S. Abiteboul, M. Preda, G. Cobena: Adaptive on-line page importance computation (WWW
2003), as simple as in Nutch. Depth is Nutch's, except that a seed has the depth 0 instead of 1, as has the maximum.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pyarrow as pa

from crawl_lib.config import ScoringConfig
from crawl_lib.dataclass import dataclass
from crawl_lib.errors import ConfigError

Row = str | Callable[[pa.RecordBatch], pa.RecordBatch] | None
"""A plug-in's say on rows: an expression, or a function that returns the same rows with another result."""
Page = Callable[[Mapping[str, Any]], Mapping[str, float]] | None
"""A plug-in's notes on a page: some of its `columns`."""
PAGE_MOMENTS = ("before_parsing", "after_parsing")


class Plugin:
    """The base of all plug-ins. A moment with None is not used.

    `name`: as in `scoring.plugins` and the entry point. `columns`: the numbers noted for pages; expressions of
    `distribute` and `update` may use these columns, with null for a missing number. `config`: the section `scoring`.
    """

    name: ClassVar[str] = ""
    columns: ClassVar[tuple[str, ...]] = ()
    injected: Row = None
    initial: Row = None
    distribute: Row = None
    update: Row = None
    sort_value: Row = None
    index_boost: Row = None
    before_parsing: Page = None
    after_parsing: Page = None

    def __init__(self, config: ScoringConfig) -> None:
        self.config = config


@dataclass(frozen=True)
class Moment:
    """A moment about rows. `result`: the column of the chain's result; `start`: its first value, None: the rows' value.
    `columns`: usable columns; `has_noted`: noted numbers are usable too. `may_be_null`: null is an answer."""

    result: str
    columns: str
    start: float | None = None
    has_noted: bool = False
    may_be_null: bool = False


_ROW = "url text, host text, domain text, status text, depth int32, retries int32, interval_s int64, inlinks int64"
_PAGE = "depth int32, max_depth int32, score number, outlinks int64, is_changed flag"
_VISIT = "url text, status text, depth int32, is_visited flag, is_changed flag, given number"
MOMENTS = {
    "injected": Moment("score", "url text, host text, depth int32, metadata text, score number"),
    "initial": Moment("score", "url text, depth int32, score number"),
    "distribute": Moment(
        "given", f"url text, {_PAGE}, given number", start=0, has_noted=True, may_be_null=True
    ),
    "update": Moment("score", f"{_VISIT}, score number", has_noted=True),
    "sort_value": Moment("sort_value", f"{_ROW}, score number, sort_value number", start=1),
    "index_boost": Moment("boost", f"{_ROW}, score number, boost number", start=1),
}
"""In the order of a URL's life; docs/scoring.md explains each column."""


def blamed(plugin: Plugin, moment: str, error: Exception, *where: str) -> ConfigError:
    """Return the error that names plug-in, moment and URL."""
    kind = "" if "duckdb" in type(error).__module__ else f"{type(error).__name__}: "
    problem = str(error).split("\n\n")[0].split("\nLINE ")[0]
    text = " ".join(problem.split())
    return ConfigError(
        ": ".join(["scoring.plugins", f"{plugin.name}, {moment}", *where, kind + text])
    )


class Breadth(Plugin):
    """Few links from a seed first."""

    name = "breadth"
    sort_value = "sort_value / (1 + depth)"


class Depth(Plugin):
    """Few links from a seed first, and no links of pages at `scoring.max_depth`, or at the seed's own maximum."""

    name = "depth"

    def __init__(self, config: ScoringConfig) -> None:
        super().__init__(config)
        self.distribute = (
            f"case when depth < coalesce(max_depth, {config.max_depth}) then given end"
        )
        self.sort_value = f"sort_value * (1 + {config.max_depth} - depth)"


class Opic(Plugin):
    """A page gives its score to its links, in equal parts, once for each new content; or at each fetch
    (`scoring.opic_gives: always`, as in Nutch), so that scores of often visited pages grow without end."""

    name = "opic"
    initial = "0"
    update = "score + given"
    sort_value = "sort_value * score"
    index_boost = "boost * sqrt(greatest(score, 0))"

    def __init__(self, config: ScoringConfig) -> None:
        super().__init__(config)
        gives = "true" if config.opic_gives == "always" else "is_changed"
        self.distribute = f"given + case when {gives} then score / outlinks else 0 end"


class LinkRank(Plugin):
    """The score is a rank of the whole graph: new URLs have no rank until the next ranking, and links give nothing."""

    name = "linkrank"
    initial = "0"
    sort_value = "sort_value * score"
    index_boost = "boost * score"


class PageRank(LinkRank):
    """The same with PageRank: only the writer of the scores differs."""

    name = "pagerank"


BUILT_IN = {kind.name: kind for kind in (Breadth, Depth, Opic, LinkRank, PageRank)}
