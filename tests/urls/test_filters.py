"""Rules in order, then scope, depth over all."""

from __future__ import annotations

import pytest

from crawl_lib.config import RuleConfig, TrapsConfig, UrlsConfig
from crawl_lib.errors import ConfigError
from crawl_lib.urls import Rejection, UrlFilter, host_of


def rule(text: str) -> RuleConfig:
    return RuleConfig(*text.split(" ", 2))


def verdict(
    url: str,
    rules: list[str],
    *,
    scope: str = "any",
    hosts: tuple[str, ...] = (),
    depth: int = 0,
    max_depth: int | None = None,
):
    config = UrlsConfig(scope=scope, rules=tuple(map(rule, rules)), max_depth=max_depth)
    return UrlFilter(config, hosts).verdict(url, host_of(url), depth)


@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        (
            "- regex \\.(zip|iso)$",
            ["http://a/x.zip", "http://a/?x.iso"],
            ["http://a/x.zip?y", "http://a/zip"],
        ),
        ("- regex ^http://a/[0-9]", ["http://a/1"], ["http://b/http://a/1", "http://a/x1"]),
        (
            "- domain example.org",
            ["http://example.org/", "http://a.example.org:8080/"],
            ["http://myexample.org/", "http://example.org.a/"],
        ),
        (
            "- domain Bücher.example",
            ["http://www.xn--bcher-kva.example/"],
            ["http://bcher-kva.example/"],
        ),
        ("- domain 127.0.0.1", ["http://127.0.0.1/"], ["http://127.0.0.11/"]),
        (
            "- prefix http://a/private/",
            ["http://a/private/x"],
            ["http://a/private", "https://a/private/x"],
        ),
        (
            "- suffix .exe",
            ["http://a/x.exe", "http://a/x.exe?y=z"],
            ["http://a/?x.exe", "http://a/x.exe/"],
        ),
    ],
)
def test_each_kind(text: str, matching: list[str], others: list[str]) -> None:
    for url in matching:
        assert verdict(url, [text]) == (False, Rejection.RULE)
        assert verdict(url, ["+" + text[1:], "- regex ."]) == (True, "+" + text[1:])
    for url in others:
        assert verdict(url, [text]) == (True, "accepted")


def test_first_match_wins() -> None:
    assert verdict("http://a/x", ["+ prefix http://a/x", "- prefix http://a/"]) == (
        True,
        "+ prefix http://a/x",
    )
    assert verdict("http://a/x", ["- prefix http://a/", "+ prefix http://a/x"]) == (
        False,
        Rejection.RULE,
    )
    assert verdict("http://a/y", ["+ prefix http://a/x", "- prefix http://a/"]) == (
        False,
        Rejection.RULE,
    )


@pytest.mark.parametrize(
    ("scope", "inside", "accepted"),
    [
        ("hosts", "www.example.org", [True, False, False]),
        ("domains", "example.org", [True, True, False]),
        ("any", "", [True, True, True]),
    ],
)
def test_scope(scope: str, inside: str, accepted: list[bool]) -> None:
    found = [
        verdict(f"http://{host}/", [], scope=scope, hosts=(inside,))
        for host in ("www.example.org", "example.org", "a.b")
    ]
    assert [verdict for verdict, _ in found] == accepted
    assert {name for is_accepted, name in found if not is_accepted} <= {Rejection.SCOPE}


def test_a_plus_rule_reaches_beyond_the_scope_but_not_beyond_the_depth() -> None:
    rules = ["+ domain b.example"]
    assert verdict("http://b.example/", rules, scope="hosts", hosts=("a.example",)) == (
        True,
        "+ domain b.example",
    )
    assert verdict("http://c.example/", rules, scope="hosts", hosts=("a.example",)) == (
        False,
        Rejection.SCOPE,
    )
    assert verdict("http://b.example/", rules, depth=3, max_depth=2) == (False, Rejection.DEPTH)


def test_depth() -> None:
    assert verdict("http://a/", [], depth=2, max_depth=2) == (True, "accepted")
    assert verdict("http://a/", [], depth=3, max_depth=2) == (False, Rejection.DEPTH)
    assert verdict("http://a/", [], depth=1, max_depth=0) == (False, Rejection.DEPTH)
    assert verdict("http://a/", [], depth=10**6) == (True, "accepted")


def test_the_depth_of_the_path() -> None:
    """Of discovered URLs: a seed may lie as deep as it likes."""
    config = UrlsConfig(scope="any", rules=(rule("+ regex ."),))
    limited, of_seeds = (
        UrlFilter(config, (), TrapsConfig(max_path_segments=3)),
        UrlFilter(config, ()),
    )
    for url in (
        "http://a/",
        "http://a/1/2/3",
        "http://a/1/2/3/",
        "http://a/1/2/3?q=/4/5/6",
        "http://a//2/3",
    ):
        assert limited.verdict(url, "a", 9) == (True, "+ regex .")
    for url in ("http://a/1/2/3/4", "http://a/1/2/3/4/?q", "http://a/////"):
        assert limited.verdict(url, "a", 0) == (False, Rejection.PATH_DEPTH)
        assert of_seeds.verdict(url, "a", 0) == (True, "+ regex .")


def test_the_scope_is_of_the_hosts_domains() -> None:
    given = UrlFilter(
        UrlsConfig(scope="domains", rules=(rule("- suffix .exe"),)),
        ["www.example.org", "example.com"],
    )
    assert given.verdict("http://a.example.org/", "a.example.org", 0) == (True, "accepted")
    assert given.verdict("http://example.net/", "example.net", 0) == (False, Rejection.SCOPE)
    assert given.verdict("http://example.com/x.exe", "example.com", 0) == (False, Rejection.RULE)


@pytest.mark.parametrize(
    "bad",
    [
        "- regex (",
        "- regex a{99999999999}",
        "- domain *.example.org",
        "- domain http://a/",
        "- domain ..",
        "- domain a:80",
        "- prefix example.org",
        "- prefix HTTP://a",
        "- suffix a?b",
        "- regex ",
    ],
)
def test_a_rule_that_cannot_work_is_named(bad: str) -> None:
    with pytest.raises(ConfigError, match=r"^urls\.rules\[1\]: "):
        UrlFilter(UrlsConfig(rules=(rule("- suffix .exe"), rule(bad))), ())


def test_every_rejection_has_a_name_of_its_own_and_a_meaning() -> None:
    source = __import__("inspect").getsource(Rejection)
    for member in Rejection:
        assert member.value == member.name.lower()
        assert f'{member.name} = "{member.value}"\n    """' in source
