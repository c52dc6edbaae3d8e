"""Scopes made again. No scope gets a host that is not in the crawl's scope anyway.

The scope of seeds has the hosts of their URLs. The scope of an iteration is put together as `start` does, from the same
files. If the digest differs from the earlier digest, lines of the old scope are kept that later iterations have too.
"""

from contextlib import suppress

from crawl_lib.crawldir import FileName, Iteration, Scopes
from crawl_lib.dfsfiles import readable_json
from crawl_lib.errors import DamagedFileError, InputError, PathNotFoundError
from crawl_lib.frontier import host_of_line
from crawl_lib.repair.folders.identity import readable_iterations
from crawl_lib.sealed import MANIFEST_FILE
from crawl_lib.stores import Stores
from crawl_lib.urlfiles import OUTLINKS_NAME, ScopeFile, part_mapping, read_outlinks


def old_scope(stores: Stores, path: str) -> bytes:
    """Return the rest of a scope; an empty scope, if missing."""
    with suppress(PathNotFoundError):
        return stores.storage.read_bytes(path)
    return b""


def lost_scope(stores: Stores, folder: str) -> bytes:
    """Guess the scope of a folder with a lost `iteration.json`.

    Each host is in the crawl's scope. The guess is a scope that no other iteration names, or the scope of the next
    iteration, which may have more hosts.
    """
    iterations = readable_iterations(stores)
    named = {one.scope_sha256 for one in iterations}
    unnamed = [
        _shared(stores, digest) for digest in stores.crawl.scopes.digests() if digest not in named
    ]
    if not any(unnamed):
        later = [one for one in iterations if int(one.folder) > int(folder)]
        unnamed = [_scopes(stores, later[:1])]
    return ScopeFile.data_of(set().union(*unnamed))


def unused_scopes(stores: Stores, iterations: list[Iteration]) -> list[str]:
    """Return digests of scopes that no iteration has or will get.

    Such a scope lacks a host of the newest iteration's scope. Each start adds to the scope of the newest iteration.
    `iterations`: all readable iterations. Raises StoppedError.
    """
    if not iterations or len(iterations) < len(stores.crawl.folders()):
        return []
    named = {one.scope_sha256 for one in iterations}
    newest = _scopes(stores, iterations[-1:])
    digests = [digest for digest in stores.crawl.scopes.digests() if digest not in named]
    return [
        digest for digest in stores.until_stopped(digests) if not newest <= _shared(stores, digest)
    ]


def _shared(stores: Stores, digest: str) -> set[str]:
    """Return the hosts of a scope, none for a damaged scope."""
    data = old_scope(stores, stores.crawl.at(FileName.SCOPE, digest))
    return ScopeFile.hosts_of(data) if Scopes.digest(data) == digest else set()


def scope_of_iteration_again(stores: Stores, iteration: Iteration, old: bytes) -> set[str]:
    """Compute the hosts that an iteration's scope should have.

    An unknown `scope_sha256` is "".

    `old`: the rest of the scope.
    """
    hosts = _found_before(stores, iteration)
    if Scopes.digest(ScopeFile.data_of(hosts)) == iteration.scope_sha256:
        return hosts
    left = ScopeFile.hosts_of(old)
    if ScopeFile.data_of(left) == old and not iteration.scope_sha256:
        return hosts | left
    later = [one for one in readable_iterations(stores) if int(one.folder) > int(iteration.folder)]
    return hosts | (left & _scopes(stores, later))


def scope_of_seeds_again(stores: Stores, digest: str) -> set[str]:
    """Compute the hosts that injected seeds' scope should have.

    Raises InputError if the hosts are unknown: for the queue of a retired node with URLs by people; and
    DamagedFileError or PathNotFoundError if the manifest or the URLs are unreadable.
    """
    path, manifest = stores.crawl.inbox.path(digest), stores.crawl.inbox.manifest(digest)
    hosts = _hosts_of_urls(stores, path, manifest.outlinks)
    for candidate in (hosts, set[str]()):
        if Scopes.digest(ScopeFile.data_of(candidate)) == manifest.said.get(Scopes.DIGEST):
            return candidate
    users = [one for one in readable_iterations(stores) if digest in one.seeds]
    if not users:
        raise InputError(
            f"{path}/{FileName.SCOPE}: cannot be made again from its URLs: bring it back from a copy; or move"
            f" {path} away and inject the same seeds again with the same --run-id"
        )
    return (hosts | ScopeFile.hosts_of(old_scope(stores, f"{path}/{FileName.SCOPE}"))) & _scopes(
        stores, users
    )


def _scopes(stores: Stores, iterations: list[Iteration]) -> set[str]:
    """Return all hosts in the intact scopes of iterations."""
    found: set[str] = set()
    for iteration in stores.until_stopped({one.scope_sha256: one for one in iterations}.values()):
        with suppress(DamagedFileError):
            found |= stores.crawl.scopes.read(iteration)
    return found


def _found_before(stores: Stores, iteration: Iteration) -> set[str]:
    """Compute the scope from which `start` begins.

    Its hosts come from the iteration before, its seeds, and additions of older folders.
    """
    crawl, current = stores.crawl, int(iteration.folder)
    hosts = _scopes(
        stores, [one for one in readable_iterations(stores) if int(one.folder) < current][-1:]
    )
    for digest in stores.until_stopped(iteration.seeds):
        with suppress(DamagedFileError, PathNotFoundError):
            hosts |= crawl.inbox.scope(digest)
    older = [name for name in crawl.folders() if int(name) < current]
    for folder in older:
        for manifest in crawl.folder(folder).readable_manifests().values():
            hosts.update(manifest["scope_added"])
    for name, kept in kept_hosts(stores):
        folder, _, _ = name.partition("-")
        if kept and int(folder) < current:
            hosts |= kept
    return hosts.union(*(added_by_index(stores, folder) for folder in older))


def added_by_index(stores: Stores, folder: str) -> set[str]:
    """Return the hosts that a committed folder added to the scope.

    The folder's index names these hosts; an index without hosts is another finding.
    """
    with suppress(TypeError):
        return set(
            readable_json(stores.storage, stores.crawl.at(folder, FileName.INDEX)).get(
                "scope_added", ()
            )
        )
    return set()


def _hosts_of_urls(stores: Stores, path: str, parts: object) -> set[str]:
    where = f"{path}/{OUTLINKS_NAME}"
    if not isinstance(parts, dict):
        raise DamagedFileError(f"{path}/{MANIFEST_FILE}: says nothing of outlinks")
    hosts: set[bytes] = set()
    for value in parts.values():
        part = part_mapping(value, path)
        lines = read_outlinks(
            stores.storage.open_read(where, part.offset, part.length), where, part.count
        )
        hosts.update(host_of_line(line[: line.find(b"\t")]) for line in stores.until_stopped(lines))
    return {host.decode() for host in hosts}


def kept_hosts(stores: Stores) -> list[tuple[str, set[str] | None]]:
    """Read the files with hosts that folders added to the scope.

    Files of deleted folders count too. The result has names and hosts. None: the file is no list of hosts.
    """
    found: list[tuple[str, set[str] | None]] = []
    for path in stores.until_stopped(stores.crawl.scopes.kept()):
        data = stores.storage.read_bytes(path)
        hosts = set(data.decode("ascii").splitlines()) if ScopeFile.is_whole(data) else None
        found.append((path.rpartition("/")[2], hosts))
    return found
