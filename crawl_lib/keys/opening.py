"""From the config to a key store."""

from __future__ import annotations

from crawl_lib.config import KeyStorageConfig
from crawl_lib.config.load import is_sqlite_server
from crawl_lib.keys.base import KeyServer
from crawl_lib.keys.sharded import ShardedKeyStore
from crawl_lib.keys.sqlite import SqliteKeyServer


def open_key_store(config: KeyStorageConfig, password: str | None = None) -> ShardedKeyStore:
    """The store that `key_storage` describes. Connects to nothing before the first request.

    `password`: of `config.user` on MySQL servers, None for none; it appears in no message or repr. Raises ConfigError
    for a server name or a replication that cannot be.
    """
    return ShardedKeyStore([_server(config, name, password) for name in config.servers], config.replication)


def _server(config: KeyStorageConfig, name: str, password: str | None) -> KeyServer:
    if is_sqlite_server(name):
        return SqliteKeyServer(name, timeout_s=config.timeout_s)
    # Here, since PyMySQL and what it needs cost each process that has no MySQL server 60 ms at its start.
    from crawl_lib.keys.mysql import MySqlKeyServer  # noqa: PLC0415

    return MySqlKeyServer(
        name, database=config.database, user=config.user, password=password, timeout_s=config.timeout_s
    )
