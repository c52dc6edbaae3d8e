"""Tables of which each version replaces the one before: the CrawlDb, and what is derived from it and from segments.

Versions are in `<crawl>/<family>/<number>/` (`version`): parts in order of keys, and a sealed manifest. A version is
written next to its place, under a hidden name, and renamed (`writing`), so a killed task leaves nothing that anybody
reads; the newest whole version counts. `work` is the place where a version is made: an engine, and tables for this
version only; `segments` finds segments that a version lacks, `derive` makes a version that follows from another table.
`output` has the operations of `krake fsck` and others on such tables.
"""

from crawl_lib.versions.derive import derive
from crawl_lib.versions.output import TableOutput, has_key
from crawl_lib.versions.segments import SegmentInputs, find_segments, give_segments, numbered
from crawl_lib.versions.version import (
    GROUP_ROWS,
    Family,
    Version,
    VersionFacts,
    Versions,
    find_rows,
)
from crawl_lib.versions.work import (
    SCORE,
    TIME,
    VersionWork,
    answer_folder,
    columns,
    is_answer_over,
    table_of,
)
from crawl_lib.versions.writing import Filled, Hashed, make_version, seal_version, write_version
