"""A fetcher in a DMZ: it reaches the web, and nothing of the inner network, by rules that docs/realtime-cluster.md has.

Three namespaces: `inner` has the service and a listener in the place of MariaDB, `dmz` the fetcher, `web` the web.
"""

from __future__ import annotations

import ctypes
import os
import random
import re
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from crawl_lib.realtime import Client, TokenFile, make_certificates
from tests.e2e.crawl import make_config, write_config
from tests.pythons import ROOT
from tests.web.hostile import HostileWeb

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("nft") is None, reason="needs root, and nft (Debian's nftables)"
)
INNER, DMZ_OF_INNER, DMZ_OF_WEB, WEB = "10.77.1.1", "10.77.1.2", "11.77.2.1", "11.77.2.2"
API_PORT, KEYS_PORT, FETCHER_PORT = 8095, 3306, 8096
WAIT_S = 1.5
KRAKE = str(Path(sys.executable).with_name("krake"))
Answer = TypeVar("Answer")


class Networks:
    """The namespaces, by short names; each of this process alone."""

    names = ("inner", "dmz", "web")

    def __init__(self, stack: ExitStack) -> None:
        for name in self.names:
            self.ip("netns", "add", self.full(name))
            stack.callback(self.ip, "netns", "del", self.full(name))
            self.ip("-n", self.full(name), "link", "set", "lo", "up")
        self.threads = {
            name: stack.enter_context(ThreadPoolExecutor(1, initializer=self._enter, initargs=(name,)))
            for name in self.names
        }
        self._join("inner", "dmz0", INNER, "dmz", "inner0", DMZ_OF_INNER)
        self._join("dmz", "web0", DMZ_OF_WEB, "web", "dmz0", WEB)

    def full(self, name: str) -> str:
        return f"krake-{name}-{os.getpid()}"

    def ip(self, *words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    def _join(self, one: str, name: str, address: str, other: str, other_name: str, other_address: str) -> None:
        """Put a cable between two namespaces."""
        peer = ("peer", "name", other_name, "netns", self.full(other))
        self.ip("-n", self.full(one), "link", "add", name, "type", "veth", *peer)
        for where, interface, own in ((one, name, address), (other, other_name, other_address)):
            self.ip("-n", self.full(where), "addr", "add", f"{own}/30", "dev", interface)
            self.ip("-n", self.full(where), "link", "set", interface, "up")

    def _enter(self, name: str) -> None:
        with Path(f"/run/netns/{self.full(name)}").open() as namespace:
            assert ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0) == 0

    def at(self, name: str, work: Callable[[], Answer]) -> Answer:
        """Do something in a namespace; what is started, and each socket, stays there."""
        return self.threads[name].submit(work).result()

    def nft(self, name: str, rules: str) -> None:
        """Load rules of nftables."""
        subprocess.run(["ip", "netns", "exec", self.full(name), "nft", "-f", "-"], input=rules, text=True, check=True)


def rules_of_docs() -> list[str]:
    """The rules of the inner side, and those of the fetcher."""
    return re.findall(r"```nft\n(.*?)```", (ROOT / "docs" / "realtime-cluster.md").read_text(), re.DOTALL)


def open_ports(address: str, ports: list[int]) -> list[int]:
    """The ports that answer within a short time, all asked at once."""
    asked: dict[int, socket.socket] = {}
    for port in ports:
        asked[port] = socket.socket()
        asked[port].setblocking(False)
        asked[port].connect_ex((address, port))
    end_s, found, poll = time.monotonic() + WAIT_S, [], select.poll()
    by_number = {one.fileno(): port for port, one in asked.items()}
    for number in by_number:
        poll.register(number, select.POLLOUT)
    while by_number and (left_s := end_s - time.monotonic()) > 0:
        for number, _ in poll.poll(1000 * left_s):
            port = by_number.pop(number)
            poll.unregister(number)
            if asked[port].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                found.append(port)
    for one in asked.values():
        one.close()
    return sorted(found)


@contextmanager
def program(networks: Networks, name: str, directory: Path, *words: str) -> Iterator[str]:
    """A command of Krake in a namespace; gives the first line that it says."""
    with (directory / f"{name}.log").open("wb") as log:
        start = lambda: subprocess.Popen([KRAKE, *words], stdout=subprocess.PIPE, stderr=log, text=True)  # noqa: E731
        process = networks.at(name, start)
        assert process.stdout is not None
        try:
            yield process.stdout.readline()
        finally:
            process.terminate()
            process.wait(30)
            process.stdout.close()


@pytest.fixture
def networks() -> Iterator[Networks]:
    with ExitStack() as stack:
        yield Networks(stack)


@pytest.mark.allow_hosts(["127.0.0.0/8", INNER])
def test_a_fetcher_reaches_the_web_and_nothing_else(tmp_path: Path, networks: Networks) -> None:
    inner_rules, dmz_rules = rules_of_docs()
    sample = random.Random(1).sample(range(1, 65_536), 1996)
    ports = sorted({*sample, API_PORT, KEYS_PORT, FETCHER_PORT, 22})
    listening = {
        "inner": networks.at("inner", lambda: socket.create_server((INNER, KEYS_PORT))),
        "dmz": networks.at("dmz", lambda: socket.create_server((DMZ_OF_INNER, 22))),
    }
    certificates = tmp_path / "certificates"
    make_certificates(certificates, ["live-1"])
    realtime = {
        "listen": f"{INNER}:{API_PORT}",
        "tokens": str(tmp_path / "tokens.json"),
        "certificates": str(certificates),
        "fetchers": [{"name": "live-1", "address": f"{DMZ_OF_INNER}:{FETCHER_PORT}"}],
    }
    fetch = {"allow_networks": [], "robots": "ignore", "host_delay_s": 0.1}
    config = make_config(
        tmp_path, nodes=1, urls={"scope": "any"}, frontier={"order": "crawldb"}, fetch=fetch, realtime=realtime
    )
    file = str(write_config(config, tmp_path))
    token = TokenFile(config.realtime.tokens).add("test", ["submit", "read"])
    fetcher = ("--listen", f"{DMZ_OF_INNER}:{FETCHER_PORT}", "--name", "live-1", "--directory", str(tmp_path / "dmz"))
    with ExitStack() as stack:
        stack.callback(lambda: [one.close() for one in listening.values()])
        assert networks.at("dmz", lambda: open_ports(INNER, ports)) == [KEYS_PORT], "without rules it is reached"
        networks.nft("inner", inner_rules)
        networks.nft("dmz", dmz_rules)
        web = stack.enter_context(networks.at("web", lambda: HostileWeb(WEB)))
        words = ("realtime", "fetcher", *fetcher, "--certificates", str(certificates))
        stack.enter_context(program(networks, "dmz", tmp_path, *words))
        said = stack.enter_context(program(networks, "inner", tmp_path, "--config", file, "serve", "realtime"))
        assert "real-time service" in said, (tmp_path / "inner.log").read_text()
        inner_url = f"http://{INNER}:{KEYS_PORT}/"
        web.on("/moved", lambda talk: talk.reply("301 Moved", f"Location: {inner_url}\r\n".encode(), b""))
        refresh = f"<meta http-equiv=refresh content='0; url={inner_url}'>".encode()
        web.on("/refresh", lambda talk: talk.reply(headers=b"Content-Type: text/html\r\n", body=refresh))
        urls = [web.url("/ok"), web.url("/moved"), web.url("/refresh"), inner_url]

        def outcomes() -> list[str]:
            with Client(f"http://{INNER}:{API_PORT}/", token) as client:
                client.submit(urls)
                pages = [client.page(url, wait_s=30) for url in urls]
                return [page.document.outcome if page and page.document else "" for page in pages]

        assert networks.at("inner", outcomes) == ["ok", *["address_refused"] * 3], (tmp_path / "inner.log").read_text()
        assert networks.at("inner", lambda: open_ports(DMZ_OF_INNER, ports)) == [FETCHER_PORT]
        networks.nft("dmz", "flush ruleset")
        assert networks.at("dmz", lambda: open_ports(INNER, ports)) == [], "taken over, its own rules gone"
        assert networks.at("inner", lambda: open_ports(DMZ_OF_INNER, ports)) == [22, FETCHER_PORT]
        networks.nft("inner", "flush ruleset")
        assert networks.at("dmz", lambda: open_ports(INNER, ports)) == [KEYS_PORT, API_PORT], "this test can fail"
    with program(networks, "dmz", tmp_path, *words):
        collect = [KRAKE, "--config", file, "realtime", "collect", "--fetcher", "live-1"]
        done = networks.at("inner", lambda: subprocess.run(collect, capture_output=True, text=True, check=False))
        assert "live-1: 4 pages" in done.stdout, done.stderr
