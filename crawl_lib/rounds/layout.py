"""A changed list of nodes: when an iteration may begin with it.

Segments and seeds divide URLs among the nodes there were when they were written. If the next iteration has other nodes
(or another routing), all that was divided among the old ones has to be in their queues, and nothing of theirs may be
open: then the new owners get what is theirs from the queues themselves (`Rewrites.rehome`, `retire`). `start` runs
where no queue is, so it asks what the nodes had settled (`crawldir.settled`).
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice

from crawl_lib.crawldir import InboxManifest, Iteration, Settled, SettledNotes
from crawl_lib.errors import ConfigError, DamagedFileError, PathNotFoundError
from crawl_lib.stores import Stores

_SHOWN = 5


class NodeLayout:
    """The nodes of a crawl, and the sources settled by each."""

    def __init__(self, stores: Stores) -> None:
        self._config, self._crawl = stores.config, stores.crawl

    def require(self) -> None:
        """Check that an iteration may begin with the config's nodes.

        Raises ConfigError, which says what to do. Asked by `start`, and before seeds are divided among them.

        While the nodes and the routing are those of the newest iteration, only seeds that came since are looked at.
        """
        before = self._crawl.newest_iteration()
        self._require_owners_of_seeds(before)
        same_routing = before is not None and before.routing == self._config.frontier.routing
        if before is None or (same_routing and set(before.nodes) == set(self._config.servers)):
            return
        handed_over, servers = self._crawl.inbox.folders(), set(self._config.servers)
        sources = [(segment.folder, segment.node) for segment in self._crawl.segments()]
        sources += [name for name in handed_over if set(self._handed_over(*name).nodes) != servers]
        problems = self.unsettled(before.nodes, before.folder, sources)
        for node in before.nodes:
            if node not in servers and not self.is_retired(node):
                problems.append(
                    f"{node} is not retired: run `krake nodes retire {node}` on its machine"
                )
        notes = [
            SettledNotes(self._crawl, node).read()
            for node in self._config.servers
            if node not in before.nodes
        ]
        problems += [
            settled.refusal for settled in notes if settled is not None and settled.refusal
        ]
        if problems and self._crawl.newest_iteration() != before:
            self.require()  # another start was faster: its nodes are at work, and have no marks any more
        elif problems:
            more = f" ... and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
            raise ConfigError(
                f"servers: iteration {before.folder} had the nodes {', '.join(before.nodes)} with {before.routing}"
                f" routing, and the config now has {', '.join(self._config.servers)} with"
                f" {self._config.frontier.routing};"
                f" that may change once all of them are settled: {'; '.join(problems[:_SHOWN])}{more}"
            )

    def _require_owners_of_seeds(self, before: Iteration | None) -> None:
        """Check that no seeds or lists wait for other nodes.

        Raises ConfigError for a node that is not in the config, since the newest iteration. They were divided by other
        `servers`, which were changed back: no one would ever take them in.
        """
        for name, kind in self._crawl.inbox.folders():
            if before is not None and name in before.seeds:
                continue
            for node in self._handed_over(name, kind).outlinks:
                if node not in self._config.servers and self._waits(
                    name, kind, node, SettledNotes(self._crawl, node).read()
                ):
                    raise ConfigError(
                        f"servers: {self._crawl.inbox.path(name, kind)} has {kind} for {node}, which is not in servers:"
                        f" put it back, or run `krake nodes retire {node}` on its machine (with --lost if its disk is"
                        " gone)"
                    )

    def is_retired(self, node: str) -> bool:
        """Say whether a node was retired, without later work or seeds."""
        settled, crawl = SettledNotes(self._crawl, node).read(), self._crawl
        if settled is None or not settled.retired:
            return False
        since = [name for name in crawl.folders() if int(name) > int(settled.newest or 0)]
        if any(node in crawl.folder(name).iteration().nodes for name in since):
            return False
        return not any(self._waits(*name, node, settled) for name in crawl.inbox.folders())

    def has_never_worked(self, node: str) -> bool:
        """Say whether a named node never had a queue.

        An iteration, seeds or a list name the node; no machine had a queue.
        """
        crawl = self._crawl
        if (
            SettledNotes(crawl, node).read() is not None
            or SettledNotes(crawl, node).urls_of_lost_queue() is not None
        ):
            return False
        is_part = any(node in crawl.folder(name).iteration().nodes for name in crawl.folders())
        return is_part or any(self._waits(*name, node, None) for name in crawl.inbox.folders())

    def is_taken_in(self, name: str, kind: str) -> bool:
        """Say whether all nodes have taken in seeds or a list.

        Only nodes with URLs there count, by their marks.
        """
        nodes = self._handed_over(name, kind).outlinks
        return not any(
            self._waits(name, kind, node, SettledNotes(self._crawl, node).read()) for node in nodes
        )

    def unsettled(
        self, nodes: Iterable[str], newest: str, sources: Sequence[tuple[str, str]] = ()
    ) -> list[str]:
        """Return the unsettled nodes, each with the remedy.

        They may have something open, or have not taken in `sources` that are for them.

        `newest`: the folder of the newest iteration, which was theirs. `sources`: folder and node.
        """
        problems = []
        for node in nodes:
            settled = SettledNotes(self._crawl, node).read()
            run = f"run `krake settle --node {node}` there (with either list)"
            gone = f"; if its disk is lost, `krake nodes retire {node} --lost`"
            if settled is None:
                problems.append(f"{node} has no mark that it settled: {run}{gone}")
            elif int(settled.newest or 0) < int(newest):
                problems.append(f"{node} settled before iteration {newest}: {run}{gone}")
            elif not settled.retired and (
                waiting := [pair for pair in sources if self._waits(*pair, node, settled)]
            ):
                missing = ", ".join(f"{folder}/{found_by}" for folder, found_by in waiting[:_SHOWN])
                problems.append(f"{node} has not taken in {missing}: {run}")
        return problems

    def _waits(self, folder: str, found_by: str, node: str, settled: Settled | None) -> bool:
        """Say whether a source has URLs that a node still lacks.

        A source is a segment, injected seeds or a list.
        """
        if settled is not None and (folder, found_by) in settled.taken_in:
            return False
        if not folder.isdecimal():
            return self._handed_over(folder, found_by).count_of(node) > 0
        manifest = self._crawl.segment(folder, found_by).manifest()
        # The segment of a node that had no work has none.
        return bool(manifest.get("outlinks", {}).get(node, {}).get("count", 0))

    def _handed_over(self, name: str, kind: str) -> InboxManifest:
        """Return the manifest of seeds or a list.

        Of a damaged one nothing: the same are injected, or listed, again, for the nodes of the config. Until then
        `start` and each intake refuse them.
        """
        with suppress(DamagedFileError, PathNotFoundError):
            return self._crawl.inbox.manifest(name, kind)
        return InboxManifest()

    def changed(self, current: Iteration) -> bool:
        """Say whether nodes changed in the last two iterations.

        Then hosts have come from others just now.
        """
        older = [folder for folder in self._crawl.folders() if int(folder) < int(current.folder)]
        found = map(self._crawl.iteration, reversed(older))
        before = islice((one for one in found if one.is_round), 2)
        return any(set(one.nodes) != set(current.nodes) for one in before)
