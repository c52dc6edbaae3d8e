"""The hostile hosts: what each does, and the outcome that its pages must end in. One table, and a seed for the rest.

A case is a path, whose first part names a habit (`hostile`, `attacks`). In its text `{100-200}` means a number
between those, `{a|b}` for one of these, and `{seed}` for any number: another seed makes other pages of the same kind.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from crawl_lib.states import Outcome
from tests.web.lookups import name_of

GOOD, HOSTILE, REFUSED = "127.80", "127.90", "127.99"
"""The networks of the hosts, and one that a crawl must not be allowed to enter."""
MISSING = "/status/404"


class Case(NamedTuple):
    """`path`: of the pages; `truncated`: what their records are marked with (`a|b`: one of these).

    `robots`: the path whose habit answers /robots.txt. `urls`: how many pages a host has at most; few, where they cost
    much. `host`: the kind of its name (`lookups`), or `address`, or `refused`: an address of the network that may not
    be entered. `via`: `http`, `https`, or a port of the test's: `closed`, `deaf`. `then`: the outcome of the place that
    a redirect leads to; `rejection`: why what the page leads to is never queued.
    """

    path: str
    outcome: Outcome
    truncated: str | None = None
    robots: str = MISSING
    urls: int = 2
    host: str = "address"
    via: str = "http"
    then: Outcome | None = None
    rejection: str = ""


_OK, _REDIRECT, _TIMEOUT, _BROKEN = (
    Outcome.OK,
    Outcome.REDIRECT,
    Outcome.TIMEOUT,
    Outcome.PROTOCOL_ERROR,
)
_CUT = "length|time"
"""A large body is cut by whichever limit it reaches first: that depends on who else is being fetched."""
_GONE_AWAY, _UNREACHABLE = Outcome.CONNECT_FAILED, Outcome.ROBOTS_UNREACHABLE

CASES: dict[str, Case] = {
    # Answers that are odd, and answers
    "http10": Case("/http10", _OK),
    "interim": Case("/interim", _OK),
    "spacing": Case("/{spacing|folded|bare-lf}", _OK),
    "before-status": Case("/before-status/{line|lines|mark|mark-line}", _OK),
    "not-applied": Case("/not-applied/{gzip|deflate}", _OK),
    "chunked": Case("/chunked", _OK),
    "long": Case("/long", _OK),
    "stale": Case("/stale", _OK),
    "pdf": Case("/pdf", _OK),
    "no-content": Case("/status/204", _OK),
    "flaky": Case("/flaky/{500|502|503|429}/1", _OK),
    "gone": Case("/status/{404|410}", Outcome.GONE),
    "client-error": Case("/status/{400-403}", Outcome.CLIENT_ERROR),
    "too-many": Case("/status/429", Outcome.CLIENT_ERROR, urls=1),
    "unavailable": Case("/status/503", Outcome.SERVER_ERROR, urls=1),
    "server-error": Case("/status/{500|501|502|504|507|511}", Outcome.SERVER_ERROR),
    "odd-status": Case("/status/{600-999}", Outcome.UNEXPECTED_STATUS),
    "no-location": Case("/status/{301|302|303|307|308}", Outcome.UNEXPECTED_STATUS),
    # Bodies that end badly, or not at all
    "short": Case("/short", _OK, "disconnect"),
    "endless-chunk": Case("/endless-chunk", _OK, "disconnect"),
    "broken-chunk": Case("/broken-chunk", _OK, "disconnect"),
    "huge-chunk": Case("/huge-chunk", _OK, "disconnect"),
    "hang-in-body": Case("/hang-in-body", _OK, "time"),
    "drip-body": Case("/drip-body", _OK, "time"),
    "endless-body": Case("/endless-body", _OK, _CUT, urls=1),
    "endless-chunks": Case("/endless-chunks", _OK, _CUT, urls=1),
    "endless-trailers": Case("/endless-trailers", _OK, _CUT, urls=1),
    "large-body": Case("/body/{17000000-20000000}", _OK, _CUT, urls=1),
    # Heads that end badly, or not at all
    "http09": Case("/http09", _BROKEN),
    "garbage": Case("/garbage", _BROKEN),
    "half-head": Case("/half-head", _BROKEN),
    "header-flood": Case("/header-flood/{70000-3000000}", _BROKEN),
    "endless-head": Case("/{endless-head|endless-line}", _BROKEN),
    "endless-interim": Case("/{endless-interim|endless-continue}", _BROKEN),
    "two-lengths": Case("/{two-lengths|negative}", _BROKEN),
    # No answer
    "hang": Case("/hang", _TIMEOUT),
    "hang-in-head": Case("/hang-in-head", _TIMEOUT),
    "drip-head": Case("/drip-head", _TIMEOUT),
    "close": Case("/close", _GONE_AWAY, urls=1),
    "reset": Case("/reset", _GONE_AWAY, urls=1),
    "closed-port": Case("/ok", _GONE_AWAY, via="closed"),
    "deaf-port": Case("/ok", _TIMEOUT, via="deaf"),
    "no-tls": Case("/ok", Outcome.TLS_FAILED, via="https"),
    # Codings
    "bomb": Case("/inflate/{gzip|x-gzip}/{60-90}/{seed}", _OK, urls=1),
    "deflate-bomb": Case("/inflate/{deflate|raw}/{60-90}/{seed}", _OK, urls=1),
    "nested-bomb": Case("/nested/{2-6}/{60-90}/{seed}", _OK, urls=1),
    "small-bomb": Case("/bomb", _OK),
    "members": Case("/members/{500-20000}", _OK),
    "not-gzip": Case("/{not-gzip|cut-gzip}", _OK),
    # Markup
    "formatting": Case("/formatting/{2000-3500}/{seed}", _OK, urls=1),
    "end-tags": Case("/end-tags/{5000-8000}/{900000-1100000}/{seed}", _OK, urls=1),
    "attributes": Case("/attributes/{1500-2000}/{1500-2000}/{seed}", _OK, urls=1),
    "nesting": Case("/nesting/{50000-300000}/{seed}", _OK, urls=1),
    "anchors": Case("/anchors/{50000-200000}/{seed}", _OK, urls=1),
    "unended": Case("/unended/{500000-4000000}/{seed}", _OK, urls=1),
    "references": Case("/references/{500000-4000000}/{seed}", _OK, urls=1),
    "bases": Case("/bases/{20000-100000}/{seed}", _OK, urls=1),
    "tables": Case("/tables/{5000-20000}/{seed}", _OK, urls=1),
    "links": Case("/links/{51000-90000}/{seed}", _OK, urls=1),
    # Places that are not to be gone to
    "redirect-loop": Case("/redirect-loop/{0-99}", _REDIRECT),
    "to-inner": Case(
        "/to/{inner|cloud|mapped|hidden|decimal}", _REDIRECT, then=Outcome.ADDRESS_REFUSED
    ),
    "to-port": Case("/to/{mail|irc|ssh}", _REDIRECT, rejection="port"),
    "to-scheme": Case("/to/{script|file}", _REDIRECT, rejection="scheme"),
    "to-long": Case("/to/long", _REDIRECT, rejection="too_long"),
    "to-nowhere": Case("/to/nowhere", _REDIRECT, rejection="invalid"),
    "port-links": Case("/port-links/{10-3000}/{25|6667|5060}", _OK, rejection="port"),
    "refused": Case("/ok", Outcome.ADDRESS_REFUSED, host="refused"),
    "refused-name": Case("/ok", Outcome.ADDRESS_REFUSED, host="inner"),
    # Names
    "slow-name": Case("/ok", _OK, host="slow"),
    "no-name": Case("/ok", Outcome.DNS_FAILED, host="none"),
    "stuck-name": Case("/ok", Outcome.DNS_FAILED, host="stuck"),
    # robots.txt
    "robots-denies": Case("/denied", Outcome.ROBOTS_DENIED, robots="/rules/100/{seed}"),
    "robots-huge": Case("/denied", Outcome.ROBOTS_DENIED, robots="/rules/{400000-3000000}/{seed}"),
    "robots-huge-allows": Case("/ok", _OK, robots="/rules/{400000-3000000}/{seed}"),
    "robots-bomb": Case("/ok", _OK, robots="/inflate/{gzip|deflate}/{60-90}/{seed}"),
    "robots-endless": Case("/ok", _OK, robots="/{endless-body|endless-chunks}"),
    "robots-before-status": Case("/ok", _OK, robots="/before-status/{line|lines|mark|mark-line}"),
    "robots-page": Case("/ok", _OK, robots="/formatting/{2000-3500}/{seed}"),
    "robots-loop": Case("/ok", _OK, robots="/redirect-loop/{0-99}"),
    "robots-forbidden": Case("/ok", _OK, robots="/status/{400-403}"),
    "robots-429": Case("/ok", _UNREACHABLE, robots="/status/429"),
    "robots-5xx": Case("/ok", _UNREACHABLE, robots="/status/{500-511}"),
    "robots-drip": Case("/ok", _UNREACHABLE, robots="/{drip-body|hang-in-body}"),
    "robots-short": Case("/ok", _UNREACHABLE, robots="/short"),
    "robots-to-inner": Case("/ok", _UNREACHABLE, robots="/to/{inner|cloud|mapped|hidden}"),
    "robots-to-port": Case("/ok", _UNREACHABLE, robots="/to/{mail|irc}"),
    "robots-hang": Case("/ok", _TIMEOUT, robots="/{hang|hang-in-head|drip-head}"),
    "robots-garbage": Case("/ok", _BROKEN, robots="/{garbage|http09|endless-head}"),
    "robots-close": Case("/ok", _GONE_AWAY, robots="/{close|reset}"),
}


@dataclass(frozen=True)
class Host:
    """A hostile host. `paths`: of its pages; `robots`: the path whose habit answers its robots.txt."""

    name: str
    address: str
    case: Case
    host: str
    paths: tuple[str, ...]
    robots: str

    def urls(self, port: int, others: dict[str, int]) -> list[str]:
        """Its pages. `port`: of the server; `others`: the ports that `Case.via` names."""
        scheme = "https" if self.case.via == "https" else "http"
        return [
            f"{scheme}://{self.host}:{others.get(self.case.via, port)}{path}" for path in self.paths
        ]


def address_of(network: str, number: int) -> str:
    """The address of a host by its number from 0."""
    return f"{network}.{number // 250}.{number % 250 + 1}"


def hosts_of(seed: int, count: int, urls: int) -> list[Host]:
    """So many hosts, the cases in turn, so none is missing if there are as many hosts. `urls`: the most of one host."""
    names = list(CASES)
    return [
        _host(names[number % len(names)], number, urls, Random(f"{seed} {number}"))
        for number in range(count)
    ]


def good_hosts(count: int) -> Iterator[str]:
    """Good hosts; every other one is a name, which is looked up while others take long."""
    for number in range(count):
        address = address_of(GOOD, number)
        yield name_of(address, "quick") if number % 2 else address


def _host(name: str, number: int, urls: int, rng: Random) -> Host:
    case = CASES[name]
    address = address_of(REFUSED if case.host == "refused" else HOSTILE, number)
    host = address
    if case.host == "inner":
        host = name_of(
            address_of(rng.choice(("10.0", "169.254", "192.168", REFUSED)), number), "quick"
        )
    elif case.host not in ("address", "refused"):
        host = name_of(address, case.host)
    paths = tuple(f"{varied(case.path, rng)}?{page}" for page in range(min(urls, case.urls)))
    return Host(name, address, case, host, paths, varied(case.robots, rng))


def varied(text: str, rng: Random) -> str:
    """A text with its `{...}` chosen."""

    def choose(found: re.Match[str]) -> str:
        if found[1] == "seed":
            return str(rng.randrange(1_000_000))
        if ends := re.fullmatch(r"(\d+)-(\d+)", found[1]):
            return str(rng.randint(int(ends[1]), int(ends[2])))
        return rng.choice(found[1].split("|"))

    return re.sub(r"\{([^}]*)\}", choose, text)
