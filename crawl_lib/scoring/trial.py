"""What a plug-in says of rows that are at hand: to look at it before a stage, to find the URL that it cannot judge, and
where no engine is open."""

import re
from collections.abc import Iterable
from functools import cache
from itertools import product
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from crawl_lib.errors import ConfigError
from crawl_lib.scoring.plugin import MOMENTS, PAGE_MOMENTS, Moment, Plugin, Row, blamed
from crawl_lib.versions import columns

MOST = 1e9
"""Scores are smaller: `decimal(18, 9)`."""
_CLOCKS = re.compile(r"\b(current_\w+|localtime\w*|today|transaction_timestamp)\b", re.IGNORECASE)
_COLUMN = re.compile(r"[a-z][a-z0-9_]*")
_CALLS = re.compile(r"\b(\w+)\s*\(")
_VOLATILE = "select distinct function_name from duckdb_functions() where stability <> 'CONSISTENT'"


def answer(plugin: Plugin, moment: str, batch: pa.RecordBatch) -> "pa.Array[Any]":
    """The result of a plug-in for each row. Raises ConfigError naming plug-in, moment, and the first URL that it cannot
    judge; without rows, what is wrong with it as such."""
    try:
        found = _asked(getattr(plugin, moment), MOMENTS[moment], batch)
        _require_numbers(found, MOMENTS[moment])
    except Exception as error:  # it may do anything
        if len(batch) > 1:
            half = len(batch) // 2
            pieces = [answer(plugin, moment, piece) for piece in (batch.slice(0, half), batch.slice(half))]
            return pa.concat_arrays(pieces)
        where = [batch.column("url")[0].as_py()] if len(batch) else []
        raise blamed(plugin, moment, error, *where) from error
    return found


def columns_of(moment: str, noted: Iterable[str] = ()) -> pa.Schema:
    """What plug-ins may name at a moment. `noted`: the numbers that are noted of pages."""
    what = MOMENTS[moment]
    more = [f"{name} number" for name in noted if what.has_noted]
    return columns(", ".join([what.columns, "now int64, version int64", *more]))


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """An empty one, for questions about a few rows."""
    return duckdb.connect(config={"threads": "1", "autoinstall_known_extensions": "false"})


@cache
def _volatile() -> set[str]:
    """Functions that answer otherwise when they are asked again."""
    with _database().cursor() as connection:
        return {name for (name,) in connection.execute(_VOLATILE).fetchall()}


def _asked(what: Row, moment: Moment, batch: pa.RecordBatch) -> "pa.Array[Any]":
    if isinstance(what, str):
        with _database().cursor() as connection:
            connection.register("rows_at_hand", pa.Table.from_batches([batch]))
            query = f"select url, cast(({what}) as double) as value from rows_at_hand"
            values: pa.ChunkedArray[Any] = connection.sql(query).to_arrow_table()["value"]
            return pa.concat_arrays([pa.array([], pa.float64()), *values.chunks])
    assert what is not None
    found = what(batch)
    if not isinstance(found, pa.RecordBatch) or len(found) != len(batch):
        raise ValueError(f"answers {type(found).__name__}, and not a record batch of {len(batch)} rows")
    return found.column(moment.result).cast(pa.float64())


def _require_numbers(found: "pa.Array[Any]", moment: Moment) -> None:
    if not moment.may_be_null and found.null_count:
        raise ValueError(f"{moment.result} is null")
    values = found.drop_null().to_numpy(zero_copy_only=False)
    if len(wrong := values[~(np.abs(values) < MOST)]):
        raise ValueError(f"{moment.result} is {wrong[0]}, which is not between -1e9 and 1e9")


def chained(plugins: Iterable[Plugin], moment: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with the result of a chain. Raises ConfigError as `answer` does."""
    place = batch.schema.get_field_index(MOMENTS[moment].result)
    for plugin in plugins:
        batch = batch.set_column(place, MOMENTS[moment].result, answer(plugin, moment, batch))
    return batch


def require_right(plugins: tuple[Plugin, ...], columns: tuple[str, ...]) -> None:
    """Ask each plug-in about no rows. Raises ConfigError naming it, and a moment, or a column that is not there."""
    known = {name for moment in MOMENTS for name in columns_of(moment).names}
    for plugin, column in [(one, column) for one in plugins for column in one.columns]:
        if not _COLUMN.fullmatch(column) or column in known or columns.count(column) > 1:
            raise ConfigError(f"scoring.plugins: {plugin.name}: column {column!r} is no name, or is there already")
    for plugin, name in product(plugins, (*MOMENTS, *PAGE_MOMENTS)):
        what = getattr(plugin, name)
        if name in PAGE_MOMENTS and what is not None and not callable(what):
            raise ConfigError(f"scoring.plugins: {plugin.name}, {name}: must be a function over a page's fields")
        if name in MOMENTS and what is not None:
            _require_steady(plugin, name, what)
            answer(plugin, name, pa.RecordBatch.from_pylist([], columns_of(name, columns)))


def _require_steady(plugin: Plugin, moment: str, what: Row) -> None:
    """Raise ConfigError if an expression reads clock or chance."""
    if isinstance(what, str):
        calls = {name.lower() for name in _CALLS.findall(what)}
        for name in sorted((calls & _volatile()) | set(_CLOCKS.findall(what))):
            raise blamed(plugin, moment, ValueError(f"{name}: reads clock or chance; use the columns now and version"))
