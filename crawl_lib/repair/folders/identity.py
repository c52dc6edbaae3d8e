"""`iteration.json` made again: the iteration of a folder, from the other files of the folder, and from other folders.

The first source with an answer wins: the folder's index, the manifests of its segments, the agreement that `start`
noted, the open takes of this machine's nodes. The number of URLs taken before, and the seeds in the scope, come from
the iteration before. Both may be less than `start` wrote; the next start then reads more folders than needed, with the
same sums.
"""

import hashlib
import json
from contextlib import suppress
from typing import Any

from crawl_lib.crawldir import IMPORT_NODE, FileName, Iteration, Kind, SettledNotes
from crawl_lib.dataclass import dataclass
from crawl_lib.dfsfiles import readable_json
from crawl_lib.errors import DamagedFileError, InputError, PathNotFoundError
from crawl_lib.findings import Finding, Findings, Severity
from crawl_lib.frontier import Take
from crawl_lib.rounds import FIRST_FILE, NodeLayout
from crawl_lib.sealed import SEALED_VERSION
from crawl_lib.stores import Stores
from crawl_lib.version import VERSION


def readable_iterations(stores: Stores) -> list[Iteration]:
    """Return the iterations with a readable `iteration.json`, oldest first.

    Raises StoppedError.
    """
    found = []
    for folder in stores.until_stopped(stores.crawl.folders()):
        with suppress(DamagedFileError, PathNotFoundError):
            found.append(stores.crawl.folder(folder).iteration())
    return found


def nodes_left(stores: Stores) -> list[str]:
    """Return the nodes of the crawl that left without being retired.

    Readable iterations name these nodes, and `servers` does not.
    """
    parts = {node for one in readable_iterations(stores) if one.is_round for node in one.nodes}
    left = []
    for node in sorted({*parts, *SettledNotes.nodes(stores.crawl)} - set(stores.config.servers)):
        try:
            left += [] if NodeLayout(stores).is_retired(node) else [node]
        except (DamagedFileError, PathNotFoundError):
            left.append(node)  # findings of the note, or the iteration
    return left


def check_nodes(stores: Stores) -> list[Finding]:
    """Check for nodes that left: URLs in their queues are not crawled.

    See `nodes_left`.
    """
    findings = Findings("queue", "")
    for node in nodes_left(stores):
        where = str(stores.node_dir(node)) if stores.node_dir(node).is_dir() else node
        problem = f"node {node} is not in `servers`, and was not retired: what waits in its queue is not crawled"
        again = f"put it back, or run `krake nodes retire {node}` there (with --lost if its disk is gone)"
        findings.add("node_not_retired", where, problem, repair=again, severity=Severity.WARNING)
    return findings.list()


@dataclass(frozen=True)
class RepairedIteration:
    """The content of `iteration.json` as a repair knows it, field by field as in the file."""

    format_version: str
    run_id: str
    iteration: int
    kind: str
    nodes: list[str]
    routing: str
    config_digest: str
    krake_version: str
    batch_sizes: dict[str, int]
    taken_before: int
    summed: list[str]
    seeds: list[str]


class FolderIdentity:
    """The known facts about a folder without its `iteration.json`."""

    def __init__(self, stores: Stores, folder: str) -> None:
        self.stores, self.folder = stores, folder
        paths = [stores.crawl.at(folder, name) for name in (FileName.INDEX, FIRST_FILE)]
        self._index, self._agreed = (readable_json(stores.storage, path) for path in paths)
        shared = self._agreed.get("config")
        self._shared: dict[str, Any] = shared if isinstance(shared, dict) else {}
        self._manifests = stores.crawl.folder(folder).readable_manifests()
        self._takes: dict[str, dict[str, Any]] = {}
        """Headers of the open takes of this machine that belong to the folder, by node."""
        for node in stores.config.servers:
            take = Take.readable(stores.node_dir(node))
            if take is not None and take.header.folder == folder:
                self._takes[node] = take.header.to_mapping()
        said = [self._index, *self._manifests.values(), self._agreed, *self._takes.values()]
        pairs = [(one.get("run_id"), one.get("iteration")) for one in said]
        self._whose = {
            (run, number)
            for run, number in pairs
            if isinstance(run, str) and isinstance(number, int)
        }

    def content(self, scope: set[str]) -> RepairedIteration:
        """Return the content of the file without the scope's digest.

        `scope`: the known hosts of the folder. A folder without any trace of a run becomes the first iteration of a run
        with the folder's name. Raises InputError if two traces differ.
        """
        if len(self._whose) > 1:
            said = "; ".join(
                f"iteration {iteration} of {run_id}" for run_id, iteration in sorted(self._whose)
            )
            path = self.stores.crawl.at(self.folder)
            raise InputError(
                f"{path}: holds files of several iterations ({said}): move what is not its own away"
            )
        run_id, iteration = min(self._whose, default=(f"repaired-{self.folder}", 1))
        nodes, iterations = self._nodes(iteration), readable_iterations(self.stores)
        before = next(
            (one for one in reversed(iterations) if int(one.folder) < int(self.folder)), None
        )
        after = next((one for one in iterations if int(one.folder) > int(self.folder)), None)
        digest = self.stores.config_digest
        if self._shared and not self._manifests:
            text = json.dumps(self._shared, sort_keys=True, separators=(",", ":"))
            digest = hashlib.sha256(text.encode()).hexdigest()
        return RepairedIteration(
            format_version=SEALED_VERSION,
            run_id=run_id,
            iteration=iteration,
            kind=self._kind(iteration),
            nodes=list(nodes),
            routing=self._shared.get("frontier.routing", self.stores.config.frontier.routing),
            config_digest=self._said("config_digest", digest),
            krake_version=self._said("krake_version", VERSION),
            batch_sizes={node: self._batch_size(node, iteration) for node in nodes},
            taken_before=before.taken_before if before else 0,
            summed=list(before.summed) if before else [],
            seeds=sorted({*(before.seeds if before else ()), *self._seeds(scope, after)}),
        )

    def contradicts(self, iteration: Iteration) -> str:
        """Say how the folder contradicts its `iteration.json`.

        "": there is no contradiction.
        """
        if self._whose and (iteration.run_id, iteration.iteration) not in self._whose:
            run_id, number = min(self._whose)
            return f"says iteration {iteration.iteration} of {iteration.run_id}, and the folder {number} of {run_id}"
        nodes = self._nodes(iteration.iteration)
        if self._shared and set(nodes) != set(iteration.nodes):
            return f"has the nodes {', '.join(iteration.nodes)}, and what was agreed {', '.join(nodes)}"
        return ""

    def _kind(self, iteration: int) -> Kind:
        """Return the kind of the folder by the manifests.

        An iteration 0 without a manifest is an import.
        """
        if iteration:
            return Kind.CRAWL
        said = {
            entry.get("what")
            for one in self._manifests.values()
            for entry in one.get("history", ())
        }
        return Kind.LIVE if Kind.LIVE in said else Kind.IMPORT

    def _nodes(self, iteration: int) -> tuple[str, ...]:
        if iteration == 0:
            return tuple(self._manifests) or (IMPORT_NODE,)
        if isinstance(self._shared.get("servers"), list):
            return tuple(self._shared["servers"])
        named = {
            *self._manifests,
            *self._index.get("outlinks", ()),
            *self._index.get("missing", ()),
        }
        for manifest in self._manifests.values():
            named.update(manifest["outlinks"])
        return tuple(sorted(named if self._index else {*named, *self.stores.config.servers}))

    def _said(self, name: str, otherwise: str) -> str:
        said = [*self._manifests.values(), self._agreed]
        return str(next((one[name] for one in said if name in one), otherwise))

    def _batch_size(self, node: str, iteration: int) -> int:
        """Return the number of URLs that a node took.

        For a node that has not begun the config decides; under `crawl.max_pages` the number is 0.
        """
        if node in self._manifests:
            return int(self._manifests[node]["counts"].get("taken", 0))
        if node in self._takes:
            return int(self._takes[node]["count"])
        limited = self.stores.config.crawl.max_pages is not None
        return 0 if limited or iteration == 0 else self.stores.config.batch.size

    def _seeds(self, scope: set[str], after: Iteration | None) -> set[str]:
        """Return injected folders whose hosts are all in the scope.

        The next iteration must have these folders, too.
        """
        found = set()
        for digest in self.stores.until_stopped(
            self.stores.crawl.inbox.seeds() if after is None else after.seeds
        ):
            with suppress(DamagedFileError, PathNotFoundError):
                hosts = self.stores.crawl.inbox.scope(digest)
                if hosts and hosts <= scope:
                    found.add(digest)
        return found
