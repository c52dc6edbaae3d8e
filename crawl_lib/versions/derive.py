"""A version of a table that follows from a version of another one, and from options: made again where these change."""

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

    It follows from the rows of `of`, and from `settings`. That is the newest one, if its manifest says so; else one is
    made, `rows` in order of keys. Its manifest has `now` (POSIX seconds), `config_digest`, `of` (a digest of those
    rows) and `settings`. Where none is whole, one is made too: all of it can be found again. Raises StorageError,
    NoRoomError, StoppedError, ConfigError.
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
