"""From the config to a file store."""

from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import NamedTuple
from urllib.parse import urlsplit

from crawl_lib.config import Config
from crawl_lib.errors import ConfigError
from crawl_lib.storage.filestore import Storage
from crawl_lib.storage.local import LocalStorage


class Address(NamedTuple):
    """`namenodes`: scheme, host and port of each; `root`: absolute path, "" for the root of the file system."""

    namenodes: tuple[str, ...]
    root: str

    def __str__(self) -> str:
        return ";".join(self.namenodes) + self.root


def parse_address(text: str) -> Address:
    """`http://nn1:9870;http://nn2:9870/path`: namenodes, and the root path behind the last one (or behind all).

    Raises ConfigError: the operator corrects `dfs_primary`.
    """
    if any("@" in part.partition("://")[2].partition("/")[0] for part in text.split(";")):
        raise ConfigError("dfs_primary: no user and password in the address; dfs.user names the user")
    try:
        parts = [urlsplit(part.strip()) for part in text.split(";") if part.strip()]
        have_ports = all(part.port != 0 for part in parts)
    except ValueError as error:
        raise ConfigError(f"dfs_primary: {text}: {error}") from error
    paths = {part.path.rstrip("/") for part in parts[:-1]}
    root = parts[-1].path.rstrip("/")
    if not paths <= {"", root}:
        raise ConfigError(f"dfs_primary: {text}: the namenodes' paths differ; give one path, behind the last namenode")
    for part in parts:
        if part.scheme not in {"http", "https"} or not part.netloc or part.query or part.fragment or not have_ports:
            raise ConfigError(f"dfs_primary: {text}: each namenode is http://host:port or https://host:port, no more")
    if any(name in {"", ".", ".."} or ":" in name for name in root.split("/")[1:]):
        raise ConfigError(f"dfs_primary: {text}: {root} is no path of HDFS")
    return Address(tuple(f"{part.scheme}://{part.netloc}" for part in parts), root)


@dataclass(frozen=True)
class DfsAccess:
    """How HDFS is reached where Airflow's connection says it instead of the config; None: as the config does.

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
            address = ";".join(self.namenodes) + parse_address(address).root
        given = {name: value for name, value in vars(self).items() if value and name != "namenodes"}
        return replace(config, dfs_primary=address, dfs=replace(config.dfs, **given))


def is_hdfs(config: Config) -> bool:
    """Whether `dfs_primary` names namenodes, not a directory."""
    return config.dfs_primary.lower().startswith(("http://", "https://"))


def open_storage(config: Config, stop: Event | None = None, *, make: bool = True) -> Storage:
    """The store that `dfs_primary` names. A missing directory is made if its parent is there; so is HDFS's root path;
    `make` False: nothing is made.

    `stop`: when it is set, a request to HDFS that is repeated until a server is back, and a file that is being sent or
    read, end with StoppedError within about a second. A request that a server has got, and does not answer, ends by
    `dfs.timeout_s`; one that cannot be connected, by `dfs.connect_timeout_s`.
    Raises ConfigError (the operator corrects `dfs_primary`) and StorageError (the operator looks at the disk or
    the namenodes that are named).
    """
    if is_hdfs(config):
        from crawl_lib.storage.hdfs import HdfsStorage  # noqa: PLC0415 - 50 ms that a local store need not pay

        return HdfsStorage.open(config.dfs_primary, config.dfs, stop, make=make)
    return LocalStorage.open(Path(config.dfs_primary), make=make)
