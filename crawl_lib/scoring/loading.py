"""Finding the plug-ins that a config names."""

from functools import cache

from crawl_lib.config import ScoringConfig
from crawl_lib.errors import ConfigError
from crawl_lib.scoring.builtin import BUILT_IN
from crawl_lib.scoring.plugin import Plugin

GROUP = "krake.scoring"
"""Of entry points: https://packaging.python.org/specifications/entry-points/"""


def load_plugins(config: ScoringConfig) -> tuple[Plugin, ...]:
    """The plug-ins in the order of `scoring.plugins`. Raises ConfigError naming one that is not there, or no plug-in.

    What they say is not looked at: see `trial`.
    """
    return tuple(_made(name, config) for name in config.plugins)


def _made(name: str, config: ScoringConfig) -> Plugin:
    kind = BUILT_IN.get(name) or _installed(name)
    try:
        plugin = kind(config)
    except Exception as error:  # it may do anything
        raise ConfigError(f"scoring.plugins: {name}: {type(error).__name__}: {error}") from error
    if plugin.name != name:
        raise ConfigError(f"scoring.plugins: {name}: its name is {plugin.name!r}")
    return plugin


@cache
def _installed(name: str) -> type[Plugin]:
    """The class of an entry point. Found once: later the walls of a fetching process may hide it."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - zip, CSV and e-mail with it: 20 ms a process

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
    except Exception as error:  # it may do anything
        raise ConfigError(f"scoring.plugins: {name}: {entry.value}: {type(error).__name__}: {error}") from error
    return kind
