"""The address filter: which addresses of the resolved kind a crawler may open a socket to.

Strangers choose the names we look up, so the check is made on the address, where the socket is opened. Refused is all
that the special-purpose registries do not give to the public internet, and addresses that carry such an IPv4 address
inside (IPv4-mapped, 6to4, NAT64).
"""

import ipaddress
import json
from collections.abc import Sequence
from contextlib import suppress

# https://www.iana.org/assignments/iana-ipv4-special-registry (and multicast, and reserved)
# 169.254.169.254 and 192.0.0.192 are metadata addresses, and 168.63.129.16, which lies in a public network
_INNER = tuple(
    ipaddress.ip_network(text)
    for text in (
        *(
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "172.16.0.0/12",
        ),
        *(
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
        ),
        *("203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "168.63.129.16/32"),
        # https://www.iana.org/assignments/iana-ipv6-special-registry; only 2000::/3 is given out to the internet
        *("::/3", "4000::/2", "8000::/1", "2001::/23", "2001:db8::/32", "3fff::/20"),
    )
)
# https://www.rfc-editor.org/rfc/rfc6052#section-2.1
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# https://www.rfc-editor.org/rfc/rfc4291#section-2.5.5.1 (deprecated, never on the wire of the internet)
_COMPATIBLE = ipaddress.IPv6Network("::/96")

_NAMED = tuple(ipaddress.ip_network(text) for text in ("::1/128", "fc00::/7", "fe80::/10"))
"""Networks of IPv6 in use, within large ranges outside the public internet."""
_LARGE = 3
"""A person would not allow so short a prefix: the address alone is proposed."""

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def inner_networks(text: str) -> list[str]:
    """Return the inner networks of the addresses in a text.

    Networks are in CIDR form, each once.

    `text`: such as the error of a fetch. What is no address, and addresses of the internet, add nothing.
    """
    found: dict[str, None] = {}
    for word in text.replace(",", " ").split():
        with suppress(ValueError):
            if network := _inner_network(ipaddress.ip_address(word.partition("%")[0])):
                found[str(network)] = None
    return list(found)


def how_to_allow(networks: Sequence[str], config: str) -> str:
    """Name the lines of a config that allow networks.

    `config`: its path, as a person types it.
    """
    return f"allow_networks: {json.dumps([*networks])} under fetch in {config}"


def refusal(addresses: Sequence[str]) -> str:
    """Say why addresses are refused, and which option allows their networks."""
    named = ", ".join(addresses)
    networks = inner_networks(named)
    if not networks:
        return f"address {named} is refused"
    word = "network" if len(networks) == 1 else "networks"
    return f"address {named} is of the inner {word} {', '.join(networks)}, not named in fetch.allow_networks"


def _inner_network(address: _Address) -> _Network | None:
    """Return the narrowest inner network of an address.

    None: where packets to the address end is on the internet.
    """
    end = _end_of(address)
    inner = [network for network in _INNER if end in network] + [
        network for network in _NAMED if address in network
    ]
    narrowest = max(inner, key=lambda network: network.prefixlen, default=None)
    return (
        ipaddress.ip_network(str(end)) if narrowest and narrowest.prefixlen <= _LARGE else narrowest
    )


class AddressFilter:
    """Says whether a socket to a resolved address may be opened. Safe from many threads.

    `allow_networks`: allowed inner networks in CIDR form (`fetch.allow_networks`). An
    IPv6 address that carries an IPv4 address is allowed if either of the two is.
    """

    def __init__(self, allow_networks: Sequence[str] = ()) -> None:
        self._allowed = tuple(ipaddress.ip_network(text, strict=False) for text in allow_networks)
        self._known: dict[str, bool] = {}

    def allows(self, address: str) -> bool:
        """Return whether `address` may be connected to.

        A zone after `%` is ignored; a text without an address is refused.
        """
        known = self._known.get(address)
        if known is None:
            if len(self._known) > 10_000:
                self._known.clear()
            known = self._known[address] = self._judge(address)
        return known

    def _judge(self, text: str) -> bool:
        try:
            address = ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            return False
        end = _end_of(address)
        if any(address in network or end in network for network in self._allowed):
            return True
        return not any(end in network for network in _INNER)


def _end_of(address: _Address) -> _Address:
    """Return where packets to an address end.

    This is the IPv4 address within an IPv6 address, if there is one.
    """
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64 or address in _COMPATIBLE:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address
