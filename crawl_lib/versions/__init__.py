"""Tables of which each version replaces the one before: the CrawlDb, and what is derived from it and from segments.

Versions are in `<crawl>/<family>/<number>/` (`version`): parts in order of keys, and a sealed manifest. A version is
written next to its place, under a hidden name, and renamed (`writing`), so a killed task leaves nothing that is read;
the newest whole one counts. `work` is where one is made: an engine, and tables that only this version's making needs;
`segments` finds what a version lacks, `derive` makes one that follows from another table. `output` says what `krake
fsck` and others ask of such tables.
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
