"""The names that a canonical URL carries: key, host, authority, registrable domain."""

from __future__ import annotations

from functools import cache, lru_cache
from hashlib import sha1
from pathlib import Path

from publicsuffixlist import PSLFILE, PublicSuffixList

_DIGITS = frozenset("0123456789")


def key_of(url: str) -> bytes:
    """Return the key of a canonical URL: the SHA-1 of its ASCII bytes, 20 bytes."""
    return sha1(url.encode("ascii"), usedforsecurity=False).digest()


def host_of(url: str) -> str:
    """Return the host of a canonical URL: a name or an address, without port; IPv6 stays in brackets."""
    host = url.split("/", 3)[2]
    if ":" not in host or host[-1] == "]":
        return host
    return host[: host.rindex(":")]


def authority_of(url: str) -> str:
    """Return `scheme://host[:port]` of a canonical URL: what robots.txt is asked of (RFC 9309, 2.3)."""
    return url[: url.index("/", 8)]


def is_address(host: str) -> bool:
    """Say whether a canonical host is an IPv4 or IPv6 address, not a name.

    The WHATWG parser reads every host whose last label is a number as IPv4, so the last character decides.
    """
    return host[-1] == "]" or (host[-1] in _DIGITS and host.rpartition(".")[2].isdigit())


@lru_cache(maxsize=1 << 16)
def domain_of(host: str) -> str:
    """Return the registrable domain of a canonical host: `www.a.co.uk` -> `a.co.uk`.

    The bundled public suffix list decides, its private section included: two customers of a hoster
    (`a.github.io`, `b.github.io`) are two domains, as their owners differ. Addresses, hosts under no listed suffix
    (`localhost`, `wiki.internal`) and hosts that are suffixes themselves are their own domain.
    """
    if is_address(host):
        return host
    return _suffixes().privatesuffix(host) or host


@cache
def _suffixes() -> PublicSuffixList:
    """Read the list, once, at first use. Only lines that are not ASCII need IDNA, which else takes half the time."""
    lines = Path(PSLFILE).read_text("utf-8").splitlines()
    rules = [line if line.isascii() else _to_ascii(line) for line in lines if line and not line.startswith("//")]
    return PublicSuffixList(rules, accept_unknown=False, accept_encoded_idn=False)


def _to_ascii(rule: str) -> str:
    mark = "!" if rule.startswith("!") else ""
    return mark + rule.split(" ", maxsplit=1)[0].removeprefix("!").lower().encode("idna").decode("ascii")
