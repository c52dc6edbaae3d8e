"""The export: crawled pages get their NodeIDs, and one content file.

How data flows: `export_pages` takes segments. An engine (`crawl_lib.engine`) reads their `pages.parquet` without
dropped pages and chooses one capture for each key: the newest of status 200 whose detected type is wanted. In ascending
order of keys they become `pages.parquet` (the rank is the NodeID) and `urlmapping`. In order of file and offset their
records are read, each WARC file once from start to end; bodies are decoded, compressed, and sorted by NodeID over
bucket files in `scratch.directory` (`content`): `content` and `offsets`. `crawl_lib.graph` goes on from there.
`readers` read the files back, `tables` opens the tables of an export, `show` looks up one page.

After a crash: each file is written under a hidden name, made durable, and renamed, so a file that has its name is
whole. A second run keeps those, deletes leftovers, and writes the rest; with other inputs it refuses.
"""

from crawl_lib.export.choice import Inputs, SegmentInput
from crawl_lib.export.content import content_sizes, write_offsets
from crawl_lib.export.exports import choose, newest_export, remove_older
from crawl_lib.export.folder import ExportFolder, list_exports
from crawl_lib.export.readers import ContentReader, PowerCounts, UrlMapping, WebGraph
from crawl_lib.export.run import export_pages, write_mapping
from crawl_lib.export.show import (
    PageView,
    is_node_id,
    open_web_graph,
    page_key,
    show_page,
    url_named,
)
from crawl_lib.export.tables import (
    ARCS_IN,
    ARCS_OUT,
    CONTENT,
    GRAPH_INDEX,
    OFFSETS,
    PAGES,
    URL_MAPPING,
    WEB_GRAPH,
    ExportTable,
)
from crawl_lib.export.visits import view_visits
