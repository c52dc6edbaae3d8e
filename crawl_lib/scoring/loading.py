"""Finding the plug-ins that a config names, and looking at them before a stage begins."""

import re
from collections import Counter
from importlib.metadata import entry_points

import pyarrow as pa

from crawl_lib.config import ScoringConfig
from crawl_lib.errors import ConfigError
from crawl_lib.scoring.builtin import BUILT_IN
from crawl_lib.scoring.plugin import MOMENTS, PAGE_MOMENTS, Plugin
from crawl_lib.scoring.trial import answer, require_steady

GROUP = "krake.scoring"
"""Of entry points: https://packaging.python.org/specifications/entry-points/"""
_COLUMN = re.compile(r"[a-z][a-z0-9_]*")


def load_plugins(config: ScoringConfig) -> tuple[Plugin, ...]:
    """The plug-ins in the order of `scoring.plugins`. Raises ConfigError naming one that is not there, or no plug-in.

    What they say is not looked at: see `require_right`.
    """
    plugins = tuple(_made(name, config) for name in config.plugins)
    counts = Counter(column for plugin in plugins for column in plugin.columns)
    known = {column for moment in MOMENTS.values() for column in moment.columns.names}
    for plugin in plugins:
        for column in plugin.columns:
            if not _COLUMN.fullmatch(column) or column in known or counts[column] > 1:
                raise ConfigError(f"scoring.plugins: {plugin.name}: column {column!r} is no name, or is there already")
    return plugins


def _made(name: str, config: ScoringConfig) -> Plugin:
    if name in BUILT_IN:
        return BUILT_IN[name](config)
    found = {entry.value: entry for entry in entry_points(group=GROUP, name=name)}
    if len(found) != 1:
        there = sorted({*BUILT_IN, *(entry.name for entry in entry_points(group=GROUP))})
        problem = f"is {' and '.join(sorted(found))}; uninstall one of them" if found else "is not installed"
        raise ConfigError(f"scoring.plugins: {name}: {problem} (there are {', '.join(there)})")
    [entry] = found.values()
    try:
        kind = entry.load()
        if not (isinstance(kind, type) and issubclass(kind, Plugin)):
            raise TypeError("is no class that is derived from crawl_lib.scoring.Plugin")
        plugin = kind(config)
    except Exception as error:  # it may do anything
        raise ConfigError(f"scoring.plugins: {name}: {entry.value}: {type(error).__name__}: {error}") from error
    if plugin.name != name:
        raise ConfigError(f"scoring.plugins: {name}: {entry.value}: its name is {plugin.name!r}")
    return plugin


def require_right(plugins: tuple[Plugin, ...], columns: tuple[str, ...]) -> None:
    """Ask each plug-in about no rows. Raises ConfigError naming plug-in, moment, and a column that is not there."""
    for plugin in plugins:
        for name, moment in MOMENTS.items():
            if getattr(plugin, name) is not None:
                fields = [*moment.columns, *(pa.field(one, pa.float64()) for one in columns if moment.has_noted)]
                require_steady(plugin, name)
                answer(plugin, name, pa.RecordBatch.from_pylist([], pa.schema(fields)))
        for name in PAGE_MOMENTS:
            if getattr(plugin, name) is not None and not callable(getattr(plugin, name)):
                raise ConfigError(f"scoring.plugins: {plugin.name}, {name}: must be a function over a page's fields")
