"""The chain of a config's plug-ins, in its order, for stages.

Over a table of an engine a chain of expressions is one query, with each expression nested in the next. If a plug-in is
a function, or the query has failed, the rows pass through this process, which finds the URL that a plug-in cannot
judge.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from crawl_lib.config import Config
from crawl_lib.engine import Engine
from crawl_lib.errors import ConfigError, StorageError
from crawl_lib.scoring.loading import FIELD, load_plugins
from crawl_lib.scoring.plugin import MOMENTS, PAGE_MOMENTS, Moment, Plugin, Row, blamed
from crawl_lib.segment import PAGES_SCHEMA
from crawl_lib.versions import GROUP_ROWS, VersionWork, columns

_COLUMN, _CALLS = re.compile(r"[a-z][a-z0-9_]*"), re.compile(r"\b(\w+)\s*\(")
_CLOCKS = re.compile(r"\b(current_\w+|localtime\w*|today|transaction_timestamp)\b", re.IGNORECASE)
_VOLATILE = "select distinct function_name from duckdb_functions() where stability <> 'CONSISTENT'"
_QUERY = "scoring/scored"
_NOTED = f'"{FIELD}": [{{][^}}]*[}}]'
_NUMBER = """cast(nullif(regexp_extract(metadata, '"{0}": (-?[0-9.]+(e[-+]?[0-9]+)?)', 1), '') as double) as {0}"""
"""The number with this name in metadata: a regular expression for both engines."""
_WITH_NOTED = "left join noted on noted.key = seen.key and noted.segment = seen.segment and noted.time = seen.moment"
_AS_DOUBLE = (
    "cast(cast(cast(seen.{0} as decimal(27, 9)) * 1000000000 as bigint) as double) / 1e9 as {0}"
)
_BILLIONTHS = "cast(cast(round({0} * 1e9) as bigint) as decimal(19, 0))"
_AS_SCORE = f"cast({_BILLIONTHS} * cast(0.000000001 as decimal(10, 9)) as decimal(18, 9)) as {{1}}"
"""Computed alike by both engines: no decimal is divided, and no double with a fraction is cast to a decimal."""
_OR_FAIL = "coalesce({0}, cast('nan' as double))"
"""For columns without null: both engines refuse to make an integer of NaN."""


@dataclass(frozen=True)
class Scoring:
    """Plug-ins in order. `now`: POSIX seconds; `version`: the number of the CrawlDb under way, or in use."""

    plugins: tuple[Plugin, ...] = ()
    now: int = 0
    version: int = 0

    @classmethod
    def of(cls, config: Config, *, now: int = 0, version: int = 0) -> "Scoring":
        """Check the plug-ins of a config.

        Raises ConfigError naming plug-in, moment, and the fault.
        """
        found = cls(load_plugins(config.scoring), now, version)
        _require_columns(found)
        for plugin, moment in product(found.plugins, MOMENTS):
            if (what := getattr(plugin, moment)) is not None:
                _require_steady(plugin, moment, what)
                _judged(
                    [plugin],
                    moment,
                    pa.RecordBatch.from_pylist([], _columns(moment, found.columns)),
                )
        return found

    def wanting(self, *moments: str) -> list[Plugin]:
        """Return the plug-ins with a function for one of some moments."""
        return [
            plugin
            for plugin in self.plugins
            if any(getattr(plugin, name) is not None for name in moments)
        ]

    @property
    def columns(self) -> tuple[str, ...]:
        """The numbers noted for pages."""
        return tuple(column for plugin in self.plugins for column in plugin.columns)

    def read_pages(self, engine: Engine) -> None:
        """Make `pages` and `noted` of the table of captures `pages_given`.

        `pages` has the metadata without the noted numbers.
        """
        if not self.columns:
            engine.define("pages", "select * from pages_given")
            return
        names = [name for name in PAGES_SCHEMA.names if name != "metadata"]
        plain = f"regexp_replace(metadata, '{_NOTED}, |, {_NOTED}|{_NOTED}', '') as metadata"
        engine.define("pages", f"select {', '.join(names)}, segment, {plain} from pages_given")
        numbers = ", ".join(map(_NUMBER.format, self.columns))
        engine.define("noted", f"select key, segment, time, {numbers} from pages_given")

    def apply(
        self, work: VersionWork, moment: str, source: str, target: str, schema: pa.Schema
    ) -> None:
        """Make the table `target`: rows of `source` with the chain's result.

        `source`: has the moment's columns and `key`, and for noted numbers `segment` and `moment`. `schema`: of
        `target`. Raises ConfigError naming plug-in, moment and URL if a plug-in cannot judge a row, and engines'
        errors.
        """
        what, result, plugins = MOMENTS[moment], MOMENTS[moment].result, self.wanting(moment)
        own = _columns(moment, self.columns)
        more = [
            pa.field("key", pa.binary()),
            *(field for field in schema if field.name not in {"key", *own.names}),
        ]
        fields = pa.schema([*more, *own])
        first, said = self._first(moment, source, fields), f"{target}_said"
        if all(isinstance(getattr(plugin, moment), str) for plugin in plugins):
            others, text = ", ".join(name for name in fields.names if name != result), first
            for plugin in plugins:
                text = f"select {others}, cast(({getattr(plugin, moment)}) as double) as {result} from ({text}) as seen"
            work.engine.define(said, text)
        else:
            work.keep(said, fields, _passed(work, moment, plugins, first))
        answered = result if what.may_be_null else _OR_FAIL.format(result)
        names = [
            _AS_SCORE.format(answered, result) if name == result else name for name in schema.names
        ]
        work.engine.define("scored", f"select {', '.join(names)} from {said}")
        try:
            work.ask(target, schema, _QUERY, f"crawldb.{moment}")
        except StorageError as error:
            if type(error) is StorageError:
                deque(
                    _passed(work, moment, plugins, first), maxlen=0
                )  # it names the plug-in, and the URL
            raise

    def values(self, moment: str, batch: pa.RecordBatch) -> "pa.Array[Any]":
        """Return the chain's result for given rows.

        Raises ConfigError naming plug-in, moment and URL.
        """
        given, fields, rows = self._constants(moment), _columns(moment), len(batch)
        found = {
            name: pa.repeat(given[name], rows) if name in given else batch.column(name)
            for name in fields.names
        }
        whole = pa.RecordBatch.from_arrays(
            [found[field.name].cast(field.type) for field in fields], schema=fields
        )
        return _judged(self.wanting(moment), moment, whole).column(MOMENTS[moment].result)

    def _constants(self, moment: str) -> dict[str, float]:
        what = MOMENTS[moment]
        return {"now": self.now, "version": self.version} | (
            {} if what.start is None else {what.result: what.start}
        )

    def _first(self, moment: str, source: str, fields: pa.Schema) -> str:
        """Return the query of rows for the first plug-in."""
        given, columns = self._constants(moment), []
        for name, kind in zip(fields.names, fields.types, strict=True):
            if name in given:
                columns.append(
                    f"cast({given[name]} as {'double' if kind == pa.float64() else 'bigint'}) as {name}"
                )
            elif name in self.columns:
                columns.append(f"noted.{name}")
            else:
                columns.append(_AS_DOUBLE.format(name) if kind == pa.float64() else f"seen.{name}")
        is_joined = MOMENTS[moment].has_noted and self.columns
        return (
            f"select {', '.join(columns)} from {source} as seen {_WITH_NOTED if is_joined else ''}"
        )


def _columns(moment: str, noted: Iterable[str] = ()) -> pa.Schema:
    """Return the columns for plug-ins at a moment.

    `noted`: the numbers noted for pages.
    """
    what = MOMENTS[moment]
    return columns(
        f"{what.columns}, now int64, version int64"
        + "".join(f", {one} number" for one in noted) * what.has_noted
    )


def _passed(work: VersionWork, moment: str, plugins: list[Plugin], rows: str) -> Iterator[pa.Table]:
    """Yield a query's rows with the chain's result."""
    work.engine.define("scored", rows)
    for batch in work.engine.stream(_QUERY, GROUP_ROWS, f"crawldb.{moment}"):
        yield pa.Table.from_batches([_judged(plugins, moment, batch)])


def _judged(plugins: Iterable[Plugin], moment: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with a chain's result.

    Raises ConfigError naming plug-in, moment, and the first URL, if any.
    """
    place = batch.schema.get_field_index(MOMENTS[moment].result)
    for plugin in plugins:
        try:
            found = _asked(getattr(plugin, moment), MOMENTS[moment], batch)
        except Exception as error:  # it may do anything
            half = len(batch) // 2
            for piece in (batch.slice(0, half), batch.slice(half)) if half else ():
                _judged([plugin], moment, piece)
            urls = [] if half else batch.column("url").to_pylist()
            raise blamed(plugin, moment, error, *map(str, urls)) from error
        batch = batch.set_column(place, MOMENTS[moment].result, found)
    return batch


def _asked(what: Row, moment: Moment, batch: pa.RecordBatch) -> "pa.Array[Any]":
    found: pa.Array[Any]
    if isinstance(what, str):
        with _database().cursor() as connection:
            connection.register("rows_at_hand", pa.Table.from_batches([batch]))
            query = f"select url, cast(({what}) as double) as value from rows_at_hand"
            found = connection.sql(query).to_arrow_table()["value"].combine_chunks()
    else:
        assert what is not None
        answer = what(batch)
        if not isinstance(answer, pa.RecordBatch) or len(answer) != len(batch):
            raise ValueError(
                f"answers {type(answer).__name__}, and not a record batch of {len(batch)} rows"
            )
        found = answer.column(moment.result).cast(pa.float64())
    if not moment.may_be_null and found.null_count:
        raise ValueError(f"{moment.result} is null")
    values = found.drop_null().to_numpy(zero_copy_only=False)
    if len(wrong := values[~(np.abs(values) < 1e9)]):
        raise ValueError(f"{moment.result} is {wrong[0]}, outside -1e9 to 1e9")
    return found


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """Open an empty database for questions about few rows."""
    return duckdb.connect(config={"threads": "1", "autoinstall_known_extensions": "false"})


@cache
def _volatile() -> set[str]:
    """Return the functions whose results change between calls."""
    with _database().cursor() as connection:
        return {name for (name,) in connection.execute(_VOLATILE).fetchall()}


def _require_steady(plugin: Plugin, moment: str, what: Row) -> None:
    """Raise ConfigError if an expression reads clock or chance."""
    if isinstance(what, str):
        calls = {name.lower() for name in _CALLS.findall(what)}
        for name in sorted((calls & _volatile()) | set(_CLOCKS.findall(what))):
            raise blamed(
                plugin,
                moment,
                ValueError(f"{name}: reads clock or chance; use the columns now and version"),
            )


def _require_columns(scoring: Scoring) -> None:
    """Check the names of noted numbers.

    Raises ConfigError if a name is invalid or not unique, or if a moment of pages is no function.
    """
    known = {name for moment in MOMENTS for name in _columns(moment).names}
    for plugin, column in [(one, column) for one in scoring.plugins for column in one.columns]:
        if not _COLUMN.fullmatch(column) or column in known or scoring.columns.count(column) > 1:
            raise ConfigError(
                f"scoring.plugins: {plugin.name}: column {column!r} is no name, or is there already"
            )
    for plugin, name in product(scoring.plugins, PAGE_MOMENTS):
        if (what := getattr(plugin, name)) is not None and not callable(what):
            raise ConfigError(
                f"scoring.plugins: {plugin.name}, {name}: must be a function over a page's fields"
            )
