"""The versions of the index: their files, and the fields of their manifests.

A version is a folder with Tantivy's files and three files of Krake: the table of pages, the table of omitted pages, and
the keys of pages that were deleted since the whole index was last made. Tantivy's files still have the words of these
deleted pages.
"""

from crawl_lib.index.pages import PAGES_SCHEMA
from crawl_lib.keys import KEY_BYTES
from crawl_lib.stores import Stores
from crawl_lib.versions import Family, Version

PAGES_FILE = "pages.parquet"
LEFT_OUT_FILE = "left-out.parquet"
DELETED_FILE = "deleted"
OWN_FILES = (PAGES_FILE, LEFT_OUT_FILE, DELETED_FILE)
INDEX = Family(
    folder="index",
    name="the index",
    schema=PAGES_SCHEMA,
    made_again="`krake index update` makes a new version",
)
"""A manifest has `now`, `made_ms` (`made_ms_of`), `config_digest`, `of` (a digest of all sources of the version),
`settings` (of its fields), `pages`, `deleted` (documents in Tantivy's files), `left_out` (pages by reason), `boosts`
(their source) and `digest`."""


def file_of(version: Version, name: str) -> str:
    """Return the path of a version's file below the storage's root."""
    return f"{version.path}/{name}"


def made_ms_of(version: Version) -> int:
    """Return a version's time in POSIX milliseconds.

    The time is above the time of each earlier version, even after a clock went back.
    """
    return int(version.manifest["made_ms"])


def deleted_keys(stores: Stores, version: Version) -> set[bytes]:
    """Return keys of deleted pages whose words are still stored.

    Raises StorageError.
    """
    data = stores.storage.read_bytes(file_of(version, DELETED_FILE))
    return {data[start : start + KEY_BYTES] for start in range(0, len(data), KEY_BYTES)}
