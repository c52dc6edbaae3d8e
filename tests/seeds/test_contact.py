"""Without `fetch.contact` only one's own machines are seeds."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.errors import ConfigError
from crawl_lib.seeds.contact import is_our_own
from crawl_lib.stores import open_stores
from crawl_lib.urls import canonicalize, host_of


def without_contact(config: Config, contact: str | None = None, **fetch: Any) -> Config:
    return dataclasses.replace(
        config, fetch=dataclasses.replace(config.fetch, contact=contact, **fetch)
    )


OWN = [
    "http://localhost/",
    "http://LOCALHOST./",
    "https://a.b.localhost:8443/x",
    "http://127.0.0.1/",
    "http://127.9.9.9:81/",
    "http://0x7f.1/",
    "http://2130706433/",
    "http://[::1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://10.1.2.3/",
    "http://[fd00::7]/",
]
OTHERS = [
    "http://example.org/",
    "http://localhost.example.org/",
    "http://notlocalhost/",
    "http://127.0.0.1.example.org/",
    "http://localhost@example.org/",
    "http://128.0.0.1/",
    "http://10.2.2.3/",
    "http://192.168.0.1/",
    "http://[::2]/",
    "http://[fd01::7]/",
    "http://[::ffff:10.2.2.3]/",
    "http://0.0.0.0/",
    "http://inner/",
]
NETWORKS = ("10.1.0.0/16", "fd00::/16")


@pytest.mark.parametrize("url", OWN)
def test_loopback_and_named_networks_need_none(config: Config, url: str) -> None:
    bare = without_contact(config, allow_networks=NETWORKS)
    assert stages.inject(open_stores(bare), run_id="r", seeds=url)["accepted"] == 1


@pytest.mark.parametrize("contact", [None, "", " "])
@pytest.mark.parametrize("url", OTHERS)
def test_other_people_s_sites_do_and_nothing_is_left(
    config: Config, url: str, contact: str | None, tmp_path: Path
) -> None:
    bare = without_contact(config, contact=contact, allow_networks=NETWORKS)
    seeds = tmp_path / "seeds"
    seeds.write_text(f"{OWN[0]}\n# a comment\n{url}\n")
    with pytest.raises(ConfigError, match=rf"fetch\.contact: is not set, and {seeds}:3 is a site"):
        stages.inject(open_stores(bare), run_id="r", seeds=str(seeds))
    assert not list((tmp_path / "dfs" / "crawl").rglob("*"))
    assert stages.inject(open_stores(config), run_id="r", seeds=str(seeds))["accepted"] == 2


def test_a_name_is_judged_without_a_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.getaddrinfo", lambda *_: pytest.fail("looked up"))
    assert not is_our_own(host_of(canonicalize("http://inner.test/")), ("0.0.0.0/0", "::/0"))
    assert is_our_own("[::1]", ())
