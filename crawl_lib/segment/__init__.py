"""Segments: what one node's task of one iteration leaves behind.

How data flows: each fetching process has a `PartWriter` (`spool`). Its `append` makes the records of a fetch
(`encoder`) and writes the group by one write to the system; the page's rows are next to it (`tables`, `cdxj`,
`runs`). A full WARC file closes its part (`parts`), which is then sealed (`publish`): its WARC file goes into the
take's hidden folder on the DFS, and its local room is free. When all processes have closed and all parts are sealed,
`build_segment` merges the parts' rows into the files of the segment (`build`, `manifest`) and `publish` uploads those
and makes all visible by one rename. `SegmentReader` reads them, `warc` reads records, also of other programs, and
`members` the records whose places `pages` names.

The WARC is the log: a part that was open at a kill is cut to its last whole group, and its rows are made again from it
(`recover`). Nothing visible is ever half there. The durable steps: `docs/protocol.md`.

`Spool` lists the parts of a spool. `HiddenFolder` is the folder of a take on the DFS before the rename. `DroppedLists`
reads and writes which pages of a segment people took out.
"""

from typing import TYPE_CHECKING

from crawl_lib.lazy import loads_later
from crawl_lib.segment.cdxj import surt
from crawl_lib.segment.encoder import Position, RecordEncoder, WarcInfo
from crawl_lib.segment.manifest import (
    DroppedLists,
    Manifest,
)
from crawl_lib.segment.members import Member, WantedRecord
from crawl_lib.segment.parts import (
    Part,
    Spool,
)
from crawl_lib.segment.payload import payload_of
from crawl_lib.segment.publish import (
    HiddenFolder,
    Sealer,
    publish,
)
from crawl_lib.segment.recover import Recovered
from crawl_lib.segment.runs import RunWriter

if TYPE_CHECKING:
    from crawl_lib.segment.build import build_segment, built_problem
    from crawl_lib.segment.check import check_segment
    from crawl_lib.segment.reader import SegmentReader
    from crawl_lib.segment.schema import LINKS_SCHEMA, PAGES_SCHEMA, SUBMISSIONS_SCHEMA, PageRow
    from crawl_lib.segment.spool import PartWriter
    from crawl_lib.segment.tables import LinkBlock, read_blocks, write_parquet
else:
    # These modules load Arrow, which takes a tenth of a second, and not each task of a node reads or writes rows. No
    # task looks for damage.
    __getattr__ = loads_later(
        __name__,
        {
            "build": ("build_segment", "built_problem"),
            "check": ("check_segment",),
            "reader": ("SegmentReader",),
            "schema": ("LINKS_SCHEMA", "PAGES_SCHEMA", "SUBMISSIONS_SCHEMA", "PageRow"),
            "spool": ("PartWriter",),
            "tables": (
                "LinkBlock",
                "read_blocks",
                "write_parquet",
            ),
        },
    )
