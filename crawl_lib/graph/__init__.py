"""The web graph: from `links` to arcs between NodeIDs, to one file with the neighbours of every page.

How data flows: `link_export` reads `inputs` and `pages.parquet` of an export and the `links.parquet` of its segments;
an engine (`crawl_lib.engine`) joins both to distinct arcs, by source in `arcs-out.parquet` and by target in
`arcs-in.parquet`. `finalize_export` counts the degrees in both files, then merges both, block by block, to
`webgraph-index` and `webgraph`; this needs no room in scratch. `WebGraph` reads the result. `export_graph` writes the
arcs between pages, hosts or domains as a file for other programs (`files`); `grouped` makes the arcs between hosts or
domains. `check_export` looks for damage in all files of an export.

After a crash, as with the export, a file with its final name is whole, and a second run writes the other files. The
linker needs unchanged segments; the finalizer needs only files of the export.
"""

from typing import TYPE_CHECKING

from crawl_lib.export import WebGraph, open_web_graph
from crawl_lib.graph.finalizer import (
    FinalizeReport,
    Neighbours,
    arc_column,
    both_degrees,
    finalize_export,
)
from crawl_lib.graph.linker import LinkReport, link_export
from crawl_lib.lazy import loads_later

if TYPE_CHECKING:
    from crawl_lib.graph.bv import BV_SUFFIXES, write_bv
    from crawl_lib.graph.check import check_export, check_table
    from crawl_lib.graph.files import export_graph, grouped, page_arcs, require_new, whole_file
    from crawl_lib.graph.output import EXPORTS_OUTPUT
else:
    __getattr__ = loads_later(
        __name__,
        {
            "bv": ("BV_SUFFIXES", "write_bv"),
            "check": ("check_export", "check_table"),
            "files": ("export_graph", "grouped", "page_arcs", "require_new", "whole_file"),
            "output": ("EXPORTS_OUTPUT",),
        },
    )
