"""The sum of a folder's index and segments, also of segments that came after the commit."""

from collections import Counter
from functools import cached_property
from typing import Any

from crawl_lib.crawldir.directory import CrawlDirectory, Folder
from crawl_lib.crawldir.folderindex import FolderIndex
from crawl_lib.crawldir.settled import SettledNotes
from crawl_lib.dataclass import dataclass


@dataclass(frozen=True)
class FolderState:
    """A folder's index, None before its commit, and the nodes with segments.

    The segments were listed after the index was read: segments of a complete index are all in the list.
    """

    folder: Folder
    index: FolderIndex | None
    present: list[str]

    @classmethod
    def read(cls, crawl: CrawlDirectory, name: str) -> "FolderState":
        """Read the current state of a folder.

        Raises DamagedFileError naming the index.
        """
        folder = crawl.folder(name)
        return cls(folder, index=folder.index(), present=folder.segments())

    @property
    def missing(self) -> list[str]:
        """Nodes without segments that the commit did not wait for."""
        missing = self.index.missing if self.index else ()
        return [node for node in missing if node not in self.present]

    @cached_property
    def awaited(self) -> list[str]:
        """Nodes of `missing` whose segments may still come."""
        notes = [(node, SettledNotes(self.folder.crawl, node).read()) for node in self.missing]
        return [node for node, settled in notes if settled is None or not settled.lost]

    @property
    def is_complete(self) -> bool:
        """Whether the folder is final: committed, and no segment may come late."""
        return self.index is not None and not self.awaited

    @cached_property
    def unsummed(self) -> dict[str, dict[str, Any]]:
        """Manifests by node that the index does not include.

        Before the commit these are all manifests, and later the manifests of late segments. Raises DamagedFileError or
        StorageError naming a manifest.
        """
        names = self.present
        if self.index is not None:
            names = [node for node in self.index.missing if node in self.present]
        crawl = self.folder.crawl
        return {
            node: crawl.segment(self.folder.name, node).manifest()
            for node in crawl.work.until_stopped(names)
        }

    @property
    def counts(self) -> dict[str, Any]:
        """The counts of all segments of the folder."""
        late = [manifest["counts"] for manifest in self.unsummed.values()]
        if self.index is None:
            return self.sum_counts(late)
        counts = self.index.counts
        return self.sum_counts([counts, *late]) if late else counts

    @property
    def urls(self) -> int:
        """The number of URLs that ended here; each URL counts once in a crawl.

        Retries, and URLs listed again, do not count.
        """
        retried: dict[str, int] = self.counts.get("retried", {})
        return int(self.counts["fetched"]) - sum(retried.values())

    @property
    def scope_added(self) -> set[str]:
        """The hosts that the segments added to the scope."""
        hosts = set(self.index.scope_added if self.index else ())
        return hosts.union(*(manifest["scope_added"] for manifest in self.unsummed.values()))

    @staticmethod
    def sum_counts(counts: list[dict[str, Any]]) -> dict[str, Any]:
        """Add up the `counts` of manifests.

        Numbers are added by name, also those in mappings; `fetched` is added.
        """
        total: Counter[str] = Counter()
        nested: dict[str, Counter[str]] = {"outcomes": Counter(), "rejections": Counter()}
        for count in counts:
            for name, value in count.items():
                if isinstance(value, dict):
                    nested.setdefault(name, Counter()).update(value)
                else:
                    total[name] += value
        total["fetched"] = total["pages"]
        return {**total, **{name: dict(sorted(inner.items())) for name, inner in nested.items()}}
