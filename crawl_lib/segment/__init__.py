"""Segments: what one node's task of one iteration leaves behind.

How data flows: each worker process has a `PartWriter` (`spool`). `append` makes the records of a fetch (`records`) and
writes the group by one write to the system; the page's rows go beside it (`tables`, `cdxj`, `outlinks`). A full WARC
file closes its part (`parts`). When all workers have closed, `build_segment` merges the parts into the files of the
segment (`build`, `manifest`) and `publish` makes them visible by one rename. `SegmentReader` reads them.

After a crash: the WARC is the log. A closed part is whole and trusted. The part that was open is cut to its last whole
group, and `PartWriter.recovered` (`recover`) gives its groups again, so that the rows beside it are made anew. A build
that did not end begins anew. A publish that did not end goes on with what is not uploaded; one that did finds its own
take's manifest. Nothing visible is ever half there.
"""

from crawl_lib.segment.build import build_segment
from crawl_lib.segment.cdxj import cdxj_line, surt
from crawl_lib.segment.manifest import Manifest, SegmentFacts
from crawl_lib.segment.parts import finished_positions, list_parts, part_prefix
from crawl_lib.segment.publish import publish
from crawl_lib.segment.reader import SegmentReader
from crawl_lib.segment.records import FORMAT_VERSION, Position, WarcInfo, split_head
from crawl_lib.segment.schema import LINKS_SCHEMA, PAGES_SCHEMA, LinkColumns, PageRow
from crawl_lib.segment.spool import PartWriter, recover
from crawl_lib.segment.warcread import WarcRecord, walk

__all__ = [
    "FORMAT_VERSION",
    "LINKS_SCHEMA",
    "PAGES_SCHEMA",
    "LinkColumns",
    "Manifest",
    "PageRow",
    "PartWriter",
    "Position",
    "SegmentFacts",
    "SegmentReader",
    "WarcInfo",
    "WarcRecord",
    "build_segment",
    "cdxj_line",
    "finished_positions",
    "list_parts",
    "part_prefix",
    "publish",
    "recover",
    "split_head",
    "surt",
    "walk",
]
