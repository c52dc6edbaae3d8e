"""A crawl with requisites: images, style sheets and fonts are fetched across hosts, and known by their hop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from crawl_lib import cli, curate, stages
from crawl_lib.ask import find_page
from crawl_lib.captures import Captures
from crawl_lib.commoncrawl import make_index, make_wet
from crawl_lib.crawldb import newest_version
from crawl_lib.segment import check_segment
from crawl_lib.states import Outcome
from crawl_lib.stores import open_stores
from crawl_lib.terms.table import TERMS
from crawl_lib.versions import Versions, VersionWork
from tests.e2e.crawl import (
    MOST_ITERATIONS,
    Result,
    check_counts,
    check_warcs,
    make_config,
    run_crawl,
    run_iteration,
    write_config,
)
from tests.e2e.shown import HOPS, PAGES, running_pages


@pytest.fixture
def site() -> Iterator[Any]:
    with running_pages() as running:
        yield running


def crawl(site: Any, folder: Path, requisites: str, *, process: bool = False) -> Result:
    parse = {"requisites": requisites}
    config = make_config(folder, nodes=1, fetch={"host_delay_s": 0.0}, parse=parse)
    return run_crawl(config, [f"http://127.0.0.1:{site.server_address[1]}/"], process=process)


def path_of(url: str) -> str:
    return "/" + url.split("/", 3)[3]


def hops_of(result: Result) -> dict[str, str]:
    """The hop of each page, by path."""
    return {path_of(row["url"]): row["hop"] for row in result.rows("pages", ["url", "hop"])}


def test_what_pages_need_is_fetched_once_and_known_by_its_hop(site: Any, tmp_path: Path) -> None:
    result = crawl(site, tmp_path, "all")
    assert hops_of(result) == HOPS
    assert set(result.visited().values()) == {1}
    assert sorted(set(site.asked)) == sorted({*HOPS, "/robots.txt"})
    keys = {url: key for key, url in result.url_of_key().items()}
    paths = {path_of(url): key for url, key in keys.items()}
    vias = {row["key"]: row["via_key"] for row in result.rows("pages", ["key", "via_key"])}
    assert vias[paths["/s.css"]] == paths["/"], "the page that needs it"
    assert vias[paths["/f.woff2"]] == paths["/t.css"]
    links = result.rows("links", ["target", "followed", "rule"])
    named = {row["target"] for row in links if row["rule"] == "requisite"}
    assert named == {paths[path] for path, hop in HOPS.items() if hop == "E"} - {
        paths["/moved-to"]
    } | {paths["/i2.png"]}
    assert not any(row["followed"] for row in links if row["rule"] == "requisite")
    check_counts(result)
    check_warcs(result)
    stores = open_stores(result.config)
    assert [
        one for path in stores.crawl.segments() for one in check_segment(stores.storage, path.path)
    ] == []


def test_exports_graph_and_captures_have_pages_only(site: Any, tmp_path: Path) -> None:
    result = crawl(site, tmp_path, "all", process=True)
    pages = {path for path, hop in HOPS.items() if hop != "E"}
    assert {*map(path_of, result.node_urls())} == pages
    assert {(path_of(a), path_of(b)) for a, b in result.arcs()} == {
        ("/", "/page"),
        ("/", "/i2.png"),
    }
    stores = open_stores(result.config)
    with VersionWork.of(Versions(stores, TERMS), 1) as work:
        captures = Captures.of(work)
        rows = [
            row
            for batch in work.engine.stream(captures.query, 100, "x")
            for row in batch.to_pylist()
        ]
    assert {path_of(row["url"]) for row in rows} == pages
    assert indexed(result) == {*pages, "/robots.txt"}
    assert indexed(result, with_requisites=True) == {*HOPS, "/robots.txt"}
    make_wet(stores, label="pages")
    folder = Path(result.config.dfs_primary) / "cc-wet" / f"crawl={result.config.crawl.name}-pages"
    places = pq.read_table([*folder.rglob("places.parquet")])
    assert places.num_rows == 1, "the home page has a text, and so has the frame"
    assert find_page(stores, f"http://127.0.0.1:{site.server_address[1]}/s.css") is not None


def indexed(result: Result, *, with_requisites: bool = False) -> set[str]:
    """The paths in Common Crawl's index of a crawl."""
    label = "all" if with_requisites else "pages"
    make_index(open_stores(result.config), label=label, with_requisites=with_requisites)
    folder = (
        Path(result.config.dfs_primary) / "cc-index" / f"crawl={result.config.crawl.name}-{label}"
    )
    return {
        path_of(url)
        for file in folder.rglob("*.parquet")
        for url in pq.read_table(file)["url"].to_pylist()
    }


def test_a_url_that_one_page_needs_and_another_page_links_to_is_fetched_once(
    site: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link comes an iteration later for one URL, and an iteration earlier for the other."""
    monkeypatch.setitem(
        PAGES, "/", ("text/html", b"<img src=/i.png><a href=/i2.png>x</a><a href=/page>x</a>")
    )
    monkeypatch.setitem(
        PAGES, "/page", ("text/html", b"<a href=/i.png>x</a><img src=/i2.png><img src=/image.png>")
    )
    result = crawl(site, tmp_path, "all", process=True)
    assert hops_of(result) == {
        "/": "S",
        "/page": "L",
        "/i2.png": "L",
        "/i.png": "E",
        "/image.png": "E",
    }
    assert set(result.visited().values()) == {1}
    assert {*map(path_of, result.node_urls())} == {"/", "/page", "/i.png", "/i2.png"}
    arcs = {(path_of(a), path_of(b)) for a, b in result.arcs()}
    assert arcs == {("/", "/page"), ("/", "/i2.png"), ("/page", "/i.png")}


def test_robots_txt_refuses_requisites_and_a_redirect_of_one_leads_to_a_page_that_stays_one(
    site: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PAGES, "/robots.txt", ("text/plain", b"User-agent: *\nDisallow: /s.css"))
    home = b"<link rel=stylesheet href=/s.css><img src=/moved><a href=/moved-to>x</a>"
    monkeypatch.setitem(PAGES, "/", ("text/html", home))
    result = crawl(site, tmp_path, "all")
    assert hops_of(result) == {"/": "S", "/s.css": "E", "/moved": "E", "/moved-to": "L"}
    assert {path_of(url): outcome for url, outcome in result.outcomes().items()}[
        "/s.css"
    ] == "robots_denied"
    assert "/s.css" not in site.asked
    assert site.asked.count("/moved-to") == 1


def test_with_same_site_other_hosts_are_left_alone(site: Any, tmp_path: Path) -> None:
    hops = hops_of(crawl(site, tmp_path, "same_site"))
    assert hops == {
        path: hop for path, hop in HOPS.items() if path not in {"/i.png", "/frame", "/in-frame.png"}
    }


def test_by_default_none_are_fetched(site: Any, tmp_path: Path) -> None:
    result = crawl(site, tmp_path, "none")
    assert hops_of(result) == {"/": "S", "/page": "L", "/i2.png": "L"}
    assert {row["element"] for row in result.rows("links", ["element"])} == {
        "a",
        "img",
        "link",
        "iframe",
    }


def test_rounds_of_requisites_follow_the_last_iteration_until_none_waits(
    site: Any, tmp_path: Path
) -> None:
    """A run of one iteration takes one page; its requisites follow, and other pages wait for the next run."""
    config = make_config(
        tmp_path, nodes=1, fetch={"host_delay_s": 0.0}, parse={"requisites": "all"}
    )
    seed, path = f"http://127.0.0.1:{site.server_address[1]}/", str(write_config(config, tmp_path))
    stages.inject(open_stores(config), run_id="run-1", seeds=seed)
    assert cli.main(["--config", path, "crawl", "--iterations", "1"]) == 0
    result, of_page = Result(config), {"/lone.css", "/gone"}
    assert hops_of(result) == {
        path: hop for path, hop in HOPS.items() if hop in {"S", "E"} and path not in of_page
    }
    taken = [
        (one["iteration"] - MOST_ITERATIONS, one["counts"]["taken"]) for one in result.manifests()
    ]
    assert taken == [(1 - MOST_ITERATIONS, 1), (1, 4), (2, 4), (3, 2), (4, 0)], (
        "no fifth one: none waits"
    )
    assert [one["counts"].get("requisites", 0) > 0 for one in result.manifests()] == [True] * 4 + [
        False
    ]


def test_rounds_of_requisites_follow_the_iterations_of_one_node(site: Any, tmp_path: Path) -> None:
    """Two nodes by turns, as on two machines: no commit says what waits, the segments do."""
    config = make_config(
        tmp_path, nodes=2, fetch={"host_delay_s": 0.0}, parse={"requisites": "all"}
    )
    seed, path = f"http://127.0.0.1:{site.server_address[1]}/", str(write_config(config, tmp_path))
    stages.inject(open_stores(config), run_id="run-1", seeds=seed)
    words = ["--config", path, "crawl", "--run-id", "run-1"]
    for _ in range(2):
        for node in config.servers:
            assert cli.main([*words, "--node", node]) == 0
    result, of_page = Result(config), {"/lone.css", "/gone"}
    assert hops_of(result) == {
        path: hop for path, hop in HOPS.items() if hop in {"S", "E"} and path not in of_page
    }
    assert set(result.visited().values()) == {1}
    folders = len(result.segments())
    for node in config.servers:
        assert cli.main([*words, "--node", node]) == 0
    assert len(result.segments()) == folders, "none waits"


def test_a_node_that_finds_no_requisite_does_no_round(site: Any, tmp_path: Path) -> None:
    config = make_config(
        tmp_path, nodes=1, fetch={"host_delay_s": 0.0}, parse={"requisites": "all"}
    )
    seed, path = (
        f"http://127.0.0.1:{site.server_address[1]}/u.png",
        str(write_config(config, tmp_path)),
    )
    stages.inject(open_stores(config), run_id="run-1", seeds=seed)
    assert cli.main(["--config", path, "crawl", "--run-id", "run-1", "--node", "node-0"]) == 0
    assert [one["iteration"] for one in Result(config).manifests()] == [1]


def test_a_crawldb_lists_requisites_in_the_round_after_their_page(
    site: Any, tmp_path: Path
) -> None:
    """A run of two iterations; lists of requisites follow until one is empty. Nothing is due in the next run."""
    more: dict[str, Any] = {"parse": {"requisites": "all"}, "frontier": {"order": "crawldb"}}
    config = make_config(tmp_path, nodes=2, fetch={"host_delay_s": 0.0}, **more)
    seed, path = f"http://127.0.0.1:{site.server_address[1]}/", str(write_config(config, tmp_path))
    stages.inject(open_stores(config), run_id="run-1", seeds=seed)
    assert cli.main(["--config", path, "crawl", "--iterations", "2"]) == 0
    result = Result(config)
    assert hops_of(result) == HOPS
    assert set(result.visited().values()) == {1}
    rounds = [one["iteration"] for one in result.manifests() if one["counts"]["taken"]]
    assert sorted(set(rounds)) == [1, 2, MOST_ITERATIONS + 1, MOST_ITERATIONS + 2]
    asked = len(site.asked)
    assert cli.main(["--config", path, "crawl", "--iterations", "2"]) == 0
    assert len(site.asked) == asked
    statuses = newest_version(open_stores(config)).manifest["statuses"]
    assert statuses == {"fetched": 3, "requisite": len(HOPS) - 3}


def test_requisites_are_taken_in_the_round_after_their_page(site: Any, tmp_path: Path) -> None:
    """Also where the queue has more pages than a batch: these wait."""
    config = make_config(
        tmp_path,
        nodes=1,
        fetch={"host_delay_s": 0.0},
        parse={"requisites": "all"},
        batch={"size": 5},
    )
    root = f"http://127.0.0.1:{site.server_address[1]}"
    result = run_crawl(
        config, [f"{root}/", *(f"{root}/missing/{n}" for n in range(20))], 2, process=False
    )
    assert {path for path, hop in hops_of(result).items() if hop == "E"} == {
        "/s.css",
        "/i.png",
        "/moved",
        "/frame",
    }


def test_a_requisite_that_is_tried_again_by_hand_stays_one(site: Any, tmp_path: Path) -> None:
    result = crawl(site, tmp_path, "all")
    stores = open_stores(result.config)
    assert curate.retry(stores, curate.Failures(Outcome.GONE)).listed == 1
    run_iteration(result.config, "run-2", 1)
    rows = [row for row in result.rows("pages", ["url", "hop"]) if path_of(row["url"]) == "/gone"]
    assert [row["hop"] for row in rows] == ["E", "E"]
