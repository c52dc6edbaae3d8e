"""The index of pages: which fields a page has, and how their words are made.

How data flows: an `IndexedPage` says what the index knows of a page. `Fields` (`fields`) turns it into a document of
Tantivy: a set of fields of words for each language (`languages`), words with positions, runs of scripts that leave no
spaces between words (`runs`), numbers, and what a result shows. `pages` is the table next to an index: what changes
often, a row a page.
"""

from typing import TYPE_CHECKING

from crawl_lib.lazy import loads_later

if TYPE_CHECKING:
    from crawl_lib.index.fields import Fields, IndexedPage
    from crawl_lib.index.languages import LANGUAGES, OTHER, Analysers
    from crawl_lib.index.pages import PAGES_SCHEMA
    from crawl_lib.index.runs import find_runs, spaced, without_runs
else:
    # Tantivy is 17 MB; most commands need no index.
    __getattr__ = loads_later(
        __name__,
        {
            "fields": ("Fields", "IndexedPage"),
            "languages": ("LANGUAGES", "OTHER", "Analysers"),
            "pages": ("PAGES_SCHEMA",),
            "runs": ("find_runs", "spaced", "without_runs"),
        },
    )
