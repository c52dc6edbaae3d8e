"""What is known of a damaged segment beside its records: from its manifest, the folder's small files, and an open take.

Each of them may be damaged too, so each answer says what is best known.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any

from crawl_lib.crawldir import INDEX_FILE, SCOPE_FILE, Iteration, SegmentRef, read_json, read_lines
from crawl_lib.errors import DamagedFileError, KrakeError, PathNotFoundError
from crawl_lib.frontier import open_take
from crawl_lib.repair.segments.glean import Found
from crawl_lib.segment import (
    MANIFEST_NAME,
    Manifest,
    WarcInfo,
    dropped_files,
    microseconds_of,
    read_dropped,
    utc_text,
)
from crawl_lib.stores import Stores
from crawl_lib.urls import UrlFilter
from crawl_lib.version import VERSION


class Known:
    """What the files around a segment's records say."""

    def __init__(self, stores: Stores, name: SegmentRef) -> None:
        self.stores, self.storage, self.name = stores, stores.storage, name
        self.path, self.folder_path = name.path, stores.crawl.at(name.folder)

    @cached_property
    def manifest(self) -> Manifest | None:
        """The old manifest, if it can be used."""
        where = f"{self.path}/{MANIFEST_NAME}"
        try:
            manifest = Manifest.from_bytes(self.storage.read_bytes(where), where)
            usable = isinstance(manifest.counts["taken"], int) and isinstance(manifest.counts["deferred"], int)
        except (DamagedFileError, PathNotFoundError, KeyError, TypeError):
            return None
        return manifest if usable and (manifest.folder, manifest.node) == (self.name.folder, self.name.node) else None

    @cached_property
    def iteration(self) -> Iteration | None:
        """The folder's `iteration.json`, if it can be read."""
        with suppress(DamagedFileError, PathNotFoundError):
            return self.stores.crawl.folder(self.name.folder).iteration()
        return None

    @cached_property
    def index(self) -> dict[str, Any]:
        """The folder's index, if it can be read."""
        with suppress(DamagedFileError, PathNotFoundError):
            return read_json(self.storage, f"{self.folder_path}/{INDEX_FILE}")
        return {}

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that own what was found."""
        if self.iteration is not None and self.name.node in self.stores.config.servers:
            return self.iteration.nodes
        return self.stores.config.servers

    @cached_property
    def counts(self) -> dict[str, int]:
        """`taken`, `deferred` and `dropped`, from the manifest, else from the index and the other nodes' manifests."""
        names = ("taken", "deferred", "dropped")
        if self.manifest is not None:
            return {name: self.manifest.counts.get(name, 0) for name in names}
        try:
            sums = Counter({name: self.index["counts"].get(name, 0) for name in names})
            for node in self.index["outlinks"]:
                if node != self.name.node:
                    counts = read_json(self.storage, f"{self.folder_path}/{node}/{MANIFEST_NAME}")["counts"]
                    sums.subtract({name: counts.get(name, 0) for name in names})
        except (KrakeError, KeyError, TypeError, AttributeError):
            return {}
        return dict(sums) if self.name.node in self.index["outlinks"] and min(sums.values()) >= 0 else {}

    @cached_property
    def url_filter(self) -> UrlFilter:
        """The filter of links, with the iteration's scope."""
        bare = UrlFilter(self.stores.config.urls, ())
        if self.iteration is not None:
            hosts = self.stores.crawl.scope(self.iteration)
        else:
            hosts = set(read_lines(self.storage, f"{self.folder_path}/{SCOPE_FILE}"))
        return bare.with_scope(bare.scope_name(host) for host in hosts)

    def info(self, said: Mapping[str, str]) -> WarcInfo:
        """What new WARC files say of the crawl. `said`: what an old one said."""
        return WarcInfo(
            krake_version=VERSION,
            config_digest=said.get("krake-config-digest") or self.stores.config_digest,
            user_agent=said.get("http-header-user-agent", ""),
            robots_policy=said.get("robots") or self.stores.config.fetch.robots,
            part_of=str(self.name),
        )

    def dropped(self) -> set[bytes]:
        """Keys of pages that were taken out of it by hand."""
        with suppress(DamagedFileError):
            return read_dropped(self.storage, self.path)
        return set()

    def pending(self) -> list[str]:
        """Files of dropped pages that still stand in the segment's files."""
        listed = {entry["name"] for entry in self.manifest.files} if self.manifest else set()
        return [name for name in dropped_files(self.storage, self.path) if name not in listed]

    def take_id(self) -> str:
        """The id of the take, if it is still open on this machine: its task has to find its own segment."""
        with suppress(KrakeError):
            take = open_take(self.stores.node_dir(self.name.node))
            if take is not None and take.header.folder == self.name.folder:
                return take.take_id
        return f"salvaged-{self.name.folder}-{self.name.node}"

    def facts(self, found: Found, lost: int, clock: Callable[[], float]) -> Manifest:
        """What the new manifest says. Raises DamagedFileError where not even the iteration is known."""
        old, iteration, info = self.manifest, self.iteration, self.info(found.info)
        if old is None and iteration is None:
            raise DamagedFileError(
                f"{self.folder_path}/iteration.json, {self.path}/{MANIFEST_NAME}: neither can be read; bring one back"
            )
        pages, dropped = len(found.keys), self.counts.get("dropped", 0)
        least = max(found.positions, default=-1) + 1
        taken = max(self.counts.get("taken", 0), least, pages + lost + dropped)
        return Manifest(
            take_id=old.take_id if old else self.take_id(),
            run_id=old.run_id if old else iteration.run_id if iteration else "",
            iteration=old.iteration if old else iteration.iteration if iteration else 0,
            folder=self.name.folder,
            node=self.name.node,
            krake_version=old.krake_version if old else VERSION,
            config_digest=info.config_digest if old is None else old.config_digest,
            user_agent=info.user_agent if old is None else old.user_agent,
            robots_policy=info.robots_policy if old is None else old.robots_policy,
            started=date_of(old.started if old else None, found.first_us),
            finished=date_of(old.finished if old else None, found.last_us),
            counts={"taken": taken, "deferred": taken - pages - lost - dropped, "lost": lost, "dropped": dropped},
            intake=old.intake if old else {},
            scope_added=old.scope_added if old else [],
            history=[*(old.history if old else ()), _history(found, lost, clock)],
        )


def _history(found: Found, lost: int, clock: Callable[[], float]) -> dict[str, Any]:
    return {
        "what": "salvage",
        "time": utc_text(clock()),
        "krake_version": VERSION,
        "damage": dict(found.damage),
        "lost": lost,
    }


def date_of(text: str | None, fallback_us: int | None) -> str:
    """A WARC date that can be read; where it cannot, or there is none, that of `fallback_us` (POSIX microseconds)."""
    with suppress(ValueError, TypeError):
        if text:
            return utc_text(microseconds_of(text) / 1_000_000)
    return utc_text((fallback_us or 0) / 1_000_000)
