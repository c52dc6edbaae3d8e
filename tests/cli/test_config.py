"""`krake config` shows what is in force, and no password."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from crawl_lib.cli.looking import masked
from crawl_lib.config import from_mapping, load_config
from tests.cli.conftest import Krake

ROOT = Path(__file__).resolve().parents[2]


def test_config_prints_the_effective_values(krake: Krake) -> None:
    printed = krake.ok("config").out
    mapping = yaml.safe_load(printed)
    assert from_mapping(mapping, Path("/elsewhere")) == load_config(krake.file)
    assert mapping["queue"]["local_dir"] == str(krake.directory / "queue")
    assert mapping["batch"]["size"] == 1000


def test_no_secret_is_printed(krake: Krake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRAKE_KEY_STORAGE_PASSWORD", "hush-hush")
    krake.configure(fetch={"proxy": "http://me:pa:s@s/w@proxy.example:3128"})
    done = krake.ok("config")
    assert "proxy: http://me:****@proxy.example:3128\n" in done.out
    assert "KRAKE_KEY_STORAGE_PASSWORD is set: ****" in done.out
    assert "hush" not in done.out + done.err
    monkeypatch.delenv("KRAKE_KEY_STORAGE_PASSWORD")
    assert "KRAKE_KEY_STORAGE_PASSWORD is not set" in krake.ok("config").out


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        (None, None),
        ("http://proxy.example:3128", "http://proxy.example:3128"),
        ("http://me@proxy.example:3128", "http://me@proxy.example:3128"),
        ("me:secret@proxy.example:3128", "me:****@proxy.example:3128"),
        ("socks5h://:secret@proxy.example", "socks5h://:****@proxy.example"),
        (
            "http://a:b@nn1:9870;http://c:d@nn2:9870",
            "http://a:****@nn1:9870;http://c:****@nn2:9870",
        ),
        ("/data/dfs", "/data/dfs"),
    ],
)
def test_addresses_are_shown_without_their_passwords(
    address: str | None, shown: str | None
) -> None:
    assert masked(address) == shown


@pytest.mark.parametrize("name", ["krake-config.yml", "demo.yml"])
def test_the_configs_of_the_project_are_good(krake: Krake, name: str) -> None:
    krake.file = ROOT / "config" / name
    assert "servers:" in krake.ok("config").out


def test_rules_that_cannot_work_are_named(krake: Krake) -> None:
    krake.configure(urls={"rules": [{"action": "-", "kind": "regex", "value": "("}]})
    assert "urls.rules[0]: '(' is not a regular expression" in krake("config").error()


def test_a_bad_config_is_one_line_for_every_command(krake: Krake) -> None:
    krake.configure(batch={"sise": 3})
    line = f"{krake.file}: batch.sise: unknown option; the nearest option is batch.size"
    for words in (
        ["config"],
        ["status"],
        ["inject", "http://127.0.0.1/"],
        ["keys", "check"],
        ["export"],
    ):
        assert krake(*words).error() == line


def test_all_mistakes_are_lines_of_their_own(krake: Krake) -> None:
    krake.configure(batch={"sise": 3, "size": 0}, crawl={"schedule": "every day"})
    done = krake("config")
    assert (done.code, done.out) == (1, "")
    assert [
        line.removeprefix(f"krake: {krake.file}: ").split(": ")[0] for line in done.err.splitlines()
    ] == [
        "batch.sise",
        "batch.size",
        "crawl.schedule",
    ]


def test_a_config_that_is_not_there_is_named(krake: Krake, monkeypatch: pytest.MonkeyPatch) -> None:
    krake.file = krake.directory / "none.yml"
    assert krake("config").error().startswith(f"{krake.file}: ")


def test_what_an_operator_should_know_of_is_a_warning(krake: Krake) -> None:
    assert krake.ok("config").err == ""
    krake.configure(fetch={"contact": " "})
    assert krake.ok("config").err.startswith("warning: fetch.contact is not set")
    krake.configure(fetch={"contact": None, "allow_networks": ["10.0.0.0/8"]})
    assert "fetch.contact is not set" in krake.ok("config").err


@pytest.mark.parametrize("tls", ["prefer", "require", "off", "verify"])
def test_a_key_server_elsewhere_whose_certificate_is_not_looked_at_is_a_warning(
    krake: Krake, tls: str
) -> None:
    krake.configure(
        key_storage={"servers": ["keys.example:3307", "127.0.0.1:9", "[::1]:9"], "tls": tls}
    )
    warnings = [line for line in krake("config").err.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == (tls != "verify")
    for line in warnings:
        assert "keys.example:3307 can pass for it" in line
        assert "127.0.0.1" not in line
