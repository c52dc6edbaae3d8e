"""Graphs as Common Crawl has them, and BV graphs: of exports and of all links, as files of this machine."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from crawl_lib.commoncrawl import FORMATS, export_graph_files
from crawl_lib.commoncrawl.graphs import file_names
from crawl_lib.config import Config
from crawl_lib.errors import InputError, PathNotFoundError, StoppedError
from crawl_lib.export import export_pages
from crawl_lib.graph import link_export
from crawl_lib.ranks import arcs
from crawl_lib.storage import Storage
from crawl_lib.stores import Stores
from tests.commoncrawl.bvreader import read_bv
from tests.commoncrawl.webs import Truth, lines_of, random_web, truth_of
from tests.export.crawls import Capture, CrawlMaker, key
from tests.ranks.graphs import inlinks_of
from tests.ranks.test_harmonic import exact
from tests.stores import stores_on

NOW = datetime(2026, 1, 2, tzinfo=UTC)
LINKS = random_web(seed=1)
FOLLOWED = {url: links[::2] for url, links in LINKS.items()}
"""Links that the table of links has: `CrawlMaker` says that each other one is not followed."""
KINDS = {"hosts": "host", "domains": "domain"}


@pytest.fixture
def stores(storage: Storage, config: Config, crawl: CrawlMaker) -> Stores:
    crawl.segment(
        "1", "node-a", [Capture(url, b"page", links=links) for url, links in LINKS.items()]
    )
    found = stores_on(storage, config)
    export_pages(found, name="x", segments=crawl.segments)
    link_export(found, name="x")
    return found


def written(stores: Stores, prefix: Path, of: str, name: str | None = "x") -> str:
    """Both formats of a graph; returns the stem of the names of its files."""
    for form in FORMATS:
        report = export_graph_files(stores, prefix, form=form, of=of, name=name, now=NOW)
        assert [Path(file).exists() for file in report.files] == [True] * len(report.files)
    return f"{prefix}-{'page' if of == 'pages' else KINDS[of]}"


def check_graph(stem: str, truth: Truth) -> None:
    """All files of a graph against what they should be."""
    counts = [] if truth.n_hosts is None else [truth.n_hosts]
    rows = [
        list(map(str, row))
        for row in zip(range(len(truth.names)), truth.names, *counts, strict=True)
    ]
    assert lines_of(Path(f"{stem}-vertices.txt.gz")) == rows
    assert [(int(a), int(b)) for a, b in lines_of(Path(f"{stem}-edges.txt.gz"))] == truth.arcs
    successors = [[b for a, b in truth.arcs if a == node] for node in range(len(truth.names))]
    assert read_bv(Path(stem)) == successors
    assert read_bv(Path(f"{stem}-t")) == [
        [a for a, b in truth.arcs if b == node] for node in range(len(truth.names))
    ]


def page_rank_of(truth: Truth) -> np.ndarray:
    """PageRank by a linear system, without any round."""
    nodes, damping = len(truth.names), 0.85
    matrix = np.zeros((nodes, nodes))
    for source, target in truth.arcs:
        matrix[target, source] = 1
    degrees = matrix.sum(axis=0)
    matrix = np.where(degrees > 0, matrix / np.maximum(degrees, 1), 1 / nodes)
    return np.linalg.solve(np.eye(nodes) - damping * matrix, np.full(nodes, (1 - damping) / nodes))


def check_ranks(stem: str, truth: Truth) -> None:
    head, *rows = lines_of(Path(f"{stem}-ranks.txt.gz"))
    names = ["#harmonicc_pos", "#harmonicc_val", "#pr_pos", "#pr_val", "#host_rev"]
    assert head == [*names, *([] if truth.n_hosts is None else ["#n_hosts"])]
    ids = [truth.names.index(row[4]) for row in rows]
    assert sorted(ids) == list(range(len(truth.names)))
    if truth.n_hosts is not None:
        assert [int(row[5]) for row in rows] == [truth.n_hosts[number] for number in ids]
    harmonic, ranks = (np.array([float(row[column]) for row in rows]) for column in (1, 3))
    for positions, values in ((0, harmonic), (2, ranks)):
        by_position = sorted(
            range(len(rows)), key=[int(row[positions]) for row in rows].__getitem__
        )
        assert [int(rows[row][positions]) for row in by_position] == list(range(1, len(rows) + 1))
        assert [(-values[row], ids[row]) for row in by_position] == sorted(
            zip(-values, ids, strict=True)
        )
    assert [int(row[0]) for row in rows] == list(range(1, len(rows) + 1))
    assert np.abs(ranks - page_rank_of(truth)[ids]).max() < 1e-6
    distances = exact(inlinks_of(np.array(truth.arcs), len(truth.names))[0])[ids]
    assert np.abs(harmonic - distances).max() < 0.15 * distances.max()


@pytest.mark.parametrize("of", KINDS)
def test_hosts_and_domains_of_an_export(stores: Stores, tmp_path: Path, of: str) -> None:
    stem, truth = written(stores, tmp_path / "web", of), truth_of(LINKS, of)
    check_graph(stem, truth)
    check_ranks(stem, truth)
    assert "fr.example" in "".join(truth.names)


def test_names_are_cut_and_left_out_as_common_crawl_does(stores: Stores, tmp_path: Path) -> None:
    names = [
        row[1]
        for row in lines_of(Path(f"{written(stores, tmp_path / 'web', 'hosts')}-vertices.txt.gz"))
    ]
    assert {
        "org.example",
        "org.example.news",
        "org.example.www2",
        "net.www",
        "com.www",
        "io.github",
    } <= set(names)
    assert not [
        name for name in names if "internal" in name or name == "localhost" or name[0].isdigit()
    ]
    assert not [name for name in names if name.endswith(".www") and name.count(".") > 1]
    domains = lines_of(Path(f"{written(stores, tmp_path / 'web', 'domains')}-vertices.txt.gz"))
    assert {"io.github.x", "io.github.y", "uk.co.example"} <= {row[1] for row in domains}
    assert int(next(row[2] for row in domains if row[1] == "org.example")) == 4


def test_pages_have_the_numbers_of_the_export(stores: Stores, tmp_path: Path) -> None:
    stem, order = written(stores, tmp_path / "web", "pages"), sorted(LINKS, key=key)
    numbers = {url: number for number, url in enumerate(order)}
    between = {
        (numbers[url], numbers[link])
        for url, links in LINKS.items()
        for link in links
        if link in numbers
    }
    check_graph(stem, Truth(order, sorted(arc for arc in between if arc[0] != arc[1])))
    head, *rows = lines_of(Path(f"{stem}-ranks.txt.gz"))
    assert head[-1] == "#url"
    assert sorted(row[4] for row in rows) == sorted(order)


@pytest.mark.parametrize("of", KINDS)
def test_all_ends_of_links(stores: Stores, tmp_path: Path, of: str) -> None:
    stem, truth = (
        written(stores, tmp_path / "web", of, name=None),
        truth_of(FOLLOWED, of, all_ends=True),
    )
    check_graph(stem, truth)
    assert ("org.example.outside" in truth.names) is (of == "hosts")


def test_pages_of_all_ends_of_links(stores: Stores, tmp_path: Path) -> None:
    stem = written(stores, tmp_path / "web", "pages", name=None)
    order = sorted({*LINKS, *(link for links in FOLLOWED.values() for link in links)}, key=key)
    numbers = {url: number for number, url in enumerate(order)}
    between = {
        (numbers[url], numbers[link])
        for url, links in FOLLOWED.items()
        for link in links
        if url != link
    }
    check_graph(stem, Truth(order, sorted(between)))


@pytest.mark.parametrize("of", ["pages", *KINDS])
def test_a_crawl_without_pages_has_empty_files(
    storage: Storage, config: Config, crawl: CrawlMaker, tmp_path: Path, of: str
) -> None:
    crawl.segment("1", "node-a", [])
    empty = stores_on(storage, config)
    export_pages(empty, name="x", segments=crawl.segments)
    link_export(empty, name="x")
    check_graph(
        written(empty, tmp_path / "none", of), Truth([], [], [] if of == "domains" else None)
    )


def test_pages_that_do_not_link_are_ranked_alike(
    storage: Storage, config: Config, crawl: CrawlMaker, tmp_path: Path
) -> None:
    crawl.segment("1", "node-a", [Capture(f"http://{name}.org/", b"page") for name in "cab"])
    lone = stores_on(storage, config)
    export_pages(lone, name="x", segments=crawl.segments)
    link_export(lone, name="x")
    rows = lines_of(Path(f"{written(lone, tmp_path / 'lone', 'hosts')}-ranks.txt.gz"))[1:]
    assert [(row[0], row[1], row[2], row[4]) for row in rows] == [
        (str(place), "0", str(place), f"org.{name}") for place, name in enumerate("abc", 1)
    ]


@pytest.mark.parametrize("most", [1, 5, 40])
def test_arcs_are_sorted_in_parts_as_at_once(
    monkeypatch: pytest.MonkeyPatch, stores: Stores, tmp_path: Path, most: int
) -> None:
    chance = np.random.default_rng(most)
    nodes = 30
    blocks = [(chance.integers(0, nodes, 50), chance.zipf(2, 50) % nodes) for _ in range(8)]
    truth = sorted(
        {pair for some in blocks for pair in zip(*(ends.tolist() for ends in some), strict=True)}
    )
    monkeypatch.setattr(arcs, "SORTED_ARCS", most)
    monkeypatch.setattr(arcs, "BLOCK_ARCS", 37)
    pairs = arcs.Pairs.write(stores, tmp_path / "arcs", nodes, iter(blocks))
    for by_target in (False, True):
        side = pairs.side(by_target=by_target)
        ours = np.repeat(np.arange(nodes), side.degrees).tolist()
        ends = np.concatenate(list(side.ends())).tolist()
        found = list(zip(ours, ends, strict=True))
        assert found == sorted((b, a) if by_target else (a, b) for a, b in truth)


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_there_is_kept_and_what_is_missing_is_named(
    stores: Stores, config: Config, tmp_path: Path, form: str
) -> None:
    there = Path(file_names(str(tmp_path / "web-host"), form)[-1])
    there.write_text("mine")
    with pytest.raises(InputError, match="is there already"):
        export_graph_files(stores, tmp_path / "web", form=form, of="hosts", name="x", now=NOW)
    assert [path.name for path in tmp_path.glob("*web*")] == [there.name]
    stores.storage.delete(f"{config.export.directory}/x/arcs-in.parquet")
    with pytest.raises(PathNotFoundError, match="run `krake graph link`"):
        export_graph_files(stores, tmp_path / "new", form=form, of="hosts", name="x", now=NOW)


@pytest.mark.parametrize("form", FORMATS)
def test_stopped_in_the_middle_it_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, stores: Stores, tmp_path: Path, form: str
) -> None:
    monkeypatch.setattr("crawl_lib.commoncrawl.graphs.BV_SUFFIXES", ("graph", "stop"))
    monkeypatch.setattr(
        "crawl_lib.commoncrawl.graphs._ranks", lambda *_: stores.until_stopped(stop_then(stores))
    )
    with pytest.raises((StoppedError, KeyError)):
        export_graph_files(stores, tmp_path / "new", form=form, of="hosts", name="x", now=NOW)
    assert list(tmp_path.rglob("*new*")) == []


def stop_then(stores: Stores) -> list[int]:
    stores.stop.set()
    return [1]


def test_equal_exports_give_equal_bytes(stores: Stores, tmp_path: Path) -> None:
    for form in FORMATS:
        one, other = (
            export_graph_files(
                stores, tmp_path / name, form=form, of="hosts", name="x", now=NOW
            ).files
            for name in ("one", "other")
        )
        assert [Path(file).read_bytes() for file in one] == [
            Path(file).read_bytes() for file in other
        ]
