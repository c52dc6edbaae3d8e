"""Search: what a query asks of the index, and the pages that answer it.

How data flows: `read_query` reads what a person typed (`query`); `clauses` turns that into queries of Tantivy, once for
each language of the index; `answers` takes the best pages, and ranks them once more by boost and site (`ranking`,
`facts`, `sites`). Each result may explain its score. `suggest` corrects words, `broader` adds words of the best pages,
`snippets` shows where the words are. `reader` gives the newest version of the index, `pool` the threads to search in.
"""

from typing import TYPE_CHECKING

from crawl_lib.lazy import loads_later

if TYPE_CHECKING:
    from crawl_lib.search.answers import Answer, Explanation, Result, Share, Wanted, answer, every_page, ranked
    from crawl_lib.search.opened import OpenIndex, open_index
    from crawl_lib.search.pool import SearchPool
    from crawl_lib.search.query import Kind, Part, Reading, read_query
    from crawl_lib.search.ranking import PAGE_SIZE, Weights
    from crawl_lib.search.reader import IndexReader, Source
    from crawl_lib.search.sites import Sites
    from crawl_lib.search.snippets import Snippet
    from crawl_lib.search.source import IndexVersions
else:
    # Tantivy is 17 MB; most commands search nothing.
    __getattr__ = loads_later(
        __name__,
        {
            "answers": ("Answer", "Explanation", "Result", "Share", "Wanted", "answer", "every_page", "ranked"),
            "opened": ("OpenIndex", "open_index"),
            "pool": ("SearchPool",),
            "query": ("Kind", "Part", "Reading", "read_query"),
            "ranking": ("PAGE_SIZE", "Weights"),
            "reader": ("IndexReader", "Source"),
            "sites": ("Sites",),
            "snippets": ("Snippet",),
            "source": ("IndexVersions",),
        },
    )
