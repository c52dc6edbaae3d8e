"""The chain of a config's plug-ins, in its order, as stages ask it."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from crawl_lib.config import Config
from crawl_lib.engine import Engine
from crawl_lib.scoring.layers import Layers
from crawl_lib.scoring.loading import load_plugins
from crawl_lib.scoring.pages import FIELD
from crawl_lib.scoring.plugin import MOMENTS, Plugin
from crawl_lib.scoring.trial import chained, require_right
from crawl_lib.segment import PAGES_SCHEMA
from crawl_lib.versions import Work

_NOTED = f'"{FIELD}": [{{][^}}]*[}}]'


@dataclass(frozen=True)
class Scoring:
    """Plug-ins in order. `now`: POSIX seconds; `version`: the number of the CrawlDb that is made, or read."""

    plugins: tuple[Plugin, ...] = ()
    now: int = 0
    version: int = 0

    @classmethod
    def of(cls, config: Config, *, now: int = 0, version: int = 0) -> "Scoring":
        """Those of a config, each looked at. Raises ConfigError naming plug-in, moment, and what is wrong."""
        found = cls(load_plugins(config.scoring), now, version)
        require_right(found.plugins, found.columns)
        return found

    def wanting(self, *moments: str) -> list[Plugin]:
        """The plug-ins that have something to say at one of some moments."""
        return [plugin for plugin in self.plugins if any(getattr(plugin, name) is not None for name in moments)]

    @property
    def columns(self) -> tuple[str, ...]:
        """The numbers that are noted of pages."""
        return tuple(column for plugin in self.plugins for column in plugin.columns)

    def read_pages(self, engine: Engine, given: str) -> None:
        """Make `pages` of a table of captures: metadata without what was noted, which is the table `noted`."""
        names = [name for name in PAGES_SCHEMA.names if name != "metadata"]
        plain = f"regexp_replace(metadata, '{_NOTED}, |, {_NOTED}|{_NOTED}', '') as metadata"
        engine.define("pages", f"select {', '.join(names)}, segment, {plain} from {given}")
        numbers = ", ".join(map(_number, self.columns))
        engine.define("noted", f"select key, segment, time, {numbers} from {given}")

    def apply(self, work: Work, moment: str, source: str, target: str, schema: pa.Schema) -> None:
        """Make the table `target` of the rows of `source`, with the moment's result as the chain leaves it.

        `source`: a table or view with the moment's columns, `key`, and for what was noted `segment` and `moment`.
        `schema`: the columns of `target`; those that the moment does not know are handed through. Raises ConfigError
        naming plug-in, moment and URL where one cannot judge a row, and what engines raise.
        """
        columns = self.columns if MOMENTS[moment].has_noted else ()
        layers = Layers(work, moment, target, schema, columns, {"now": self.now, "version": self.version})
        layers.make(source, self.wanting(moment))

    def values(self, moment: str, batch: pa.RecordBatch) -> "pa.Array[Any]":
        """What the chain makes of rows that are at hand. Raises ConfigError naming plug-in, moment and URL."""
        what, rows = MOMENTS[moment], len(batch)
        given: dict[str, pa.Array[Any]] = {"now": pa.repeat(self.now, rows), "version": pa.repeat(self.version, rows)}
        if what.start is not None:
            given[what.result] = pa.repeat(what.start, rows)
        arrays = [
            (given[field.name] if field.name in given else batch.column(field.name)).cast(field.type)
            for field in what.columns
        ]
        return chained(self.wanting(moment), moment, pa.RecordBatch.from_arrays(arrays, schema=what.columns))


def _number(column: str) -> str:
    """The number of that name in metadata: a regular expression as both engines have them."""
    pattern = f'"{column}": (-?[0-9.]+(e[-+]?[0-9]+)?)'
    return f"cast(nullif(regexp_extract(metadata, '{pattern}', 1), '') as double) as {column}"
