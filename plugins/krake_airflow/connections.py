"""Secrets for the stages: from the environment, else from Airflow's connections. They never reach a log.

`KRAKE_KEY_STORAGE_PASSWORD`, else the password of the connection `krake_keys`: the key servers' password.
The login of the connection `krake_dfs`, else `dfs.user` of the config: the user on HDFS.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import AirflowNotFoundException, AirflowRuntimeError

from crawl_lib.config import Config
from crawl_lib.config.load import is_sqlite_server
from crawl_lib.stores import Secrets

KEYS_CONNECTION = "krake_keys"
DFS_CONNECTION = "krake_dfs"
log = logging.getLogger("krake")


def secrets_for(config: Config) -> Secrets:
    """The secrets that this config's stores need. Embedded stores need none, and ask nobody."""
    secrets = Secrets.from_environment()
    if secrets.key_storage_password is None and not all(map(is_sqlite_server, config.key_storage.servers)):
        keys = _connection(KEYS_CONNECTION, "the key servers are asked without a password")
        secrets = replace(secrets, key_storage_password=keys.password if keys else None)
    if config.dfs_primary.startswith(("http://", "https://")):
        dfs = _connection(DFS_CONNECTION, "HDFS is asked as dfs.user of the config")
        secrets = replace(secrets, dfs_user=dfs.login if dfs else None)
    return secrets


def _connection(name: str, without: str) -> Connection | None:
    try:
        return BaseHook.get_connection(name)
    except (AirflowNotFoundException, AirflowRuntimeError):
        log.info("there is no Airflow connection %s; %s", name, without)
        return None
