"""LinkResolver says what `resolve` says: plain or not, remembered or not, whatever page came before."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from crawl_lib.errors import UrlError
from crawl_lib.urls import LinkResolver, Rejection, Target, canonicalize, host_of, key_of, resolve
from tests.urls.resolved import resolved
from tests.urls.test_canonical import nasty

BASES = [
    "http://a.b/",
    "http://a.b/x",
    "http://a.b/x/y/z.html",
    "http://a.b/x/y/other.html",
    "http://a.b/x/y/?q=/1/2",
    "https://a.b/x/y/z.html?q",
    "http://a.b//x//y",
    "http://a.b:8080/x/y/z.html",
    "http://[::1]/x/y",
    "http://127.0.0.1/x",
]
# Almost plain hrefs, where the shortcut and the parser could part.
ALMOST = [
    "",
    "../",
    "./",
    "/",
    "//",
    "x",
    "y.html",
    ".",
    "..",
    "...",
    "a..b",
    "~u",
    "_",
    "-",
    "#",
    "#f",
    "?",
    "?q=1",
    "?a=b&c=d",
    "&",
    ";",
    "=",
    "+",
    ":",
    "x:y",
    "%7e",
    " ",
    "\t",
    "é",
    "http://",
    "https://",
    "http:",
    "HTTP://",
    "c.d",
    "C.d",
    "xn--a",
    "xn--bcher-kva.de",
    "0x1",
    "1.2.3.4",
    "1.2",
    "a.1",
    "a.0x",
    "-a.b",
    "a-.b",
    "a_b.c",
    "a.b.",
    ":80",
    "@",
    "mailto:",
    "data:,",
    "javascript:",
    "tel:",
]
hrefs = st.one_of(st.lists(st.sampled_from(ALMOST), max_size=7).map("".join), nasty)


def one(resolver: LinkResolver, base: str, href: str) -> Target:
    (target,) = resolved(resolver, base, (href,))
    return target


def expected(base: str, href: str, limit: int = 2000) -> Target:
    try:
        url = resolve(base, href, max_length_chars=limit)
    except UrlError as error:
        return Target("", b"", "", Rejection(error.reason))
    return Target(url, key_of(url), host_of(url), None)


@settings(max_examples=1500, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(BASES), st.lists(hrefs, max_size=4)), max_size=4))
@example([("http://a.b/x", ["?q"]), ("http://a.b/y", ["?q"])])
@example(
    [
        ("http://a.b/x", ["http:?q", "ht\ntp:?q", " ?q", " #f"]),
        ("http://a.b/y", ["http:?q", "ht\ntp:?q", " ?q", " #f"]),
    ]
)
@example([("http://a.b/x", ["x #f", "x#f "])])
@example(
    [
        (
            "http://a.b/x",
            [
                "http://xn--a.de/",
                "http://xn--.de/",
                "http://xn--zzzzzzzzzz.de/",
                "http://www.xn--a.de/",
                "http://a.xn--a",
                "http://a.0x1/",
                "http://a.b",
            ],
        )
    ]
)
def test_it_agrees_with_resolve(pages: list[tuple[str, list[str]]]) -> None:
    resolver = LinkResolver()
    for base, links in pages * 2:
        assert resolved(resolver, base, links) == [expected(base, href) for href in links]


@given(st.sampled_from(BASES), hrefs)
def test_its_targets_are_canonical(base: str, href: str) -> None:
    target = one(LinkResolver(), base, href)
    assert target.rejection is not None or canonicalize(target.url) == target.url


def test_limit_of_length_also_for_plain_links() -> None:
    resolver = LinkResolver(20)
    for href in ("x" * 12, "/" + "x" * 12, "http://a.bc/" + "x" * 9, "é" * 3):
        assert one(resolver, "http://a.b/", href) == expected("http://a.b/", href, 20)
        assert one(resolver, "http://a.b/", href).rejection is Rejection.TOO_LONG


@given(st.sampled_from(BASES), hrefs, st.sampled_from(["", "#", "#y", "#y# ", "#" + "y" * 5000]))
def test_an_answer_that_lasts_holds_for_all_pages_of_the_folder(
    base: str, href: str, fragment: str
) -> None:
    resolver, query = LinkResolver(), base.find("?")
    folder = base[: base.rfind("/", 0, query if query >= 0 else len(base)) + 1]
    for other in (base, f"{folder}other", f"{folder}?query=/other"):
        resolver.enter(other)
        target, lasts = resolver.find(href + fragment)
        if other is base:
            expected_lasts, first = lasts, target
        if expected_lasts:
            assert (target, lasts) == (first, True)


def test_answers_about_long_references_do_not_last() -> None:
    resolver = LinkResolver()
    resolver.enter("http://a.b/")
    assert [resolver.find(href)[1] for href in ("", "?x", "x", "data:," + "x" * 100_000)] == [
        False,
        False,
        True,
        False,
    ]
