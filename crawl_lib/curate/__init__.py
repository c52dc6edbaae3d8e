"""What people do with a crawl by hand: forget, drop and compact pages, import archives, make one index."""

from crawl_lib.curate.compact import compact_segment
from crawl_lib.curate.drop import drop_pages
from crawl_lib.curate.forget import forget
from crawl_lib.curate.import_report import FileReport, ImportReport
from crawl_lib.curate.importing import import_archives
from crawl_lib.curate.index import merge_indexes

__all__ = [
    "FileReport",
    "ImportReport",
    "compact_segment",
    "drop_pages",
    "forget",
    "import_archives",
    "merge_indexes",
]
