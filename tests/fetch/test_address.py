"""The address filter of design.md 9: only addresses of the public internet, and what the operator names."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_lib.fetch.address import AddressFilter, inner_networks, refusal

INNER_V4 = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.255", "100.100.100.200", "127.0.0.1", "127.1.2.3",
    "168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.168.0.1",
    "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.9", "224.0.0.1", "239.1.1.1", "240.0.0.1",
    "255.255.255.255",
]  # fmt: skip
INNER_V6 = [
    "::", "::1", "::ffff:127.0.0.1", "::ffff:10.1.2.3", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "2002:a00:1::1",
    "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1",
]  # fmt: skip
PUBLIC = [
    "1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "192.167.1.1", "198.20.0.1",
    "223.255.255.255", "2606:4700::1111", "2a00:1450:4001::8", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1",
]  # fmt: skip


@pytest.mark.parametrize("address", INNER_V4 + INNER_V6)
def test_inner_addresses_are_refused(address):
    assert not AddressFilter().allows(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed(address):
    assert AddressFilter().allows(address)


@pytest.mark.parametrize("text", ["", "example.org", "1.2.3", "0x7f000001", "999.1.1.1", "[::1]"])
def test_what_is_no_address_is_refused(text):
    assert not AddressFilter(["0.0.0.0/0", "::/0"]).allows(text)


@pytest.mark.parametrize(
    "address", ["127.0.0.5", "::ffff:127.0.0.5", "64:ff9b::7f00:5", "2002:7f00:5::"]
)
def test_named_networks_are_allowed_in_every_spelling(address):
    assert AddressFilter(["127.0.0.0/8"]).allows(address)
    assert not AddressFilter(["10.0.0.0/8"]).allows(address)


def test_naming_a_network_opens_no_other():
    allowed = AddressFilter(["10.1.0.0/16", "fd00::/8"])
    assert allowed.allows("10.1.2.3")
    assert allowed.allows("fd12::1")
    assert not allowed.allows("10.2.2.3")
    assert not allowed.allows("fe80::1")


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_judged_alike_inside_ipv6(address):
    number = int(address)
    mapped = ipaddress.IPv6Address((0xFFFF << 32) | number)
    nat64 = ipaddress.IPv6Address((0x64FF9B << 96) | number)
    six_to_four = ipaddress.IPv6Address((0x2002 << 112) | (number << 80))
    judge = AddressFilter()
    assert {judge.allows(str(form)) for form in (mapped, nat64, six_to_four)} == {
        judge.allows(str(address))
    }


@given(st.ip_addresses())
def test_nothing_private_by_the_standard_library_is_allowed(address):
    if AddressFilter().allows(str(address)):
        inner = (
            address.is_private
            or address.is_loopback
            or address.is_link_local
            or address.is_multicast
        )
        assert not inner


@pytest.mark.parametrize(
    ("addresses", "network"),
    [
        (["127.0.0.5"], "network 127.0.0.0/8"),
        (["10.1.2.3", "10.9.9.9"], "network 10.0.0.0/8"),
        (["10.1.2.3", "192.168.7.1"], "networks 10.0.0.0/8, 192.168.0.0/16"),
        (["::1"], "network ::1/128"),
        (["fd00::7"], "network fc00::/7"),
        (["fe80::1%eth0"], "network fe80::/10"),
        (["::ffff:172.16.0.9"], "network 172.16.0.0/12"),
        (["4000::1"], "network 4000::1/128"),
    ],
)
def test_a_refusal_names_the_network_that_allows_its_addresses(
    addresses: list[str], network: str
) -> None:
    text = refusal(addresses)
    assert (
        text
        == f"address {', '.join(addresses)} is of the inner {network}, not named in fetch.allow_networks"
    )
    allowed = AddressFilter(inner_networks(text))
    assert all(allowed.allows(address) for address in addresses)
