"""Secrets for the stages: from the environment, else from Airflow's connections. They never reach a log.

`KRAKE_KEY_STORAGE_PASSWORD`, else the password of the connection `krake_keys`: the key servers' password.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException, AirflowRuntimeError

from crawl_lib.config import Config
from crawl_lib.config.load import is_sqlite_server
from crawl_lib.stores import Secrets

KEYS_CONNECTION = "krake_keys"
log = logging.getLogger("krake")


def secrets_for(config: Config) -> Secrets:
    """The secrets that this config's stores need. Embedded stores need none, and ask nobody."""
    secrets = Secrets.from_environment()
    if secrets.key_storage_password is None and not all(map(is_sqlite_server, config.key_storage.servers)):
        secrets = replace(secrets, key_storage_password=_password(KEYS_CONNECTION))
    return secrets


def _password(connection: str) -> str | None:
    try:
        return BaseHook.get_connection(connection).password
    except (AirflowNotFoundException, AirflowRuntimeError):
        log.info("there is no Airflow connection %s; the key servers are asked without a password", connection)
        return None
