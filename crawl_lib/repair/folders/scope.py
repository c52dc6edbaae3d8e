"""A file `scope` made again. None is given a host that the crawl has not in its scope anyway.

That of seeds: the hosts of their URLs. That of an iteration: what `start` put together, from the same files. Where the
digest of the old one says that the new one is the same, it is; else lines of the old one that later iterations have are
kept too.
"""

from contextlib import suppress
from dataclasses import dataclass

from crawl_lib.crawldir import (
    MANIFEST_FILE,
    SCOPE_DIGEST,
    SCOPE_FILE,
    Iteration,
    read_json,
    scope_digest,
)
from crawl_lib.errors import DamagedFileError, InputError, KrakeError, PathNotFoundError
from crawl_lib.frontier import host_of_line, part_mapping, read_outlinks
from crawl_lib.repair.folders.identity import readable_iterations
from crawl_lib.stopping import until_stopped
from crawl_lib.stores import Stores
from crawl_lib.urls import is_list_of_hosts, scope_bytes, whole_hosts


@dataclass(frozen=True)
class OldScope:
    """What is left of a file `scope`: `hosts` of the lines that can be hosts; `is_whole`: whether all of it can."""

    hosts: frozenset[str]
    is_whole: bool

    @classmethod
    def read(cls, stores: Stores, folder: str) -> "OldScope":
        """That of `<folder>/scope`; nothing, if it is not there."""
        try:
            data = stores.storage.read_bytes(f"{folder}/{SCOPE_FILE}")
        except PathNotFoundError:
            return cls(frozenset(), False)
        hosts = whole_hosts(data)
        return cls(frozenset(hosts), scope_bytes(hosts) == data)


def scope_of_iteration_again(stores: Stores, iteration: Iteration) -> set[str]:
    """The hosts that an iteration's scope should have; `scope_sha256` may be "", if it is not known."""
    hosts = _found_before(stores, iteration)
    if scope_digest(scope_bytes(hosts)) == iteration.scope_sha256:
        return hosts
    old = OldScope.read(stores, stores.crawl.at(iteration.folder))
    if old.is_whole and not iteration.scope_sha256:
        return hosts | old.hosts
    return hosts | (
        old.hosts & _scopes(stores, [one for one in readable_iterations(stores) if _is_after(one, iteration)])
    )


def scope_of_seeds_again(stores: Stores, digest: str) -> set[str]:
    """The hosts that the scope of injected seeds should have.

    Raises InputError where that is not known: of the queue of a retired node that people had put URLs into; and
    DamagedFileError or PathNotFoundError if the manifest or the URLs cannot be read.
    """
    path = stores.crawl.seeds_path(digest)
    manifest = read_json(stores.storage, f"{path}/{MANIFEST_FILE}")
    hosts = _hosts_of_urls(stores, path, manifest.get("outlinks"))
    for candidate in (hosts, set[str]()):
        if scope_digest(scope_bytes(candidate)) == manifest.get(SCOPE_DIGEST):
            return candidate
    users = [one for one in readable_iterations(stores) if digest in one.seeds]
    if not users:
        raise InputError(
            f"{path}/{SCOPE_FILE}: cannot be made again from its URLs: bring it back from a copy; or delete {path} and"
            " inject the same seeds again with the same --run-id"
        )
    return (hosts | OldScope.read(stores, path).hosts) & _scopes(stores, users)


def _is_after(one: Iteration, other: Iteration) -> bool:
    return int(one.folder) > int(other.folder)


def _scopes(stores: Stores, iterations: list[Iteration]) -> set[str]:
    """All hosts of the scopes of these, of those that are whole."""
    found: set[str] = set()
    for iteration in until_stopped(iterations, stores.stop):
        with suppress(DamagedFileError):
            found |= stores.crawl.scope(iteration)
    return found


def _found_before(stores: Stores, iteration: Iteration) -> set[str]:
    """What `start` takes its scope from: the iteration before, its seeds, and what older folders added."""
    crawl = stores.crawl
    hosts = _scopes(stores, [one for one in readable_iterations(stores) if _is_after(iteration, one)][-1:])
    for digest in until_stopped(iteration.seeds, stores.stop):
        with suppress(DamagedFileError, PathNotFoundError):
            hosts |= crawl.seeds_scope(digest)
    for folder in until_stopped(crawl.folders(), stores.stop):
        if int(folder) < int(iteration.folder):
            hosts |= _added_by(stores, folder)
    return hosts | _kept(stores, iteration.folder)


def _added_by(stores: Stores, folder: str) -> set[str]:
    crawl = stores.crawl
    found: set[str] = set()
    with suppress(KrakeError, KeyError, TypeError):
        found |= set((crawl.folder(folder).index() or {})["scope_added"])
    for node in crawl.folder(folder).segments():
        with suppress(KrakeError):
            found |= set(crawl.segment(folder, node).manifest()["scope_added"])
    return found


def _kept(stores: Stores, before: str) -> set[str]:
    """Hosts that outlive the older folders that added them."""
    older = (data for name, data in kept_files(stores) if int(name.partition("-")[0]) < int(before))
    return {host for data in older if is_list_of_hosts(data) for host in data.decode("ascii").splitlines()}


def _hosts_of_urls(stores: Stores, path: str, parts: object) -> set[str]:
    where = f"{path}/outlinks"
    if not isinstance(parts, dict):
        raise DamagedFileError(f"{path}/{MANIFEST_FILE}: says nothing of outlinks")
    hosts: set[bytes] = set()
    for value in parts.values():
        part = part_mapping(value, path)
        lines = read_outlinks(stores.storage.open_read(where, part.offset, part.length), where, part.count)
        for line in until_stopped(lines, stores.stop):
            hosts.add(host_of_line(line[: line.find(b"\t")]))
    return {host.decode() for host in hosts}


def kept_files(stores: Stores) -> list[tuple[str, bytes]]:
    """Names and contents of the files that keep hosts beyond their folders."""
    paths = stores.until_stopped(stores.crawl.kept_scopes())
    return [(path.rpartition("/")[2], stores.storage.read_bytes(path)) for path in paths]


def lacks_of_kept_scope(stores: Stores, folder: str) -> set[str]:
    """Hosts that a committed folder added to the scope, and that are not kept next to it."""
    try:
        index = stores.crawl.folder(folder).index()
        added = set(index["scope_added"]) if index is not None else set()
    except (KrakeError, KeyError, TypeError):
        return set()  # a finding of the index
    return added - _kept_hosts(stores, folder) if added else set()


def _kept_hosts(stores: Stores, folder: str) -> set[str]:
    """The hosts that are kept of a folder, as far as they can be read."""
    files = (data for name, data in kept_files(stores) if name.partition("-")[0] == folder)
    return {line.decode("ascii", "replace") for data in files for line in data.splitlines()}
