"""What plug-ins note of a page, before it is fetched and when it was read.

Numbers are part of `metadata` of `pages`, an object `scoring`. They are taken out of it again before an update looks at
metadata (`Scoring.read_pages`): what seeds say has few different texts, and what is noted may be different for each
page. This module is for fetching processes, which load neither numpy nor DuckDB.
"""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from crawl_lib.records import json_object
from crawl_lib.scoring.plugin import Plugin, blamed

FIELD = "scoring"


def note(plugins: Iterable[Plugin], moment: str, metadata: str | None, page: Mapping[str, Any]) -> str | None:
    """Metadata with the numbers of plug-ins that have a moment in the crawl. `page`: its fields by name.

    Raises ConfigError naming plug-in, moment and URL.
    """
    found: dict[str, float] = {}
    for plugin in plugins:
        found |= _numbers(plugin, moment, page)
    fields = json_object(metadata)
    before = fields.pop(FIELD, None)
    everything = {**(before if isinstance(before, dict) else {}), **found}
    return json.dumps({**fields, FIELD: everything}) if everything else metadata


def _numbers(plugin: Plugin, moment: str, page: Mapping[str, Any]) -> dict[str, float]:
    try:
        found = {str(name): float(value) for name, value in getattr(plugin, moment)(page).items()}
        for name, value in found.items():
            if name not in plugin.columns:
                raise ValueError(f"{name}: is none of its columns")
            if not math.isfinite(value):
                raise ValueError(f"{name} is {value}")
    except Exception as error:  # it may do anything
        raise blamed(plugin, moment, error, str(page["url"])) from error
    return found
