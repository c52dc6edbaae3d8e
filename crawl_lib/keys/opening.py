"""From the config to a key store."""

from __future__ import annotations

from crawl_lib.config import Config, KeyStorageConfig, is_sqlite_server
from crawl_lib.keys.keystore import KeyServer
from crawl_lib.keys.sharded import ShardedKeyStore
from crawl_lib.keys.sqlite import SqliteKeyServer


def open_key_store(config: KeyStorageConfig, password: str | None = None, *, first: int = 0) -> ShardedKeyStore:
    """The store that `key_storage` describes. Connects to nothing before the first request.

    `password`: of `config.user` on MySQL servers, None for none; it appears in no message or repr. `first`: the place
    of the server that is asked first. Raises ConfigError for a server name or a replication that cannot be.
    """
    servers = [_server(config, name, password) for name in config.servers]
    return ShardedKeyStore(servers, config.replication, connections=config.connections, first=first)


def own_server(config: Config, node: str) -> int:
    """The place of a node's own key server, which the node asks first.

    It is the server whose host is the node's name; else, where there are as many servers as nodes, the one at the
    node's place in `servers`; else the first. Which it is changes no result: with a server on each node the nodes
    begin at different servers, and not all at the first one.
    """
    names = config.key_storage.servers
    hosts = [name.rpartition(":")[0] or name for name in names]
    if node in hosts:
        return hosts.index(node)
    if node in config.servers and len(names) == len(config.servers):
        return config.servers.index(node)
    return 0


def _server(config: KeyStorageConfig, name: str, password: str | None) -> KeyServer:
    if is_sqlite_server(name):
        return SqliteKeyServer(name, timeout_s=config.timeout_s)
    # Here, since PyMySQL and what it needs cost each process that has no MySQL server 60 ms at its start.
    from crawl_lib.keys.mysql import MySqlKeyServer  # noqa: PLC0415

    return MySqlKeyServer(
        name,
        database=config.database,
        user=config.user,
        password=password,
        timeout_s=config.timeout_s,
        tls=config.tls,
        ca_file=config.ca_file,
    )
