"""Where HDFS is, who is asked, and as whom: Airflow's connection krake_dfs first, then the config."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from krake_airflow import connections

from crawl_lib.config import Config
from crawl_lib.config.model import DfsConfig, PushConfig
from crawl_lib.errors import ConfigError, StorageError
from crawl_lib.storage import DfsAccess, S3Credentials
from crawl_lib.stores import SearchCredentials, open_stores
from tests.e2e.crawl import make_config

VARIABLE = "AIRFLOW_CONN_KRAKE_DFS"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    dfs = DfsConfig(user="of-config", ca_file="ca-of-config", wait_s=7.0)
    return dataclasses.replace(
        make_config(tmp_path, nodes=1), dfs_primary="http://of-config:1/crawls/path", dfs=dfs
    )


def applied(config: Config) -> Config:
    return connections.secrets_for(config).dfs.applied(config)


def connect(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    """What an operator writes into the environment, or into the form of Airflow's UI."""
    monkeypatch.setenv(VARIABLE, json.dumps({"conn_type": "webhdfs", **fields}))


def test_without_a_connection_the_config_holds(config: Config) -> None:
    assert applied(config) == config


def test_the_connection_of_the_crawl_comes_before_the_common_one(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KRAKE_KEY_STORAGE_PASSWORD", raising=False)
    crawls = {
        name: dataclasses.replace(
            config,
            crawl=dataclasses.replace(config.crawl, name=name),
            key_storage=dataclasses.replace(config.key_storage, servers=("db",)),
        )
        for name in ("krake", "news")
    }
    connect(monkeypatch, login="common")
    monkeypatch.setenv(
        "AIRFLOW_CONN_KRAKE_DFS_NEWS", json.dumps({"conn_type": "webhdfs", "login": "own"})
    )
    for name, password in (("", "of-all"), ("_NEWS", "of-news")):
        fields = {"conn_type": "mysql", "password": password}
        monkeypatch.setenv(f"AIRFLOW_CONN_KRAKE_KEYS{name}", json.dumps(fields))
    found = {name: connections.secrets_for(crawl) for name, crawl in crawls.items()}
    assert [(one.key_storage_password, one.dfs.user) for one in found.values()] == [
        ("of-all", "common"),
        ("of-news", "own"),
    ]


def test_an_empty_connection_changes_nothing(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch)
    assert applied(config) == config


def test_a_local_directory_asks_for_no_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, host="nn1", password="hush-hush")
    local = make_config(tmp_path, nodes=1)
    assert connections.secrets_for(local).dfs == DfsAccess()
    assert applied(local) == local


def test_every_field_comes_before_the_config(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The root path, the waiting and the security stay the config's."""
    extra = {"use_ssl": True, "verify": "/ca.pem", "cert": "/c.pem", "key": "/k.pem"}
    connect(monkeypatch, host="nn1, nn2", port=7, login="anna", extra=extra)
    found = applied(config)
    assert found.dfs_primary == "https://nn1:7;https://nn2:7/crawls/path"
    assert found.dfs == DfsConfig(
        user="anna", ca_file="/ca.pem", cert_file="/c.pem", key_file="/k.pem", wait_s=7.0
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "address"),
    [
        ({"host": "nn1"}, "http://nn1:9870/crawls/path"),
        ({"host": "nn1", "extra": {"use_ssl": "True"}}, "https://nn1:9871/crawls/path"),
        ({"host": "nn1", "extra": {"use_ssl": "False"}}, "http://nn1:9870/crawls/path"),
        ({"host": "nn1:5,nn2", "port": 6}, "http://nn1:5;http://nn2:6/crawls/path"),
        ({"login": "anna"}, "http://of-config:1/crawls/path"),
        ({"port": 6, "extra": {"use_ssl": True}}, "http://of-config:1/crawls/path"),
    ],
)
def test_namenodes(
    fields: dict[str, Any], address: str, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, **fields)
    assert applied(config).dfs_primary == address


def test_a_connection_may_be_written_as_a_uri(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "webhdfs://anna@nn1,nn2:9871/?use_ssl=True&verify=%2Fca.pem")
    found = applied(config)
    assert found.dfs_primary == "https://nn1:9871;https://nn2:9871/crawls/path"
    assert (found.dfs.user, found.dfs.ca_file) == ("anna", "/ca.pem")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"conn_type": "http", "host": "nn1"}, "type: is 'http'"),
        ({"host": "nn1", "password": "hush-hush"}, "password: is for gateways"),
        ({"host": "nn1", "schema": "gateway/default"}, "schema: is for gateways"),
        ({"host": "nn1", "extra": {"cookies": {"a": "b"}}}, "cookies: is for gateways"),
        ({"host": "nn1", "extra": {"headers": {"a": "b"}}}, "headers: is for gateways"),
        ({"host": "http://nn1"}, "host: 'http://nn1'"),
        ({"host": "nn1", "extra": {"verify": False}}, "verify: certificates are always checked"),
        ({"host": "nn1", "extra": {"use_ssl": "maybe"}}, "use_ssl: 'maybe'"),
        ({"host": "nn1", "extra": {"cert": 7}}, "cert: is no path"),
    ],
)
def test_a_field_that_cannot_be_used_is_named(
    fields: dict[str, Any], named: str, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, **fields)
    with pytest.raises(ConfigError) as caught:
        connections.secrets_for(config)
    assert f"krake_dfs: {named}" in str(caught.value)
    assert "hush" not in str(caught.value)


def test_the_stores_of_a_stage_are_those_of_the_connection(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No one listens there, and the error names the connection's namenode; the config that nodes compare stays."""
    connect(monkeypatch, host="127.0.0.1", port=1)
    here = dataclasses.replace(config, dfs=DfsConfig(wait_s=0.0))
    with pytest.raises(StorageError, match=r"http://127\.0\.0\.1:1/crawls/path"):
        open_stores(here, connections.secrets_for(here))


def test_the_connection_of_an_object_store_gives_credentials_and_never_shows_them(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = dataclasses.replace(config, dfs_primary="s3://bucket/crawls")
    assert connections.secrets_for(bucket).s3 is None
    connect(
        monkeypatch,
        conn_type="aws",
        login="key",
        password="very-secret",
        extra={"aws_session_token": "token"},
    )
    found = connections.secrets_for(bucket)
    assert found.s3 == S3Credentials("key", "very-secret", "token")
    assert "very-secret" not in repr(found)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"conn_type": "webhdfs", "login": "key", "password": "secret"}, "type"),
        ({"conn_type": "aws", "login": "key"}, "login"),
        (
            {"conn_type": "aws", "login": "key", "password": "secret", "extra": {"role_arn": "x"}},
            "role_arn",
        ),
    ],
)
def test_what_an_object_store_cannot_use_is_refused(
    config: Config, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], field: str
) -> None:
    connect(monkeypatch, **fields)
    with pytest.raises(ConfigError, match=field) as caught:
        connections.secrets_for(dataclasses.replace(config, dfs_primary="s3://bucket/crawls"))
    assert "secret'" not in str(caught.value)


def test_login_and_password_for_opensearch_come_from_a_connection_and_nothing_else_does(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KRAKE_SEARCH_USER", "KRAKE_SEARCH_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    pushing = dataclasses.replace(config, push=PushConfig(url="http://search.example:9200"))
    assert connections.secrets_for(pushing).search is None
    fields = {
        "conn_type": "http",
        "host": "other.example",
        "login": "anna",
        "password": "very-secret",
    }
    monkeypatch.setenv("AIRFLOW_CONN_KRAKE_SEARCH", json.dumps(fields))
    assert connections.secrets_for(config).search is None
    found = connections.secrets_for(pushing)
    assert found.search == SearchCredentials("anna", "very-secret")
    assert "very-secret" not in repr(found)
    monkeypatch.setenv("AIRFLOW_CONN_KRAKE_SEARCH_KRAKE", json.dumps({**fields, "login": "own"}))
    assert connections.secrets_for(pushing).search == SearchCredentials("own", "very-secret")
    monkeypatch.setenv("KRAKE_SEARCH_USER", "of-environment")
    assert connections.secrets_for(pushing).search == SearchCredentials("of-environment", "")
