"""No variable of curl's environment changes where a byte goes (https://curl.se/libcurl/c/libcurl-env.html).

A crawl says in its config which proxy it uses; what a shell or a container has set is for other programs. The files
that curl writes where the environment says so: `tests/e2e/test_refused.py`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from crawl_lib.states import Outcome
from tests.fetch.driver import CONFIG, run
from tests.web.hostile import HostileWeb

PROXIES = [
    "http_proxy",
    "https_proxy",
    "ftp_proxy",
    "ws_proxy",
    "wss_proxy",
    "all_proxy",
    "socks_proxy",
]
EXCEPTIONS = ["no_proxy"]
FILES = ["NETRC", "HOME", "CURL_HOME", "XDG_CONFIG_HOME", "CURL_CA_BUNDLE"]
OTHERS = [
    "CURL_SSL_BACKEND",
    "USER",
    "LOGNAME",
    "NTLMUSER",
    "CURL_ENTROPY",
    "CURL_DNS_SERVER",
    "CURL_PROXY",
]


@pytest.fixture
def trap() -> Iterator[HostileWeb]:
    """A server that nothing may ever reach: the proxy of the environment."""
    with HostileWeb() as server:
        yield server
        assert (server.connections, server.requests) == (0, [])


def settings(seed: int, trap: HostileWeb, directory: Path) -> dict[str, str]:
    """An environment: each variable in one case or the other, with one of the values that people give it."""
    draw = random.Random(seed)
    files = directory / "files"
    files.mkdir()
    for name in (".curlrc", "_curlrc", "curlrc"):
        (files / name).write_text(f'proxy = "{trap.url("")}"\nuser = "me:secret"\n')
    for name in (".netrc", "_netrc", "netrc"):
        (files / name).write_text("default login me password secret\n")
    found: dict[str, str] = {}
    for name in PROXIES + EXCEPTIONS:
        exception = draw.choice(
            ["*", "127.0.0.1", "localhost,.test,127.0.0.0/8", ".test", "name.test", " * "]
        )
        proxy = draw.choice(["", "http://", "socks5h://"]) + f"127.0.0.1:{trap.port}"
        for spelled in draw.choice([[name], [name.upper()], [name, name.upper()]]):
            found[spelled] = exception if name in EXCEPTIONS else proxy
    for name in FILES:
        found[name] = str(
            files / "netrc" if name == "NETRC" else files if "HOME" in name else files / "none"
        )
    found |= dict.fromkeys(OTHERS, draw.choice(["", "1", "openssl", "127.0.0.1"]))
    return found


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("proxied", [True, False])
def test_every_byte_goes_where_the_config_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trap: HostileWeb, proxied: bool, seed: int
) -> None:
    for name, value in settings(seed, trap, tmp_path).items():
        monkeypatch.setenv(name, value)
    with HostileWeb() as web, HostileWeb() as proxy:
        urls = [
            web.url("/ok?1"),
            web.url("/ok?2", host="name.test"),
            web.url("/ok?3", host="localhost"),
        ]
        for url in urls:
            proxy.on(url, lambda talk: talk.reply())
        config = replace(CONFIG, proxy=proxy.url("") if proxied else None, robots="obey")
        found = run(tmp_path, urls, config)
        assert found.outcomes() == ["ok"] * 3
        reached, other = (proxy, web) if proxied else (web, proxy)
        assert len(reached.requests) == 6
        assert other.connections == 0
        assert all(b"uthorization" not in seen.head for seen in reached.requests)


@pytest.mark.parametrize("name", ["no_proxy", "NO_PROXY"])
def test_a_proxy_that_is_down_is_not_gone_around(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "*")
    with HostileWeb() as gone:
        address = gone.url("")
    with HostileWeb() as web:
        found = run(tmp_path, [web.url()], replace(CONFIG, proxy=address))
        assert (found.fetched[0].outcome, web.connections) == (Outcome.CONNECT_FAILED, 0)
