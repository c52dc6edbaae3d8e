"""Checking and mending a crawl by hand: what `krake fsck` finds, and the tools that each finding names.

`fsck_*` look, one module a room, and change nothing; each returns `Finding`s. The tools are elsewhere where they
belong to one room (`frontier.repair`, `keys.*`), and here where they put segments together again.
"""

from crawl_lib.repair.findings import Finding, Severity
from crawl_lib.repair.fsck_segment import check_segment

__all__ = ["Finding", "Severity", "check_segment"]
