"""Ports that browsers refuse (https://fetch.spec.whatwg.org/#port-blocking) belong to no crawl."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_lib.config import RuleConfig, UrlsConfig
from crawl_lib.urls import Rejection, UrlFilter, canonicalize, host_of, refused_port
from crawl_lib.urls.names import REFUSED_PORTS

ALL = UrlFilter(UrlsConfig(scope="any", rules=(RuleConfig("+", "regex", "."),), max_depth=0), ())


def test_the_list_is_as_long_as_the_specs() -> None:
    assert len(REFUSED_PORTS) == 83


@pytest.mark.parametrize("host", ["a.example", "127.0.0.1", "[::1]"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_every_refused_port_is_rejected_whatever_the_rules_say(scheme: str, host: str) -> None:
    for port in REFUSED_PORTS:
        url = canonicalize(f"{scheme}://{host}:{port}/x:80/?y=:443")
        assert refused_port(url, host) == refused_port(url[: url.index("/", 8)], host) == port
        assert ALL.verdict(url, host, 1) == (False, Rejection.PORT)


@given(
    scheme=st.sampled_from(["http", "https"]),
    host=st.sampled_from(
        ["a.example", "10.0.0.1", "[2001:db8::25]", "0x7f.1", "user:25@b.example"]
    ),
    port=st.one_of(st.sampled_from(sorted(REFUSED_PORTS)), st.integers(0, 65535), st.none()),
    rest=st.sampled_from(["", "/", "/:25", "/?a:25/", "/a/b:6667"]),
)
def test_the_port_is_the_one_that_other_parsers_see(
    scheme: str, host: str, port: int | None, rest: str
) -> None:
    url = canonicalize(f"{scheme}://{host}{'' if port is None else f':{port}'}{rest}")
    seen = urlsplit(url).port
    assert refused_port(url, host_of(url)) == (seen if seen in REFUSED_PORTS else None)
