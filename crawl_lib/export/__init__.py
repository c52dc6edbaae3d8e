"""The export: crawled pages get their NodeIDs, and one content file.

How data flows: `run.export_pages` takes segments (`folder.SegmentInput`). An engine (`crawl_lib.engine`: DuckDB or
Spark) reads their `pages.parquet` without dropped pages (`sql/export/captures.sql`) and chooses one capture for each
key (`sql/export/chosen.sql`): the newest of status 200 whose detected type is wanted. In ascending order of keys they
become `pages.parquet` (the rank is the NodeID) and `urlmapping`. In order of file and offset
(`sql/export/reading_order.sql`) their records are read, each WARC file once from start to end (`warc_records`); bodies
are decoded, compressed, and sorted by NodeID over bucket files on the local disk (`content`): `content` and `offsets`.
`crawl_lib.graph` goes on from there. `readers` read the files back, `show` looks up one page.

What it needs in `scratch.directory`: what the content file will have (the buckets), and what sorting spills beyond
`scratch.memory_bytes`. Tables of a remote store are read where they lie; only Spark without `spark.dfs_url` copies
those that a query reads.

Where it lies: `<export.directory>/<name>/` (`folder`). In order of writing: `inputs` (what the export is made of:
segments with the digests of their manifests, and options), `pages.parquet`, `urlmapping`, `content`, `offsets`; then
by the linker `arcs-out.parquet`, `arcs-in.parquet`; then by the finalizer `webgraph-index`, `webgraph`.

What holds after a crash: each file is written as `.<name>.<attempt>`, made durable, and renamed, so a file that has
its name is whole. A second run keeps the files that stand, deletes leftovers, and writes the rest; equal inputs give
equal bytes, so it ends as an unbroken run would have. With other inputs it refuses before it writes; but segments that
came into the same iterations since `inputs` was written are left to the next export, whose name is another one.
`scratch.directory` holds nothing that is needed later; the next stage of any export deletes what a killed one left
there (`scratch`). A kill test stops at `export.<file>.written`, `export.<file>.published` and `export.buckets.written`.
"""

from crawl_lib.export.choice import list_exports, newest_export
from crawl_lib.export.folder import (
    ARCS_IN,
    ARCS_OUT,
    CONTENT,
    GRAPH_INDEX,
    INPUTS,
    OFFSETS,
    PAGES,
    URL_MAPPING,
    WEB_GRAPH,
    ExportFolder,
    Inputs,
    SegmentInput,
    check_segments,
)
from crawl_lib.export.progress import Progress
from crawl_lib.export.readers import ContentReader, UrlMapping
from crawl_lib.export.run import EXPORT_SCHEMA, ExportReport, export_pages
from crawl_lib.export.scratch import local_files, scratch_folder
from crawl_lib.export.show import KEY_PATTERN, show_page
from crawl_lib.export.tables import open_table, row_count, write_table
from crawl_lib.export.webgraph import Node, WebGraph, open_web_graph

__all__ = [
    "ARCS_IN",
    "ARCS_OUT",
    "CONTENT",
    "EXPORT_SCHEMA",
    "GRAPH_INDEX",
    "INPUTS",
    "KEY_PATTERN",
    "OFFSETS",
    "PAGES",
    "URL_MAPPING",
    "WEB_GRAPH",
    "ContentReader",
    "ExportFolder",
    "ExportReport",
    "Inputs",
    "Node",
    "Progress",
    "SegmentInput",
    "UrlMapping",
    "WebGraph",
    "check_segments",
    "export_pages",
    "list_exports",
    "local_files",
    "newest_export",
    "open_table",
    "open_web_graph",
    "row_count",
    "scratch_folder",
    "show_page",
    "write_table",
]
