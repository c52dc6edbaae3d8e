"""Files as Common Crawl has them, which the field's tools read: host and domain graphs with ranks, and BV graphs.

How data flows: `nodes` numbers pages of an export, or all ends of links, or their hosts or domains; `arcs` sorts the
arcs between them both ways; `graphs` writes the files of such a graph. `output` makes those that the config asks for,
in a folder for each export (`folders`: made once, whole or not at all), or writes one graph to files of this machine.
"""

from crawl_lib.commoncrawl.graphs import FORMATS
from crawl_lib.commoncrawl.output import GRAPHS_OUTPUT, GraphFilesReport, GraphsReport, export_graph_files, make_graphs
