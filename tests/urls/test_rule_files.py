"""Filters and normalisers by files, on the cases of Nutch's own tests of its plug-ins."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from crawl_lib.config import ChainsConfig, StepConfig, UrlsConfig
from crawl_lib.errors import ConfigError
from crawl_lib.urls import Chain, Scope, canonicalize, host_of

SITE = "http://www.example.com/"


def accepted(kind: str, rules: str, urls: list[str]) -> list[str]:
    chain = Chain(UrlsConfig(filters=ChainsConfig((StepConfig(kind, None, rules),))), Scope.OUTLINK)
    return [url for url in urls if chain.rejects(url, host_of(url)) is None]


def normalized(kind: str, rules: str | None, *urls: str) -> list[str]:
    chain = Chain(
        UrlsConfig(normalizers=ChainsConfig((StepConfig(kind, None, rules),))), Scope.OUTLINK
    )
    found = [chain.normalize(canonicalize(url)) for url in urls]
    assert not chain.errors
    return found


SUFFIX_URLS = [
    SITE + path
    for path in (
        *(
            "test.gif",
            "TEST.GIF",
            "test.jpg",
            "test.JPG",
            "test.html",
            "test.HTML",
            "test.html?q=abc.js",
        ),
        "test.js?foo=bar&baz=bar",
    )
]


@pytest.mark.parametrize(
    ("mode", "places"),
    [
        ("+", (1, 3, 4, 5, 7)),
        ("-", (0, 2, 6)),
        ("+I", (4, 5, 7)),
        ("-I", (0, 1, 2, 3, 6)),
        ("+P", (1, 3, 4, 5, 6)),
        ("+I\n+P", (4, 5, 6)),
        ("-IP", (0, 1, 2, 3, 7)),
    ],
)
def test_suffixes(mode: str, places: tuple[int, ...]) -> None:
    """TestSuffixURLFilter, and the two options together, as Nutch's template has them."""
    text = f"# this is a comment\n\n{mode}\n.gif\n.jpg\n.js\n"
    assert accepted("suffix", text, SUFFIX_URLS) == [SUFFIX_URLS[place] for place in places]


def test_prefixes() -> None:
    """TestPrefixURLFilter; of lines of which one begins with the other the longer one adds nothing."""
    urls = [
        "http://www.example.com/",
        "https://www.example.com/",
        "http://a.test/x/y",
        "http://a.test/",
    ]
    assert (
        accepted("prefix", "# this is a comment\n\nhttp://\nhttps://\nfile://\nftp://\n", urls)
        == urls
    )
    assert accepted("prefix", "http://a.test/x\nhttp://a.test/x/y/z\nhttp://b\n", urls) == [
        "http://a.test/x/y"
    ]


def test_domains() -> None:
    """TestDomainURLFilter: public suffixes, registered domains, hosts."""
    good = [
        "lucene.apache.org",
        "hadoop.apache.org",
        "www.apache.org",
        "www.foobar.net",
        "www.foobas.net",
    ]
    good += ["www.yahoo.com", "www.foobar.be"]
    bad = ["www.google.com", "mail.yahoo.com", "www.adobe.com"]
    text = "# hosts\nbe\nnet\napache.org\nWWW.yahoo.com\n"
    assert accepted("domain", text, [f"http://{host}/" for host in good + bad]) == [
        f"http://{host}/" for host in good
    ]
    assert accepted("domain", "Bücher.de\n", ["http://a.xn--bcher-kva.de/", "http://b.de/"]) == [
        "http://a.xn--bcher-kva.de/"
    ]
    assert accepted("domain", "co.uk\n", ["http://a.b.co.uk/", "http://b.uk/"]) == [
        "http://a.b.co.uk/"
    ]


WHOLE_WEB = r"""# The default url filter.
-^(?:file|ftp|mailto):

# skip image and other suffixes we can't yet parse
-(?i)\.(?:gif|jpg|ico|css|sit|eps|wmf|zip|ppt|mpg|xls|gz|rpm|tgz|mov|exe)$
-[?*!@=]
-.*(/[^/]+)/[^/]+\1/[^/]+\1/

+.
"""


def test_expressions_in_order_first_match_decides() -> None:
    good = [SITE, f"{SITE}a.html", f"{SITE}gif/x", f"{SITE}a/b/c/"]
    bad = [f"{SITE}a.GIF", f"{SITE}?x", f"{SITE}a=b", f"{SITE}a/b/a/c/a/"]
    assert accepted("regex", WHOLE_WEB, good + bad) == good
    assert accepted("regex", "-/x\n+/x\n", [f"{SITE}x", SITE]) == [], (
        "what no expression accepts is rejected"
    )


def test_expressions_of_one_host() -> None:
    """NUTCH-1838."""
    text = "> www.example.org\n-skip\n<\n> www.example.com\n+skip\n<\n> example.net\n+x\n<\n-.\n"
    urls = [
        "http://www.example.org/skip-me-now",
        f"{SITE}noone-can-skip-me",
        "http://www.example.nl/i-am-filtered",
    ]
    assert accepted("regex", text, [*urls, "http://a.example.net/x"]) == [
        urls[1],
        "http://a.example.net/x",
    ]


def test_hosts_have_aliases() -> None:
    """TestHostURLNormalizer."""
    text = "*.example.com example.com\nwww.example.net example.net\n\nexample.org   www.example.org"
    assert normalized(
        "hosts",
        text,
        "http://example.org/page.html",
        "http://www.example.net:8080/path/to/something.html",
        "http://example.com/?does=it&still=work",
        "http://http.www.example.com/buh",
        "https://whatever.example.com/blaat",
        "http://http/www.example.net",
    ) == [
        "http://www.example.org/page.html",
        "http://example.net:8080/path/to/something.html",
        "http://example.com/?does=it&still=work",
        "http://example.com/buh",
        "https://example.com/blaat",
        "http://http/www.example.net",
    ]
    assert normalized("hosts", "http bücher.example", "http://http/") == [
        "http://xn--bcher-kva.example/"
    ]


def test_the_order_of_queries() -> None:
    """TestQuerystringURLNormalizer."""
    cases = {
        "http://example.com/?c=d&a=b": "http://example.com/?a=b&c=d",
        "http://example.com/a/b/c": "http://example.com/a/b/c",
        "http://example.com:1234/a/b/c#ref": "http://example.com:1234/a/b/c",
        "http://example.com:1234/a/b/c?c=d&a=b#ref": "http://example.com:1234/a/b/c?a=b&c=d",
        "http://example.com/?c=d&a=b&a=c": "http://example.com/?a=b&a=c&c=d",
    }
    assert normalized("query", None, *cases) == list(cases.values())


def test_slashes_at_the_end() -> None:
    """TestSlashURLNormalizer."""
    org, net = "http://www.example.org/", "http://www.example.net/"
    cases = {
        **dict.fromkeys(
            [
                org,
                net,
                "http://example.org/buh/",
                "http://example.net/blaat",
                "http://example.nl/buh/",
            ]
        ),
        **dict.fromkeys([f"{org}noise.mp3", f"{org}page.html", f"{org}page.shtml", f"{org}page/"]),
        f"{org}page": f"{org}page/",
        f"{org}a": f"{org}a/",
        f"{net}path/to/something/": f"{net}path/to/something",
        f"{org}page?a=b&c=d": f"{org}page/?a=b&c=d",
        f"{net}path/to/something/?a=b&c=d": f"{net}path/to/something?a=b&c=d",
        f"{org}this.is.not.an_extension": f"{org}this.is.not.an_extension/",
    }
    wanted = [result or url for url, result in cases.items()]
    assert normalized("slashes", "# which\nwww.example.org +\nwww.example.net\t-", *cases) == wanted


@pytest.mark.parametrize(
    "path", ["aa/bb/foo.html", "aa//bb/foo.html", "/aa//bb//foo.html", "///aa////bb////foo.html"]
)
def test_slashes_in_a_row(path: str) -> None:
    """TestBasicURLNormalizer: what is not of the canonical form."""
    assert normalized("basic", None, f"http://foo.com/{path}?u=http://a//b") == [
        "http://foo.com/aa/bb/foo.html?u=http://a//b"
    ]


FOO = "http://www.foo.com/foo"
SESSION = "cdc993a493e899bed04f4d0c8a462a03"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (f".php?PHPSESSID={SESSION}", ".php"),
        (f".php?f=2&PHPSESSID={SESSION}", ".php?f=2"),
        (f".php?f=2&PHPSESSID={SESSION}&q=3", ".php?f=2&q=3"),
        (f".php?PHPSESSID={SESSION}&f=2", ".php?f=2"),
        (".html;jsessionid=1E6FEC0D14D044541DD84D2D013D29ED", ".html"),
        (
            ".html?param=1&another=2;jsessionid=1E6FEC0D14D044541DD84D2D013D29ED",
            ".html?param=1&another=2",
        ),
        (
            ".html;jsessionid=1E6FEC0D14D044541DD84D2D013D29ED?param=1&another=2",
            ".html?param=1&another=2",
        ),
        (".html?_sessionID=824A6C0A13a7e11205wxN28F44E3", ".html"),
        (
            ".php?_pid=2&_spid=0&lang=en&_sessionid=e36902d5bb2d0d922fc24b43",
            ".php?_pid=2&_spid=0&lang=en",
        ),
        (
            ".php?app=content&_sid=587fba8f825b05844526519fdb7d75c8&b=35&m=47",
            ".php?app=content&b=35&m=47",
        ),
        (".aspx?NewsID=1567539", ".aspx?NewsID=1567539"),
        ("?language=en&addressid=250646&pagingpos=0", "?language=en&addressid=250646&pagingpos=0"),
        ("?CFID=17&CFTOKEN=18&x=1", "?x=1"),
        ("?x=1&CFID=17&CFTOKEN=18", "?x=1"),
        ("/(S(24ql3t55gd2wjr55k1wgcj45))/a.aspx", "/a.aspx"),
    ],
)
def test_session_ids(given: str, wanted: str) -> None:
    """regex-normalize-default.test, where the id looks like one, and others."""
    assert normalized("session", None, FOO + given) == [FOO + wanted]


DEFAULT_XML = r"""<?xml version="1.0"?>
<!-- <regex><pattern>(</pattern></regex> is a comment -->
<regex-normalize>
<regex>
  <pattern>(?i)(;?\b_?(l|j|bv_)?(sid|phpsessid|sessionid)=.*?)(\?|&amp;|#|$)</pattern>
  <substitution>$4</substitution>
</regex>
<regex>
  <pattern>/((?i)index|default)\.((?i)js[pf]{1}?[afx]?|cgi|cfm|asp[x]?|[psx]?htm[l]?|php[3456]?)(\?|&amp;|#|$)</pattern>
  <substitution>/$3</substitution>
</regex>
<regex><pattern>#.*?(\?|&amp;|$)</pattern><substitution>$1</substitution></regex>
<regex><pattern>\?&amp;</pattern><substitution>\?</substitution></regex>
<regex><pattern>&amp;{2,}</pattern><substitution>&amp;</substitution></regex>
<regex><pattern>[\?&amp;\.]$</pattern><substitution></substitution></regex>
<regex><pattern>(?&lt;!:)/{2,}</pattern><substitution>/</substitution></regex>
</regex-normalize>
"""
DEFAULT_PAGES = (
    *(
        "index.html",
        "index.htm",
        "index.asp",
        "index.aspx",
        "index.php",
        "index.php3",
        "default.html",
        "default.php3",
    ),
    *(
        "index.phtml",
        "index.cfm",
        "index.cgi",
        "index.HTML",
        "index.ASP",
        "index.jsp",
        "index.jsf",
        "index.jspx",
    ),
    *(
        "index.jspa",
        "index.aspX",
        "index.PhP",
        "index.PhP4",
        "default.HTml",
        "default.AspX",
        "default.PHP3",
    ),
)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        *(
            (f"http://www.foo.com/home/{page}", "http://www.foo.com/home/")
            for page in DEFAULT_PAGES
        ),
        *(
            (f"http://www.foo.com/{page}",) * 2
            for page in ("index.jspfx", "index.jsps", "something.php3", "a.html")
        ),
        (f"{FOO}.php?Bv_SessionID=fassassddsajkl", f"{FOO}.php"),
        (f"{FOO}.php?Bv_SessionID=fassassddsajkl&x=y", f"{FOO}.php?x=y"),
        (f"{FOO}.php?&x=1&sid=xyz&something=1", f"{FOO}.php?x=1&something=1"),
        (f"{FOO}.php?NewsID=1567539", f"{FOO}.php?NewsID=1567539"),
        (f"{FOO}.html?&x=y", f"{FOO}.html?x=y"),
        (f"{FOO}.html?x=y&&&z=a", f"{FOO}.html?x=y&z=a"),
        (f"{FOO}.html?", f"{FOO}.html"),
        ("https://www.foo.com//path//foo.html", "https://www.foo.com/path/foo.html"),
    ],
)
def test_replacements(given: str, wanted: str) -> None:
    """regex-normalize-default.test and its XML; the flags of Java in the middle of an expression too."""
    assert normalized("regex", DEFAULT_XML, given) == [wanted]


def test_replacements_that_reduce_hosts_to_a_domain() -> None:
    """regex-normalize-scope1.test."""
    text = r"(^[a-z]{3,5}://)([\w]+\.)*?(\w+\.\w+)[/$].*"
    xml = (
        f"<regex-normalize><regex><pattern>{text}</pattern>"
        f"<substitution>$1$3/</substitution></regex></regex-normalize>"
    )
    urls = [
        "http://www.foo.bar.com/",
        "http://www.foo.bar.com/foo.php?PHPSESSID=1",
        "https://www.foo.bar.com/f?u=http://a.b/",
    ]
    assert normalized("regex", xml, *urls) == [
        "http://bar.com/",
        "http://bar.com/",
        "https://bar.com/",
    ]


@pytest.mark.parametrize(
    ("option", "kind", "text", "line"),
    [
        ("filters", "regex", "+.\nskip\n", 2),
        ("filters", "regex", "# x\n\n-(\n", 3),
        ("filters", "regex", "-\\p{Alpha}\n", 1),
        ("filters", "regex", "> a/b\n+.\n", 1),
        ("filters", "suffix", ".gif\n", 1),
        ("filters", "suffix", "+\n+.gif\n", 2),
        ("filters", "domain", "org\na b\n", 2),
        ("normalizers", "hosts", "a.test b.test\na.test\n", 2),
        ("normalizers", "hosts", "a.test b.test c.test\n", 1),
        ("normalizers", "hosts", "a.test *.test\n", 1),
        ("normalizers", "slashes", "a.test +\na.test ++\n", 2),
        ("normalizers", "regex", "<regex-normalize>\n<regex>\n", 3),
        ("normalizers", "regex", "<regex-normalize>\n<regexp/></regex-normalize>", 2),
        ("normalizers", "regex", "<regex-normalize>\n<regex>\n</regex></regex-normalize>", 3),
        (
            *("normalizers", "regex"),
            "<regex-normalize><regex>\n<pattern>(</pattern><substitution/></regex></regex-normalize>",
            2,
        ),
        (
            *("normalizers", "regex"),
            "<regex-normalize><regex><pattern>a</pattern>\n<substitution>$1</substitution></regex></regex-normalize>",
            2,
        ),
    ],
)
def test_what_cannot_work_is_named_with_file_and_line(
    option: str, kind: str, text: str, line: int
) -> None:
    chains = ChainsConfig((StepConfig(kind, "/rules/of.txt", text),))
    with pytest.raises(ConfigError, match=f"^{re.escape('/rules/of.txt')}:{line}: "):
        Chain(UrlsConfig(**{option: chains}), Scope.FETCH)


@pytest.mark.parametrize(
    ("option", "step", "said"),
    [
        ("filters", StepConfig("basic"), "urls.filters.default[0].kind: must be one of domain"),
        (
            "normalizers",
            StepConfig("prefix", None, "a"),
            "urls.normalizers.default[0].kind: must be one of basic",
        ),
        ("normalizers", StepConfig("hosts"), "urls.normalizers.default[0].file: hosts needs one"),
        (
            "normalizers",
            StepConfig("query", None, "a"),
            "urls.normalizers.default[0].file: query has no rules",
        ),
        (
            "filters",
            StepConfig("prefix", "/a.txt", "# nothing\n"),
            "urls.filters.default[0]: /a.txt: holds no rule",
        ),
    ],
)
def test_a_step_that_cannot_work_is_named(option: str, step: StepConfig, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Chain(UrlsConfig(**{option: ChainsConfig((step,))}), Scope.INJECT)
    assert str(raised.value).startswith(said)


def test_the_files_of_the_documentation_work() -> None:
    """Each example of `docs/urls.md` is a file that its kind takes."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "urls.md").read_text()
    examples = re.findall(
        r"^(\S+?)(?:-(\w+))?\.(?:txt|xml):[^\n]*\n\n```\w+\n(.*?)```",
        text,
        re.MULTILINE | re.DOTALL,
    )
    kinds = {
        "urlfilter": "filters",
        "urlnormalizer": "normalizers",
        "normalize": "normalizers",
        "": "normalizers",
    }
    names = {"host": "hosts"}
    for name, what, rules in examples:
        chains = ChainsConfig((StepConfig(names.get(name, name), None, rules),))
        Chain(UrlsConfig(**{kinds[what]: chains}), Scope.OUTLINK)
    assert {name for name, _, _ in examples} == {
        "host",
        "slashes",
        "regex",
        "domain",
        "prefix",
        "suffix",
    }
