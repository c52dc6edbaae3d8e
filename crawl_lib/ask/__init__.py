"""Answers about a crawl, without a lock and without a trace: a page, the page's answer, why a URL is where it is.

How data flows: `find_page` looks a page up in an export, or else its newest capture in the segments, and `read_answer`
reads the server's answer (`page`). `explain` tells the way to a URL, the verdicts of rules and robots.txt, and the
place of the URL (`why`). `check_url` tells the verdict of the config, and fetches the URL once (`check`); `visit_url`
also reads the answer, and judges its links (`visit`). `list_segments`, `captures_of` and `dump_rows` give the content
of segments, `refused_hosts` the hosts refused for their addresses (`segments`). `inlinks_of` and `dump_links` give the
tables of links, and `links_left_out` the links beyond the LinkDb's limits (`links`).

`look_up` asks all questions about one URL in a child process (`apart`, `child`), within a limit of time.
"""

from typing import TYPE_CHECKING

from crawl_lib.lazy import loads_later

if TYPE_CHECKING:
    from crawl_lib.ask.apart import PARTS, LookUp, look_up
    from crawl_lib.ask.check import check_url
    from crawl_lib.ask.links import dump_links, inlinks_of, links_left_out
    from crawl_lib.ask.page import ServerAnswer, find_page, newest_rows, read_answer
    from crawl_lib.ask.segments import (
        ListedSegment,
        captures_of,
        dump_rows,
        list_segments,
        refused_hosts,
        require_segments,
        segment_files,
    )
    from crawl_lib.ask.table import (
        best_rows,
        crawldb_stats,
        dump_crawldb,
        dump_hosts,
        explain_listing,
        look_up_listing,
        row_of_url,
    )
    from crawl_lib.ask.visit import CheckedFetch, Link, visit_url
    from crawl_lib.ask.why import explain, says_listing
else:
    # A server with a child loads no table library, and the child loads few.
    __getattr__ = loads_later(
        __name__,
        {
            "apart": (
                "PARTS",
                "LookUp",
                "look_up",
            ),
            "check": ("check_url",),
            "links": (
                "dump_links",
                "inlinks_of",
                "links_left_out",
            ),
            "page": (
                "ServerAnswer",
                "find_page",
                "newest_rows",
                "read_answer",
            ),
            "segments": (
                "ListedSegment",
                "captures_of",
                "dump_rows",
                "list_segments",
                "refused_hosts",
                "require_segments",
                "segment_files",
            ),
            "table": (
                "best_rows",
                "crawldb_stats",
                "dump_crawldb",
                "dump_hosts",
                "explain_listing",
                "look_up_listing",
                "row_of_url",
            ),
            "visit": (
                "Link",
                "CheckedFetch",
                "visit_url",
            ),
            "why": (
                "explain",
                "says_listing",
            ),
        },
    )
