"""`iteration.json` made again: whose iteration a folder is, from what else stands in it, and in the folders around it.

Who says what, the first that knows wins: the folder's index, the manifests of its segments, what `start` noted as
agreed, the open takes of this machine's nodes. How many URLs were taken before, and which seeds the scope
has, come from the iteration before: that may be less than `start` wrote, and then the next start reads more folders
than it would have to, with the same sums.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from typing import Any

from crawl_lib.crawldir import IMPORT_NODE, INDEX_FILE, MANIFEST_FILE, STARTED_FOLDER, Iteration, is_choice, read_json
from crawl_lib.errors import DamagedFileError, InputError, KrakeError, PathNotFoundError
from crawl_lib.frontier import open_take
from crawl_lib.rounds import FIRST_FILE
from crawl_lib.sealed import SEALED_VERSION
from crawl_lib.segment import Manifest
from crawl_lib.stopping import until_stopped
from crawl_lib.stores import Stores
from crawl_lib.version import VERSION


def readable_iterations(stores: Stores) -> list[Iteration]:
    """The iterations whose `iteration.json` can be read, oldest first. Raises StoppedError."""
    found = []
    for folder in until_stopped(stores.crawl.folders(), stores.stop):
        with suppress(DamagedFileError, PathNotFoundError):
            found.append(stores.crawl.folder(folder).iteration())
    return found


CHOSEN_AGAIN = f".start-{'0' * 40}-{'0' * 32}".encode()
"""What to write in place of a choice that cannot be read, where the chosen folder has its name: no attempt's name."""


def broken_choices(stores: Stores) -> list[str]:
    """Names of the files of `started` that name no attempt of a start."""
    path = stores.crawl.at(STARTED_FOLDER)
    entries = stores.storage.list(path) if stores.storage.exists(path) else ()
    names = [entry.name for entry in entries if not entry.name.startswith(".")]
    return [name for name in names if not is_choice(stores.storage.read_bytes(f"{path}/{name}"))]


class Identity:
    """What can be known of a folder without its `iteration.json`."""

    def __init__(self, stores: Stores, folder: str) -> None:
        self.stores, self.folder = stores, folder
        self.path = stores.crawl.at(folder)

    def mapping(self, scope: frozenset[str]) -> dict[str, Any]:
        """The content of the file, but for the digest of the scope. `scope`: hosts of the folder's, as far as known.

        Where nothing says whose iteration it is, it becomes the first of a run that nobody has. Raises InputError where
        two do and differ.
        """
        run_id, iteration = self._whose()
        nodes = self._nodes(iteration)
        before = self._before
        return {
            "format_version": SEALED_VERSION,
            "run_id": run_id,
            "iteration": iteration,
            "nodes": list(nodes),
            "routing": self._shared.get("frontier.routing", self.stores.config.frontier.routing),
            "config_digest": self._config_digest(),
            "krake_version": self._said("krake_version", VERSION),
            "batch_sizes": {node: self._batch_size(node, iteration) for node in nodes},
            "taken_before": before.taken_before if before else 0,
            "summed": list(before.summed) if before else [],
            "seeds": sorted(self._seeds(scope)),
        }

    def contradicts(self, iteration: Iteration) -> str:
        """How what stands in the folder says something else than its `iteration.json`, in words; "" if it does not."""
        found = self._said_whose()
        if found and (iteration.run_id, iteration.iteration) not in found:
            run_id, number = min(found)
            return f"says iteration {iteration.iteration} of {iteration.run_id}, and the folder {number} of {run_id}"
        nodes = self._nodes(iteration.iteration)
        if self._shared and set(nodes) != set(iteration.nodes):
            return f"has the nodes {', '.join(iteration.nodes)}, and what was agreed {', '.join(nodes)}"
        return ""

    def _said_whose(self) -> set[tuple[str, int]]:
        return {(value["run_id"], value["iteration"]) for value in self._witnesses() if _says_whose(value)}

    def _whose(self) -> tuple[str, int]:
        found = self._said_whose()
        if not found:
            return f"repaired-{self.folder}", 1
        if len(found) > 1:
            said = "; ".join(f"iteration {iteration} of {run_id}" for run_id, iteration in sorted(found))
            raise InputError(f"{self.path}: holds files of several iterations ({said}): move what is not its own away")
        return found.pop()

    def _witnesses(self) -> Iterator[dict[str, Any]]:
        yield self._index
        for manifest in self._manifests.values():
            yield {"run_id": manifest.run_id, "iteration": manifest.iteration}
        yield self._agreed
        yield from self._takes.values()

    @cached_property
    def _index(self) -> dict[str, Any]:
        with suppress(DamagedFileError, PathNotFoundError):
            return read_json(self.stores.storage, f"{self.path}/{INDEX_FILE}")
        return {}

    @cached_property
    def _manifests(self) -> dict[str, Manifest]:
        found = {}
        nodes = self.stores.crawl.folder(self.folder).segments()
        for node in until_stopped(nodes, self.stores.stop):
            where = f"{self.path}/{node}/{MANIFEST_FILE}"
            with suppress(DamagedFileError, PathNotFoundError):
                found[node] = Manifest.from_bytes(self.stores.storage.read_bytes(where), where)
        return found

    @cached_property
    def _agreed(self) -> dict[str, Any]:
        with suppress(DamagedFileError, PathNotFoundError):
            return read_json(self.stores.storage, f"{self.path}/{FIRST_FILE}")
        return {}

    @cached_property
    def _shared(self) -> dict[str, Any]:
        found = self._agreed.get("config")
        return found if isinstance(found, dict) else {}

    @cached_property
    def _takes(self) -> dict[str, dict[str, Any]]:
        """Headers of the open takes of this machine that belong to the folder, by node."""
        found = {}
        for node in self.stores.config.servers:
            with suppress(KrakeError):
                take = open_take(self.stores.node_dir(node))
                if take is not None and take.header.folder == self.folder:
                    found[node] = take.header.to_mapping()
        return found

    def _nodes(self, iteration: int) -> tuple[str, ...]:
        if iteration == 0:
            return (IMPORT_NODE,)
        if isinstance(self._shared.get("servers"), list):
            return tuple(self._shared["servers"])
        named = {*self._manifests, *self._index.get("outlinks", ()), *self._index.get("missing", ())}
        for manifest in self._manifests.values():
            named.update(manifest.outlinks)
        return tuple(sorted(named)) if self._index else tuple(sorted({*named, *self.stores.config.servers}))

    def _said(self, name: str, otherwise: str) -> str:
        for manifest in self._manifests.values():
            return str(getattr(manifest, name))
        return str(self._agreed.get(name, otherwise))

    def _config_digest(self) -> str:
        if self._shared and not self._manifests:
            text = json.dumps(self._shared, sort_keys=True, separators=(",", ":"))
            return hashlib.sha256(text.encode()).hexdigest()
        return self._said("config_digest", self.stores.config_digest)

    def _batch_size(self, node: str, iteration: int) -> int:
        """What a node took; of one that has not begun, what the config says, or, under `crawl.max_pages`, nothing."""
        if node in self._manifests:
            return int(self._manifests[node].counts.get("taken", 0))
        if node in self._takes:
            return int(self._takes[node]["count"])
        limited = self.stores.config.crawl.max_pages is not None
        return 0 if limited or iteration == 0 else self.stores.config.batch.size

    @cached_property
    def _before(self) -> Iteration | None:
        older = [one for one in readable_iterations(self.stores) if int(one.folder) < int(self.folder)]
        return older[-1] if older else None

    def _seeds(self, scope: frozenset[str]) -> set[str]:
        """Injected folders whose hosts the scope has: those of the iteration before, and whose hosts are all in it."""
        found = set(self._before.seeds) if self._before else set()
        younger = [one for one in readable_iterations(self.stores) if int(one.folder) > int(self.folder)]
        for digest in until_stopped(self.stores.crawl.seeds(), self.stores.stop):
            if younger and digest not in younger[0].seeds:
                continue  # came later
            with suppress(DamagedFileError, PathNotFoundError):
                hosts = self.stores.crawl.seeds_scope(digest)
                if hosts and hosts <= scope:
                    found.add(digest)
        return found


def _says_whose(value: dict[str, Any]) -> bool:
    return isinstance(value.get("run_id"), str) and isinstance(value.get("iteration"), int)
