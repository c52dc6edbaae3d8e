"""The canonical form, rule by rule: the table in docs/urls.md, the WHATWG suite, and properties on nasty input."""

from __future__ import annotations

import json
import re
from pathlib import Path

import ada_url
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crawl_lib.errors import UrlError
from crawl_lib.urls import Rejection, canonical, canonicalize, resolve

ROOT = Path(__file__).parents[2]
WHATWG = ROOT.parent / "shared" / "testdata" / "urls" / "whatwg-urltestdata.json"

# Pieces that meet each other badly: escapes of escapes, dots, separators, hosts that are numbers.
PIECES = [
    "http://",
    "https://",
    "HTTP:",
    "//",
    "/",
    "\\",
    ".",
    "..",
    "%2e",
    "%2E",
    "%%32e",
    "%%32%65",
    "%25",
    "%252e",
    "%",
    "%4",
    "%7e",
    "%c3%A9",
    "%00",
    "%2f",
    "%23",
    "?",
    "??",
    "#",
    "@",
    ":",
    ":80",
    ":443",
    ":8080",
    "a",
    "A",
    "b.c",
    "a.b",
    "0x7f.1",
    "1.2.3.4",
    "[::1]",
    "xn--",
    "xn--bcher-kva",
    "bücher",
    "é",
    "。",
    "\xad",
    " ",
    "\t",
    "\n",
    "\r",
    "\x00",
    "\x1f",
    "\x7f",
    ";",
    "&",
    "=",
    "+",
    "'",
    '"',
    "<",
    ">",
    "`",
    "{",
    "}",
    "^",
    "~",
    "�",
    "%E3%80%82",
    "%ef%bc%8e",
    "u:p@",
    "localhost",
    "-",
    "_",
    "*",
]
nasty = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
urls = st.one_of(
    nasty,
    nasty.map("http://a.b/".__add__),
    nasty.map("http://".__add__),
    nasty.map("https://x.y/?".__add__),
    st.text().map("http://a/".__add__),
)


def table() -> list[tuple[str, str]]:
    text = (ROOT / "docs" / "urls.md").read_text("utf-8")
    match = re.search(r"<!-- urls:begin -->(.*)<!-- urls:end -->", text, re.DOTALL)
    assert match, "docs/urls.md has lost its table of URLs"
    rows = [
        re.fullmatch(r"\| `(.+)` \| (?:`(.+)`|refused: (\w+)) \| .+ \|", row)
        for row in match[1].split("\n")
    ]
    return [(row[1], row[2] or row[3]) for row in rows if row]


@pytest.mark.parametrize(("given_url", "expected"), table())
def test_table_of_the_docs(given_url: str, expected: str) -> None:
    if expected in list(Rejection):
        with pytest.raises(UrlError) as caught:
            canonicalize(given_url)
        assert caught.value.reason == expected
    else:
        assert canonicalize(given_url) == expected


def test_table_of_the_docs_is_whole() -> None:
    assert len(table()) >= 30


@settings(max_examples=1500, deadline=None)
@given(urls)
@example("http://a/%%32e%%32e/x")
@example("http://a/%%%32%35%32e/..")
@example("http://0x7f.1../")
@example("http://u:p@a..:80/?#")
@example("http://a/?%%33%46")
@example("http://a/x #y")
@example("http://a.b/%%37e?%%37e#")
def test_canonical_form_is_a_fixed_point_and_plain_ascii(url: str) -> None:
    canonical = canonical_or_reason({"input": url})
    if canonical in {Rejection.INVALID, Rejection.SCHEME, Rejection.TOO_LONG}:
        return
    assert canonicalize(canonical) == canonical
    assert ada_url.normalize_url(canonical) == canonical, "parsing it again changes nothing"
    assert re.fullmatch(r"https?://[!-~]+", canonical), "printable ASCII without white space"
    parts = ada_url.parse_url(canonical)
    assert not parts["username"]
    assert not parts["password"]
    assert not parts["hash"]
    assert "#" not in canonical
    assert not parts["hostname"].endswith(".")
    for escape in re.findall("%[0-9A-Fa-f]{2}", canonical[8:]):
        assert escape == escape.upper()
        assert not re.match(r"[A-Za-z0-9._~-]", chr(int(escape[1:], 16)))


def expected_of(href: str) -> str:
    """The extra steps, written a second time, over the components of a WHATWG href."""
    parts = ada_url.parse_url(href)
    host = parts["hostname"].rstrip(".") + (":" + parts["port"] if parts["port"] else "")

    def plain(text: str) -> str:
        return re.sub(
            "%[0-9a-fA-F]{2}",
            lambda m: c if (c := chr(int(m[0][1:], 16))) in UNRESERVED else m[0].upper(),
            text,
        )

    query = parts["search"] if parts["search"] != "?" else ""
    return f"{parts['protocol']}//{host}{plain(parts['pathname'])}{plain(query)}"


UNRESERVED = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")

# input -> why we differ from the expected href after our steps. Keep the reasons few.
DIVERGENCES = {
    "http://./": "empty-host: nothing is left of a host of dots",
    "http://../": "empty-host: nothing is left of a host of dots",
    "http://foo.09..": "host-dots: without its dots the host ends in a number that is no IPv4 address",
}


def whatwg_cases() -> list[dict[str, str]]:
    if not WHATWG.exists():
        pytest.skip(
            "shared/testdata/urls is not there: third-party data that is not part of the project"
        )
    return [case for case in json.loads(WHATWG.read_text("utf-8")) if isinstance(case, dict)]


def canonical_or_reason(case: dict[str, str]) -> str:
    base = case.get("base")
    try:
        return canonicalize(case["input"]) if base is None else resolve(base, case["input"])
    except UrlError as error:
        return error.reason


def test_whatwg_suite() -> None:
    """Every http(s) case: the expected href after our steps; every failure: invalid; every other scheme: scheme."""
    cases = whatwg_cases()
    diverging = set()
    for case in cases:
        found = canonical_or_reason(case)
        if case.get("failure"):
            expected = Rejection.INVALID.value
        elif not case["href"].startswith(("http://", "https://")):
            expected = Rejection.SCHEME.value
        else:
            expected = expected_of(case["href"])
        if found != expected:
            assert case["input"] in DIVERGENCES, (case["input"], case.get("base"), found, expected)
            diverging.add(case["input"])
    assert len(cases) > 800
    assert diverging == {url for url in DIVERGENCES if any(case["input"] == url for case in cases)}


def test_length_is_that_of_the_canonical_form() -> None:
    assert canonicalize("http://a/" + "x" * 10, max_length_chars=19)
    assert canonicalize("http://a/x#" + "y" * 5000) == "http://a/x", "the fragment does not count"
    with pytest.raises(UrlError) as caught:
        canonicalize("http://a/" + "x" * 11, max_length_chars=19)
    assert caught.value.reason == Rejection.TOO_LONG
    with pytest.raises(UrlError):
        canonicalize("http://a/" + "é" * 2, max_length_chars=20)


def test_escapes_that_stay_cost_no_call_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """A link of 16,000 characters beyond ASCII becomes 64,000 escapes before its length is known."""
    calls = []
    monkeypatch.setattr(
        canonical, "_replace_escape", lambda match: calls.append(match) or match[0].upper()
    )
    assert canonicalize("http://a.test/\u65e5?%E3%83") == "http://a.test/%E6%97%A5?%E3%83"
    assert not calls
    assert canonicalize("http://a.test/%e3%8a") == "http://a.test/%E3%8A"
    assert len(calls) == 2


def test_a_text_of_a_megabyte_is_refused_at_once() -> None:
    for text in (
        "http://a/" + "%%32e" * 200_000,
        "x" * 1_000_000,
        "http://" + "a." * 500_000,
        "data:," + "x" * 1_000_000,
    ):
        with pytest.raises(UrlError):
            canonicalize(text)


@pytest.mark.parametrize(
    ("base", "href", "expected"),
    [
        ("http://a/b/c?d", "", "http://a/b/c?d"),
        ("http://a/b/c?d", "#f", "http://a/b/c?d"),
        ("http://a/b/c?d", "?e", "http://a/b/c?e"),
        ("http://a/b/c?d", "?", "http://a/b/c"),
        ("http://a/b/c?d", "../../../x", "http://a/x"),
        ("https://a/b", "//c/d", "https://c/d"),
        ("http://a/b", "x #f", "http://a/x%20"),
        ("http://a/b", "x ", "http://a/x"),
    ],
)
def test_resolve(base: str, href: str, expected: str) -> None:
    assert resolve(base, href) == expected
