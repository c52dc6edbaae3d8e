"""What keeps the search page from being used against its readers: names, headers, logs, text of strangers."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import Any

import pytest

from crawl_lib.errors import ConfigError
from crawl_lib.serve import cached
from crawl_lib.serve.app import MOST_COPIES
from crawl_lib.serve.signs import signs, text_signs
from tests.index.made import Made
from tests.serve.made import Client

PATHS = [
    "/",
    "/?q=lava",
    "/?q=lava&page=x",
    "/api/search?q=lava",
    "/help",
    "/opensearch.xml",
    "/healthz",
    "/nowhere",
    f"/cached/{'0' * 40}",
]


def configured(made: Made, **options: object) -> Made:
    """The crawl with other options of the section `search`."""
    return replace(made, config=replace(made.config, search=replace(made.config.search, **options)))


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:8090", 200),
        ("LocalHost:1", 200),
        ("[::1]:8090", 200),
        ("[::1]", 200),
        ("search.example.org", 200),
        ("Search.Example.ORG:443", 200),
        ("", 400),
        ("evil.example", 400),
        ("127.0.0.1.evil.example", 400),
        ("evil.example:8090", 400),
        ("localhost.", 400),
        ("localhost:8090:8090", 400),
        ("localhost@evil.example", 400),
        ("10.0.0.1", 400),
        ("[::1", 400),
        ("::1", 400),
        ("search.example.org.evil.example", 400),
    ],
)
def test_the_name_of_the_server_is_checked(made: Made, host: str, status: int) -> None:
    client = Client(configured(made, hosts=("search.example.org",)))
    for path in ("/?q=lava", "/api/search?q=lava", "/opensearch.xml"):
        answer = client.get(path, host=host, x_forwarded_host="localhost")
        assert answer.status_code == status
        assert ("lava" in answer.text) == (status == 200 and "xml" not in path)


@pytest.mark.parametrize(
    ("options", "host", "status"),
    [
        ({"listen": "127.0.0.2:8090"}, "127.0.0.2:8090", 200),
        ({"listen": "10.0.0.1:8090"}, "10.0.0.1:8090", 400),
        ({"listen": "0.0.0.0:8090"}, "0.0.0.0:8090", 400),
        ({"hosts": ("B\u00fccher.example",)}, "xn--bcher-kva.example", 200),
        ({"hosts": ("[2001:DB8:0::1]",)}, "[2001:db8::1]:8090", 200),
        ({"hosts": ("my_host",)}, "MY_host:1", 200),
    ],
)
def test_names_of_the_config_are_compared_as_browsers_write_them(
    made: Made, options: dict[str, Any], host: str, status: int
) -> None:
    assert Client(configured(made, **options)).get("/healthz", host=host).status_code == status


@pytest.mark.parametrize("name", ["a?b", "a%b", "#", "[::1::2]"])
def test_a_name_that_is_no_host_is_an_error_of_the_config(made: Made, name: str) -> None:
    with pytest.raises(
        ConfigError, match=f"search.hosts: {re.escape(repr(name))} is no name of a host"
    ):
        Client(configured(made, hosts=(name,)))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("host", ["localhost", "evil.example"])
def test_every_answer_has_the_headers(client: Client, path: str, host: str) -> None:
    for method in ("GET", "HEAD", "POST", "OPTIONS"):
        headers = client.get(path, method, host=host).headers
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-dns-prefetch-control"] == "off"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-security-policy"].startswith("default-src 'none'; ")
        assert "set-cookie" not in headers
        assert "access-control-allow-origin" not in headers


def test_a_failure_has_the_headers_and_says_nothing_of_what_failed(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr("crawl_lib.serve.app.read_copy", broken)
    answer = client.get(f"/cached/{'0' * 40}")
    assert answer.status_code == 500
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "secret" not in answer.text


def test_pages_have_no_script_and_ask_no_other_address(client: Client) -> None:
    for path in PATHS:
        text = client.get(path).text
        for word in ("<script", "javascript:", "onclick", "@import", "url(", ' src="http'):
            assert word not in text


def test_the_log_has_what_was_asked_only_where_it_is_wanted(
    made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "crawl_lib.serve"):
        Client(made).get_all(["/?q=secret\u202e", "/secret", f"/cached/{'5ec2e7' * 6}0000"])
    assert [record.getMessage().split()[:3] for record in caplog.records] == [
        ["GET", "/", "200"],
        ["GET", "-", "404"],
        ["GET", "/cached/{key}", "404"],
    ]
    assert "secret" not in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO, "crawl_lib.serve"):
        Client(configured(made, log_queries=True)).get("/?q=hot%0Alava%1b")
    assert "q='hot\\\\x0alava\\\\x1b'" in caplog.text


def test_more_than_can_be_answered_is_503_at_once(client: Client) -> None:
    pool = client.service.pool
    held = [pool._free.acquire(blocking=False) for _ in range(1000)].count(True)
    try:
        for path in ("/?q=lava", "/api/search?q=lava"):
            answer = client.get(path)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    finally:
        for _ in range(held):
            pool._free.release()
    assert client.get("/?q=lava").status_code == 200


def test_only_so_many_copies_are_sent_at_once(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = client.key("lava")
    monkeypatch.setattr(client.service.sending, "_value", 0)
    for path in (f"/cached/{key}", f"/cached/{key}/page"):
        assert client.get(path).status_code == 503
    assert cached.MOST_BYTES * MOST_COPIES <= 128 << 20


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain \u6771\u4eac \u05d0", "plain \u6771\u4eac \u05d0"),
        ("a\u202eb\u2066c\u200fd", "a\u27e8U+202E\u27e9b\u27e8U+2066\u27e9c\u27e8U+200F\u27e9d"),
        ("a\x00\x1b[1m\x7f\x85", "a\u2400\u241b[1m\u2421 "),
        ("a\nb\tc\u2028d", "a b c d"),
        ("\ufeff\ud800\U000e0041", "\u27e8U+FEFF\u27e9\u27e8U+D800\u27e9\u27e8U+E0041\u27e9"),
        ("na\u00adme \U0001f468\u200d\U0001f469", "na\u00adme \U0001f468\u200d\U0001f469"),
    ],
)
def test_what_cannot_be_printed_is_a_sign(text: str, shown: str) -> None:
    assert signs(text) == shown


def test_long_text_is_cut_and_lines_stay_lines() -> None:
    assert signs("abcdef", 4) == "abc\u2026"
    assert signs("abcd", 4) == "abcd"
    assert text_signs("a\x07\nb\r\nc") == "a\u2407\nb\nc"
