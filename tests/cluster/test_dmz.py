"""A fetcher in a DMZ: it reaches the web, and nothing of the inner network, by rules that docs/realtime-cluster.md has.

Four namespaces: `inner` has the service, `keys` a listener in the place of MariaDB, and `inner` forwards between `keys`
and its other networks; `dmz` has the fetcher, and `web` has the web with a name server. KRAKE_SCAN=all has all 65,535
ports scanned, which takes ten minutes.
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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pytest

from crawl_lib.config import Config
from crawl_lib.realtime import Client, TokenFile, make_certificates
from crawl_lib.realtime.answers import Page
from crawl_lib.realtime.documents import Document
from tests.e2e.crawl import make_config, write_config
from tests.pythons import ROOT
from tests.web.hostile import HostileWeb
from tests.web.names import NameServer, Said

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("nft") is None,
    reason="needs root, and nft (Debian's nftables)",
)
INNER, DMZ_OF_INNER, DMZ_OF_WEB, WEB = "10.77.1.1", "10.77.1.2", "11.77.2.1", "11.77.2.2"
INNER_OF_KEYS, KEYS = "10.77.3.1", "10.77.3.2"
INNER_HOSTS = (INNER, INNER_OF_KEYS, KEYS)
API_PORT, KEYS_PORT, FETCHER_PORT, PROXY_PORT, SSH_PORT = 8095, 3306, 8096, 3128, 22
WAIT_S = 1.5
AT_ONCE = 4096
"""Ports that are asked at once: each takes a descriptor."""
SAMPLE = 2000
KRAKE = str(Path(sys.executable).with_name("krake"))
Answer = TypeVar("Answer")


class Networks:
    """The namespaces, by short names; each of this process alone."""

    names = ("inner", "keys", "dmz", "web")

    def __init__(self, stack: ExitStack) -> None:
        for name in self.names:
            self.ip("netns", "add", self.full(name))
            stack.callback(self.ip, "netns", "del", self.full(name))
            self.ip("-n", self.full(name), "link", "set", "lo", "up")
        self.threads = {
            name: stack.enter_context(
                ThreadPoolExecutor(1, initializer=self._enter, initargs=(name,))
            )
            for name in self.names
        }
        self._join("inner", "dmz0", INNER, "dmz", "inner0", DMZ_OF_INNER)
        self._join("dmz", "web0", DMZ_OF_WEB, "web", "dmz0", WEB)
        self._join("inner", "keys0", INNER_OF_KEYS, "keys", "inner0", KEYS)
        self.at("inner", lambda: Path("/proc/sys/net/ipv4/ip_forward").write_text("1"))
        self.ip("-n", self.full("keys"), "route", "add", "default", "via", INNER_OF_KEYS)
        self.ip(
            "-n", self.full("dmz"), "route", "add", "10.0.0.0/8", "via", INNER
        )  # as an attacker would

    def full(self, name: str) -> str:
        return f"krake-{name}-{os.getpid()}"

    def ip(self, *words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    def _join(
        self, one: str, name: str, address: str, other: str, other_name: str, other_address: str
    ) -> None:
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
        subprocess.run(
            ["ip", "netns", "exec", self.full(name), "nft", "-f", "-"],
            input=rules,
            text=True,
            check=True,
        )


def rules_of_docs() -> list[str]:
    """The rules of the inner side, and those of the fetcher."""
    return re.findall(
        r"```nft\n(.*?)```", (ROOT / "docs" / "realtime-cluster.md").read_text(), re.DOTALL
    )


def scanned_ports() -> list[int]:
    """All ports, or a sample with all those that something listens on."""
    if os.environ.get("KRAKE_SCAN") == "all":
        return [*range(1, 65_536)]
    known = {API_PORT, KEYS_PORT, FETCHER_PORT, PROXY_PORT, SSH_PORT}
    others = sorted({*range(1, 65_536)} - known)
    return sorted({*known, *random.Random(1).sample(others, SAMPLE - len(known))})


def open_ports(addresses: Sequence[str], ports: Sequence[int]) -> list[str]:
    """The places, ADDRESS:PORT, that answer within a short time, many asked at once."""
    places = [(address, port) for address in addresses for port in ports]
    found = [
        one
        for start in range(0, len(places), AT_ONCE)
        for one in _open_of(places[start : start + AT_ONCE])
    ]
    return [f"{address}:{port}" for address, port in sorted(found)]


def _open_of(places: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    asked: dict[int, tuple[socket.socket, tuple[str, int]]] = {}
    poll, found = select.poll(), []
    for place in places:
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(place)
        asked[one.fileno()] = one, place
        poll.register(one, select.POLLOUT)
    end_s, waiting = time.monotonic() + WAIT_S, len(asked)
    while waiting and (left_s := end_s - time.monotonic()) > 0:
        for number, _ in poll.poll(1000 * left_s):
            poll.unregister(number)
            waiting -= 1
            if asked[number][0].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                found.append(asked[number][1])
    for one, _ in asked.values():
        one.close()
    return found


class Listener:
    """A listener that notes who connects, in the place of MariaDB, of a proxy, or of sshd."""

    def __init__(self, address: str, port: int) -> None:
        self._socket = socket.create_server((address, port), backlog=AT_ONCE)
        self._socket.setblocking(False)

    def connections(self) -> int:
        """How many connections have come since the last look."""
        found = 0
        with suppress(BlockingIOError):
            while True:
                self._socket.accept()[0].close()
                found += 1
        return found

    def close(self) -> None:
        self._socket.close()


@contextmanager
def program(
    networks: Networks,
    name: str,
    directory: Path,
    words: Sequence[str],
    more: dict[str, str] | None = None,
) -> Iterator[str]:
    """A command of Krake in a namespace, with the web's name server; gives the first line that it says."""
    names = directory / "resolv.conf"
    names.write_text(f"nameserver {WEB}\n")
    mounted = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        'mount --bind "$0" /etc/resolv.conf && exec "$@"',
        str(names),
        KRAKE,
    ]
    with (directory / f"{name}.log").open("wb") as log:
        start = lambda: subprocess.Popen(  # noqa: E731
            [*mounted, *words],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, **(more or {})},
        )
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


def make_service(directory: Path) -> tuple[Config, str]:
    """The config of a service with a fetcher in the DMZ, and its file."""
    certificates = directory / "certificates"
    make_certificates(certificates, ["live-1"])
    realtime = {
        "listen": f"{INNER}:{API_PORT}",
        "tokens": str(directory / "tokens.json"),
        "certificates": str(certificates),
        "fetchers": [{"name": "live-1", "address": f"{DMZ_OF_INNER}:{FETCHER_PORT}"}],
        "policies": [{"name": "cards", "image": "probe"}],
    }
    fetch = {"allow_networks": [], "robots": "ignore", "host_delay_s": 0.1}
    urls, frontier = {"scope": "any"}, {"order": "crawldb"}
    config = make_config(
        directory, nodes=1, urls=urls, frontier=frontier, fetch=fetch, realtime=realtime
    )
    return config, str(write_config(config, directory))


def hostile_pages(web: HostileWeb) -> dict[str, str]:
    """URLs that lead to inner hosts, each in another way, with the outcome that each must have."""
    keys, proxy = f"http://{KEYS}:{KEYS_PORT}/", f"http://{INNER}:{PROXY_PORT}/"
    html, target = b"Content-Type: text/html\r\n", keys.encode()
    web.on("/moved", lambda talk: talk.reply("301 Moved", b"Location: " + target + b"\r\n", b""))
    refresh = b"<meta http-equiv=refresh content='0; url=" + target + b"'>"
    web.on("/refresh", lambda talk: talk.reply(headers=html, body=refresh))
    field = b"Refresh: 0; url=" + proxy.encode() + b"\r\n"
    web.on("/field", lambda talk: talk.reply(headers=html + field, body=b"moved"))
    image = b"<title>x</title><meta property=og:image content='" + target + b"a.png'>"
    web.on("/image", lambda talk: talk.reply(headers=html, body=image))
    port = web.url("/").split(":")[2].strip("/")
    refused = "address_refused"
    return {
        f"http://www.web.example:{port}/ok": "ok",
        web.url("/image"): "ok",
        web.url("/moved"): refused,
        web.url("/refresh"): refused,
        web.url("/field"): refused,
        keys: refused,
        proxy: refused,
        f"http://[::ffff:{KEYS}]:{KEYS_PORT}/": refused,
        f"http://inner.example:{KEYS_PORT}/": refused,
        f"http://both.example:{PROXY_PORT}/": refused,
    }


def document_of(client: Client, url: str) -> Page | None:
    """Wait for the document of a URL; a busy machine takes its time to open the line."""
    for _ in range(8):
        page = client.page(url, wait_s=20)
        if page is None or page.document is not None:
            return page
    return None


ADDRESSES = {"www.web.example": [WEB], "inner.example": [KEYS], "both.example": [INNER, KEYS]}


@pytest.mark.allow_hosts(["127.0.0.0/8", *INNER_HOSTS])
def test_a_fetcher_reaches_the_web_and_nothing_else(tmp_path: Path, networks: Networks) -> None:
    inner_rules, dmz_rules = rules_of_docs()
    ports, everywhere = scanned_ports(), [DMZ_OF_INNER]
    config, file = make_service(tmp_path)
    token = TokenFile(config.realtime.tokens).add("test", ["submit", "read"])
    proxies = dict.fromkeys(
        ("http_proxy", "https_proxy", "ALL_PROXY", "all_proxy"), f"http://{INNER}:{PROXY_PORT}/"
    )
    words = [
        "realtime",
        "fetcher",
        "--listen",
        f"{DMZ_OF_INNER}:{FETCHER_PORT}",
        "--name",
        "live-1",
    ]
    words += [
        "--directory",
        str(tmp_path / "dmz"),
        "--certificates",
        str(tmp_path / "certificates"),
    ]
    with ExitStack() as stack:

        def listener(where: str, address: str, port: int) -> Listener:
            return stack.enter_context(closing(networks.at(where, lambda: Listener(address, port))))

        def reached() -> list[str]:
            return networks.at("dmz", lambda: open_ports(INNER_HOSTS, ports))

        keys, proxy = listener("keys", KEYS, KEYS_PORT), listener("inner", INNER, PROXY_PORT)
        listener("dmz", DMZ_OF_INNER, SSH_PORT)
        found = [f"{INNER}:{PROXY_PORT}", f"{KEYS}:{KEYS_PORT}"]
        assert reached() == found, "without rules MariaDB is reached"
        assert (keys.connections(), proxy.connections()) == (1, 1)
        networks.nft("inner", inner_rules)
        networks.nft("dmz", dmz_rules)
        says = lambda name: Said(ADDRESSES.get(name, []), code=0 if name in ADDRESSES else 3)  # noqa: E731
        stack.enter_context(networks.at("web", lambda: NameServer(says, (WEB, 53))))
        web = stack.enter_context(networks.at("web", lambda: HostileWeb(WEB)))
        urls = hostile_pages(web)
        stack.enter_context(program(networks, "dmz", tmp_path, words, proxies))
        said = stack.enter_context(
            program(networks, "inner", tmp_path, ["--config", file, "serve", "realtime"])
        )
        assert "real-time service" in said, (tmp_path / "inner.log").read_text()

        def documents() -> dict[str, Document | None]:
            with Client(f"http://{INNER}:{API_PORT}/", token) as client:
                client.submit([*urls], "cards")
                pages = {url: document_of(client, url) for url in urls}
                event = next(
                    page for _, page in client.events() if page.document and page.document.image
                )
                pages[event.url] = event
                return {url: page.document if page else None for url, page in pages.items()}

        found_documents = networks.at("inner", documents)
        outcomes = {url: document.outcome for url, document in found_documents.items() if document}
        assert outcomes == urls, (tmp_path / "inner.log").read_text()
        image = found_documents[web.url("/image")]
        assert image is not None
        assert image.image is not None
        assert image.image["outcome"] == "address_refused"
        assert (keys.connections(), proxy.connections()) == (0, 0), (
            "no URL and no variable leads there"
        )
        assert networks.at("inner", lambda: open_ports(everywhere, ports)) == [
            f"{DMZ_OF_INNER}:{FETCHER_PORT}"
        ]
        networks.nft("dmz", "flush ruleset")
        assert reached() == [], "taken over, its own rules gone"
        assert (keys.connections(), proxy.connections()) == (0, 0)
        shown = networks.at("inner", lambda: open_ports(everywhere, ports))
        assert shown == [f"{DMZ_OF_INNER}:{port}" for port in (SSH_PORT, FETCHER_PORT)]
        networks.nft("inner", "flush ruleset")
        assert reached() == sorted([*found, f"{INNER}:{API_PORT}"]), "this test can fail"
    with program(networks, "dmz", tmp_path, words):
        collect = [KRAKE, "--config", file, "realtime", "collect", "--fetcher", "live-1"]
        done = networks.at(
            "inner", lambda: subprocess.run(collect, capture_output=True, text=True, check=False)
        )
        assert f"live-1: {len(urls) + 1} pages" in done.stdout, done.stderr
