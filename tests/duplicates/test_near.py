"""Near duplicates: what brute force finds is found, and nothing else; the same bytes, whatever happens."""

from __future__ import annotations

import math
import os
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow.parquet as pq
import pytest

from crawl_lib.config import Config
from crawl_lib.config.model import TextConfig
from crawl_lib.crawldb import update
from crawl_lib.duplicates import DUPLICATES, find_near
from crawl_lib.duplicates.near import Groups
from crawl_lib.duplicates.vectors import BANDS, Pair, Vector, bands_of
from crawl_lib.durable import KILL_VARIABLE
from crawl_lib.errors import DamagedFileError, InputError
from crawl_lib.repair import sweep
from crawl_lib.storage import open_storage
from crawl_lib.stores import Stores
from crawl_lib.text import TEXT_SCHEMA
from crawl_lib.versions import Version, Versions
from tests.crawldb.test_update import DAY, NOW
from tests.duplicates.brute import brute_force
from tests.duplicates.web import FOLDER, Web, leave, make_sites, make_table, make_web
from tests.engine.threads import use_threads
from tests.export.crawls import Capture, CrawlMaker, key
from tests.forked import run_forked
from tests.stores import rows_of, stores_on

A, B, C, D = (f"http://{name}.example/" for name in "abcd")
TEN = "one two three four five six seven eight nine ten"


def stores_of(config: Config, order: str = "fifo", **options: Any) -> Stores:
    config = replace(config, frontier=replace(config.frontier, order=order))
    config = replace(config, duplicates=replace(config.duplicates, **options))
    return stores_on(open_storage(config), config)


def groups_of(stores: Stores) -> list[list[str]]:
    """URLs of each group."""
    found: dict[bytes, list[str]] = {}
    for row in rows_of(stores, find_near(stores, now=NOW)):
        found.setdefault(row["group_key"], []).append(row["url"])
    for group, urls in found.items():
        assert group == min(map(key, urls))
    return sorted(map(sorted, found.values()))


@pytest.fixture(scope="module")
def web() -> Web:
    return make_web(1)


def test_brute_force_on_2000_pages_finds_no_other_pairs_and_few_more(
    config: Config, web: Web
) -> None:
    """200 pairs, three of four at a cosine of 0.85 to 0.95; mirrors; hosts with a template."""
    stores = stores_of(config)
    leave(stores, web.texts)
    alike = brute_force(web.texts, 0.85)
    truth = {pair: cosine for pair, cosine in alike.items() if cosine >= 0.9}
    of_pairs = [cosine for pair, cosine in alike.items() if "//one" in pair[0] and cosine <= 0.95]
    assert (len(web.texts), len(of_pairs) > 130) == (2000, True)
    version = find_near(stores, now=NOW)
    rows = {row["key"]: row for row in rows_of(stores, version)}
    right = {frozenset((key(one), key(other))): cosine for (one, other), cosine in truth.items()}
    found = {frozenset((one, row["nearest"])): row["cosine"] for one, row in rows.items()}
    assert {pair: right.get(pair) for pair in found} == found, "precision 1, and the very cosine"
    assert len(found) / len(right) >= 0.98, "recall"
    assert len(right) > 240
    assert version.manifest["pages"] == 2000
    assert version.manifest["rows"] == len(rows)
    assert version.manifest["groups"] == len({row["group_key"] for row in rows.values()})


@pytest.mark.parametrize(
    ("weights", "seed"),
    [
        ("idf", 1),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in [("idf", 2), ("counts", 1)]),
    ],
)
def test_brute_force_on_sites_with_templates_finds_no_other_pairs_and_few_more(
    config: Config, monkeypatch: pytest.MonkeyPatch, weights: str, seed: int
) -> None:
    """Hosts of 5 to 200 pages, with copies within a host and on other hosts."""
    stores, joined, join = (
        stores_of(config, weights=weights),
        dict[frozenset[bytes], float](),
        Groups.join,
    )

    def noted(groups: Groups, one: bytes, other: bytes, near: float) -> None:
        joined[frozenset((one, other))] = near
        join(groups, one, other, near)

    monkeypatch.setattr(Groups, "join", noted)
    texts = make_sites(seed)
    leave(stores, texts)
    find_near(stores, now=NOW)
    truth = brute_force(texts, 0.9, 20 if weights == "idf" else math.inf)
    right = {frozenset(map(key, pair)): cosine for pair, cosine in truth.items()}
    assert {pair: right.get(pair) for pair in joined} == joined, "precision 1, and the very cosine"
    assert len(joined) / len(right) >= 0.98, "recall"
    assert len(right) > 80
    assert sum(urlsplit(one).hostname != urlsplit(other).hostname for one, other in truth) > 4


def test_a_template_makes_no_pages_alike_and_no_copy_is_lost(config: Config) -> None:
    """200 pairs of edited copies, and 200 of the same boilerplate with other contents."""
    table = make_table(3)
    found = {}
    for weights in ("idf", "counts"):
        part = replace(config, dfs_primary=f"{config.dfs_primary}-{weights}")
        stores = stores_of(part, weights=weights)
        leave(stores, table.texts)
        rows = rows_of(stores, find_near(stores, now=NOW))
        groups = {row["key"]: row["group_key"] for row in rows}
        together = [
            groups.get(key(one), one) == groups.get(key(other), other) for one, other in table.pairs
        ]
        found[weights] = Counter(zip(table.are_copies, together, strict=True))
    assert found["idf"] == {(True, True): 200, (False, False): 200}
    assert found["counts"][False, True] > 50
    assert found["counts"][True, True] == 200


def test_scripts_without_spaces_are_compared_by_bigrams(config: Config) -> None:
    """Of 60 pages of Chinese each has a copy with 2 % of its characters changed."""
    rng, stores = random.Random(5), stores_of(config)
    letters = [chr(0x4E00 + number) for number in range(2000)]
    texts = {}
    for number in range(60):
        text = rng.choices(letters, [1 / (rank + 20) for rank in range(2000)], k=400)
        texts[f"http://zh.example/{number}"] = "".join(text)
        for place in rng.sample(range(400), 8):
            text[place] = rng.choice(letters)
        texts[f"http://zh.example/copy-{number}"] = "".join(text)
    leave(stores, texts)
    pairs = [
        [f"http://zh.example/{number}", f"http://zh.example/copy-{number}"] for number in range(60)
    ]
    assert sum(group in pairs for group in groups_of(stores)) >= 59


def test_groups_are_those_that_pairs_connect(config: Config) -> None:
    """The very same words in another order; one word of ten that differs; two that differ, by way of that; others."""
    stores = stores_of(config)
    again = "ten nine eight seven six five four three two one"
    other = TEN.replace("ten", "eleven")
    texts = {
        A: TEN,
        B: again,
        C: other,
        D: other.replace("one", "twelve"),
        "http://e.example/": "something else",
    }
    leave(stores, {**texts, "http://f.example/": "", "http://g.example/": ""})
    assert groups_of(stores) == [sorted([A, B, C, D])]
    rows = {row["url"]: row for row in rows_of(stores, find_near(stores, now=NOW))}
    assert [rows[url]["cosine"] for url in (A, B, C, D)] == [1, 1, 0.9, 0.9]
    assert (rows[A]["nearest"], rows[B]["nearest"]) == (key(B), key(A))
    assert rows[C]["nearest"] in map(key, (A, B, D))
    assert groups_of(stores_of(config, cosine=0.91)) == [sorted([A, B])]


def test_texts_that_are_not_there_yet_are_made_of_the_segments(config: Config) -> None:
    stores = stores_of(replace(config, text=TextConfig(processes=1)))
    pages = {A: "a page about cats", B: "a page about cats", C: "all of it is about dogs"}
    maker = CrawlMaker(Path(config.dfs_primary))
    captures = [
        Capture(url, f"<html><body><p>{text}</p></body></html>".encode())
        for url, text in pages.items()
    ]
    maker.segment(str(FOLDER), "node-a", captures)
    assert groups_of(stores) == [[A, B]]
    assert find_near(stores, now=NOW).manifest["pages"] == 3


def test_the_newest_capture_of_a_page_counts_with_fifo(config: Config) -> None:
    stores = stores_of(config)
    leave(stores, {A: TEN, B: TEN})
    assert groups_of(stores) == [[A, B]]
    leave(stores, {B: "all of it is new", C: TEN}, FOLDER + DAY)
    assert groups_of(stores) == [[A, C]]


def test_with_a_crawldb_what_it_has_taken_in_counts(config: Config) -> None:
    stores = stores_of(config, "crawldb")
    with pytest.raises(InputError, match="krake crawldb update"):
        find_near(stores, now=NOW)
    leave(stores, {A: TEN, B: TEN})
    update(stores, now=NOW)
    leave(stores, {B: "all of it is new", C: TEN}, FOLDER + DAY)
    assert groups_of(stores) == [[A, B]]
    update(stores, now=NOW)
    assert groups_of(stores) == [[A, C]]


def test_without_a_segment_it_says_what_to_do(config: Config) -> None:
    with pytest.raises(InputError, match="`krake crawl` makes some"):
        find_near(stores_of(config), now=NOW)


def test_of_many_pages_in_a_band_each_is_compared_with_some_and_all_are_one_group(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crawl_lib.duplicates.near.NEXT", 2)
    stores, compared = stores_of(config), Counter[bytes]()

    class Counted(Pair):
        def __init__(self, one: Vector, other: Vector) -> None:
            compared.update((one.key, other.key))
            super().__init__(one, other)

    monkeypatch.setattr("crawl_lib.duplicates.near.Pair", Counted)
    urls = [f"http://{number}.example/" for number in range(300)]
    base = " ".join(f"word{number}" for number in range(300))
    leave(stores, {url: f"{base} own{number}" for number, url in enumerate(urls)})
    assert groups_of(stores) == [sorted(urls)]
    assert compared.total() / 2 <= 300 * 2 * BANDS < 300 * 299 / 2


def test_bands_are_the_same_on_every_machine() -> None:
    """Else candidates would depend on where a version was made. By hand: gcc 12 on x86-64."""
    words, weights = np.arange(1, 11), np.full(10, 100)
    [bands] = bands_of(np.array([0, 10]), words, weights)
    assert bands_of(np.array([0, 10, 20]), np.tile(words[::-1], 2), np.full(20, 7)) == [
        bands,
        bands,
    ]
    assert len(bands) == 5 * BANDS
    assert bands[:30] == "436088d13f8cc0f0007739c2023032"


def test_bits_agree_as_the_angle_says() -> None:
    """A hyperplane parts two vectors with a chance of their angle / 180 degrees (Charikar, 2002)."""
    rng = np.random.default_rng(7)
    words, one = rng.integers(-(1 << 62), 1 << 62, 400), rng.integers(1, 50, 400)
    for share in (0.1, 0.3, 0.6):
        other = np.where(rng.random(400) < share, rng.integers(1, 50, 400) * 3, one)
        bits = [
            int(bands, 16)
            for bands in bands_of(np.array([0, 400, 800]), np.tile(words, 2), np.r_[one, other])
        ]
        angle = math.acos(one @ other / math.sqrt(int(one @ one) * int(other @ other)))
        assert (bits[0] ^ bits[1]).bit_count() / (20 * BANDS) == pytest.approx(
            angle / math.pi, abs=0.05
        )


def test_groups_do_not_depend_on_the_order_of_pairs() -> None:
    rng, keys = random.Random(3), [bytes([number]) * 20 for number in range(40)]
    pairs = [(*sorted(rng.sample(keys, 2)), rng.choice([0.9, 0.95, 1.0])) for _ in range(30)]
    found = []
    for _ in range(5):
        groups = Groups()
        rng.shuffle(pairs)
        for pair in pairs:
            groups.join(*pair)
        found.append(groups.rows())
    assert all(one == found[0] for one in found)
    assert all(row["group_key"] <= row["key"] for row in found[0])


def few(config: Config, pairs: int = 60) -> Stores:
    """A crawl of 160 pages or more."""
    stores = stores_of(config)
    leave(stores, make_web(2, mirrors=1, pairs=pairs, templates=1, others=10).texts)
    return stores


def sums(version: Version) -> list[str]:
    return [part["sha256"] for part in version.manifest["parts"]]


def test_one_thread_and_two_give_the_same_bytes_and_a_second_call_finds_them(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores, found = few(config), []
    for threads in (1, 2, 2):
        use_threads(monkeypatch, threads)
        version = find_near(stores, now=NOW)
        assert find_near(stores, now=NOW) == version
        found.append(sums(version))
        stores.storage.delete(version.path)
    assert found[0] == found[1] == found[2]
    assert version.manifest["rows"] > 50


@pytest.mark.parametrize("step", ["versions.written", "versions.renamed"])
def test_killed_and_run_again_it_is_the_same(config: Config, step: str) -> None:
    stores = few(config, 5)
    assert run_forked(find_and_die, config, step) == -9
    version = find_near(stores, now=NOW)
    assert version.number == 1
    again = Versions(stores, DUPLICATES)
    stores.storage.delete(version.path)
    assert sums(find_near(stores, now=NOW)) == sums(version)
    sweep(stores)
    assert not [
        entry.name for entry in stores.storage.list(again.folder) if entry.name.startswith(".")
    ]


def find_and_die(config: Config, step: str) -> None:
    os.environ[KILL_VARIABLE] = step
    find_near(stores_of(config), now=NOW)


def text_file(stores: Stores) -> Path:
    [path] = Path(stores.config.dfs_primary, "text").rglob("*.parquet")
    return path


@pytest.mark.parametrize("damage", ["cut", "flipped", "other"])
def test_damaged_texts_are_named_with_what_to_do(config: Config, damage: str) -> None:
    stores = stores_of(config)
    leave(stores, {A: TEN, B: TEN})
    path = text_file(stores)
    data = bytearray(path.read_bytes())
    if damage == "cut":
        path.write_bytes(data[:-20])
    elif damage == "flipped":
        chunk = pq.read_metadata(path).row_group(0).column(4)
        assert chunk.path_in_schema.startswith("terms")
        data[chunk.dictionary_page_offset + chunk.total_compressed_size // 2] ^= 1
        path.write_bytes(data)
    else:
        pq.write_table(TEXT_SCHEMA.empty_table().select(["key", "time"]), path)
    with pytest.raises(
        DamagedFileError, match=r"text-\w+\.parquet.*move it away, and run this again"
    ):
        find_near(stores, now=NOW)
    assert Versions(stores, DUPLICATES).newest() is None
