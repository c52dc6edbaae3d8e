"""Files for the field's tools: Common Crawl's index, WET, graphs of hosts and domains with ranks, BV graphs.

How data flows: `captures` joins the pages of a segment with its CDXJ lines, texts' languages and places in WET files;
an engine sorts the captures of all segments, and `columns` adds the columns of URL and host, for the parts of the
index (`index`). `wet` writes the texts of a segment as WET files.

`nodes` numbers pages of an export, or all ends of links, or the hosts or domains of either; `arcs` sorts arcs by
source and by target; `graphs` writes the files of a graph, in a folder for each export or to this machine (`output`).
All folders are made once, whole or not at all (`folders`).
"""

from crawl_lib.commoncrawl.graphs import FORMATS
from crawl_lib.commoncrawl.index import CommonCrawlReport, make_index, make_wet
from crawl_lib.commoncrawl.output import (
    COMMONCRAWL_OUTPUT,
    GRAPHS_OUTPUT,
    GraphFilesReport,
    GraphsReport,
    export_graph_files,
    make_graphs,
)
