"""From the config to a file store."""

from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event

from crawl_lib.config import Config
from crawl_lib.storage.filestore import Storage
from crawl_lib.storage.local import LocalStorage


@dataclass(frozen=True)
class DfsAccess:
    """How HDFS is reached where somebody else than the config says it (Airflow's connection); None: as the config does.

    `namenodes`: scheme, host and port of each (`https://nn1:9871`); `user`; `ca_file`, `cert_file`, `key_file`: paths.
    """

    namenodes: tuple[str, ...] | None = None
    user: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    def applied(self, config: Config) -> Config:
        """The config as this says; one whose `dfs_primary` is a local directory stays as it is.

        The root path of `dfs_primary` stays. Raises ConfigError if `dfs_primary` is no address.
        """
        if not is_hdfs(config):
            return config
        address = config.dfs_primary
        if self.namenodes:
            from crawl_lib.storage.webhdfs import parse_address  # noqa: PLC0415 - as below

            address = ";".join(self.namenodes) + parse_address(address).root
        dfs = config.dfs
        dfs = replace(
            dfs,
            user=self.user or dfs.user,
            ca_file=self.ca_file or dfs.ca_file,
            cert_file=self.cert_file or dfs.cert_file,
            key_file=self.key_file or dfs.key_file,
        )
        return replace(config, dfs_primary=address, dfs=dfs)


def is_hdfs(config: Config) -> bool:
    """Whether `dfs_primary` names namenodes, not a directory."""
    return config.dfs_primary.lower().startswith(("http://", "https://"))


def open_storage(config: Config, stop: Event | None = None, *, make: bool = True) -> Storage:
    """The store that `dfs_primary` names. A missing directory is made if its parent is there; so is HDFS's root path;
    `make` False: nothing is made.

    `stop`: when it is set, a request to HDFS that is repeated until a server is back, and a file that is being sent or
    read, end with StoppedError within about a second. A request that a server has got, and does not answer, ends by
    `dfs.timeout_s`; one that cannot be connected, by `dfs.connect_timeout_s`.
    Raises ConfigError (the operator mends `dfs_primary`) and StorageError (the operator looks at the disk or
    the namenodes that are named).
    """
    address = config.dfs_primary
    if is_hdfs(config):
        from crawl_lib.storage.hdfs import HdfsStorage  # noqa: PLC0415 - 50 ms that a local store need not pay

        return HdfsStorage.open(address, config.dfs, stop, make=make)
    return LocalStorage.open(Path(address), make=make)
