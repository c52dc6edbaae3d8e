"""The lists made from the CrawlDb: owners, URLs, and ends of lists.

A list is a folder as `seeds.hand_over` leaves it, and the file `listed.parquet` in it: the key of each URL, and its
last visit as the table knew it when the list was made. A list holds its URLs until the lease is over, or the table
knows of another visit. A list is deleted once its version is deleted, all nodes have taken the list in, and no URL is
held any more. A damaged list is set aside, and keeps the URLs of all its nodes until its lease ends. After that,
`krake sweep --damaged` deletes the list.
"""

import hashlib
import io
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from crawl_lib.crawldb.table import CRAWLDB, Status
from crawl_lib.crawldir import FileName, InboxManifest
from crawl_lib.durable import reached
from crawl_lib.errors import DamagedFileError, PathNotFoundError
from crawl_lib.rounds import NodeLayout, generated, list_number
from crawl_lib.stores import Stores
from crawl_lib.urlfiles import HANDED_ON
from crawl_lib.versions import Versions

KEYS_FILE = "listed.parquet"
_TIME = pa.timestamp("us", "UTC")
_COLUMNS: dict[str, Any] = {"key": pa.binary(20), "fetched_time": _TIME}
KEYS_SCHEMA = pa.schema(_COLUMNS)


@dataclass(frozen=True)
class MadeList:
    """A list by `name` and manifest. `aside`: its folder's name once it was set aside, else ""."""

    name: str
    manifest: InboxManifest
    aside: str = ""

    @property
    def number(self) -> tuple[int, int]:
        """Version of the list, and number among the lists of this version."""
        return list_number(self.name)

    @property
    def folder(self) -> str:
        """The name of the list, as in `lists`."""
        return self.aside or self.name

    @property
    def until(self) -> int:
        """POSIX seconds of the end of the lease."""
        return int(self.manifest.said["now"]) + int(self.manifest.said["lease_s"])

    def is_of(self, run_id: str, iteration: int) -> bool:
        """Return whether the list was made for an iteration of a run."""
        said = self.manifest.said
        return (said["run_id"], said["iteration"]) == (run_id, iteration)

    def count_of(self, node: str) -> int:
        """Count the list's URLs of a node."""
        return self.manifest.count_of(node)


def read_lists(stores: Stores) -> list[MadeList]:
    """Read all lists, newest first.

    Raises DamagedFileError, which names an unreadable list and says what to do.
    """
    return [MadeList(name, manifest) for name, manifest in generated(stores)]


def aside_lists(stores: Stores) -> list[MadeList]:
    """Return damaged lists set aside after the nodes took the lists in.

    Each node has a segment of the list's iteration, so its URLs are not to be listed again. A list is left out if too
    little of it can be read.
    """
    crawl, storage, found = stores.crawl, stores.storage, list[MadeList]()
    path = crawl.at(FileName.LISTS)
    for entry in storage.list(path) if storage.exists(path) else ():
        name = entry.name.removeprefix(FileName.DAMAGED_PREFIX).rpartition("-")[0]
        if entry.name.startswith(FileName.DAMAGED_PREFIX) and list_number(name) > (0, 0):
            with suppress(DamagedFileError, PathNotFoundError, KeyError, TypeError, AttributeError):
                one = MadeList(name, crawl.inbox.manifest(entry.name, FileName.LISTS), entry.name)
                folder, nodes = (
                    one.manifest.said["folder"],
                    [node for node in one.manifest.nodes if one.count_of(node)],
                )
                if all(crawl.segment(folder, node).exists() for node in nodes):
                    _read_keys(stores, one)
                    found.append(one)
    return found


def utc(seconds: float) -> datetime:
    """POSIX seconds in the form of tables."""
    return datetime.fromtimestamp(seconds, UTC)


def list_lines(name: str, rows: pa.RecordBatch) -> list[bytes]:
    """Encode the URLs of a list as outlink lines, column by column.

    The result has the lines of `frontier.encode_line`, without newlines.

    `rows`: of the CrawlDb, and the column `earlier`: captures (`Earlier`) or null.
    """
    column: Callable[[str], Any] = rows.column
    depth, redirects, retries = (
        column(of).cast(pa.string()) for of in ("depth", "redirects", "retries")
    )
    has_steps = pc.and_(
        pc.equal(column("status"), pa.scalar(Status.REQUISITE, pa.string())),
        pc.greater(column("depth"), pa.scalar(0)),
    )
    hops: Any = pc.if_else(has_steps, pc.binary_join_element_wise(redirects, depth, "E"), redirects)
    fields = (
        column("url"),
        "",
        depth,
        hops,
        HANDED_ON,
        column("metadata").fill_null(""),
        retries,
        "0",
        name,
    )
    lines: Any = pc.binary_join_element_wise(*fields, column("earlier"), "\t", null_handling="skip")
    return list(lines.cast(pa.binary()).to_pylist())


def keys_bytes(listed: Sequence[pa.RecordBatch]) -> bytes:
    """Encode the file of a list's keys.

    `listed`: batches with the columns of `KEYS_SCHEMA`.
    """
    out = io.BytesIO()
    tables = (pa.Table.from_batches([rows]).cast(KEYS_SCHEMA) for rows in listed)
    pq.write_table(pa.concat_tables([KEYS_SCHEMA.empty_table(), *tables]).combine_chunks(), out)
    return out.getvalue()


def held_urls(
    stores: Stores, lists: Sequence[MadeList], now: int, key: bytes | None = None
) -> pa.Table:
    """Return the URLs leased by lists.

    The columns are key, fetched_time, until and `list`, the place in `lists`.

    `key`: of the only wanted URL; then one list at a time is in memory. None: all URLs.
    """
    tables = []
    for place, one in enumerate(lists):
        if one.until > now and one.manifest.accepted:
            keys = _read_keys(stores, one, key)
            until = pa.array([utc(one.until)] * len(keys), _TIME)
            tables.append(
                keys.append_column("until", until).append_column(
                    "list", pa.array([place] * len(keys), pa.int32())
                )
            )
    schema = KEYS_SCHEMA.append(pa.field("until", _TIME)).append(pa.field("list", pa.int32()))
    return pa.concat_tables([schema.empty_table(), *tables])


def has_key(stores: Stores, one: MadeList, key: bytes) -> bool:
    """Return whether a list has a URL.

    Raises DamagedFileError naming the list's file, StorageError.
    """
    return bool(one.manifest.accepted) and len(_read_keys(stores, one, key)) > 0


def _read_keys(stores: Stores, one: MadeList, key: bytes | None = None) -> pa.Table:
    folder = stores.crawl.inbox.path(one.folder, FileName.LISTS)
    path = f"{folder}/{KEYS_FILE}"
    try:
        data = stores.storage.read_bytes(path)
    except PathNotFoundError as error:
        if not stores.storage.exists(
            folder
        ):  # another `generate` has deleted the list: it holds nothing any more
            return KEYS_SCHEMA.empty_table()
        raise DamagedFileError(f"{error}; run `krake fsck --repair`") from error
    if hashlib.sha256(data).hexdigest() != one.manifest.files[KEYS_FILE]:
        raise DamagedFileError(
            f"{path}: differs from the written file (SHA-256); run `krake fsck --repair`"
        )
    keys = pq.read_table(io.BytesIO(data))
    return (
        keys
        if key is None
        else keys.filter(pc.equal(keys.column("key"), pa.scalar(key, pa.binary(20))))
    )


def may_be_over(stores: Stores, lists: Sequence[MadeList]) -> list[int]:
    """Return the places of lists that may be used up.

    The version of such a list is deleted, and all nodes have taken the list in.
    """
    versions = set(Versions(stores, CRAWLDB).numbers())
    return [
        place
        for place, one in enumerate(lists)
        if one.number[0] not in versions
        and NodeLayout(stores).is_taken_in(one.name, FileName.LISTS)
    ]


def delete_over(
    stores: Stores,
    lists: Sequence[MadeList],
    places: Collection[int],
    unseen: Collection[int],
    now: int,
) -> int:
    """Delete lists without leased URLs; return how many.

    `unseen`: places of lists with leased URLs.
    """
    held = {
        *unseen,
        *(place for place in places if not lists[place].manifest.accepted),
    }  # or what they say is repeated
    over = [lists[place] for place in places if lists[place].until <= now or place not in held]
    for one in over:
        stores.storage.delete(stores.crawl.inbox.path(one.folder, FileName.LISTS))
        reached("crawldb.generate.deleted")
    return len(over)
