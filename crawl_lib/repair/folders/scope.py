"""Scopes of iterations and seeds, for a repair, each with its digest; and scopes that no iteration needs."""

from contextlib import suppress

from crawl_lib.crawldir import FileName, Iteration, Scopes
from crawl_lib.dfsfiles import readable_json
from crawl_lib.errors import DamagedFileError, InputError
from crawl_lib.frontier import host_of_line
from crawl_lib.repair.folders.identity import copy_in_segments
from crawl_lib.rounds import scope_at_start
from crawl_lib.sealed import MANIFEST_FILE
from crawl_lib.stores import Stores
from crawl_lib.urlfiles import OUTLINKS_NAME, ScopeFile, part_mapping, read_outlinks


def unused_scopes(stores: Stores, iterations: list[Iteration]) -> list[str]:
    """Return digests of scopes that no iteration has or will get.

    Such a scope lacks a host of the newest iteration's scope. Each start adds to the scope of the newest iteration.
    `iterations`: all readable iterations. Raises StoppedError.
    """
    if not iterations or len(iterations) < len(stores.crawl.folders()):
        return []
    named = {one.scope_sha256 for one in iterations}
    newest = _hosts(stores, iterations[-1].scope_sha256)
    digests = [digest for digest in stores.crawl.scopes.digests() if digest not in named]
    return [
        digest for digest in stores.until_stopped(digests) if not newest <= _hosts(stores, digest)
    ]


def _hosts(stores: Stores, digest: str) -> set[str]:
    """Return the hosts of a scope, none for a damaged scope."""
    with suppress(DamagedFileError):
        return ScopeFile.hosts_of(stores.crawl.scopes.data(digest))
    return set()


def scope_of_iteration(stores: Stores, iteration: Iteration) -> bytes:
    """Find the content of an iteration's damaged scope.

    A segment has a copy; otherwise the scope is computed as the start did. Raises InputError if neither has the digest
    in `iteration.json`, and errors of older damaged files.
    """
    digest = iteration.scope_sha256
    copy = copy_in_segments(stores, reversed(stores.crawl.folders()), FileName.SCOPE, digest)
    data = scope_at_start(stores, iteration) if copy is None else copy
    if Scopes.digest(data) != digest:
        raise InputError(
            f"{stores.crawl.scopes.path(iteration)}: {no_copy(stores, iteration.folder)}"
        )
    return data


def no_copy(stores: Stores, folder: str) -> str:
    """Say what a person may do if no segment has a copy."""
    path = stores.crawl.at(folder)
    return (
        "no segment or open take here has a copy: bring the file back from a backup; or move"
        f" {path} away: its segments leave the crawl, and its open takes are fetched again"
    )


def scope_of_seeds(stores: Stores, digest: str) -> bytes:
    """Compute the scope of injected seeds from their URLs.

    Raises InputError if the digest differs, such as for a retired node's queue with URLs by people; and
    DamagedFileError or PathNotFoundError if the manifest or the URLs are unreadable.
    """
    path, manifest = stores.crawl.inbox.path(digest), stores.crawl.inbox.manifest(digest)
    data = ScopeFile.data_of(_hosts_of_urls(stores, path, manifest.outlinks))
    for candidate in (data, b""):
        if Scopes.digest(candidate) == manifest.said.get(Scopes.DIGEST):
            return candidate
    raise InputError(
        f"{path}/{FileName.SCOPE}: cannot be made again from its URLs: bring it back from a backup; or, once"
        f" all nodes have settled, move {path} away and inject the same seeds again with the same --run-id"
    )


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
        hosts = ScopeFile.hosts_of(data) if ScopeFile.is_whole(data) else None
        found.append((path.rpartition("/")[2], hosts))
    return found
