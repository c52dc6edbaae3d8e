"""Plug-ins by name, and their notes on a page, for fetching processes: without numpy and DuckDB.

Numbers are part of `metadata` of `pages`; an update takes the numbers out again (`Scoring.read_pages`), since numbers
may differ for each page, while seeds' metadata has few different texts.
"""

import json
import math
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from crawl_lib.config import ScoringConfig
from crawl_lib.errors import ConfigError
from crawl_lib.records import JsonValue, json_object
from crawl_lib.scoring.plugin import BUILT_IN, Plugin, blamed

GROUP = "krake.scoring"
"""The group of entry points: https://packaging.python.org/specifications/entry-points/"""
FIELD = "scoring"


def load_plugins(config: ScoringConfig) -> tuple[Plugin, ...]:
    """Load the plug-ins in the order of `scoring.plugins`.

    Raises ConfigError naming a missing or unusable plug-in. The moments are checked by `chain`.
    """
    return tuple(_made(name, config) for name in config.plugins)


def _made(name: str, config: ScoringConfig) -> Plugin:
    try:
        plugin = (BUILT_IN.get(name) or _installed(name))(config)
        if not isinstance(plugin, Plugin) or plugin.name != name:
            raise TypeError("is no crawl_lib.scoring.Plugin of that name")
    except ConfigError:
        raise
    except Exception as error:  # it may do anything
        raise ConfigError(f"scoring.plugins: {name}: {type(error).__name__}: {error}") from error
    return plugin


@cache
def _installed(name: str) -> type[Plugin]:
    """Return the class that an entry point names.

    The class is found once: later the walls of a fetching process may hide it.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415 - zip, CSV and e-mail with it: 20 ms a process

    found = {entry.value: entry for entry in entry_points(group=GROUP, name=name)}
    if len(found) != 1:
        there = sorted({*BUILT_IN, *(entry.name for entry in entry_points(group=GROUP))})
        problem = (
            f"is {' and '.join(sorted(found))}; uninstall one of them"
            if found
            else "is not installed"
        )
        raise ConfigError(f"scoring.plugins: {name}: {problem} (there are {', '.join(there)})")
    kind: type[Plugin] = found.popitem()[1].load()
    return kind


def note(
    plugins: Iterable[Plugin], moment: str, metadata: str | None, page: Mapping[str, Any]
) -> str | None:
    """Return metadata with the numbers of plug-ins.

    Only plug-ins with a moment in the crawl are given. `page`: the fields by name. Raises ConfigError naming plug-in,
    moment and URL.
    """
    fields = json_object(metadata)
    before = fields.pop(FIELD, None)
    noted: dict[str, JsonValue] = before if isinstance(before, dict) else {}
    for plugin in plugins:
        try:
            noted |= _numbers(plugin, getattr(plugin, moment)(page))
        except Exception as error:  # it may do anything
            raise blamed(plugin, moment, error, str(page["url"])) from error
    return json.dumps({**fields, FIELD: noted}) if noted else metadata


def _numbers(plugin: Plugin, found: Mapping[str, float]) -> dict[str, float]:
    for name, value in found.items():
        if name not in plugin.columns or not math.isfinite(value):
            raise ValueError(f"{name} is {value}: not one of its columns, or not a number")
    return {name: float(value) for name, value in found.items()}
