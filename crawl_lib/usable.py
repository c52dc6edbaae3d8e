"""Checks of this machine and its servers against a config, before any work: all problems at once.

A crawl would find each problem too, perhaps after hours: `scratch.directory` is first used after all iterations. The
check changes nothing: a file without a name tests whether a directory can be written to.
"""

import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event

from crawl_lib.config import Config
from crawl_lib.engine import require_engine
from crawl_lib.errors import (
    ConfigError,
    KeyServerDownError,
    KeyServerFullError,
    KeyServerReadOnlyError,
    KeyStoreError,
    KeyTablesError,
    KrakeError,
    NoRoomError,
    StoppedError,
    StorageError,
    StorageRightsError,
)
from crawl_lib.keys import MAKE, KeyServer, open_key_store
from crawl_lib.node import FreeSpace
from crawl_lib.rounds import CrawlName, needed_segments
from crawl_lib.storage import LocalStorage, is_local, open_storage
from crawl_lib.stores import Secrets, Stores, node_dir
from crawl_lib.urls import UrlFilter, require_chains

log = logging.getLogger(__name__)

PASSES = (StorageError, KeyServerDownError, KeyServerFullError, KeyServerReadOnlyError)
"""Errors that may pass by themselves: a stage waits or is tried again, and no crawl is refused beforehand. Missing
rights are the exception among errors of a file store.
"""
_MEANINGS = {
    FileNotFoundError: "the parent directory is not there; create it, or correct the path",
    NotADirectoryError: "is a file, or lies below one; correct the path",
}
Problems = Iterator[KrakeError]


def require_usable(
    config: Config, secrets: Secrets, stop: Event | None = None, *, batch: bool = False
) -> None:
    """Raise an error if a crawl of this config would be refused.

    A single problem is raised itself. Several problems become one ConfigError, with a line for each.

    `batch`: the batch stages run on this machine, as on the machine of `inject` in a DAG. If every problem may pass by
    itself, the problems are warnings in the log. Raises StoppedError.
    """
    here = is_one_machine(config)
    found = [
        *shared_problems(config, secrets, stop),
        *local_problems(config, nodes=here, batch=here or batch),
    ]
    if not all(
        isinstance(problem, PASSES) and not isinstance(problem, StorageRightsError)
        for problem in found
    ):
        raise (
            found[0]
            if len(found) == 1
            else ConfigError(*(line for problem in found for line in problem.lines))
        )
    for problem in found:
        log.warning("%s", problem)


def is_one_machine(config: Config) -> bool:
    """Return whether the whole crawl is on this machine.

    File store and key servers are local then.
    """
    return is_local(config) and config.key_storage.is_embedded


def shared_problems(config: Config, secrets: Secrets, stop: Event | None = None) -> Problems:
    """Yield the problems of every machine of the crawl.

    Rules, file store and key servers are checked. Raises StoppedError.
    """
    for check in (_rules(config), _store(config, secrets, stop), _keys(config, secrets)):
        yield from _noted(check)


def local_problems(config: Config, *, nodes: bool, batch: bool) -> Problems:
    """Yield the problems of one machine.

    `nodes`: whether nodes work there; `batch`: whether the batch stages do.
    """
    if nodes:
        yield from _noted(_queues(config))
    if batch:
        yield from _noted(_scratch(config))


def _noted(check: Problems) -> Problems:
    """Yield a check's problems, with the error that ends it."""
    try:
        yield from check
    except StoppedError:
        raise
    except KrakeError as problem:
        yield problem


def _rules(config: Config) -> Problems:
    require_chains(config.urls)
    yield from ()
    UrlFilter(config.urls, ())
    if config.scoring.plugins:
        from crawl_lib.scoring import Scoring  # noqa: PLC0415 - with all that tables need; few crawls do

        Scoring.of(config)
    if "push" in config.outputs.tasks and config.push.url is None:
        yield ConfigError("outputs.tasks: push needs push.url, the address of an OpenSearch")


def _store(config: Config, secrets: Secrets, stop: Event | None) -> Problems:
    """Check the file store.

    A server gets one request, without waiting for the server to recover.
    """
    config = secrets.dfs.applied(config)
    if not is_local(config):
        for name in ("ca_file", "cert_file", "key_file"):
            yield from _file(f"dfs.{name}", getattr(config.dfs, name))
        quick = replace(config, dfs=replace(config.dfs, wait_s=0.0))
        store = room = open_storage(quick, stop, make=False, credentials=secrets.s3)
    else:
        root = Path(config.dfs_primary)
        yield from _directory("dfs_primary", root)
        for folder in (root / config.crawl.directory, root / config.export.directory):
            yield from _directory("dfs_primary", folder) if os.path.lexists(folder) else ()
        if not _there(root).is_dir():
            return
        store, room = LocalStorage(root), LocalStorage(_there(root))
    for written in (config.crawl.directory, config.export.directory):
        store.require_writable(written)
    with suppress(StorageError):  # an unreadable place gives no evidence of other crawls
        yield from map(ConfigError, CrawlName(Stores(config, secrets, store)).others())
    if room.exists(""):
        yield from _room(FreeSpace(config.watermarks, None, lambda: room))


def _keys(config: Config, secrets: Secrets) -> Problems:
    """Check the key servers.

    All tasks leave out a server without tables, as long as another one has the same keys.
    """
    yield from _file("key_storage.ca_file", config.key_storage.ca_file)
    with open_key_store(config.key_storage, secrets.key_storage_password) as store:
        answers = store.answers()
        yield from (answer for answer in answers if isinstance(answer, KeyStoreError))
        for place, server in enumerate(store.servers):
            if config.key_storage.is_sqlite(server.name):
                yield from _directory("key_storage.servers", Path(server.name).parent)
            elif answers[place] is True:
                yield from _noted(_rights(server))
            elif all(answers[other] is False for other in store.rings[place]):
                yield KeyTablesError(f"{server.name}: has no key tables: {MAKE}")
        if problem := store.ring_problem():
            yield KeyTablesError(problem)


def _rights(server: KeyServer) -> Problems:
    server.require_rights()
    yield from ()


def _queues(config: Config) -> Problems:
    queues = Path(config.queue.local_dir)
    yield from _directory("queue.local_dir", queues)
    directories = [
        path for node in config.servers if os.path.lexists(path := node_dir(config, node))
    ]
    refused = [problem for path in directories for problem in _directory("queue.local_dir", path)]
    nodes = len(config.servers)
    if nodes - len(refused) < needed_segments(
        nodes, config.crawl.min_nodes
    ):  # otherwise the node's own task reports the problem
        yield from refused
    if _there(queues).is_dir():
        yield from _room(FreeSpace(config.watermarks, _there(queues)))


def _scratch(config: Config) -> Problems:
    yield from _directory("scratch.directory", Path(config.scratch.directory))
    require_engine(config)


def _room(room: FreeSpace) -> Problems:
    if shortage := room.shortage():
        yield NoRoomError(f"{shortage}; make room")


def _file(option: str, name: str | None) -> Problems:
    if name is not None and not os.access(name, os.R_OK):
        yield ConfigError(
            f"{option}: {name}: is not there, or cannot be read; correct the path, or its rights"
        )


def _directory(option: str, path: Path) -> Problems:
    """Report a directory that cannot be made or written to."""
    try:
        with tempfile.TemporaryFile(dir=_there(path)):
            return
    except OSError as error:
        other = f"cannot be written to: {error.strerror}; correct its rights, or the path"
        yield ConfigError(f"{option}: {path}: {_MEANINGS.get(type(error), other)}")


def _there(path: Path) -> Path:
    """Return a directory, or the parent of a missing one."""
    return path if os.path.lexists(path) else path.parent
