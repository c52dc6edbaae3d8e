"""Facts about a damaged segment besides its records: from other files of the segment, its folder, and an open take;
and the pages that a salvage could not bring back: their list in the segment, and the new crawl of these pages.

Each source may be damaged too, so each answer is the best known.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

from crawl_lib.crawldir import FileName, FolderIndex, Iteration, SegmentRef
from crawl_lib.errors import DamagedFileError, KrakeError, PathNotFoundError, UrlError
from crawl_lib.frontier import Take, is_readable
from crawl_lib.records import QueuedUrl, metadata_without_list, steps_of_row
from crawl_lib.repair.segments.glean import LONGEST_URL, is_robots
from crawl_lib.seeds import Division, check_seeds, hand_over, set_damaged_aside
from crawl_lib.segment import DroppedLists, Manifest, SegmentReader, WarcInfo
from crawl_lib.states import Outcome
from crawl_lib.stores import Stores
from crawl_lib.urlfiles import (
    HANDED_ON,
    OUTLINKS_NAME,
    decode_line,
    encode_line,
    part_mapping,
    read_outlinks,
)
from crawl_lib.urls import Owners, UrlFilter, canonicalize, host_of, key_of
from crawl_lib.version import VERSION
from crawl_lib.warc import WarcRecord, safe_uri, utc_text

LOST_NAME = "lost.tsv"
"""URLs of lost pages, as lines of `outlinks`, handed on past the key check."""
OUTCOMES = frozenset(Outcome)
OLD_COLUMNS = (
    "key",
    "url",
    "via_key",
    "depth",
    "metadata",
    "outcome",
    "attempts",
    "duration_ms",
    "retry_at",
    "hop",
)

PLACE_COLUMNS = ("warc_file", "warc_offset", "url")


def _place(warc_file: str, offset: int, url: str) -> bytes:
    text = f"{warc_file}\n{offset}\n{safe_uri(url)}"
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


class Known:
    """The facts in the files around a segment's records."""

    def __init__(self, stores: Stores, name: SegmentRef) -> None:
        self.stores, self.storage, self.name = stores, stores.storage, name
        self.path, self.folder_path = name.path, stores.crawl.at(name.folder)

    @cached_property
    def manifest(self) -> Manifest | None:
        """The old manifest, if usable."""
        with suppress(DamagedFileError, PathNotFoundError):
            manifest = SegmentReader(self.storage, self.path).manifest
            if (manifest.folder, manifest.node) == (self.name.folder, self.name.node):
                return manifest
        return None

    @cached_property
    def iteration(self) -> Iteration:
        """The iteration of the folder, which is repaired earlier. Raises PathNotFoundError, DamagedFileError."""
        return self.stores.crawl.folder(self.name.folder).iteration()

    @cached_property
    def take(self) -> Take | None:
        """The segment's take, if it is still open."""
        take = Take.readable(self.stores.node_dir(self.name.node))
        return take if take is not None and take.header.folder == self.name.folder else None

    @cached_property
    def index(self) -> FolderIndex:
        """The folder's index, empty if it cannot be used."""
        path = f"{self.folder_path}/{FileName.INDEX}"
        return FolderIndex.readable(self.storage, path) or FolderIndex()

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that own the found URLs."""
        servers = self.stores.config.servers
        return self.iteration.nodes if self.name.node in servers else servers

    @cached_property
    def counts(self) -> dict[str, int]:
        """Counts of the segment's take.

        The counts come from the manifest, or else from the index and the other nodes' manifests.
        """
        names = ("taken", "deferred", "dropped", "passed_over")
        if self.manifest is not None:
            return {name: self.manifest.counts.get(name, 0) for name in names}
        try:
            nodes = [node for node in self.index.outlinks if node != self.name.node]
            manifests = self.stores.crawl.folder(self.name.folder).readable_manifests()
            others = [manifests[node]["counts"] for node in nodes]
            sums = {name: self.index.counts.get(name, 0) for name in names}
            counts = {
                name: sums[name] - sum(other.get(name, 0) for other in others) for name in names
            }
            return (
                counts
                if self.name.node in self.index.outlinks and min(counts.values()) >= 0
                else {}
            )
        except (KrakeError, KeyError, TypeError, AttributeError):
            return {}

    @cached_property
    def url_filter(self) -> UrlFilter:
        """The filter of links, with the iteration's scope."""
        config = self.stores.config
        return UrlFilter(config.urls, self.stores.crawl.scopes.read(self.iteration), config.traps)

    def info(self, said: dict[str, str]) -> WarcInfo:
        """Return the facts about the crawl for new WARC files.

        `said`: the facts of an old file.
        """
        return WarcInfo(
            krake_version=VERSION,
            config_digest=said.get("krake-config-digest") or self.stores.config_digest,
            user_agent=said.get("http-header-user-agent", ""),
            robots_policy=said.get("robots") or self.stores.config.fetch.robots,
            part_of=str(self.name),
        )

    def dropped(self) -> set[bytes]:
        """Return the keys of pages that people took out."""
        with suppress(DamagedFileError):
            return DroppedLists(self.storage, self.path).read()
        return set()

    def pending(self) -> list[str]:
        """Return the lists of dropped pages that the manifest lacks."""
        listed = {entry.name for entry in self.manifest.files} if self.manifest else set()
        return [
            name for name in DroppedLists(self.storage, self.path).names() if name not in listed
        ]

    def facts(self, info: WarcInfo) -> Manifest:
        """Return the manifest, or the facts for a new manifest."""
        if self.manifest is not None:
            return self.manifest
        take_id, began = (
            f"salvaged-{self.name.folder}-{self.name.node}",
            utc_text(int(self.name.folder)),
        )
        if self.take is not None:  # the task of the take has to find this segment
            take_id = self.take.take_id
        return Manifest(
            take_id=take_id,
            run_id=self.iteration.run_id,
            iteration=self.iteration.iteration,
            folder=self.name.folder,
            node=self.name.node,
            krake_version=VERSION,
            config_digest=info.config_digest,
            user_agent=info.user_agent,
            robots_policy=info.robots_policy,
            started=began,
            finished=began,
            counts={},
        )

    @cached_property
    def places(self) -> frozenset[bytes]:
        """Digests of the places of records in `pages` or the index.

        Unreadable rows and lines are left out.
        """
        found: set[bytes] = set()
        with suppress(KrakeError, OSError, ValueError, KeyError, AttributeError):
            for batch in SegmentReader(self.storage, self.path).pages(
                PLACE_COLUMNS, with_dropped=True
            ):
                found.update(_place(*row.values()) for row in batch.to_pylist())
        with (
            suppress(KrakeError),
            self.storage.open_read(f"{self.path}/{Manifest.INDEX_NAME}") as file,
        ):
            for line in file:
                with suppress(ValueError, KeyError, IndexError, TypeError):
                    value = json.loads(line.split(b" ", 2)[2])
                    found.add(_place(value["filename"], int(value["offset"]), value["url"]))
        return frozenset(found)

    def names(self, warc_file: str, record: WarcRecord) -> bool:
        """Tell whether a table names a record, by file, byte and URL."""
        return _place(warc_file, record.offset, record.url) in self.places

    def rows(self) -> Iterator[tuple[QueuedUrl, dict[str, Any]]]:
        """Yield readable rows of `pages`, then URLs of the index.

        If `pages` is whole, the index is not read. A row with a URL of another key, or without a valid outcome, was
        changed, and is left out.
        """
        with suppress(KrakeError, OSError, ValueError, KeyError, AttributeError):
            for batch in SegmentReader(self.storage, self.path).pages(
                OLD_COLUMNS, with_dropped=True
            ):
                for row in batch.to_pylist():
                    if key_of(row["url"]) == row["key"] and row["outcome"] in OUTCOMES:
                        metadata = metadata_without_list(row["metadata"])
                        queued = QueuedUrl(row["url"], row["via_key"], row["depth"], 0, metadata)
                        yield replace(queued, requisite=steps_of_row(row)), row
            return
        with (
            suppress(KrakeError),
            self.storage.open_read(f"{self.path}/{Manifest.INDEX_NAME}") as file,
        ):
            for line in file:
                with suppress(ValueError, KeyError, IndexError, TypeError, UrlError):
                    url = canonicalize(
                        json.loads(line.split(b" ", 2)[2])["url"], max_length_chars=LONGEST_URL
                    )
                    if not is_robots(url):
                        yield QueuedUrl(url), {"key": key_of(url)}

    def outlinks(self) -> Iterator[tuple[str, QueuedUrl, str]]:
        """Yield the readable lines of `outlinks`, in order.

        These are the lines before the damage in each owner's part. A line: the owner, the URL and its flags. Without
        an owner in a manifest, the owner is the host's. A malformed URL is left out: in a part that was compressed as a
        whole, damage shows only at the end.
        """
        where, owners = f"{self.path}/{OUTLINKS_NAME}", Owners(self.nodes)
        local = self.stores.config.frontier.routing == "local" and self.name.node in self.nodes
        found = self.storage.stat(where)
        said = self.manifest.outlinks if self.manifest else self.index.outlinks.get(self.name.node)
        unsaid = {"": {"offset": 0, "length": found.size_bytes if found else 0, "count": 0}}
        for node, value in (said if isinstance(said, dict) else unsaid).items():
            with suppress(DamagedFileError, PathNotFoundError, ValueError):
                part = part_mapping(value, where)
                file = self.storage.open_read(where, part.offset, part.length)
                for line in read_outlinks(file, where, part.count if node else None):
                    if not is_readable(line + b"\n"):
                        continue
                    queued, flags = decode_line(line, where)
                    owner = self.name.node if local else owners.owner(host_of(queued.url))
                    yield node if node in self.nodes else owner, queued, flags


def read_lost(stores: Stores, name: SegmentRef) -> list[QueuedUrl]:
    """Return the URLs that salvages of a segment lost.

    Unreadable lines are left out.
    """
    with suppress(PathNotFoundError):
        lines = stores.storage.read_bytes(f"{name.path}/{LOST_NAME}").splitlines()
        return [decode_line(line)[0] for line in lines if is_readable(line + b"\n")]
    return []


def lost_and_not_queued(stores: Stores, name: SegmentRef) -> list[QueuedUrl]:
    """Return lost URLs that were neither queued again nor crawled.

    If the file that queues these URLs again is damaged, all are returned. A crawl with a CrawlDb has no such URLs: they
    are visited again in any case.
    """
    lost = {key_of(queued.url): queued for queued in read_lost(stores, name)}
    if not lost or not stores.config.order.keeps_keys:
        return []
    digest = _requeued(stores, name)
    if stores.storage.exists(stores.crawl.inbox.path(digest)):
        return [*lost.values()] if check_seeds(stores.crawl, digest) else []
    for other in stores.crawl.segments():
        if int(other.folder) > int(name.folder):
            with suppress(DamagedFileError, PathNotFoundError):  # findings of that segment
                for batch in SegmentReader(stores.storage, other.path).pages(
                    ["key"], with_dropped=True
                ):
                    lost = {
                        key: lost[key] for key in lost.keys() - set(batch.column(0).to_pylist())
                    }
    return sorted(lost.values(), key=lambda queued: queued.url)


def requeue_urls(stores: Stores, name: SegmentRef, urls: Sequence[QueuedUrl]) -> None:
    """Hand lost URLs of a segment to their owners.

    The URLs pass the key check, and their hosts do not become seeds. Their keys go first: while the key tables call the
    URLs crawled, a node that takes in everything again drops the URLs. The same URLs again change nothing. Raises
    KeyStoreError, StorageError.
    """
    with stores.key_servers() as store:
        store.forget([key_of(queued.url) for queued in urls])
    digest, lines = _requeued(stores, name), [encode_line(queued, HANDED_ON) for queued in urls]
    set_damaged_aside(stores.crawl, digest)
    hand_over(
        stores.crawl, digest, lines, Division.of(stores.config), facts={"run_id": f"salvage {name}"}
    )


def _requeued(stores: Stores, name: SegmentRef) -> str:
    """Return the folder in `seeds` of a segment's lost URLs.

    The same URLs give the same name.
    """
    lines = [encode_line(queued, HANDED_ON) for queued in read_lost(stores, name)]
    return hashlib.sha1(b"\n".join([f"salvage {name}".encode(), *lines])).hexdigest()
