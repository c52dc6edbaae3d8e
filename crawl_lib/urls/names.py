"""Parts of a canonical URL: key, host, authority, port, registrable domain; and the node that owns the host."""

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from hashlib import blake2b, sha1
from pathlib import Path
from typing import NamedTuple

from publicsuffixlist import PSLFILE, PublicSuffixList

from crawl_lib.errors import ConfigError

_MAX_REMEMBERED = 1 << 16
_PRIVATE_SECTION = "// ===BEGIN PRIVATE DOMAINS==="
# https://fetch.spec.whatwg.org/#port-blocking
REFUSED_PORTS = frozenset(
    {
        *(
            0,
            1,
            7,
            9,
            11,
            13,
            15,
            17,
            19,
            20,
            21,
            22,
            23,
            25,
            37,
            42,
            43,
            53,
            69,
            77,
            79,
            87,
            95,
            101,
            102,
            103,
            104,
        ),
        *(
            109,
            110,
            111,
            113,
            115,
            117,
            119,
            123,
            135,
            137,
            139,
            143,
            161,
            179,
            389,
            427,
            465,
            512,
            513,
            514,
            515,
            526,
        ),
        *(
            530,
            531,
            532,
            540,
            548,
            554,
            556,
            563,
            587,
            601,
            636,
            989,
            990,
            993,
            995,
            1719,
            1720,
            1723,
            2049,
            3659,
        ),
        *(4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080),
    }
)
"""Ports that browsers refuse: these belong to other protocols than HTTP, and a page must not make us speak to them."""


def key_of(url: str) -> bytes:
    """Return the key of a canonical URL: its SHA-1, 20 bytes."""
    return sha1(url.encode("ascii"), usedforsecurity=False).digest()


def host_of(url: str) -> str:
    """Return the host of a canonical URL, without port.

    A host is a name or an address; IPv6 stays in brackets.
    """
    host = url.split("/", 3)[2]
    if ":" not in host or host[-1] == "]":
        return host
    return host[: host.rindex(":")]


def authority_of(url: str) -> str:
    """Return `scheme://host[:port]` of a canonical URL.

    robots.txt belongs to this authority (RFC 9309, 2.3).
    """
    return url[: url.index("/", 8)]


def is_address(host: str) -> bool:
    """Say whether a canonical host is an IP address.

    The WHATWG parser reads every host whose last label is a number as IPv4, so the last label decides.
    """
    return host[-1] == "]" or host.rpartition(".")[2].isdigit()


@lru_cache(_MAX_REMEMBERED)
def domain_of(host: str) -> str:
    """Return the registrable domain of a canonical host: `www.a.co.uk` -> `a.co.uk`.

    The bundled public suffix list decides, its private section included: two customers of a hoster
    (`a.github.io`, `b.github.io`) are two domains, as their owners differ. Addresses, hosts under no listed suffix
    (`localhost`, `wiki.internal`) and hosts that are suffixes themselves are their own domain.
    """
    if is_address(host):
        return host
    return _suffixes().privatesuffix(host) or host


@lru_cache(_MAX_REMEMBERED)
def budget_domain_of(host: str) -> str:
    """Return the domain that counts for a canonical host's budgets.

    The registrable domain counts. If no listed suffix ends the host, the last label counts as the suffix, by the list's
    algorithm (https://publicsuffix.org/list/, "If no rules match, the prevailing rule is *"):
    `x.wiki.internal` -> `wiki.internal`. Addresses and single labels are their own domain.
    """
    domain = domain_of(host)
    if domain != host or is_address(host) or _suffixes().publicsuffix(host):
        return domain
    return ".".join(host.rsplit(".", 2)[-2:])


def has_listed_suffix(host: str) -> bool:
    """Say whether a canonical host has a suffix of the list.

    The list is the public suffix list; a host may also be a suffix.
    """
    return not is_address(host) and bool(_suffixes().publicsuffix(host))


class Suffixes(NamedTuple):
    """The suffixes of a host, and the domains one label below, by the ICANN section of the list and by the whole list.

    A field is None if no suffix of the section ends the host, or the host is a suffix itself.
    """

    registry_suffix: str | None
    registered_domain: str | None
    private_suffix: str | None
    private_domain: str | None


def suffixes_of(host: str) -> Suffixes:
    """Return the suffixes and domains of a canonical host name."""
    icann, whole = _suffixes(icann_only=True), _suffixes()
    return Suffixes(
        icann.publicsuffix(host),
        icann.privatesuffix(host),
        whole.publicsuffix(host),
        whole.privatesuffix(host),
    )


@cache
def _suffixes(*, icann_only: bool = False) -> PublicSuffixList:
    """Read the public suffix list once, at first use.

    Only non-ASCII lines need IDNA, which would otherwise take half the time.
    """
    text = Path(PSLFILE).read_text("utf-8")
    lines = (text.partition(_PRIVATE_SECTION)[0] if icann_only else text).splitlines()
    rules = [
        line if line.isascii() else _to_ascii(line)
        for line in lines
        if line and not line.startswith("//")
    ]
    return PublicSuffixList(rules, accept_unknown=False, accept_encoded_idn=False)


def _to_ascii(rule: str) -> str:
    mark = "!" if rule.startswith("!") else ""
    name = rule.split(" ", maxsplit=1)[0].removeprefix("!")
    return mark + name.lower().encode("idna").decode("ascii")


def host_matches(kind: str, value: str, host: str) -> bool:
    """Say whether an entry of `fetch.hosts` or `urls.domains` matches.

    `kind`: `regex` is searched in the name; `domain` is the name itself and all names below.
    """
    if kind == "regex":
        return re.search(value, host) is not None
    return host == value or host.endswith("." + value)


def refused_port(url: str, host: str) -> int | None:
    """Return a canonical URL's port if browsers refuse the port.

    `url`: a URL or its authority. `host`: of the URL.
    """
    end = (8 if url[4] == "s" else 7) + len(host)
    if url[end : end + 1] != ":":
        return None
    port = int(url[end + 1 :].partition("/")[0])
    return port if port in REFUSED_PORTS else None


class Owners:
    """The owner of each host among `nodes` (names, each once). Not shared between threads. Raises ConfigError.

    Rendezvous hashing: every node scores every host with a hash of both names; the highest score owns the host. Adding
    a node moves hosts to the new node only, removing a node moves only its own hosts (Thaler, Ravishankar: Using
    Name-Based Mappings to Increase Hit Rates, 1998). The order of the nodes does not matter. The score is the first 8
    bytes of BLAKE2b over `node \\n host`: part of the crawl's format, since the score decides the place of queued URLs.
    `index` returns the place of a host's owner in `nodes`, from 0, and remembers its last answers.
    """

    def __init__(self, nodes: Sequence[str]) -> None:
        if not nodes or len(set(nodes)) != len(nodes):
            raise ConfigError(f"servers: each node once, and at least one, not {list(nodes)!r}")
        self.nodes = tuple(nodes)
        self.index = lru_cache(_MAX_REMEMBERED)(self._index)

    def owner(self, host: str) -> str:
        """Return the node that owns `host`, a result of `host_of`."""
        return self.nodes[self.index(host)]

    def _index(self, host: str) -> int:
        if len(self.nodes) == 1:
            return 0
        scores = [
            (blake2b(f"{node}\n{host}".encode(), digest_size=8).digest(), node)
            for node in self.nodes
        ]
        return scores.index(max(scores))
