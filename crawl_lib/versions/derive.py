"""A version of a table that follows from another table's version, and from options: made again after changes."""

import logging
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa

from crawl_lib.errors import DamagedFileError
from crawl_lib.versions.version import Version, Versions
from crawl_lib.versions.work import VersionWork
from crawl_lib.versions.writing import make_version

log = logging.getLogger(__name__)


def derive(
    versions: Versions,
    *,
    of: Version,
    settings: Mapping[str, Any],
    rows: Callable[[VersionWork], Iterator[pa.RecordBatch]],
    now: datetime,
) -> Version:
    """Make or find the version derived from another table's version.

    The version follows from the rows of `of`, and from `settings`. The newest version is returned if its manifest has
    the same inputs; otherwise a version is made, with `rows` in order of keys. The manifest has `now` (POSIX seconds),
    `config_digest`, `of` (a digest of the rows) and `settings`. If no version is whole, a version is made too: all rows
    can be found again. Raises StorageError, NoRoomError, StoppedError, ConfigError.
    """
    stores = versions.stores
    facts = {"of": of.digest, "settings": dict(settings)}
    while True:
        newest = _newest(versions)
        if newest is not None and facts == {name: newest.manifest.get(name) for name in facts}:
            return newest
        made = {**facts, "now": int(now.timestamp()), "config_digest": stores.config_digest}
        if version := make_version(versions, rows, made):
            return version


def _newest(versions: Versions) -> Version | None:
    try:
        return versions.newest()
    except DamagedFileError as error:
        log.warning("%s; it is made again", error)
        return None
