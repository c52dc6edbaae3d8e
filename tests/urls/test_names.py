"""Key, host, authority, domain of canonical URLs."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_lib.urls import authority_of, canonicalize, domain_of, host_of, is_address, key_of


def test_key_is_the_sha1_of_the_canonical_ascii() -> None:
    assert key_of("http://a.b/~user/x") == hashlib.sha1(b"http://a.b/~user/x").digest()
    assert key_of("http://example.org/").hex() == "bbf5caaf2e8efeeaf919e0d84a683f4b4d8a2c15"


@pytest.mark.parametrize(
    ("url", "host", "authority"),
    [
        ("http://a/", "a", "http://a"),
        ("https://a.b:8443/x:y/?q=:1", "a.b", "https://a.b:8443"),
        ("http://[::1]/", "[::1]", "http://[::1]"),
        ("http://[2001:db8::1]:81/x]", "[2001:db8::1]", "http://[2001:db8::1]:81"),
        ("http://127.0.0.1:8080/", "127.0.0.1", "http://127.0.0.1:8080"),
    ],
)
def test_host_and_authority(url: str, host: str, authority: str) -> None:
    assert canonicalize(url) == url
    assert host_of(url) == host
    assert authority_of(url) == authority


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("www.example.org", "example.org"),
        ("example.org", "example.org"),
        ("a.b.example.co.uk", "example.co.uk"),
        ("co.uk", "co.uk"),
        ("a.github.io", "a.github.io"),
        ("x.a.github.io", "a.github.io"),
        ("github.io", "github.io"),
        ("a.b.c.kobe.jp", "b.c.kobe.jp"),
        ("www.city.kobe.jp", "city.kobe.jp"),
        ("www.a.xn--55qx5d.cn", "a.xn--55qx5d.cn"),
        ("www.a.xn--fiqs8s", "a.xn--fiqs8s"),
        ("localhost", "localhost"),
        ("wiki.corp.internal", "wiki.corp.internal"),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]", "[::1]"),
    ],
)
def test_domain(host: str, domain: str) -> None:
    """Private suffixes count; addresses, unlisted hosts and suffixes are their own domain."""
    assert domain_of(host) == domain


@given(
    st.lists(
        st.sampled_from(
            [
                "a",
                "www",
                "co",
                "uk",
                "com",
                "github",
                "io",
                "jp",
                "kobe",
                "city",
                "xn--fiqs8s",
                "1",
                "0",
            ]
        ),
        min_size=1,
        max_size=6,
    )
)
def test_domain_is_a_tail_of_the_host_and_its_own_domain(labels: list[str]) -> None:
    host = ".".join(labels)
    domain = domain_of(host)
    assert host == domain or host.endswith("." + domain)
    assert domain_of(domain) == domain


def test_addresses() -> None:
    assert is_address("1.2.3.4")
    assert is_address("[::1]")
    assert not is_address("a1")
    assert not is_address("1.2.3.a4")
    assert not is_address("localhost")
