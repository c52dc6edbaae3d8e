"""`krake forget` by URL, host and age; what it forgot stays forgotten, and is no damage."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_lib.config import load_config
from crawl_lib.crawldir.forgotten import Forget
from crawl_lib.curate.forget import (
    _ROWS,
    ForgottenPages,
    finish_open,
    forget,
    rows_of,
    which_are_meant,
)
from crawl_lib.errors import DamagedFileError
from crawl_lib.frontier.hostcounts import HostCounts
from crawl_lib.keyarrays import key_array
from crawl_lib.keys import open_key_store
from crawl_lib.records import QueuedUrl
from crawl_lib.stores import Secrets, Stores, open_stores
from crawl_lib.urlfiles import encode_line
from crawl_lib.urls import host_of, key_of
from demo import Serving
from tests.cli.conftest import Krake
from tests.e2e.crawl import Result
from tests.harms import all_flipped
from tests.repair.archives import pages_archive, write

TIMES = st.integers(0, 5)


class Died(BaseException):
    """Stands for the death of the process."""


def die_after(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def reached(name: str) -> None:
        if name == f"curate.forget.{step}":
            raise Died

    monkeypatch.setattr(sys.modules[finish_open.__module__], "reached", reached)


def visited(krake: Krake) -> list[str]:
    return sorted(Result(load_config(str(krake.file))).visited())


def known(krake: Krake, urls: list[str]) -> set[str]:
    with open_key_store(load_config(str(krake.file)).key_storage) as store:
        states = store.states([key_of(url) for url in urls])
    return {url for url in urls if states[key_of(url)] is not None}


def counts(krake: Krake) -> dict[str, int]:
    return HostCounts(krake.directory / "queue" / "node-a").all()


def stores_of(krake: Krake) -> Stores:
    return open_stores(load_config(str(krake.file)), Secrets())


def test_a_host_is_forgotten_its_queued_urls_are_not_and_its_count_goes_down(
    copy: Callable[..., Krake], web: Serving
) -> None:
    krake = copy()
    host = host_of(web.seeds[0])
    crawled = visited(krake)
    of_host = [url for url in crawled if host_of(url) == host]
    others = [url for url in crawled if host_of(url) != host]
    assert of_host
    assert others
    before, keys_before = counts(krake), krake.status()["keys"]

    planned = krake.ok("forget", host, "--dry-run", "--json").json
    assert (planned["forgotten"], planned["lowered"]) == (len(of_host), {"node-a": len(of_host)})
    assert (counts(krake), krake.status()["keys"]) == (before, keys_before), (
        "a dry run changes nothing"
    )

    asked = len(of_host) + planned["waiting"]
    done = krake.ok("forget", "--yes", host).out
    assert done.startswith(
        f"forgot {len(of_host)} of {asked} URLs; 0 were not known\n{planned['waiting']} pages wait"
    )
    assert known(krake, crawled) == set(others)
    assert counts(krake) == before | {host: before[host] - len(of_host)}
    assert krake.status()["keys"][0]["queued"] == keys_before[0]["queued"]
    assert krake.ok("forget", "--yes", host, "--json").json["forgotten"] == 0, (
        "again: nothing is left to forget"
    )
    assert counts(krake)[host] == before[host] - len(of_host)

    assert "clean" in krake.ok("fsck").out
    krake.ok("fsck", "--repair")
    assert known(krake, crawled) == set(others), "a rebuild does not bring it back"
    krake.ok("inject", web.seeds[0], "--run-id", "again")
    krake.ok("crawl", "--run-id", "again", "--batch-size", "100")
    assert Result(load_config(str(krake.file))).visited()[web.seeds[0]] == 2
    assert "clean" in krake.ok("fsck").out


def test_a_page_that_was_forgotten_crawled_again_and_dropped_stays_known(
    copy: Callable[..., Krake], web: Serving
) -> None:
    """Also when the key tables are made again, and its rows are in no file any more, until it is forgotten again."""
    krake = copy()
    seed = web.seeds[0]
    krake.ok("forget", "--yes", seed)
    krake.ok("inject", seed, "--run-id", "again")
    krake.ok("crawl", "--run-id", "again", "--batch-size", "100")
    krake.ok("segment", "drop", "--yes", seed)
    krake.ok("segment", "compact", "--yes")
    assert seed not in visited(krake)
    for words in ((), ("forget", "--yes", seed)):
        if words:
            krake.ok(*words)
        krake.ok("keys", "create", "--drop", "--yes")
        krake.ok("fsck", "--repair")
        assert known(krake, [seed]) == (set() if words else {seed})
        assert "clean" in krake.ok("fsck").out


def test_a_crawled_page_that_waits_again_stays_known(
    copy: Callable[..., Krake], web: Serving
) -> None:
    """Imported while it was queued, or put into a queue by hand: without its key it would be queued once more."""
    krake = copy()
    host = host_of(web.seeds[0])
    of_host = [url for url in visited(krake) if host_of(url) == host]

    def waiting() -> list[int]:
        asked = (host, "--json"), ("--older-than", "0", "--json"), (of_host[0], "--json")
        return [krake.ok("forget", *words, "--dry-run").json["waiting"] for words in asked]

    before = waiting()
    line = encode_line(QueuedUrl(of_host[0]), "h") + b"\n"
    (krake.directory / "queue" / "node-a" / "handed_on").write_bytes(line)
    assert waiting() == [count + 1 for count in before]
    done = krake.ok("forget", "--yes", host, "--json").json
    assert (done["forgotten"], done["waiting"]) == (len(of_host) - 1, before[0] + 1)
    assert known(krake, of_host) == {of_host[0]}


def test_only_pages_whose_newest_capture_is_old_are_forgotten(copy: Callable[..., Krake]) -> None:
    krake = copy()
    crawled = visited(krake)
    assert krake.ok("forget", "--yes", "--older-than", "1", "--json").json["asked"] == 0
    stores = stores_of(krake)
    with stores.keys() as store:
        late = forget(
            stores,
            store,
            ForgottenPages(older_than_s=86400.0),
            clock=lambda: time.time() + 2 * 86400.0,
            dry_run=True,
        )
    assert late.forgotten == len(crawled)
    report = krake.ok("forget", "--yes", "--older-than", "0", "--json").json
    assert report["forgotten"] == len(crawled)
    assert known(krake, crawled) == set()


def test_what_is_neither_url_nor_host_is_one_line(copy: Callable[..., Krake], web: Serving) -> None:
    krake = copy()
    assert "no page of a host of that name" in krake("forget", "--yes", "never.example").error()
    assert "neither a URL" in krake("forget", "a b").error()
    assert "at any age" in krake("forget", web.seeds[0], "--older-than", "3").error()
    assert krake.ok("forget").out.startswith("nothing to do: name URLs")


def test_nothing_is_decided_while_a_replica_has_no_tables(
    copy: Callable[..., Krake], web: Serving
) -> None:
    """What is decided counts as forgotten for `fsck` and its repair, and lowers counts."""
    krake = copy()
    host = host_of(web.seeds[0])
    before = counts(krake)
    (krake.directory / "keys" / "1.sqlite").unlink()
    assert "krake fsck --repair" in krake("forget", "--yes", host).error()
    assert not (krake.directory / "dfs" / "crawl" / "forgotten").exists()
    assert counts(krake) == before
    krake.ok("fsck", "--repair")
    krake.ok("forget", "--yes", host)
    assert counts(krake)[host] < before[host]
    assert "clean" in krake.ok("fsck").out


@pytest.mark.parametrize("step", ["decided", "lowered", "deleted", "done"])
def test_killed_after_any_step_the_next_one_finishes_it_once(
    copy: Callable[..., Krake], web: Serving, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    krake = copy()
    host = host_of(web.seeds[0])
    crawled = visited(krake)
    of_host = [url for url in crawled if host_of(url) == host]
    before = counts(krake)[host]

    die_after(step, monkeypatch)
    stores = stores_of(krake)
    with stores.keys() as store:
        with pytest.raises(Died):
            forget(stores, store, ForgottenPages(hosts=[host]))
        monkeypatch.undo()
        found = krake("fsck", "--json").json["findings"]
        assert [one["name"] for one in found] == ([] if step == "done" else ["forget_open"])
        assert finish_open(stores, store) == (0 if step == "done" else 1)
        assert finish_open(stores, store) == 0
    assert known(krake, crawled) == set(crawled) - set(of_host)
    assert counts(krake)[host] == before - len(of_host)
    assert "clean" in krake.ok("fsck").out


@pytest.mark.parametrize("iterations", [0, 2])
def test_what_was_found_again_since_a_killed_command_deleted_its_key_stays_known(
    copy: Callable[..., Krake], web: Serving, monkeypatch: pytest.MonkeyPatch, iterations: int
) -> None:
    """It waits in a queue, or was fetched: without its key it would be queued once more by the next link to it."""
    krake = copy()
    url = web.seeds[0]

    die_after("deleted", monkeypatch)
    stores = stores_of(krake)
    with stores.keys() as store:
        with pytest.raises(Died):
            forget(stores, store, ForgottenPages(urls=[url]))
        monkeypatch.undo()
        assert known(krake, [url]) == set()
        krake.ok("inject", url, "--run-id", "again")
        krake.ok("settle")
        if iterations:
            krake.ok("crawl", "--run-id", "more", "--iterations", str(iterations))
            assert Result(load_config(str(krake.file))).visited()[url] == 2
        assert known(krake, [url]) == {url}
        assert finish_open(stores, store) == 1
    assert known(krake, [url]) == {url}
    assert "clean" in krake.ok("fsck").out


@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from("ab"),
            st.integers(0, 9),
            st.sampled_from(["x.example", "y.example"]),
            TIMES,
        ),
        min_size=1,
        max_size=40,
    ),
    hosts=st.sets(st.sampled_from(["x.example", "y.example"])),
    cutoff_us=st.none() | TIMES,
    named=st.sets(st.integers(0, 11), max_size=4),
)
def test_which_pages_are_meant(
    rows: list[tuple[str, int, str, int]], hosts: set[str], cutoff_us: int | None, named: set[int]
) -> None:
    """Those named, and pages of the hosts without a capture that is young enough, with who counted the last of them."""
    places: dict[tuple[str, str], int] = {("n", "named"): 0}
    zeros, yes = [0] * len(named), [True] * len(named)
    tables = [
        pa.table(
            {"key": list(map(key, named)), "time": zeros, "place": zeros, "named": yes},
            schema=_ROWS,
        )
    ]
    for node, some in groupby(rows, key=itemgetter(0)):
        _, keys, names, times = zip(*some, strict=True)
        arrays = [pa.array(list(map(key, keys)), pa.binary(20)), pa.array(names), pa.array(times)]
        tables.append(
            rows_of(
                pa.RecordBatch.from_arrays(arrays, names=["key", "host", "time"]),
                node,
                hosts,
                places,
            )
        )
    meant = which_are_meant(tables, 2**63 - 1 if cutoff_us is None else cutoff_us)

    expected = {key(number): ("n", "named") for number in named}
    fresh = set()
    for node, number, host, time_us in rows:
        if not hosts or host in hosts:
            if cutoff_us is not None and time_us >= cutoff_us:
                fresh.add(key(number))
            else:
                expected[key(number)] = (node, host)
    kept = {one for one in expected if one not in fresh} | {key(number) for number in named}
    found = dict(zip(meant["key"].to_pylist(), meant["place_last"].to_pylist(), strict=True))
    assert list(found) == sorted(kept)
    assert {one: list(places)[found[one]] for one in kept - fresh} == {
        one: expected[one] for one in kept - fresh
    }


def key(number: int) -> bytes:
    """One that ends with zeros, which numpy cuts off; the higher the number, the lower the key."""
    return bytes([20 - number]).ljust(20, b"\0")


def test_nobody_has_counted_what_was_imported(copy: Callable[..., Krake], tmp_path: Path) -> None:
    krake = copy()
    krake.ok("import", str(write(tmp_path / "x.warc.gz", pages_archive(range(3)))))
    found = krake.ok("forget", "--yes", "old.example", "--json").json
    assert (found["forgotten"], found["lowered"], found["not_lowered"]) == (3, {}, {})
    assert "clean" in krake.ok("fsck").out


def test_another_bit_in_what_was_forgotten_is_found() -> None:
    """A key with another bit would have its page known again, and a time hide that others are missing."""
    keys = key_array(b"".join(bytes([number]) * 20 for number in range(3)))
    decision = Forget("1-a", 1_700_000_000_000_000, keys, {"node-a": {"a.example": 3}})
    data = decision.to_bytes()
    assert Forget.from_bytes(data, "1-a", "f").to_bytes() == data
    for flipped in all_flipped(data):
        with pytest.raises(DamagedFileError, match=r"^f: "):
            Forget.from_bytes(flipped, "1-a", "f")
