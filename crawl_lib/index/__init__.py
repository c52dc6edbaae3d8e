"""The index of pages: the fields of a page, and the words of each field.

How data flows: an `IndexedPage` has the index's facts about a page. `Fields` (`fields`) turns an `IndexedPage` into a
document of Tantivy: a set of fields of words for each language (`languages`), words with positions, runs of scripts
without spaces between words (`runs`), numbers, and the texts of a result. `pages` is the table next to an index: it has
the often changing facts, a row for each page.

`update_index` makes a version from the version before. `wanted` chooses the pages of the version, the substitutes of
the other pages, and the boosts (`boosts`). `files` changes Tantivy's files; versions share only files that never
change. `copies` keeps copies of versions on this machine if the store is elsewhere. `look` tells why a page is not in
the index.
"""

from typing import TYPE_CHECKING

from crawl_lib.lazy import loads_later

if TYPE_CHECKING:
    from crawl_lib.index.copies import delete_other_copies, local_folder, verify_copy
    from crawl_lib.index.fields import (
        FieldKind,
        Fields,
        IndexedPage,
        order_of,
        pages_with_keys,
        sites_of,
    )
    from crawl_lib.index.languages import LANGUAGES, OTHER, Analysers
    from crawl_lib.index.look import WHY, index_counts, index_stats, why_indexed
    from crawl_lib.index.output import INDEX_OUTPUT
    from crawl_lib.index.pages import PAGES_SCHEMA
    from crawl_lib.index.runs import find_runs, spaced, without_runs
    from crawl_lib.index.update import newest_index, update_index
    from crawl_lib.index.versions import INDEX, PAGES_FILE, file_of, made_ms_of
else:
    # Tantivy is 17 MB; most commands need no index.
    __getattr__ = loads_later(
        __name__,
        {
            "copies": ("delete_other_copies", "local_folder", "verify_copy"),
            "fields": (
                "FieldKind",
                "Fields",
                "IndexedPage",
                "order_of",
                "pages_with_keys",
                "sites_of",
            ),
            "languages": ("LANGUAGES", "OTHER", "Analysers"),
            "look": ("WHY", "index_counts", "index_stats", "why_indexed"),
            "output": ("INDEX_OUTPUT",),
            "pages": ("PAGES_SCHEMA",),
            "runs": ("find_runs", "spaced", "without_runs"),
            "update": ("newest_index", "update_index"),
            "versions": ("INDEX", "PAGES_FILE", "file_of", "made_ms_of"),
        },
    )
