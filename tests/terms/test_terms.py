"""The table of terms: what brute force finds, the same bytes, look-ups of words of any length."""

from __future__ import annotations

import math
import os
import random
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crawl_lib.config import Config
from crawl_lib.curate import drop_pages
from crawl_lib.durable import KILL_VARIABLE
from crawl_lib.errors import InputError
from crawl_lib.ranks import LINKRANK
from crawl_lib.repair import fsck, sweep
from crawl_lib.storage import open_storage
from crawl_lib.stores import Stores
from crawl_lib.terms import (
    TERMS,
    TERMS_OUTPUT,
    TERMS_SCHEMA,
    postings_of,
    search_terms,
    table,
    update_terms,
)
from crawl_lib.text import count_words
from crawl_lib.urls import key_of
from crawl_lib.versions import Versions, write_version
from tests.crawldb.test_update import NOW
from tests.duplicates.web import Texts, leave, text_of
from tests.forked import run_forked
from tests.stores import rows_of, stores_on

A, B, C, D = (f"http://{name}.example/" for name in "abcd")
PAGES = {A: "octopus octopus arms sea", B: "octopus sea sea", C: "sea", D: ""}


def by_brute_force(texts: Texts, most: int) -> list[dict[str, Any]]:
    counted = {url: count_words(text) for url, text in texts.items() if text}
    having: dict[str, list[tuple[float, str]]] = {}
    for url, words in counted.items():
        for word, count in words.items():
            having.setdefault(word, []).append((-count / max(words.values()), url))
    return [
        {
            "key": word.encode(),
            "pages": len(pages),
            "postings": [
                {
                    "url": url,
                    "tf_idf": pytest.approx(-tf * math.log(len(counted) / len(pages)), abs=1e-9),
                }
                for tf, url in sorted(pages)[:most]
            ],
        }
        for word, pages in sorted(having.items(), key=lambda pair: pair[0].encode())
    ]


def test_four_pages_have_these_rows(stores: Stores) -> None:
    """Three pages have words: N is 3."""
    leave(stores, PAGES)
    version = update_terms(stores, now=NOW)
    half, whole = math.log(3 / 2) / 2, math.log(3 / 2)
    assert rows_of(stores, version) == [
        {"key": b"arms", "pages": 1, "postings": [{"url": A, "tf_idf": round(math.log(3) / 2, 9)}]},
        {
            "key": b"octopus",
            "pages": 2,
            "postings": [
                {"url": A, "tf_idf": round(whole, 9)},
                {"url": B, "tf_idf": round(half, 9)},
            ],
        },
        {"key": b"sea", "pages": 3, "postings": [{"url": url, "tf_idf": 0.0} for url in (B, C, A)]},
    ]
    assert {name: version.manifest[name] for name in ("pages", "postings", "rows")} == {
        "pages": 3,
        "postings": 6,
        "rows": 3,
    }


@pytest.mark.parametrize(("seed", "most", "rows"), [(1, 1000, 1 << 16), (2, 3, 7), (3, 50, 64)])
def test_brute_force_finds_the_same(
    seed: int, most: int, rows: int, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the limit of postings, and wherever the batches of the engine end."""
    rng = random.Random(seed)
    strange = ["é", "字", "\U0001f600x", "z" * 64, "ß", "a", "ab"]
    texts = {
        f"http://{number % 7}.example/{number}": " ".join(
            text_of(rng, rng.randint(1, 60)) + rng.choices(strange, k=3)
        )
        for number in range(60)
    }
    leave(stores, texts)
    monkeypatch.setattr(table, "MAX_POSTINGS", most)
    monkeypatch.setattr(table, "POSTING_ROWS", rows)
    monkeypatch.setattr(table, "TERM_ROWS", 16)
    version = update_terms(stores, now=NOW)
    right = by_brute_force(texts, most)
    assert rows_of(stores, version) == right
    versions = Versions(stores, TERMS)
    for row in right:
        [found] = [
            found for batch in versions.rows_of(version, row["key"]) for found in batch.to_pylist()
        ]
        assert found == row
    for key in (b"", b"\0", b"aa", b"\xff" * 70, b"zz" * 30, b"octopus" * 20):
        assert [
            found for batch in versions.rows_of(version, key) for found in batch.to_pylist()
        ] == []


def test_made_again_of_the_same_it_is_the_same_version(stores: Stores) -> None:
    leave(stores, PAGES)
    first = update_terms(stores, now=NOW)
    assert update_terms(stores, now=NOW).number == first.number
    leave(stores, {C: "octopus"}, 1_790_000_001)
    second = update_terms(stores, now=NOW)
    assert (second.number, second.digest != first.digest) == (2, True)
    [row] = postings_of(stores, "Octopus")
    assert row["pages"] == 3


def test_versions_beyond_those_kept_go(config: Config) -> None:
    config = replace(config, crawldb=replace(config.crawldb, keep_versions=1))
    stores = stores_on(open_storage(config), config)
    leave(stores, PAGES)
    update_terms(stores, now=NOW)
    leave(stores, {C: "octopus"}, 1_790_000_001)
    update_terms(stores, now=NOW)
    assert Versions(stores, TERMS).numbers() == [2]


def test_a_word_is_looked_up_as_texts_are_read(stores: Stores) -> None:
    leave(stores, {A: "caf\u00e9 noir", B: "東京 タワー"})
    update_terms(stores, now=NOW)
    assert [row["word"] for row in postings_of(stores, "CAFE\u0301")] == ["caf\u00e9"]
    assert postings_of(stores, "cafe") == []
    assert [row["word"] for row in postings_of(stores, "東京都")] == ["東京"]
    assert postings_of(stores, "x" * 65 + " " + "y" * 10_000) == []
    assert postings_of(stores, "") == []


def test_a_search_adds_up_weights(stores: Stores) -> None:
    leave(stores, PAGES)
    update_terms(stores, now=NOW)
    arms, octopus = math.log(3) / 2, math.log(3 / 2)
    found = search_terms(stores, ["octopus", "arms nothing"])
    assert found == [
        {"url": A, "score": pytest.approx(arms + octopus, abs=1e-8), "words": 2, "rank": 1.0},
        {"url": B, "score": pytest.approx(octopus / 2, abs=1e-8), "words": 1, "rank": 1.0},
    ]
    assert [row["url"] for row in search_terms(stores, ["sea"], count=2)] == [A, B]
    assert search_terms(stores, ["nothing"]) == []


def test_a_search_multiplies_by_ranks_by_their_mean(stores: Stores) -> None:
    """A page without a rank has the mean."""
    leave(stores, PAGES)
    update_terms(stores, now=NOW)
    ranks = [{"key": key_of(url), "url": url, "rank": rank} for url, rank in ((B, 9.0), (C, 1.0))]
    rows = pa.RecordBatch.from_pylist(
        sorted(ranks, key=lambda row: str(row["key"].hex())), LINKRANK.schema
    )
    write_version(Versions(stores, LINKRANK), 1, [rows], {"now": 0})
    octopus = math.log(3 / 2)
    assert search_terms(stores, ["octopus"]) == [
        {"url": A, "score": pytest.approx(octopus, abs=1e-8), "words": 1, "rank": 1.0},
        {
            "url": B,
            "score": pytest.approx(octopus / 2 * 9 / 5, abs=1e-8),
            "words": 1,
            "rank": 9 / 5,
        },
    ]


def test_before_the_first_version_it_says_what_to_run(stores: Stores) -> None:
    with pytest.raises(InputError, match="has no segment yet; `krake crawl` makes some"):
        update_terms(stores, now=NOW)
    with pytest.raises(InputError, match="has no table of terms yet; run `krake terms update`"):
        postings_of(stores, "word")


def test_pages_without_words_make_an_empty_table(stores: Stores) -> None:
    leave(stores, {A: "", B: ""})
    version = update_terms(stores, now=NOW)
    assert (rows_of(stores, version), version.manifest["pages"]) == ([], 0)
    assert postings_of(stores, "word") == []
    assert search_terms(stores, ["word"]) == []


def _update(config: Config, step: str) -> None:
    os.environ[KILL_VARIABLE] = step
    update_terms(stores_on(open_storage(config), config), now=NOW)


@pytest.mark.parametrize("step", ["versions.written:1", "versions.renamed:1"])
def test_killed_at_each_step_it_goes_on_and_leaves_nothing(
    step: str, config: Config, stores: Stores
) -> None:
    leave(stores, PAGES)
    assert run_forked(_update, config, step) == -signal.SIGKILL
    update_terms(stores, now=NOW)
    sweep(stores)
    folder = Path(stores.config.dfs_primary) / Versions(stores, TERMS).folder
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []
    assert [row["word"] for row in postings_of(stores, "arms")] == ["arms"]


def test_a_damaged_version_is_found_set_aside_and_made_again(stores: Stores) -> None:
    leave(stores, PAGES)
    version = update_terms(stores, now=NOW)
    part = Path(stores.config.dfs_primary) / version.paths[0]
    part.write_bytes(part.read_bytes()[:-1])
    [finding] = [one for one in fsck(stores).findings if one.room == "terms"]
    assert finding.name == "terms_damaged"
    assert "`krake terms update` makes it again" in finding.repair
    Versions(stores, TERMS).set_aside(version.number)
    assert update_terms(stores, now=NOW).number == 2


def test_a_drop_names_the_versions_that_have_the_page(stores: Stores) -> None:
    leave(stores, PAGES)
    update_terms(stores, now=NOW)
    leave(stores, {D: "whale"}, 1_790_000_001)
    update_terms(stores, now=NOW)
    paths = [Versions(stores, TERMS).path(number) for number in (1, 2)]
    assert [one.path for one in drop_pages(stores, [A]).places if one.path in paths] == paths[::-1]
    assert [one.path for one in TERMS_OUTPUT.places_of(stores, {key_of(D): []})] == [paths[1]]


def test_a_long_run_of_one_word_is_cut_by_weight(stores: Stores) -> None:
    """1,001 pages have the word: the one that says it least is left out, and counted."""
    texts = {f"http://a.example/{number:04}": "octopus octopus" for number in range(1001)}
    texts["http://a.example/0500"] = "octopus sea sea"
    leave(stores, texts)
    version = update_terms(stores, now=NOW)
    row = next(row for row in rows_of(stores, version) if row["key"] == b"octopus")
    assert (row["pages"], len(row["postings"])) == (1001, 1000)
    assert Counter(posting["url"] == "http://a.example/0500" for posting in row["postings"]) == {
        False: 1000
    }
    assert pq.read_schema(Path(stores.config.dfs_primary) / version.paths[0]).equals(TERMS_SCHEMA)
