"""Scoring: plug-ins that say what a URL matters, chained in the order of `scoring.plugins`.

`plugin` defines a plug-in and its moments, and has Krake's own plug-ins. `loading` is for fetching processes, and
`chain` for stages.
"""

from typing import TYPE_CHECKING

from crawl_lib.lazy import loads_later
from crawl_lib.scoring.loading import load_plugins, note
from crawl_lib.scoring.plugin import Plugin

if TYPE_CHECKING:
    from crawl_lib.scoring.chain import Scoring
else:
    __getattr__ = loads_later(__name__, {"chain": ("Scoring",)})
