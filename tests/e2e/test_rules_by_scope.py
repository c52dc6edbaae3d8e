"""Whole crawls with each kind of normaliser and filter, and after a change of rules."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from crawl_lib.config import ChainsConfig
from crawl_lib.crawldb import newest_version
from crawl_lib.stores import open_stores
from demo import Serving, SynthWeb
from tests.e2e.crawl import Result, check_counts, make_config, run_crawl
from tests.web.files import FileServing

REGEX_XML = (
    "<regex-normalize><regex><pattern>/index[.]html$</pattern>"
    "<substitution>/</substitution></regex></regex-normalize>"
)
FETCH = {"host_delay_s": 0.0, "allow_networks": ["127.0.9.1/32"]}
LINKS = (
    *(
        "/a/p.html",
        "//a//p.html",
        "/q.html?a=1&b=2",
        "/q.html?b=2&a=1",
        "/s.html",
        "/s.html?PHPSESSID=1x",
    ),
    *("/dir/", "/dir", "/dir/index.html", "http://127.0.9.2:{port}/a/p.html", "/a/bad"),
)
ALL = {"/", *LINKS}
NORMALIZERS = {
    "basic": ({"kind": "basic"}, {"//a//p.html"}),
    "query": ({"kind": "query"}, {"/q.html?b=2&a=1"}),
    "session": ({"kind": "session"}, {"/s.html?PHPSESSID=1x"}),
    "hosts": (
        {"kind": "hosts", "rules": "127.0.9.2 127.0.9.1"},
        {"http://127.0.9.2:{port}/a/p.html"},
    ),
    "slashes": ({"kind": "slashes", "rules": "127.0.9.1 +"}, {"/dir", "/a/bad"}),
    "regex": ({"kind": "regex", "rules": REGEX_XML}, {"/dir/index.html"}),
}
FILTERS = {
    "domain": ({"kind": "domain", "rules": "127.0.9.1"}, {"http://127.0.9.2:{port}/a/p.html"}),
    "prefix": (
        {"kind": "prefix", "rules": "http://127.0.9.1"},
        {"http://127.0.9.2:{port}/a/p.html"},
    ),
    "suffix": ({"kind": "suffix", "rules": "+P\nq.html\n"}, {"/q.html?a=1&b=2", "/q.html?b=2&a=1"}),
    "regex": (
        {"kind": "regex", "rules": "-[?].*b=2&a\n-//127.*//\n> 127.0.9.2\n-.\n<\n+.\n"},
        {"/q.html?b=2&a=1", "//a//p.html", "http://127.0.9.2:{port}/a/p.html"},
    ),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FileServing]:
    root = tmp_path_factory.mktemp("site")
    for name in ("a/p.html", "q.html", "s.html", "dir/index.html"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(f"<p>{name}</p>")
    with FileServing(root, "127.0.9.1") as serving:
        anchors = (
            f'<a href="{"/." if link.startswith("//") else ""}{link}">x</a>' for link in LINKS
        )
        (root / "index.html").write_text("\n".join(anchors).replace("{port}", str(serving.port)))
        yield serving


def crawled(directory: Path, site: FileServing, **urls: Any) -> tuple[Result, set[str]]:
    """A crawl of the site; what was visited, as in `LINKS`."""
    config = make_config(directory, nodes=2, urls={"scope": "any", **urls}, fetch=FETCH)
    result = run_crawl(config, [site.url("/")], process=False)
    check_counts(result)
    return result, as_links(site, result)


def as_links(site: FileServing, result: Result) -> set[str]:
    own = site.url("/").removesuffix("/")
    return {url.removeprefix(own).replace(str(site.port), "{port}") for url in result.visited()}


def rejected(result: Result) -> Counter[str]:
    return sum(
        (Counter(manifest["counts"]["rejections"]) for manifest in result.manifests()),
        Counter[str](),
    )


def test_without_chains_every_spelling_is_a_page(tmp_path: Path, site: FileServing) -> None:
    result, visited = crawled(tmp_path, site)
    assert visited == ALL
    assert not any("rule_errors" in manifest["counts"] for manifest in result.manifests())


@pytest.mark.parametrize("kind", NORMALIZERS)
def test_spellings_become_one_page(kind: str, tmp_path: Path, site: FileServing) -> None:
    step, gone = NORMALIZERS[kind]
    result, visited = crawled(tmp_path, site, normalizers={"default": [step]})
    assert visited == (ALL - gone) | ({"/a/bad/"} if kind == "slashes" else set())
    keys = result.url_of_key()
    for row in result.rows("links", ["target", "target_url", "followed"]):
        assert row["followed"]
        assert keys[row["target"]] == row["target_url"]
    assert not rejected(result)


@pytest.mark.parametrize("kind", FILTERS)
def test_what_a_filter_rejects_is_not_visited(kind: str, tmp_path: Path, site: FileServing) -> None:
    step, gone = FILTERS[kind]
    result, visited = crawled(tmp_path, site, filters={"outlink": [step]})
    assert visited == ALL - gone
    assert rejected(result) == {"filter": len(gone)}
    rows = result.rows("links", ["target_url", "followed", "rule"])
    assert {row["rule"] for row in rows if not row["followed"]} == {"filter"}


@pytest.mark.parametrize("changed", [False, True], ids=["from-the-start", "changed"])
def test_lists_from_the_crawldb_follow_the_same_rules(
    changed: bool, tmp_path: Path, site: FileServing
) -> None:
    """Also where they changed after the first round: the next update applies them to the rows."""
    kinds = ("basic", "query", "session", "hosts", "regex")
    rules = {
        "normalizers": {"default": [NORMALIZERS[kind][0] for kind in kinds]},
        "filters": {"crawldb": [{"kind": "suffix", "rules": "+\n/bad"}]},
    }
    config = make_config(
        tmp_path,
        nodes=2,
        urls={"scope": "any", **rules},
        fetch=FETCH,
        frontier={"order": "crawldb"},
    )
    first = replace(
        config, urls=replace(config.urls, normalizers=ChainsConfig(), filters=ChainsConfig())
    )
    result = run_crawl(first if changed else config, [site.url("/")], 1, process=False)
    result.config = config
    run_crawl(config, [site.url("/")], run_id="run-2", result=result, process=False)
    check_counts(result)
    wanted = ALL - {"/a/bad"}.union(*(NORMALIZERS[kind][1] for kind in kinds))
    assert as_links(site, result) == wanted
    assert set(result.outcomes().values()) == {"ok", "redirect"}
    version = newest_version(open_stores(config))
    assert version is not None
    tables = [
        pq.read_table(Path(config.dfs_primary) / path, columns=["url"]) for path in version.paths
    ]
    urls = {url for table in tables for url in table["url"].to_pylist()}
    assert urls == {site.url(link) for link in wanted}


def test_a_rule_that_cannot_judge_a_url_loses_none_and_is_counted_by_its_name(
    tmp_path: Path, site: FileServing
) -> None:
    rules = REGEX_XML.replace("/index[.]html$", "^http:").replace(">/<", ">ftp:<")
    bad = {"kind": "regex", "file": "/rules/bad.xml", "rules": rules}
    result, visited = crawled(tmp_path, site, normalizers={"default": [bad]})
    assert visited == ALL
    assert not rejected(result)
    counted = [manifest["counts"].get("rule_errors", {}) for manifest in result.manifests()]
    assert {name for counts in counted for name in counts} == {"normalizers: bad.xml"}
    assert result.commits[0]["rule_errors"]["normalizers: bad.xml"] >= len(LINKS)


def test_check_and_why_say_what_a_url_becomes_and_which_rule_decides(tmp_path: Path) -> None:
    from crawl_lib.ask.why import verdict  # noqa: PLC0415

    normalizers = {"inject": [], "default": [{"kind": "query"}]}
    filters = {
        "default": [{"kind": "regex", "file": "/rules/of.txt", "rules": "+[?]a&b\n-[?]\n+."}]
    }
    stores = open_stores(
        make_config(tmp_path, nodes=1, urls={"normalizers": normalizers, "filters": filters})
    )
    url, by = "http://a.test/?b&a", {"accepted": False, "by": "filter", "rule": "of.txt:2 -[?]"}
    assert verdict(stores, url, 0) == {**by, "depth": 0}
    becomes = {"accepted": True, "by": "accepted", "rule": None, "becomes": "http://a.test/?a&b"}
    assert verdict(stores, url, 1) == {**becomes, "depth": 1}
    assert verdict(stores, "http://a.test/?x", 1) == {**by, "depth": 1}


def test_seeds_are_normalised_and_filtered_by_their_own_scope(
    tmp_path: Path, site: FileServing
) -> None:
    from crawl_lib.stages import inject  # noqa: PLC0415

    bad = {"kind": "regex", "rules": REGEX_XML.replace(">/<", "> :<")}
    urls = {
        "normalizers": {"inject": [{"kind": "query"}, bad], "default": [{"kind": "basic"}]},
        "filters": {"inject": [{"kind": "suffix", "rules": "+\nq.html"}], "default": []},
    }
    config = make_config(tmp_path, nodes=2, urls=urls)
    seeds = "/q.html?b&a", "/q.html?a&b", "/q.html", "//x", "/index.html"
    found = inject(open_stores(config), run_id="a", seeds="\n".join(map(site.url, seeds)))
    assert (found["accepted"], found["duplicates"], found["rejected"]) == (3, 1, {"filter": 1})
    assert found["rule_errors"] == {"normalizers: regex": 1}


def test_a_url_of_the_queue_meets_changed_rules_before_it_is_fetched(
    tmp_path: Path, site: FileServing
) -> None:
    """What normalisers change is handed on and fetched once, whatever another page linked to; nothing is lost."""
    before = make_config(tmp_path, nodes=2, urls={"scope": "any"}, fetch=FETCH)
    result = run_crawl(before, [site.url("/")], 1, process=False)
    assert as_links(site, result) == {"/"}
    kinds = ("basic", "hosts", "query")
    urls = {
        "scope": "any",
        "normalizers": {"default": [NORMALIZERS[kind][0] for kind in kinds]},
        "filters": {"fetch": [{"kind": "regex", "rules": "-/dir\n+."}]},
    }
    after = make_config(tmp_path, nodes=2, urls=urls, fetch=FETCH)
    result.config = after
    run_crawl(after, [site.url("/")], run_id="run-2", result=result, process=False)
    check_counts(result)
    outcomes = {
        url.replace(site.url("/"), "/"): outcome for url, outcome in result.outcomes().items()
    }
    moved = set().union(*(NORMALIZERS[kind][1] for kind in kinds))
    moved = {link.replace("{port}", str(site.port)) for link in moved}
    filtered = {url for url, outcome in outcomes.items() if outcome == "filtered"}
    assert filtered == moved | {"/dir", "/dir/", "/dir/index.html"}
    rows = result.rows("pages", ["url", "outcome", "error", "redirect_url"])
    why = {
        row["url"]: (row["error"], row["redirect_url"])
        for row in rows
        if row["outcome"] == "filtered"
    }
    assert why[site.url("//a//p.html")] == (
        f"normalizers: {site.url('/a/p.html')}",
        site.url("/a/p.html"),
    )
    assert why[site.url("/dir")] == ("filters: regex:1 -/dir", None)
    assert set(result.visited().values()) == {1}
    assert {outcomes[link] for link in ("/a/p.html", "/q.html?a=1&b=2")} == {"ok"}


def test_a_chain_of_all_kinds_finds_the_truth_of_the_synthetic_web(tmp_path: Path) -> None:
    """Where no rule has anything to do, everything is as without."""
    web = SynthWeb(seed=20, sites=3, pages_per_site=10)
    steps = [{"kind": "query"}, {"kind": "session"}, {"kind": "hosts", "rules": "*.a.test b.test"}]
    steps += [{"kind": "slashes", "rules": "a.test +"}, NORMALIZERS["regex"][0]]
    filters = [
        {"kind": "prefix", "rules": "http://127."},
        {"kind": "regex", "rules": "-[.]test/\n+."},
    ]
    filters += [{"kind": "suffix", "rules": "+I\n.exe"}, {"kind": "domain", "rules": "{}"}]
    for nodes in (1, 3):
        with Serving(web) as serving:
            hosts = "\n".join(
                {url.split("/")[2].partition(":")[0] for url in serving.truth().visits}
            )
            chains = [{**step, "rules": step["rules"].format(hosts)} for step in filters]
            urls = {
                "scope": "hosts",
                "normalizers": {"default": steps},
                "filters": {"default": chains},
            }
            (tmp_path / str(nodes)).mkdir()
            config = make_config(tmp_path / str(nodes), nodes=nodes, urls=urls)
            result = run_crawl(config, serving.seeds)
            truth = serving.truth()
        assert result.outcomes() == {url: str(outcome) for url, outcome in truth.outcomes().items()}
        assert result.arcs() == truth.arcs
        check_counts(result)
