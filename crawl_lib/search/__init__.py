"""Search: queries to the index, and the pages that answer.

How data flows: `read_query` reads the typed text (`query`); `clauses` makes queries of Tantivy, for each language of
the index; `answers` takes the best pages, and ranks these again by boost and site (`ranking`, `facts`, `sites`).
Each result may explain its score. `suggest` corrects words, `broader` adds words of the best pages, `snippets` shows
where the words are. `reader` gives the newest version of the index, `pool` the threads to search in. `plain` turns an
answer into JSON; `stored` gives one page with the place of its capture (`places`).
"""

from typing import TYPE_CHECKING

from crawl_lib.lazy import loads_later

if TYPE_CHECKING:
    from crawl_lib.search.answers import (
        Explanation,
        Result,
        SearchAnswer,
        SearchOptions,
        Share,
        answer,
        every_page,
        ranked,
    )
    from crawl_lib.search.clauses import is_filter
    from crawl_lib.search.opened import OpenIndex, open_index
    from crawl_lib.search.places import CapturePlace
    from crawl_lib.search.plain import as_json, time_of
    from crawl_lib.search.pool import SearchPool
    from crawl_lib.search.query import Group, PartKind, QueryPart, QueryReading, read_query
    from crawl_lib.search.ranking import PAGE_SIZE, Weights
    from crawl_lib.search.reader import IndexReader, IndexSource
    from crawl_lib.search.sites import Sites
    from crawl_lib.search.snippets import Snippet
    from crawl_lib.search.source import IndexVersions
    from crawl_lib.search.stored import StoredPage, stored_page
else:
    # Tantivy is 17 MB; most commands search nothing.
    __getattr__ = loads_later(
        __name__,
        {
            "answers": (
                "SearchAnswer",
                "Explanation",
                "Result",
                "Share",
                "SearchOptions",
                "answer",
                "every_page",
                "ranked",
            ),
            "clauses": ("is_filter",),
            "opened": ("OpenIndex", "open_index"),
            "places": ("CapturePlace",),
            "plain": ("as_json", "time_of"),
            "pool": ("SearchPool",),
            "query": ("Group", "PartKind", "QueryPart", "QueryReading", "read_query"),
            "ranking": ("PAGE_SIZE", "Weights"),
            "reader": ("IndexReader", "IndexSource"),
            "sites": ("Sites",),
            "snippets": ("Snippet",),
            "source": ("IndexVersions",),
            "stored": ("StoredPage", "stored_page"),
        },
    )
