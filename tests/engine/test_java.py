"""What Spark's Java is told of a secured HDFS; tests/cluster/test_kerberos.py reads one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crawl_lib.config import Config
from crawl_lib.engine.java import is_secured, java_options


@pytest.mark.parametrize(
    ("variable", "expected"),
    [("/a/krb5.conf", "/a/krb5.conf"), ("/a/one:/a/two", "/a/one"), ("", None)],
)
def test_java_gets_the_realm_that_everybody_else_has(variable, expected):
    assert java_options({"KRB5_CONFIG": variable}).get("java.security.krb5.conf") == expected
    assert java_options({}) == {}


@pytest.mark.parametrize(
    ("security", "url", "expected"),
    [
        ("kerberos", "hdfs://nn:8020/krake", True),
        ("kerberos", None, False),
        ("simple", "hdfs://nn:8020/krake", False),
    ],
)
def test_copies_need_no_ticket_of_java(config: Config, security, url, expected):
    dfs, spark = replace(config.dfs, security=security), replace(config.spark, dfs_url=url)
    assert is_secured(replace(config, dfs=dfs, spark=spark)) == expected
