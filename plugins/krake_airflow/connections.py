"""Airflow's connections for the stages: secrets, and how to reach HDFS. Passwords never reach a log.

A crawl's own connection, such as `krake_keys_<crawl.name>`, comes before the common connection.

`krake_keys`: its password is the key servers', unless `KRAKE_KEY_STORAGE_PASSWORD` is set.

`krake_dfs` (type `webhdfs`, the fields of Airflow's WebHDFSHook): used only if `dfs_primary` of the config is an HDFS.
Each filled-in field comes before the config; for an empty field the config counts:

| field | replaces |
|---|---|
| host, port, extra `use_ssl` | the namenodes of `dfs_primary`; its root path stays. Hosts have commas between |
| login | `dfs.user` |
| extra `verify` | `dfs.ca_file`, if a path. `true` is the rule anyway; `false` is refused |
| extra `cert`, `key` | `dfs.cert_file`, `dfs.key_file` |

Time limits, waiting and `dfs.security` (the hook reads Airflow's `core.security`) come from the config. The client is
Krake's own: the hook's client has no time limits, checks certificates only on request, and uses one namenode. The other
fields of the hook (password, schema, extra `cookies` and `headers`) are refused: these are for gateways with passwords,
such as Knox, which Krake does not support.

If `dfs_primary` is `s3://bucket/prefix`, `krake_dfs` has the type `aws`: its login is the id of an access key, its
password the secret, its extra `aws_session_token` the token of a session. Without the connection, credentials come from
the environment or the machine's role.

`krake_search`, used only if `push.url` names an OpenSearch: login and password of the user who pushes, unless
`KRAKE_SEARCH_USER` is set. The address comes from `push.url`, so all other fields are ignored.

`krake_service` (type `http`), for `FetchNowOperator`: host, port and schema of a real-time service, and a token of the
service as the password. No config of a crawl is read, since the service may run anywhere.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import AirflowNotFoundException, AirflowRuntimeError

from crawl_lib.config import Config
from crawl_lib.errors import ConfigError
from crawl_lib.storage import DfsAccess, S3Credentials, is_hdfs, is_s3
from crawl_lib.stores import SearchCredentials, Secrets

KEYS_CONNECTION = "krake_keys"
DFS_CONNECTION = "krake_dfs"
SEARCH_CONNECTION = "krake_search"
SERVICE_CONNECTION = "krake_service"
SERVICE_TYPE = "http"
SERVICE_PORTS = {"http": 8095, "https": 443}
"""Ports of a real-time service, by schema, for a connection without a port."""
S3_TYPE = "aws"
DFS_TYPE = "webhdfs"
"""The type of the connection; its form comes from `apache-airflow-providers-apache-hdfs`, which may be missing."""
NAMENODE_PORTS = {"http": 9870, "https": 9871}
"""The usual ports of a namenode."""
_TRUE, _FALSE = frozenset({"true", "1", "yes"}), frozenset({"false", "0", "no", "", "none"})
log = logging.getLogger("krake")


def secrets_for(config: Config) -> Secrets:
    """Return the secrets for this config's stores, and how to reach HDFS. Embedded stores need no secrets.

    Raises ConfigError naming a field of a connection that cannot be used.
    """
    secrets = Secrets.from_environment()
    if secrets.key_storage_password is None and not config.key_storage.is_embedded:
        keys = _connection(
            KEYS_CONNECTION, config.crawl.name, "the key servers are asked without a password"
        )
        secrets = replace(secrets, key_storage_password=keys.password if keys else None)
    if is_hdfs(config):
        secrets = replace(secrets, dfs=dfs_access(config.crawl.name))
    if is_s3(config):
        secrets = replace(secrets, s3=s3_credentials(config.crawl.name))
    if config.push.url is not None and secrets.search is None:
        secrets = replace(secrets, search=search_credentials(config.crawl.name))
    return secrets


def search_credentials(crawl: str) -> SearchCredentials | None:
    """Return login and password of the connection `krake_search`; None without the connection, or without a login.

    `crawl`: the name of the crawl, for a connection of its own.
    """
    connection = _connection(SEARCH_CONNECTION, crawl, "OpenSearch is asked without a user")
    if connection is None or not connection.login:
        return None
    return SearchCredentials(connection.login, connection.password or "")


def s3_credentials(crawl: str) -> S3Credentials | None:
    """Return the credentials for an object store from the connection `krake_dfs`; None without the connection.

    `crawl`: the name of the crawl, for a connection of its own. Raises ConfigError.
    """
    connection = _connection(
        DFS_CONNECTION, crawl, "credentials come from the environment or the machine's role"
    )
    if connection is None:
        return None
    if connection.conn_type != S3_TYPE:
        raise _wrong(
            "type", f"is {connection.conn_type!r}, and must be {S3_TYPE!r} for dfs_primary: s3://"
        )
    extra = connection.extra_dejson
    for name in sorted(set(extra) - {"aws_session_token"}):
        if extra[name]:
            raise _wrong(
                name,
                "is not known; the section s3 of the config has endpoint, region and addressing",
            )
    if not (connection.login and connection.password):
        raise _wrong(
            "login", "login is the id of the access key, password its secret: fill in both"
        )
    return S3Credentials(connection.login, connection.password, extra.get("aws_session_token"))


def dfs_access(crawl: str) -> DfsAccess:
    """Return how the connection `krake_dfs` reaches HDFS; without the connection, no field is set. Raises ConfigError.

    `crawl`: the name of the crawl, for a connection of its own.
    """
    connection = _connection(DFS_CONNECTION, crawl, "HDFS is reached as the config says")
    if connection is None:
        return DfsAccess()
    if connection.conn_type != DFS_TYPE:
        raise _wrong("type", f"is {connection.conn_type!r}, and must be {DFS_TYPE!r}")
    extra = connection.extra_dejson
    _refuse_gateways({**extra, "password": connection.password, "schema": connection.schema})
    access = DfsAccess(
        namenodes=_namenodes(
            connection, "https" if _truth("use_ssl", extra.get("use_ssl", False)) else "http"
        ),
        user=connection.login or None,
        ca_file=_ca_file(extra.get("verify", True)),
        cert_file=_path("cert", extra.get("cert")),
        key_file=_path("key", extra.get("key")),
    )
    log.info("the connection %s comes before the config: %s", connection.conn_id, access)
    return access


class ServiceAccess(NamedTuple):
    """The address of a real-time service, and a token of the service."""

    url: str
    token: str


def service_access(name: str = SERVICE_CONNECTION) -> ServiceAccess:
    """Return address and token of a real-time service from a connection. Raises ConfigError naming the field."""
    try:
        connection = BaseHook.get_connection(name)
    except (AirflowNotFoundException, AirflowRuntimeError):
        raise ConfigError(
            f"there is no Airflow connection {name}: make one of type {SERVICE_TYPE!r} with host, port and schema of"
            " `krake serve realtime`, and a token (`krake realtime tokens --add NAME`) as its password"
        ) from None
    if connection.conn_type != SERVICE_TYPE:
        raise _wrong("type", f"is {connection.conn_type!r}, and must be {SERVICE_TYPE!r}", name)
    # The form of Airflow's HTTP connections takes a schema in the host too.
    schema, is_split, host = (connection.host or "").strip().rpartition("://")
    schema = (schema if is_split else connection.schema or "http").lower()
    if schema not in SERVICE_PORTS:
        raise _wrong("schema", f"is {schema!r}, and must be http or https", name)
    if not _SERVICE_HOST.fullmatch(host.rstrip("/")):
        raise _wrong(
            "host",
            "must be the name or address of the service, such as 127.0.0.1; IPv6 in brackets",
            name,
        )
    if not _TOKEN.fullmatch(connection.password or ""):
        text = "must be a token of the service: `krake realtime tokens --add NAME --rights submit read` prints one"
        raise _wrong("password", text, name)
    host = host.rstrip("/")
    has_port = host.rpartition(":")[2].isdigit() and not host.endswith("]")
    address = host if has_port else f"{host}:{connection.port or SERVICE_PORTS[schema]}"
    return ServiceAccess(f"{schema}://{address}", str(connection.password))


_TOKEN = re.compile(r"[A-Za-z0-9_.~+/=-]+")
"""A token of the Bearer scheme (RFC 6750, 2.1). No other text goes into a header, or into the message of an error."""
_SERVICE_HOST = re.compile(r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")


def _connection(name: str, crawl: str, without: str) -> Connection | None:
    own = f"{name}_{crawl}"
    for one in (own, name):
        with suppress(AirflowNotFoundException, AirflowRuntimeError):
            return BaseHook.get_connection(one)
    log.info("there is no Airflow connection %s or %s; %s", own, name, without)
    return None


def _refuse_gateways(fields: Mapping[str, Any]) -> None:
    for name in ("password", "schema", "cookies", "headers"):
        if fields.get(name):
            raise _wrong(
                name,
                "is for gateways that ask for passwords, which Krake does not know: leave it empty",
            )


def _namenodes(connection: Connection, scheme: str) -> tuple[str, ...] | None:
    """Return the addresses of the hosts; None without a host. A host may have its own port."""
    hosts = [host.strip() for host in (connection.host or "").split(",") if host.strip()]
    if any("/" in host for host in hosts):
        raise _wrong(
            "host",
            f"{connection.host!r}: is one or more names with commas between, without http://",
        )
    port = connection.port or NAMENODE_PORTS[scheme]
    return (
        tuple(f"{scheme}://{host if ':' in host else f'{host}:{port}'}" for host in hosts) or None
    )


def _ca_file(verify: object) -> str | None:
    if isinstance(verify, str) and verify.lower() not in _TRUE | _FALSE:
        return verify
    if not _truth("verify", verify):
        raise _wrong(
            "verify",
            "certificates are always checked; give the path of the authority's certificate",
        )
    return None


def _path(name: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise _wrong(name, "is no path")
    return value or None


def _truth(name: str, value: object) -> bool:
    """Return a yes or no. Airflow keeps extras as JSON, or as texts in a connection that is written as a URI."""
    text = str(value).lower()
    if text not in _TRUE | _FALSE:
        raise _wrong(name, f"{value!r}: is neither true nor false")
    return text in _TRUE


def _wrong(field: str, what: str, name: str = DFS_CONNECTION) -> ConfigError:
    return ConfigError(f"Airflow's connection {name}: {field}: {what}")
