"""LinkRank: closed forms, an implementation in plain Python on two documentation sites, and what it says of nothing."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from hashlib import sha1
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crawl_lib import parquet
from crawl_lib.config import Config, LinkRankConfig
from crawl_lib.crawldb import update
from crawl_lib.duplicates import mark_duplicates
from crawl_lib.errors import InputError, KrakeError
from crawl_lib.linkdb import OUTLINKS, OUTLINKS_SCHEMA, update_outlinks
from crawl_lib.ranks import LINKRANK, arcs, update_linkrank
from crawl_lib.storage import open_storage
from crawl_lib.urls import domain_of, host_of
from crawl_lib.versions import Versions, writing
from tests.crawldb.crawls import Crawl, Visit
from tests.crawldb.test_update import DAY, NOW, T
from tests.engine.threads import use_threads
from tests.linkdb.docs import SITES, visits
from tests.linkdb.tables import A, B, C, leave_links, rows_of
from tests.linkdb.test_determinism import grow, sums
from tests.stores import stores_on

Pair = tuple[str, str]
LOOSE = {
    "within_host": True,
    "within_domain": True,
    "one_per_page": False,
    "one_per_domain": False,
    "drop_reciprocal": False,
    "drop_triangles": False,
}
STRICT = {name: not value for name, value in LOOSE.items()}


def opened(config: Config, **options: Any) -> Crawl:
    """A crawl with other options of `linkrank`."""
    config = replace(config, linkrank=replace(config.linkrank, **options))
    return Crawl(stores_on(open_storage(config), config))


def ranked(crawl: Crawl) -> dict[str, float]:
    update_linkrank(crawl.stores, now=NOW)
    return {row["url"]: row["rank"] for row in rows_of(crawl.stores, LINKRANK)}


def key(url: str) -> bytes:
    return sha1(url.encode()).digest()


def page_of(url: str) -> str:
    return url.partition("?")[0]


def domain(url: str) -> str:
    return domain_of(host_of(url))


def looped(links: Iterable[Pair], options: LinkRankConfig) -> set[Pair]:
    """The arcs between domains that are on loops."""
    arcs = {(domain(source), domain(target)) for source, target in links}
    arcs = {(one, other) for one, other in arcs if one != other}
    back = {(one, other) for one, other in arcs if options.drop_reciprocal and (other, one) in arcs}
    names = {name for arc in arcs for name in arc} if options.drop_triangles else set()
    return back | {
        (one, other)
        for one, other in arcs
        for third in names
        if {(other, third), (third, one)} <= arcs
    }


def one_of_each(links: Iterable[Pair], groups: Sequence[Callable[[Pair], Any]]) -> list[Pair]:
    """As Nutch does it: a link stays where none before it was of one of its groups."""
    seen: set[Any] = set()
    stay = []
    for link in links:
        of = {(number, group(link)) for number, group in enumerate(groups)}
        if not of & seen:
            seen |= of
            stay.append(link)
    return stay


def plain(links: Iterable[Pair], options: LinkRankConfig) -> dict[str, float]:
    """LinkRank in plain Python."""
    links = sorted(
        {link for link in links if link[0] != link[1]},
        key=lambda link: (key(link[0]), key(link[1])),
    )
    links = [one for one in links if options.within_host or host_of(one[0]) != host_of(one[1])]
    links = [one for one in links if options.within_domain or domain(one[0]) != domain(one[1])]
    loops = looped(links, options)
    links = [one for one in links if (domain(one[0]), domain(one[1])) not in loops]
    kinds = [page_of] * options.one_per_page + [domain] * options.one_per_domain
    links = one_of_each(links, [lambda one, of=of: (one[0], of(one[1])) for of in kinds])
    out, inlinks = defaultdict(int), defaultdict(list)
    for source, _ in links:
        out[source] += 1
    for source, target in one_of_each(
        links, [lambda one, of=of: (one[1], of(one[0])) for of in kinds]
    ):
        inlinks[target].append(source)
    ranks = dict.fromkeys({end for link in links for end in link}, 1.0)
    for _ in range(options.rounds):
        sums = {url: sum(ranks[source] / out[source] for source in inlinks[url]) for url in ranks}
        ranks = {
            url: 1 - options.damping + options.damping * (found + 1 / len(ranks))
            for url, found in sums.items()
        }
    return ranks


FORMS = [
    ([(A, B), (B, A)], {A: 3.2755225210, B: 3.2755225210}),
    ([(A, B)], {A: 0.575, B: 1.06375}),
    ([(A, B), (A, C), (B, C), (C, A)], {A: 2.9173585579, B: 1.6374759653, C: 2.9962105188}),
]


@pytest.mark.parametrize(("links", "expected"), FORMS, ids=["pair", "one way", "three"])
def test_closed_forms(config: Config, links: list[Pair], expected: dict[str, float]) -> None:
    crawl = opened(config, **LOOSE)
    sources = {source for source, _ in links}
    crawl.segment(
        T,
        [
            Visit(url, links=[target for source, target in links if source == url])
            for url in sources
        ],
    )
    assert ranked(crawl) == pytest.approx(expected, abs=1e-9, rel=0)


def test_the_limit_of_a_pair(config: Config) -> None:
    crawl = opened(config, **LOOSE, rounds=200)
    crawl.segment(T, [Visit(A, links=[B]), Visit(B, links=[A])])
    assert ranked(crawl) == pytest.approx(dict.fromkeys((A, B), 23 / 6), abs=1e-9, rel=0)


def test_duplicates_neither_rank_nor_hand_on_by_option(config: Config) -> None:
    """A says what C does, which was visited later: without A there is one link, from B to C."""
    config = replace(config, frontier=replace(config.frontier, order="crawldb"))
    crawl = opened(config, **LOOSE, duplicates="drop")
    crawl.segment(T, [Visit(A, body="same", links=[B]), Visit(B, body="b", links=[A, C])])
    crawl.segment(T + DAY, [Visit(C, body="same", links=[A])])
    update(crawl.stores, now=NOW)
    assert set(ranked(crawl)) == {A, B, C}
    mark_duplicates(crawl.stores, now=NOW)
    assert ranked(crawl) == pytest.approx({B: 0.575, C: 1.06375}, abs=1e-9, rel=0)
    assert set(ranked(opened(config, **LOOSE, duplicates="keep"))) == {A, B, C}


@pytest.fixture(scope="module")
def sites() -> list[Visit]:
    """Pages of two sites; links of some of their pages to other hosts of their domains and to each other."""
    found = [visit for site in SITES for visit in visits(site)][::8]
    urls = [visit.url for visit in found]
    for number, visit in enumerate(found):
        more = [f"http://{number % 7}.{number % 5}.example/{number % 11}?{number % 3}"]
        more += [f"http://docs.python.example/{number}", urls[-number], f"{visit.url}?x"]
        visit.links = [*visit.links, *more]
    return [
        *found,
        *(Visit(f"http://{n % 7}.{n % 5}.example/{n}", links=urls[n::50]) for n in range(40)),
    ]


OPTIONS = [LOOSE, STRICT, *(LOOSE | {name: not LOOSE[name]} for name in LOOSE), {}]


def test_two_sites_as_plain_python_ranks_them(config: Config, sites: list[Visit]) -> None:
    """With all options off, all on, each alone, and the defaults."""
    crawl = opened(config)
    crawl.segment(T, sites)
    links = [
        (visit.url, link[0] if isinstance(link, tuple) else link)
        for visit in sites
        for link in visit.links
    ]
    counts = set()
    for options in OPTIONS:
        crawl = opened(config, **options)
        expected = plain(links, crawl.stores.config.linkrank)
        found = ranked(crawl)
        counts.add((len(found), round(sum(found.values()), 6)))
        assert found == pytest.approx(expected, abs=1e-6, rel=0), options
    assert len(counts) > 6, "the options make a difference"


@pytest.mark.parametrize(
    "options", [LOOSE, STRICT, {"within_domain": True}], ids=["loose", "strict", "domains"]
)
def test_links_in_small_parts_give_the_same_bytes(
    config: Config, sites: list[Visit], monkeypatch: pytest.MonkeyPatch, options: dict[str, bool]
) -> None:
    """A page has more links, and more links to it, than are sorted at a time."""
    found = []
    for most in (None, 4):
        crawl = opened(config, **options)
        if most is None:
            crawl.segment(T, sites)
        else:
            for name in ("SORTED_ARCS", "BLOCK_ARCS", "_PLACES"):
                monkeypatch.setattr(arcs, name, most)
            monkeypatch.setattr(parquet, "BATCH_ROWS", 61)
            shutil.rmtree(crawl.root / "linkrank")
        update_linkrank(crawl.stores, now=NOW)
        found.append(sums(crawl, LINKRANK))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "options", [LOOSE, {"one_per_page": False, "one_per_domain": False}], ids=["loose", "apart"]
)
def test_keys_that_share_their_first_bytes_are_told_apart(
    config: Config, options: dict[str, bool]
) -> None:
    """Each graph has the same arcs, and keys in the same order: spread ones, and ones that share 8 or 19 bytes."""
    urls = [f"http://{number}.example/" for number in range(9)]
    links = [
        (number, target)
        for number in range(8)
        for target in range(9)
        if number != target and (number * number + target) % 5 < 3
    ]
    found = []
    for first, last in ((0, 20), (8, 12), (19, 1)):
        keys = [b"k" * first + bytes([number * 25]) + b"z" * (last - 1) for number in range(9)]
        rows = [
            {
                "key": keys[one],
                "url": urls[one],
                "target": keys[other],
                "target_url": urls[other],
                "anchor": "",
            }
            for one, other in links
        ]
        rows += [{"key": keys[one], "url": urls[one], "seen_time": NOW} for one in range(8)]
        rows.sort(key=lambda row: (row["key"], row.get("target", b"")))
        crawl = opened(config, **(LOOSE | options))
        for folder in ("outlinks", "linkrank"):
            shutil.rmtree(crawl.root / folder, ignore_errors=True)
        table = pa.Table.from_pylist([{"is_gone": False} | row for row in rows], OUTLINKS_SCHEMA)
        leave_links(crawl.stores, table.to_batches())
        found.append(ranked(crawl))
    assert found[0] == found[1] == found[2]
    assert len(set(found[0].values())) > 5


def test_links_of_pages_that_are_gone_or_lead_elsewhere_count_nothing(config: Config) -> None:
    crawl = opened(config)
    crawl.segment(T, [Visit(A, links=[B]), Visit(B, links=[A]), Visit(C, links=[A])])
    crawl.segment(T + DAY, [Visit(B, "gone"), Visit(C, "redirect", redirect_url=A)])
    assert ranked(crawl) == pytest.approx({A: 0.575, B: 1.06375}, abs=1e-9, rel=0)


def test_cycles_of_three_domains_are_dropped_and_others_stay(config: Config) -> None:
    d = "http://d.example/"
    crawl = opened(config, drop_triangles=True)
    crawl.segment(T, [Visit(A, links=[B, d]), Visit(B, links=[C]), Visit(C, links=[A])])
    assert set(ranked(crawl)) == {A, d}


def test_where_no_link_counts_it_says_why_and_leaves_nothing(config: Config) -> None:
    crawl = opened(config)
    with pytest.raises(InputError, match="has no segment yet, and so no links; crawl first"):
        update_linkrank(crawl.stores, now=NOW)
    crawl.segment(T, [Visit(A, links=[f"{A}b"])])
    with pytest.raises(InputError, match=r"has no links that count.*; linkrank\.within_host"):
        update_linkrank(crawl.stores, now=NOW)
    assert not list(crawl.root.glob("linkrank/*"))


def test_threads_and_groups_of_segments_change_no_byte(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl = opened(config)
    grow(crawl)
    away = crawl.root / "away"
    found = []
    for threads, late in ((1, None), (2, None), (2, crawl.root / str(T + DAY))):
        use_threads(monkeypatch, threads)
        for name in ("outlinks", "linkrank"):
            shutil.rmtree(crawl.root / name, ignore_errors=True)
        if late:
            late.rename(away)
            update_linkrank(crawl.stores, now=NOW)
            away.rename(late)
        update_linkrank(crawl.stores, now=NOW)
        found.append(sums(crawl, LINKRANK))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("step", ["versions.written", "versions.renamed"])
def test_killed_it_makes_the_same_when_it_is_run_again(
    config: Config, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    crawl = opened(config)
    crawl.segment(T, [Visit(A, links=[B, C]), Visit(B, links=[C])])
    expected, before = ranked(crawl), sums(crawl, LINKRANK)
    shutil.rmtree(crawl.root / "linkrank")

    class KilledError(BaseException):
        pass

    def reached(name: str) -> None:
        if name == step:
            raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(writing, "reached", reached)
        with pytest.raises(KilledError):
            update_linkrank(crawl.stores, now=NOW)
    assert (ranked(crawl), sums(crawl, LINKRANK)) == (expected, before)
    assert not list(Path(config.scratch.directory).glob("work-*"))


def test_it_is_made_again_only_where_links_or_options_changed(config: Config) -> None:
    crawl = opened(config)
    crawl.segment(T, [Visit(A, links=[B])])
    first = update_linkrank(crawl.stores, now=NOW)
    assert update_linkrank(crawl.stores, now=NOW) == first
    assert update_linkrank(opened(config, rounds=11).stores, now=NOW).number == 2
    crawl.segment(T + DAY, [Visit(A, "not_modified")])
    assert rows_of(crawl.stores, OUTLINKS)
    crawl.segment(T + 2 * DAY, [Visit(A, links=[C])])
    assert set(ranked(crawl)) == {A, C}


def test_a_damaged_table_of_links_is_named_and_the_ranks_of_before_stay(config: Config) -> None:
    crawl = opened(config)
    crawl.segment(T, [Visit(A, links=[B])])
    before = update_linkrank(crawl.stores, now=NOW)
    crawl.segment(T + DAY, [Visit(B, links=[C])])
    links = update_outlinks(crawl.stores, now=NOW)
    part = crawl.root.parent / links.paths[0]
    part.write_bytes(b"x" * part.stat().st_size)
    with pytest.raises(KrakeError, match=r"outlinks/2/part-00000\.parquet"):
        update_linkrank(crawl.stores, now=NOW)
    assert Versions(crawl.stores, LINKRANK).newest() == before
    part.unlink()
    assert set(ranked(crawl)) == {A, B, C}, (
        "made of the version before, and of the segment that it lacks"
    )
