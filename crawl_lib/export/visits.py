"""The visits that count for exports and for what is derived from captures: visits of pages, not of requisites."""

from collections.abc import Callable, Sequence

from crawl_lib.engine import Engine
from crawl_lib.segment import LINKS_SCHEMA


def view_visits(
    engine: Engine, query: str, links: Callable[[], Sequence[str | None]] | None
) -> None:
    """Make the view `visits` of a query's linked pages.

    Requisites without a followed link are left out.

    `query`: gives rows of `pages`. `links`: returns the paths of the tables of links of the same segments, and is
    called only where there are requisites; None: requisites count as pages do. Raises what `links` does, StorageError.
    """
    engine.view("all_visits", query)
    if links is not None and engine.value("export/requisites"):
        engine.tables("named", links(), LINKS_SCHEMA)
        engine.view("visits", "export/visits_of_pages")
    else:
        engine.define("visits", "select * from all_visits")
