"""The objects that a stage works on: the config with its stores opened, and the secrets they need."""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from functools import cached_property
from pathlib import Path
from threading import Event

from crawl_lib.config import Config, shared_options
from crawl_lib.crawldir import CrawlDirectory, FileName, Unfilled
from crawl_lib.dataclass import dataclass
from crawl_lib.errors import KeyStoreError, KeyTablesError
from crawl_lib.keys import KeyServer, ShardedKeyStore, TurnsOnly, open_key_store, own_server
from crawl_lib.stopping import OnProgress, Work
from crawl_lib.storage import DfsAccess, S3Credentials, Storage, open_storage

PASSWORD_VARIABLE = "KRAKE_KEY_STORAGE_PASSWORD"
SEARCH_USER_VARIABLE, SEARCH_PASSWORD_VARIABLE = "KRAKE_SEARCH_USER", "KRAKE_SEARCH_PASSWORD"


@dataclass(frozen=True)
class SearchCredentials:
    """The user of OpenSearch. `repr` hides the password."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class Secrets:
    """Secrets outside of config files, never printed: `repr` hides the secrets.

    `dfs`: how to reach HDFS, if Airflow's connection differs from the config; no secret by itself. `s3`: credentials of
    an object store; None: from the environment or the machine's role. `search`: the user of OpenSearch; None without
    login.
    """

    key_storage_password: str | None = field(default=None, repr=False)
    dfs: DfsAccess = field(default_factory=DfsAccess)
    s3: S3Credentials | None = field(default=None, repr=False)
    search: SearchCredentials | None = field(default=None, repr=False)

    @classmethod
    def from_environment(cls) -> "Secrets":
        """Return the secrets of `KRAKE_KEY_STORAGE_PASSWORD`, `KRAKE_SEARCH_USER` and `KRAKE_SEARCH_PASSWORD`."""
        user = os.environ.get(SEARCH_USER_VARIABLE)
        search = (
            SearchCredentials(user, os.environ.get(SEARCH_PASSWORD_VARIABLE, "")) if user else None
        )
        return cls(key_storage_password=os.environ.get(PASSWORD_VARIABLE), search=search)


@dataclass(frozen=True)
class Stores(Work):
    """A config, its file store and a way to its key store.

    `config`: as in the file; nodes compare their configs. `stop`: the event that ends the work, see `stopping`.
    """

    config: Config
    secrets: Secrets
    storage: Storage

    @contextmanager
    def keys(self, node: str | None = None, *, make: bool = True) -> Iterator[ShardedKeyStore]:
        """Open the key store.

        `node`: the node whose own server is asked first. `make`: missing embedded tables are made. With a CrawlDb the
        store keeps turns only, and lacks no keys. Raises KeyStoreError; KeyTablesError if new tables would make the
        crawl forget fetched pages, or if tables were made again and are not filled yet.
        """
        if lacks := Unfilled(self.crawl).names():
            raise KeyTablesError(
                f"{self.crawl.at(FileName.UNFILLED)}: key tables were made again, and lack keys ({', '.join(lacks)}):"
                " run `krake fsck --repair`, on the machine of each node that is named"
            )
        first = 0 if node is None else own_server(self.config, node)
        config, password = self.config, self.secrets.key_storage_password
        kind = ShardedKeyStore if config.order.keeps_keys else TurnsOnly
        with open_key_store(
            config.key_storage, password, first=first, crawl=config.crawl.name, kind=kind
        ) as store:
            if make:
                self._refuse_to_forget(store)
                for server in store.servers:
                    server.ensure()
                store.require_ring()
            yield store

    def key_servers(self) -> ShardedKeyStore:
        """Open the key store without making or refusing anything.

        Use the result by `with`.
        """
        return open_key_store(self.config.key_storage, self.secrets.key_storage_password)

    def _refuse_to_forget(self, store: ShardedKeyStore) -> None:
        """Raise KeyTablesError where all replicas of keys are gone.

        Otherwise the pages of these keys would be crawled again.
        """
        if not self.config.order.keeps_keys or not self.config.key_storage.is_embedded:
            return
        there = list(map(has_tables, store.servers))
        lost = [
            first
            for first in range(len(there))
            if not any(there[place] for place in store.rings[first])
        ]
        if lost and self.crawl.segments():
            if problem := store.ring_problem():  # other servers: missing files are no loss then
                raise KeyTablesError(problem)
            gone = sorted({place for first in lost for place in store.rings[first]})
            raise KeyTablesError(
                f"{', '.join(store.servers[place].name for place in gone)}: no key tables are there, and"
                f" {self.crawl.path} has pages, which would be crawled again: put key_storage.servers or the files back"
                " as they were, or run `krake fsck --repair`"
            )

    @cached_property
    def crawl(self) -> CrawlDirectory:
        """The crawl directory."""
        return CrawlDirectory(self.storage, self.config.crawl.directory.strip("/"), self)

    def node_dir(self, node: str) -> Path:
        """Return the local directory of a node's queue."""
        return node_dir(self.config, node)

    @cached_property
    def config_digest(self) -> str:
        """The SHA-256 of all shared options, in hex.

        It is the same on every node of a crawl.
        """
        text = json.dumps(shared_options(self.config), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def has_tables(server: KeyServer) -> bool:
    """Return whether a server has its tables.

    True too for a server without an answer: the caller leaves out such a server, and counts it.
    """
    try:
        return server.exists()
    except KeyStoreError:
        return True


def node_dir(config: Config, node: str) -> Path:
    """Return the local directory of a node's queue.

    The directory may be missing.
    """
    return Path(config.queue.local_dir) / node


def open_stores(
    config: Config,
    secrets: Secrets | None = None,
    *,
    stop: Event | None = None,
    on_progress: OnProgress | None = None,
    make: bool = True,
) -> Stores:
    """Open the file store of a config.

    `stop`, `on_progress`: see `stopping.Work`; the store stops waiting, too.

    `make`: a missing root is made; False for readers. Raises StoppedError if `stop` is set; ConfigError or StorageError
    naming the path; the operator makes the path usable.
    """
    secrets, work = (
        secrets or Secrets.from_environment(),
        Work(stop=stop or Event(), on_progress=on_progress),
    )
    work.go_on()
    storage = open_storage(
        secrets.dfs.applied(config), work.stop, make=make, credentials=secrets.s3
    )
    return Stores(config, secrets, storage, stop=work.stop, on_progress=on_progress)
