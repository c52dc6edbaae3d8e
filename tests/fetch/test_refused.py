"""No byte goes to a refused address: by a page, a redirect, a robots.txt, past a proxy, or where a name changes.

One loopback address is allowed; at others, and at the same port, somebody listens who must not be reached.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from crawl_lib.fetch.dispatch import Seams
from crawl_lib.states import Outcome
from crawl_lib.urls import canonicalize
from tests.fetch.driver import CONFIG, AtOnce, NoAddressError, run
from tests.fetch.test_transport import ends
from tests.web.hostile import HostileWeb

ALLOWED, CLOSED = "127.0.0.1", "127.0.0.2"
REFUSED = ["127.9.0.1", "127.77.7.7", "::1"]
ONLY = replace(CONFIG, allow_networks=(f"{ALLOWED}/32", f"{CLOSED}/32"), dns_ttl_s=0.0)


@dataclass
class Edge:
    """The server that may be reached, and the refused addresses, where a listener waits at the same port."""

    web: HostileWeb
    refused: list[str]


@pytest.fixture
def edge() -> Iterator[Edge]:
    """Fails if anybody knocked at a refused address."""
    with ExitStack() as stack:
        web = stack.enter_context(HostileWeb(ALLOWED))
        listeners = []
        for address in REFUSED:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            try:
                listeners.append(
                    stack.enter_context(socket.create_server((address, web.port), family=family))
                )
            except OSError:  # the machine has no such address, or somebody else has the port there
                assert address == "::1"
        yield Edge(web, [listener.getsockname()[0] for listener in listeners])
        for listener in listeners:
            listener.setblocking(
                False
            )  # the kernel takes connections in before anybody accepts them
            with pytest.raises(BlockingIOError):
                listener.accept()


def spellings(address: str, draw: random.Random) -> str:
    """A host of a URL that is this address, as strangers write it."""
    if ":" in address:
        return f"[{draw.choice([address, '0:0:0:0:0:0:0:1', '::0001'])}]"
    a, b, c, d = map(int, address.split("."))
    number = (a << 24) | (b << 16) | (c << 8) | d
    forms = [
        address,
        f"{number}",
        f"{number:#x}",
        f"{a}.{(b << 16) | (c << 8) | d}",
        f"0{a:o}.{b:#x}.{c}.{d}",
    ]
    return draw.choice(
        [*forms, f"{address}.", f"[::ffff:{address}]", f"[64:ff9b::{a:02x}{b:02x}:{c:02x}{d:02x}]"]
    )


def answers(address: str, draw: random.Random) -> list[str]:
    """What a resolver may say where it means a refused address."""
    forms = [address] if ":" in address else [address, f"::ffff:{address}"]
    return draw.choice([[draw.choice(forms)], [draw.choice(forms), "169.254.169.254"], forms])


@pytest.mark.parametrize("seed", range(12))
def test_pages(tmp_path: Path, edge: Edge, seed: int) -> None:
    """Addresses in every spelling, and names for them; of a name with an allowed address only that one is asked."""
    draw = random.Random(seed)
    named = {f"n{number}.test": answers(draw.choice(edge.refused), draw) for number in range(5)}
    mixed = {
        f"m{number}.test": [draw.choice(edge.refused), ALLOWED, CLOSED][number % 2 :]
        for number in range(4)
    }
    urls = [edge.web.url(host=spellings(draw.choice(edge.refused), draw)) for _ in range(8)]
    bad = list(dict.fromkeys(canonicalize(url) for url in urls))
    bad += [edge.web.url(host=name) for name in named]
    good = [edge.web.url(host=name) for name in mixed]
    resolver = (named | mixed).__getitem__
    config = replace(ONLY, robots=draw.choice(["obey", "ignore"]))
    found = run(tmp_path, bad + good, config, seams=Seams(resolver=partial(AtOnce, resolver)))
    assert {found[url].outcome for url in bad} == {Outcome.ADDRESS_REFUSED}
    assert {found[url].outcome for url in good} == {Outcome.OK}


@pytest.mark.parametrize("seed", range(12))
def test_redirects_of_robots_txt(tmp_path: Path, edge: Edge, seed: int) -> None:
    draw = random.Random(seed)
    target = draw.choice([spellings(draw.choice(edge.refused), draw), "inner.test"])
    location = edge.web.url("/robots.txt", host=target).encode()
    edge.web.on(
        "/robots.txt", lambda talk: talk.reply("301 Moved", b"Location: %s\r\n" % location, b"")
    )
    inner = answers(draw.choice(edge.refused), draw)
    seams = Seams(
        resolver=partial(AtOnce, lambda host: inner if host == "inner.test" else [ALLOWED])
    )
    found = run(tmp_path, [edge.web.url(host="a.test")], replace(ONLY, robots="obey"), seams=seams)
    assert found.robots[-1].outcome is Outcome.ADDRESS_REFUSED
    assert found.fetched[0].outcome is not Outcome.OK


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("fresh", [True, False])
def test_rebinding(tmp_path: Path, edge: Edge, seed: int, fresh: bool) -> None:
    """A name that is allowed at its first look-ups, and refused, mixed or gone later; kept connections or not."""
    draw = random.Random(seed)
    first = draw.randrange(1, 4)
    asked: list[str] = []

    def resolver(host: str) -> list[str]:
        asked.append(host)
        if len(asked) <= first:
            return [ALLOWED]
        return draw.choice(
            [answers(draw.choice(edge.refused), draw), [draw.choice(edge.refused), ALLOWED]]
        )

    path = "/ok?%d" if not fresh else "/http10?%d"
    urls = [edge.web.url(path % number, host="a.test") for number in range(4)]
    steps = count()  # the clock hurries, so that each answer is old at the next request
    seams = Seams(lambda: time.monotonic() + 2.0 * next(steps), resolver=partial(AtOnce, resolver))
    found = run(tmp_path, urls, ONLY, seams=seams, limit_s=1e6)
    assert len(asked) > first
    assert set(found.outcomes()) <= {"ok", "address_refused"}


@pytest.mark.parametrize("address", REFUSED)
def test_the_transport_itself(edge: Edge, address: str) -> None:
    """Where the loop let an address through, and where a kept connection to the same name is free."""
    url = edge.web.url(host="a.test")
    good, bad = ends(ONLY, (url, ALLOWED), (url, address))
    assert (good.outcome, bad.outcome, bad.request) == (Outcome.OK, Outcome.ADDRESS_REFUSED, b"")


@pytest.mark.parametrize("seed", range(12))
def test_past_a_proxy(
    tmp_path: Path, edge: Edge, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy is not asked for a refused address, and gets all the rest, whatever the environment says."""
    draw = random.Random(seed)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, draw.choice(["*", "127.0.0.0/8,::1", ".test"]))
    bad = list(
        dict.fromkeys(
            canonicalize(edge.web.url(host=spellings(draw.choice(edge.refused), draw)))
            for _ in "xx"
        )
    )
    good = [edge.web.url(host="a.test"), edge.web.url("/b", host=ALLOWED)]
    with HostileWeb(CLOSED) as proxy:
        for url in good:
            proxy.on(url, lambda talk: talk.reply())

        def resolver(host: str) -> list[str]:
            raise NoAddressError("names are the proxy's")

        seams = Seams(resolver=partial(AtOnce, resolver))
        found = run(tmp_path, bad + good, replace(ONLY, proxy=proxy.url("")), seams=seams)
        assert sorted(proxy.paths()) == sorted(good)
    assert edge.web.connections == 0
    assert {found[url].outcome for url in bad} == {Outcome.ADDRESS_REFUSED}
    assert {found[url].outcome for url in good} == {Outcome.OK}
