"""However an index came to be, equal pages give equal answers: grown or made afresh, of one node or of three."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from tantivy import DocAddress

from crawl_lib.curate import drop_pages
from crawl_lib.index import INDEX
from crawl_lib.index.update import MOST_DELETED
from crawl_lib.search import OpenIndex, SearchOptions, answer, every_page
from crawl_lib.search.opened import open_index
from crawl_lib.versions import Version, Versions
from tests.export.crawls import Capture
from tests.index.made import Made, a, canonical, linking, page
from tests.index.made import answer as gone
from tests.search.made import NO_SITES, NOW_US

WORDS = [f"word{number}" for number in range(12)]
QUERIES = [
    *WORDS,
    *(f"{one} {other}" for one, other in pairwise(WORDS)),
    *(f"{one} OR {other}" for one, other in zip(WORDS, WORDS[3:], strict=False)),
    *(f'"{one} {one}"' for one in WORDS[:4]),
    *(f"{WORDS[0]} -{one}" for one in WORDS[1:5]),
    *("word*", "site:a.example", "language:en", "title:word1", "again", "unheard"),
]
PAGES, UPDATES = 200, 10
DROPPED = range(40, 60)


def said(chosen: Random) -> str:
    """A text of words of which few are frequent."""
    weights = [1 / (rank + 1) for rank in range(len(WORDS))]
    return " ".join(chosen.choices(WORDS, weights, k=chosen.choice([5, 30, 60])))


def named(chosen: Random, number: int, time: float = 1000.0, mark: str = "") -> Capture:
    """A page with a title, and unless it will be dropped with a link that has a text."""
    links = (
        {a(f"p{chosen.randrange(PAGES)}"): chosen.choice(WORDS)} if number not in DROPPED else {}
    )
    text = f"{said(chosen)} only{number} {mark}"
    return linking(
        a(f"p{number}"), text, links, time=time, title=f"{chosen.choice(WORDS)} title{number}"
    )


def opened(made: Made, version: Version) -> OpenIndex:
    return open_index(
        made.folder(version), version.number, version.manifest["settings"]["languages"]
    )


def scores(index: OpenIndex, query: str) -> Mapping[str, float]:
    """The score of each of the best pages of a query, in their order."""
    found = answer(index, query, NO_SITES, SearchOptions(), NOW_US)
    return {one.url: one.score for one in found.results if one.score is not None}


def pages_of(index: OpenIndex, query: str) -> set[str]:
    """All pages with all words of a query."""
    return {url for _, url in every_page(index, query, NO_SITES, NOW_US)}


@dataclass(frozen=True)
class Grown:
    """A crawl with an index of ten updates, and with the one that a purge made of the same pages.

    `purged_ns`: when a file was written just before the purge.
    """

    made: Made
    old: Version
    new: Version
    before: OpenIndex
    after: OpenIndex
    purged_ns: int


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Grown:
    """Each update changes, adds and often deletes a page; before the last one, twenty pages are dropped."""
    chosen, made = Random(36), Made.below(tmp_path_factory.mktemp("grown") / "crawl")
    made.crawl(*(named(chosen, number) for number in range(PAGES)))
    made.update()
    for update in range(UPDATES):
        time = 2000.0 + update
        changes = [named(chosen, update % 4, time, "again"), named(chosen, PAGES + update, time)]
        if update % 3:
            changes.append(gone(a(f"p{10 + update}"), "gone", 404, time=time))
        made.crawl(*changes)
        if update == UPDATES - 1:
            drop_pages(made.stores, [a(f"p{number}") for number in DROPPED])
        version = made.update()
        assert not version.manifest["is_anew"], update
    before = opened(made, version)
    (made.root / "now").touch()
    new = made.update(purge=True)
    return Grown(
        made, version, new, before, opened(made, new), (made.root / "now").stat().st_mtime_ns
    )


def deleted_share(grown: Grown, query: str) -> float:
    """The share of deleted pages of all pages, or of the pages of a word of a query, whichever is largest."""
    manifest = grown.old.manifest
    shares = [manifest["deleted"] / (manifest["pages"] + manifest["deleted"])]
    for word in re.findall(r"word\d+|again", query):
        every, rest = (
            index.searcher.doc_freq("text", word) for index in (grown.before, grown.after)
        )
        shares.append((every - rest) / every)
    return max(shares)


def test_a_version_of_ten_updates_answers_like_one_made_afresh(grown: Grown) -> None:
    """Words of deleted pages count in scores until Tantivy merges their files."""
    assert 0.1 < deleted_share(grown, "") < MOST_DELETED
    for query in QUERIES:
        assert pages_of(grown.before, query) == pages_of(grown.after, query), query
        new, old, share = (
            scores(grown.after, query),
            scores(grown.before, query),
            deleted_share(grown, query),
        )
        assert {url: old[url] for url in old.keys() & new.keys()} == {
            url: pytest.approx(new[url], rel=share) for url in old.keys() & new.keys()
        }, query


def every_text(index: OpenIndex, most: int) -> str:
    """The texts of all documents in Tantivy's files, those too that are deleted and found no more."""
    texts = []
    for segment in range(index.searcher.num_segments):
        for document in range(most):
            try:
                found = index.searcher.doc(DocAddress(segment, document))
            except ValueError:  # beyond the last document
                break
            texts += [
                bytes(value).decode() for name in ("url", "title", "body") for value in found[name]
            ]
    return "\n".join(texts)


def test_a_purge_leaves_nothing_of_twenty_dropped_pages(grown: Grown) -> None:
    """Their words are in no dictionary and no stored document, and no file is older than the purge."""
    for index, there in ((grown.before, True), (grown.after, False)):
        words = set(every_text(index, PAGES + 10 * UPDATES).split())
        for number in DROPPED:
            for field, word in (
                ("text", "only"),
                ("words_en", "only"),
                ("text", "title"),
                ("title_en", "title"),
            ):
                assert bool(index.searcher.doc_freq(field, f"{word}{number}")) is there, (
                    field,
                    word,
                )
            for word in (f"only{number}", f"title{number}", a(f"p{number}")):
                assert (word in words) is there
    versions = Versions(grown.made.stores, INDEX)
    assert [entry.name for entry in grown.made.stores.storage.list(versions.folder)] == [
        str(grown.new.number)
    ]
    for file in grown.made.folder(grown.new).iterdir():
        found = file.stat()
        assert (found.st_nlink, found.st_mtime_ns >= grown.purged_ns) == (1, True), file.name


def test_the_segments_of_one_node_or_three_in_any_order_give_the_same_answers(
    tmp_path: Path,
) -> None:
    chosen = Random(37)
    captures = [named(chosen, number) for number in range(60)]
    captures += [page(a(f"same{number}"), "equal word1 texts") for number in range(3)]
    captures += [
        canonical(a(f"c{number}"), a(f"c{(number + 1) % 3}"), f"loop{number} word2")
        for number in range(3)
    ]
    one, three = (Made.below(tmp_path / name) for name in ("one", "three"))
    one.crawl(*captures)
    for number in range(3):
        three.crawl(*reversed(captures[number::3]), folder=1, node=f"node-{number}")
    expected, got = (opened(made, made.update()) for made in (one, three))
    for query in QUERIES:
        assert list(scores(got, query).items()) == list(scores(expected, query).items()), query
