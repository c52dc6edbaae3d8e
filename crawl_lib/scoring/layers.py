"""A moment over the rows of an engine's table: a view for each plug-in, over that of the one before it.

So a chain of expressions is one query; a function has the rows pass through this process.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from crawl_lib.errors import StorageError
from crawl_lib.scoring.plugin import MOMENTS, Moment, Plugin
from crawl_lib.scoring.trial import answer, chained, with_result
from crawl_lib.versions import GROUP_ROWS, Work

_QUERY = "scoring/scored"
_AS_DOUBLE = "cast(cast(cast(seen.{0} as decimal(27, 9)) * 1000000000 as bigint) as double) / 1e9 as {0}"
_BILLIONTHS = "cast(cast(round({0} * 1e9) as bigint) as decimal(19, 0))"
_AS_SCORE = f"cast({_BILLIONTHS} * cast(0.000000001 as decimal(10, 9)) as decimal(18, 9)) as {{1}}"
"""What both engines compute alike: no decimal is divided, and no double with a fraction is cast to one."""
_OR_FAIL = "coalesce({0}, cast('nan' as double))"
"""Where null is no answer: both engines refuse to make an integer of NaN."""


@dataclass(frozen=True)
class Layers:
    """The layers of a chain. `target`, `schema`: of the table that is made; `columns`: numbers that were noted of
    pages, which this moment has; `constants`: columns that are the same for all rows."""

    work: Work
    moment: str
    target: str
    schema: pa.Schema
    columns: tuple[str, ...]
    constants: Mapping[str, int]

    @property
    def what(self) -> Moment:
        """What the moment is."""
        return MOMENTS[self.moment]

    @cached_property
    def fields(self) -> pa.Schema:
        """All columns that a layer hands to the next one."""
        noted = [pa.field(name, pa.float64()) for name in self.columns]
        own = {field.name: field for field in [*self.what.columns, *noted]}
        more = [pa.field("key", pa.binary()), *(field for field in self.schema if field.name not in {"key", *own})]
        return pa.schema([*more, *own.values()])

    def make(self, source: str, plugins: Iterable[Plugin]) -> None:
        """Make the target. See `Scoring.apply`."""
        plugins, engine, result = list(plugins), self.work.engine, self.what.result
        self._base(source)
        for number, plugin in enumerate(plugins, 1):
            self._layer(number, plugin)
        answered = result if self.what.may_be_null else _OR_FAIL.format(result)
        columns = [_AS_SCORE.format(answered, result) if name == result else name for name in self.schema.names]
        engine.define("scored", f"select {', '.join(columns)} from {self.target}_{len(plugins)}")
        try:
            self.work.ask(self.target, self.schema, _QUERY, f"crawldb.{self.moment}")
        except StorageError as error:
            if type(error) is StorageError:
                self._blame(plugins)
            raise

    def _base(self, source: str) -> None:
        """The rows as the first plug-in gets them."""
        joined = f"{source} as seen"
        if self.columns:
            joined += " left join noted on noted.key = seen.key and noted.segment = seen.segment"
            joined += " and noted.time = seen.moment"
        columns = ", ".join(self._first(field) for field in self.fields)
        self.work.engine.define(f"{self.target}_0", f"select {columns} from {joined}")

    def _first(self, field: "pa.Field[pa.DataType]") -> str:
        if field.name in self.constants:
            return f"cast({self.constants[field.name]} as bigint) as {field.name}"
        if field.name == self.what.result and self.what.start is not None:
            return f"cast({self.what.start} as double) as {field.name}"
        if field.name in self.columns:
            return f"noted.{field.name}"
        is_number = field.name in self.what.columns.names and field.type == pa.float64()
        return _AS_DOUBLE.format(field.name) if is_number else f"seen.{field.name}"

    def _layer(self, number: int, plugin: Plugin) -> None:
        """What one plug-in makes of what the one before it made."""
        what, result, engine = getattr(plugin, self.moment), self.what.result, self.work.engine
        name, before = f"{self.target}_{number}", f"{self.target}_{number - 1}"
        if isinstance(what, str):
            others = ", ".join(column for column in self.fields.names if column != result)
            engine.define(name, f"select {others}, cast(({what}) as double) as {result} from {before}")
            return
        engine.define("scored", f"select {', '.join(self.fields.names)} from {before}")
        batches = engine.stream(_QUERY, GROUP_ROWS, f"crawldb.{self.moment}")
        judged = (with_result(batch, result, answer(plugin, self.moment, batch)) for batch in batches)
        self.work.keep(name, self.fields, (pa.Table.from_batches([batch]) for batch in judged))

    def _blame(self, plugins: list[Plugin]) -> None:
        """Raise ConfigError naming the first plug-in, and a URL, that has made the engine fail."""
        self.work.engine.define("scored", f"select * from {self.target}_0")
        for batch in self.work.engine.stream(_QUERY, GROUP_ROWS):
            chained(plugins, self.moment, batch)
