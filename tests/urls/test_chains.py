"""Chains by scope: what a normalised URL is, where rules lead in circles, and rules that raise."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl_lib.config import ChainsConfig, Config, StepConfig, UrlsConfig
from crawl_lib.errors import ConfigError
from crawl_lib.urls import (
    Chain,
    LinkResolver,
    Rejection,
    Scope,
    UrlFilter,
    canonicalize,
    host_of,
    key_of,
)
from crawl_lib.urls.chains import MAX_PASSES
from tests.urls.resolved import resolved
from tests.urls.test_rule_files import DEFAULT_XML

HOSTS = ("a.test", "www.a.test", "b.test", "c.test:8080", "xn--bcher-kva.de", "[::1]")
PATHS = st.text("ab/.;=?&%-0(S)1", max_size=30)
URLS = st.builds(
    "{}://{}/{}".format, st.sampled_from(["http", "https"]), st.sampled_from(HOSTS), PATHS
).map(canonicalize)


def replacement(pattern: str, text: str) -> str:
    return f"<regex><pattern>{pattern}</pattern><substitution>{text}</substitution></regex>"


def xml(*rules: str) -> str:
    return f"<regex-normalize>{''.join(rules)}</regex-normalize>"


STEPS = [
    StepConfig("basic"),
    StepConfig("query"),
    StepConfig("session"),
    StepConfig("hosts", None, "a.test www.a.test\nwww.a.test b.test\nb.test a.test\n*.test c.test"),
    StepConfig("slashes", None, "a.test +\nb.test -\nc.test +"),
    StepConfig("regex", None, DEFAULT_XML),
    StepConfig("regex", None, xml(replacement("a", "b"), replacement("bb", "a"))),  # a circle
    StepConfig("regex", None, xml(replacement("a$", "aa"))),  # grows without end
    StepConfig(
        "regex",
        None,
        xml(replacement("^http://b[.]test/(b)", "ftp:$1"), replacement("[(]", "%28%2e")),
    ),
]


def chain_of(*steps: StepConfig, scope: Scope = Scope.OUTLINK, **options: Any) -> Chain:
    return Chain(UrlsConfig(normalizers=ChainsConfig(steps), **options), scope)


@settings(max_examples=400, deadline=None)
@given(URLS, st.lists(st.sampled_from(STEPS), max_size=4))
def test_a_normalised_url_is_canonical_and_stays_as_it_is(
    url: str, steps: list[StepConfig]
) -> None:
    chain = chain_of(*steps)
    result = chain.normalize(url)
    assert canonicalize(result) == result
    assert chain.normalize(result) == result
    assert chain_of(*steps).normalize(url) == result


@settings(max_examples=100, deadline=None)
@given(st.lists(URLS, max_size=5), st.sampled_from(STEPS))
def test_a_link_leads_to_its_normalised_url_by_that_ones_key(
    urls: list[str], step: StepConfig
) -> None:
    chain = chain_of(step)
    plain = resolved(LinkResolver(), "http://a.test/dir/", urls)
    found = resolved(LinkResolver(normalize=chain.normalize), "http://a.test/dir/", urls)
    for before, after in zip(plain, found, strict=True):
        url = chain.normalize(before.url)
        assert after == (url, key_of(url), host_of(url), None)


def test_rules_that_lead_in_a_circle_have_one_end() -> None:
    chain = chain_of(StepConfig("hosts", None, "b.test a.test\na.test b.test"))
    assert {chain.normalize(f"http://{host}/x") for host in ("a.test", "b.test")} == {
        "http://a.test/x"
    }
    assert not chain.errors


def test_rules_without_an_end_leave_the_url_as_it_was_and_are_counted() -> None:
    chain = chain_of(StepConfig("regex", None, xml(replacement("$", "a"))))
    assert chain.normalize("http://a.test/") == "http://a.test/"
    assert chain.errors == {"normalizers: no end": 1}
    long = chain_of(StepConfig("regex", None, xml(replacement("/(a*)b", "/$1a"))))
    assert long.normalize("http://a.test/" + "b" * (MAX_PASSES - 1)) == "http://a.test/" + "a" * (
        MAX_PASSES - 1
    )


def test_a_step_that_makes_no_url_is_passed_over_and_counted_and_the_others_work() -> None:
    bad = StepConfig("regex", "/rules/bad.xml", xml(replacement("^http", "gopher")))
    chain = chain_of(bad, StepConfig("query"))
    assert chain.normalize("http://a.test/?b&a") == "http://a.test/?a&b"
    assert chain.errors == {"normalizers: bad.xml": 2}
    long = chain_of(StepConfig("regex", None, xml(replacement("x", "x" * 40))), max_length_chars=30)
    assert long.normalize("http://a.test/x") == "http://a.test/x"
    assert long.errors == {"normalizers: regex": 1}


def test_a_step_that_raises_drops_no_url(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> str:
        raise RuntimeError("no")

    monkeypatch.setitem(
        __import__("crawl_lib.urls.chains", fromlist=["x"]).NORMALIZERS, "basic", lambda _: broken
    )
    monkeypatch.setitem(
        __import__("crawl_lib.urls.chains", fromlist=["x"]).FILE_FILTERS, "domain", lambda _: broken
    )
    config = UrlsConfig(
        scope="any",
        normalizers=ChainsConfig((StepConfig("basic"), StepConfig("query"))),
        filters=ChainsConfig(
            (StepConfig("domain", None, "x"), StepConfig("prefix", None, "http://a.test/?a"))
        ),
    )
    judge = UrlFilter(config, ())
    assert judge.chain.normalize("http://a.test/?b&a") == "http://a.test/?a&b"
    assert judge.verdict("http://a.test/?a&b", "a.test", 0) == (True, "accepted")
    assert judge.verdict("http://a.test/?b", "a.test", 0) == (False, Rejection.FILTER)
    assert judge.chain.errors == {"normalizers: basic": 2, "filters: domain": 2}


@pytest.mark.parametrize("scope", Scope)
def test_a_scope_without_a_chain_of_its_own_has_that_of_default(scope: Scope) -> None:
    of_default, own = (StepConfig("query"),), (StepConfig("basic"),)
    url, others = "http://a.test//x?b&a", [other for other in Scope if other is not scope]
    chains = ChainsConfig(of_default, **{str(scope): own})
    assert Chain(UrlsConfig(normalizers=chains), scope).normalize(url) == "http://a.test/x?b&a"
    for other in others:
        assert Chain(UrlsConfig(normalizers=chains), other).normalize(url) == "http://a.test//x?a&b"
    rejecting = (StepConfig("prefix", None, "https://"),)
    filters = ChainsConfig(rejecting, **{str(scope): ()})
    assert Chain(UrlsConfig(filters=filters), scope).is_empty
    for other in others:
        assert Chain(UrlsConfig(filters=filters), other).rejects(url, "a.test") == "prefix"


def test_seeds_have_the_chain_of_inject_and_links_that_of_outlink(config: Config) -> None:
    of_file = (StepConfig("regex", "/x/of.txt", "-[?]\n+."),)
    urls = UrlsConfig(scope="any", filters=ChainsConfig((), inject=of_file))
    assert UrlFilter(urls, ()).verdict("http://a.test/?x", "a.test", 0) == (False, Rejection.FILTER)
    assert UrlFilter(urls, ()).first_rule("http://a.test/?x", "a.test") == "of.txt:1 -[?]"
    assert UrlFilter(urls, (), config.traps).verdict("http://a.test/?x", "a.test", 1) == (
        True,
        "accepted",
    )
    swapped = dataclasses.replace(urls, filters=ChainsConfig(of_file, inject=()))
    assert UrlFilter(swapped, ()).verdict("http://a.test/?x", "a.test", 0) == (True, "accepted")
    assert UrlFilter(swapped, (), config.traps).verdict("http://a.test/?x", "a.test", 1) == (
        False,
        Rejection.FILTER,
    )


def test_a_plus_rule_does_not_bring_back_what_a_filter_rejects() -> None:
    from crawl_lib.config import RuleConfig  # noqa: PLC0415

    urls = UrlsConfig(
        rules=(RuleConfig("+", "regex", "."),),
        filters=ChainsConfig((StepConfig("prefix", None, "https:"),)),
    )
    assert UrlFilter(urls, ()).verdict("http://a.test/", "a.test", 0) == (False, Rejection.FILTER)


def test_what_is_wrong_is_told_for_all_scopes_at_once_each_line_once() -> None:
    from crawl_lib.urls import require_chains  # noqa: PLC0415

    bad, worse = StepConfig("regex", "/a.txt", "x\ny\n"), StepConfig("suffix", "/b.txt", "x\n")
    urls = UrlsConfig(
        filters=ChainsConfig((bad, worse), index=(worse, bad)),
        normalizers=ChainsConfig(crawldb=(worse,)),
    )
    with pytest.raises(ConfigError) as raised:
        require_chains(urls)
    assert [line.split(": ")[0] for line in raised.value.lines] == [
        "/a.txt:1",
        "/a.txt:2",
        "/b.txt:1",
        "urls.normalizers.crawldb[0].kind",
    ]
