"""Checking and mending a crawl by hand: what `krake fsck` finds, and the tools that each finding names.

`fsck` walks through the rooms; `fsck_*` look, one module a room, and change nothing; each returns `Finding`s. The tools
are elsewhere where they belong to one room (`repair.queue.queue`, `keys.*`), and here where they put together what
several rooms know:

* `folders`, with `folder_*`: the small files of an iteration's folder, or of injected seeds;
* `salvage`, with `glean` and `salvage_*`: a segment from its WARC files; `swap` puts it in place;
* `drop`, `compact`: pages taken out; `forget`, with `forgotten`: pages made new;
* `importing`, with `foreign` and `import_*`: archives of other programs;
* `cdxj`: one index of all segments;
* `node`: a node's directory; `rebuild`: key tables; `sweep`: what killed attempts left.

Each tool may be killed anywhere and run again. A dry run leaves no trace, not even a lock: `places` says how.
"""

from crawl_lib.repair.findings import Finding, Severity
from crawl_lib.repair.segments.check import check_segment

__all__ = ["Finding", "Severity", "check_segment"]
