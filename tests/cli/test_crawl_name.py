"""A crawl's name is noted wherever two crawls would spoil each other's work, and another name is refused there."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import yaml

from crawl_lib.config import load_config
from crawl_lib.errors import ConfigError
from crawl_lib.keys.ring import Ring, RingNote, read_ring
from crawl_lib.keys.sqlite import SqliteKeyServer
from crawl_lib.rounds import crawlname
from crawl_lib.rounds.crawlname import CrawlName
from crawl_lib.stores import open_stores
from demo import Serving
from tests.cli.conftest import Done, Krake

PLACES = {
    "crawl.directory": {"crawl": {"name": "other", "directory": "other"}},
    "export.directory": {"export": {"directory": "exports"}},
    "queue.local_dir": {"queue": {"local_dir": "other"}},
    "key_storage": {"key_storage": {"servers": ["other/0.sqlite"]}},
}
"""What gives the other crawl each of its places."""
LOOKS = {"lock", "progress.json", "0.sqlite-shm", "0.sqlite-wal"}
"""Files that change by a look: a lock names who tried, the progress says why he failed."""


def rename(krake: Krake, *own: str) -> None:
    """Another crawl in the same places, but for `own`."""
    mapping: dict[str, Any] = yaml.safe_load(krake.file.read_text())
    mapping["crawl"] = {**mapping.get("crawl", {}), "name": "other"}
    for option in own:
        mapping |= PLACES[option]
    krake.file.write_text(yaml.safe_dump(mapping))


def refusal(done: Done) -> str:
    """What a command that failed said, a line for each place."""
    assert done.code == 1, (done.out, done.err)
    return done.err


@pytest.fixture
def crawled(krake: Krake, serving: Serving) -> Krake:
    krake.ok("inject", "\n".join(serving.seeds))
    krake.ok("crawl")
    return krake


@pytest.mark.parametrize(
    "words", [("config",), ("inject", "http://127.0.0.1:1/"), ("fsck", "--repair")]
)
def test_every_place_of_another_crawl_is_named_with_both_names(
    crawled: Krake, words: tuple[str, ...]
) -> None:
    rename(crawled)
    error = refusal(crawled(*words))
    assert all(f"{option}: " in error for option in PLACES), error
    assert error.count("of the crawl 'krake', and crawl.name is 'other'") == 5, (
        "two nodes, one of each other place"
    )


@pytest.mark.parametrize("shared", PLACES)
def test_one_shared_place_is_enough(crawled: Krake, shared: str) -> None:
    rename(crawled, *(option for option in PLACES if option != shared))
    for words in (("config",), ("inject", "http://127.0.0.1:1/"), ("crawl",)):
        error = refusal(crawled(*words))
        assert f"{shared}: " in error
        assert "of the crawl 'krake', and crawl.name is 'other'" in error


def test_nothing_of_a_crawl_is_touched_by_one_of_another_name(crawled: Krake) -> None:
    def state() -> dict[str, bytes]:
        paths = [
            path
            for name in ("dfs", "keys", "queue")
            for path in (crawled.directory / name).rglob("*")
        ]
        return {
            str(path): path.read_bytes()
            for path in paths
            if path.is_file() and path.name not in LOOKS
        }

    before = state()
    rename(crawled)
    for words in (
        ("inject", "http://127.0.0.1:1/"),
        ("crawl",),
        ("settle",),
        ("config",),
        ("fsck", "--repair"),
    ):
        refusal(crawled(*words))
    assert state() == before


def test_with_places_of_its_own_it_crawls_and_may_share_scratch(
    crawled: Krake, serving: Serving
) -> None:
    before = crawled.status()
    rename(crawled, *PLACES)
    crawled.ok("config")
    crawled.ok("inject", "\n".join(serving.seeds))
    crawled.ok("crawl")
    crawled.ok("export", "--label", "e")
    assert crawled.status()["totals"]["fetched"] == before["totals"]["fetched"]


def names(krake: Krake) -> list[str | None]:
    """The names that all places have."""
    files = sorted(krake.directory.rglob("_crawl"))
    ring = read_ring(SqliteKeyServer(str(krake.directory / "keys/0.sqlite")))
    assert ring
    assert ring.ring
    return [*(json.loads(file.read_text())["crawl"] for file in files), ring.ring.crawl]


def test_the_first_use_notes_the_name_in_each_place(crawled: Krake) -> None:
    assert names(crawled) == ["krake"] * 5


def without_names(krake: Krake) -> None:
    for file in krake.directory.rglob("_crawl"):
        file.unlink()
    server = SqliteKeyServer(str(krake.directory / "keys/0.sqlite"))
    server.write_note(RingNote(Ring(0, (server.name,), 1), 0).to_text())


def damaged(krake: Krake) -> None:
    for number, file in enumerate(sorted(krake.directory.rglob("_crawl"))):
        file.write_bytes([b"", b'{"crawl": "kraKe"}\n', b"\xff\x00", b"[]"][number])


@pytest.mark.parametrize("before", [without_names, damaged])
def test_data_of_before_and_damaged_names_get_the_name_at_the_next_use(
    crawled: Krake, before: Callable[[Krake], None]
) -> None:
    before(crawled)
    crawled.ok("config")
    crawled.ok("crawl")
    assert names(crawled) == ["krake"] * 5


def test_of_two_crawls_that_begin_at_once_one_gets_each_place(
    krake: Krake,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both have seen that no one was there."""
    both, noted = Barrier(2, timeout=10), crawlname._noted
    seen: list[None] = []

    def slowly(*place: Any) -> str | None:
        found = noted(*place)
        if len(seen) < 2:
            seen.append(None)
            both.wait()
        return found

    monkeypatch.setattr(CrawlName, "require", lambda name, noted: None)
    monkeypatch.setattr(crawlname, "_noted", slowly)
    configs = [load_config(krake.file)]
    rename(krake)
    configs.append(load_config(krake.file))

    def claim(number: int) -> str:
        try:
            CrawlName(open_stores(configs[number])).note()
        except ConfigError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(2) as pool:
        refused = list(pool.map(claim, range(2)))
    assert sorted(map(bool, refused)) == [False, True]
    assert "crawl 'krake'" in max(refused) or "crawl 'other'" in max(refused)


def test_a_node_s_place_that_cannot_be_read_says_nothing(krake: Krake) -> None:
    """Its own task says what is wrong with it."""
    (krake.directory / "queue").mkdir()
    (krake.directory / "queue" / "node-a").write_text("in the way")
    assert CrawlName(open_stores(load_config(krake.file))).others() == []


def test_a_place_that_is_not_there_belongs_to_nobody(krake: Krake, tmp_path: Path) -> None:
    assert CrawlName(open_stores(load_config(krake.file))).others() == []
    assert not (tmp_path / "queue").exists()
    assert not (tmp_path / "keys").exists()
