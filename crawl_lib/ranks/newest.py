"""The newest ranks of a crawl's pages."""

import pyarrow as pa

from crawl_lib.errors import NoExportError
from crawl_lib.export import ExportFolder, newest_export
from crawl_lib.ranks.exported import rank_table
from crawl_lib.ranks.linkrank import LINKRANK
from crawl_lib.versions import Versions, VersionWork, columns

_RANKS = columns("key bytes, rank number")


def give_ranks(work: VersionWork) -> str:
    """Make the table `ranks` (key, rank); name its source.

    The table has the PageRanks of the newest ranked export, else the newest LinkRanks. Without ranks the table has no
    rows, and the result is "". Raises DamagedFileError, StorageError, StoppedError.
    """
    name = rank_table("pages")
    try:
        folder = ExportFolder(work.stores, newest_export(work.stores, having=(name,)))
    except NoExportError:
        return _give_link_ranks(work)
    work.engine.table("ranks", folder.file(name))
    return f"the PageRanks of export {folder.name}"


def _give_link_ranks(work: VersionWork) -> str:
    versions = Versions(work.stores, LINKRANK)
    version = versions.newest()
    if version is None:
        work.engine.values("ranks", pa.table({name: [] for name in _RANKS.names}, schema=_RANKS))
        return ""
    versions.give(version, work.engine, "ranks")
    return f"LinkRank version {version.number}"
