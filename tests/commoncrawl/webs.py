"""Webs with hosts of every kind, and their graphs as plain Python makes them."""

from __future__ import annotations

import gzip
import random
from dataclasses import dataclass
from pathlib import Path

from crawl_lib.urls import domain_of, has_listed_suffix, host_of, is_address

HOSTS = (
    "example.org", "www.example.org", "news.example.org", "www.news.example.org", "www2.example.org", "example.com",
    "a.b.c.example.co.uk", "example.co.uk", "www.example.co.uk", "x.github.io", "y.github.io", "www.github.io",
    "xn--bcher-kva.example.de", "z-a.net", "z.net", "zz.net", "www.www.net", "www.com", "lonely.example.fr",
    "localhost", "wiki.internal", "www.internal", "192.0.2.1", "[2001:db8::1]", "b.example.org:8080",
)  # fmt: skip


@dataclass(frozen=True)
class Truth:
    """A graph: names in order, arcs by number, and how many hosts a domain has."""

    names: list[str]
    arcs: list[tuple[int, int]]
    n_hosts: list[int] | None = None


def random_web(seed: int, pages: int = 120) -> dict[str, list[str]]:
    """Links of pages; some lead out of the web. Pages of `lonely.example.fr` link nowhere."""
    chance = random.Random(seed)
    urls = [f"http://{host}/" for host in HOSTS]
    urls += [f"http://{chance.choice(HOSTS)}/{number}" for number in range(pages - len(HOSTS))]
    known = [*urls, "http://outside.example.org/", "http://203.0.113.9/x"]
    web = {
        url: [] if "lonely" in url else chance.sample(known, chance.randrange(5)) for url in urls
    }
    return {**web, urls[0]: ["http://outside.example.org/"]}


def node_of(url: str, of: str) -> str | None:
    """The reversed name of a URL's host or domain."""
    host = host_of(url)
    if is_address(host) or not has_listed_suffix(host):
        return None
    if host.startswith("www.") and host.count(".") > 1:
        host = host[4:]
    name = domain_of(host) if of == "domains" else host
    return ".".join(name.split(".")[::-1])


def truth_of(links: dict[str, list[str]], of: str, *, all_ends: bool = False) -> Truth:
    """The graph of hosts or domains; `all_ends`: of what was not crawled too."""
    urls = set(links) | ({url for some in links.values() for url in some} if all_ends else set())
    nodes = {url: node_of(url, of) for url in urls}
    names = sorted({name for name in nodes.values() if name}, key=str.encode)
    numbers = {name: number for number, name in enumerate(names)}
    pairs = {
        (nodes[source], nodes.get(target)) for source, some in links.items() for target in some
    }
    arcs = sorted(
        (numbers[one], numbers[other]) for one, other in pairs if one and other and one != other
    )
    hosts = {(node_of(url, "domains"), node_of(url, "hosts")) for url in urls}
    counts = (
        [sum(domain == name for domain, _ in hosts) for name in names] if of == "domains" else None
    )
    return Truth(names, arcs, counts)


def lines_of(path: Path) -> list[list[str]]:
    """The rows of a file of text, by columns."""
    text = gzip.decompress(path.read_bytes()).decode()
    assert not text or text.endswith("\n")
    return [line.split("\t") for line in text.splitlines()]
