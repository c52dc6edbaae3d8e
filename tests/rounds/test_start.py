"""`start` makes one folder for one iteration of a run, whatever happens around it; shares never pass the limit."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_lib.config import Config
from crawl_lib.crawldir import CrawlDirectory, Scopes, Starts, naming
from crawl_lib.dfsfiles import read_lines, write_json_bytes
from crawl_lib.errors import ConfigError, DamagedFileError, PathNotFoundError, StorageError
from crawl_lib.rounds.commit import commit_iteration
from crawl_lib.rounds.shares import share_of_node, share_out
from crawl_lib.rounds.start import start_iteration
from crawl_lib.stores import Stores, open_stores
from crawl_lib.urlfiles import ScopeFile


@pytest.fixture
def stores(config: Config) -> Stores:
    return open_stores(config)


def lay_segment(
    stores: Stores,
    folder: str,
    node: str,
    *,
    pages: int = 0,
    scope: list[str] | None = None,
    **counts: dict[str, int],
) -> None:
    """`counts`: what its manifest has besides; `outcomes`: instead of `pages` that were all ok."""
    outcomes = counts.get("outcomes", {"ok": pages})
    manifest = {
        "counts": {
            "rejections": {},
            **counts,
            "pages": sum(outcomes.values()),
            "outcomes": outcomes,
        },
        "scope_added": scope or [],
        "outlinks": {},
    }
    stores.storage.write_bytes(f"crawl/{folder}/{node}/manifest.json", write_json_bytes(manifest))


class DiedError(Exception):
    """Stands for the death of the process."""


@contextlib.contextmanager
def dying_after(step: str) -> Iterator[None]:
    """A start in it dies after a step, if it gets there."""

    def die(one: str) -> None:
        if one == step:
            raise DiedError

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(DiedError):
        patch.setattr(naming, "reached", die)
        yield


def test_the_folder_is_named_by_its_time_and_found_again(stores: Stores) -> None:
    first = start_iteration(stores, run_id="r", iteration=1, clock=lambda: 1000.9)
    again = start_iteration(stores, run_id="r", iteration=1, clock=lambda: 5000.0)
    assert first.folder == "1000"
    assert again == first
    assert CrawlDirectory(stores.storage, "crawl").folders() == ["1000"]


def test_a_folder_is_younger_than_all_before_it_also_when_the_clock_jumps_back(
    stores: Stores,
) -> None:
    start_iteration(stores, run_id="r", iteration=1, clock=lambda: 1000.0)
    second = start_iteration(stores, run_id="r", iteration=2, clock=lambda: 10.0)
    third = start_iteration(stores, run_id="r", iteration=3, clock=lambda: 1001.0)
    assert [second.folder, third.folder] == ["1001", "1002"]


DAY_S = 86_400


@pytest.mark.parametrize("ahead_s", [DAY_S + 1, 90 * DAY_S])
def test_no_folder_is_named_after_one_of_a_clock_that_was_more_than_a_day_ahead(
    stores: Stores, ahead_s: int
) -> None:
    first = start_iteration(stores, run_id="r", iteration=1, clock=lambda: 5000.0 + ahead_s)
    days = rf"{ahead_s / DAY_S:.1f} days"
    with pytest.raises(
        StorageError, match=rf"crawl/{first.folder}: .* {days} .*\(1970-01-01\).*Set the clock"
    ):
        start_iteration(stores, run_id="r", iteration=2, clock=lambda: 5000.0)
    assert start_iteration(stores, run_id="r", iteration=1, clock=lambda: 5000.0) == first
    assert sorted(entry.name for entry in stores.storage.list("crawl")) == [
        first.folder,
        "_crawl",
        "scope",
        "started",
    ]
    last = start_iteration(stores, run_id="r", iteration=2, clock=lambda: 5001.0 + ahead_s - DAY_S)
    assert int(last.folder) == int(first.folder) + 1


def test_racing_starts_of_one_iteration_agree_on_one_folder(config: Config) -> None:
    """A retried start may overlap with the first attempt."""
    for round_number in range(5):
        run_id = f"run-{round_number}"

        def attempt(_: int, run_id: str = run_id) -> str:
            return start_iteration(open_stores(config), run_id=run_id, iteration=1).folder

        # A loser may fail; Airflow retries it, and then it must agree.
        with ThreadPoolExecutor(4) as pool, contextlib.suppress(StorageError):
            list(pool.map(attempt, range(4)))
        stores = open_stores(config)
        agreed = start_iteration(stores, run_id=run_id, iteration=1).folder
        assert attempt(0) == agreed


@pytest.mark.parametrize("asleep_at", ["data_of", "give_name"])
@pytest.mark.parametrize("died", [False, True])
def test_starts_of_two_runs_that_overlap_keep_the_limit_together(
    config: Config, asleep_at: str, died: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one sleeps from when it has seen what is left, while the first one starts, or dies as it does."""
    limited = dataclasses.replace(config, crawl=dataclasses.replace(config.crawl, max_pages=25))
    stores = open_stores(limited)
    before = start_iteration(
        stores, run_id="before", iteration=1, batch_size=5, clock=lambda: 1000.0
    )
    place = Starts if asleep_at == "give_name" else ScopeFile
    real = getattr(place, asleep_at)

    def slept(*arguments: object) -> object:
        monkeypatch.setattr(place, asleep_at, real)
        with dying_after("start.decided" if died else ""):
            start_iteration(stores, run_id="first", iteration=1, batch_size=9)
        return real(*arguments)

    monkeypatch.setattr(place, asleep_at, slept)
    second = start_iteration(stores, run_id="second", iteration=1, batch_size=9)
    first = start_iteration(stores, run_id="first", iteration=1, batch_size=9)
    assert sum(before.batch_sizes.values()) == 10
    assert sum(first.batch_sizes.values()) == 15
    assert sum(second.batch_sizes.values()) == 0
    assert CrawlDirectory(stores.storage, "crawl").folders() == [
        "1000",
        first.folder,
        second.folder,
    ]
    assert [
        entry.name for entry in stores.storage.list("crawl") if entry.name.startswith(".")
    ] == []


def test_racing_starts_of_many_runs_come_one_after_the_other(config: Config) -> None:
    """Each knows the shares of all before it, and none is started twice."""
    limited = dataclasses.replace(config, crawl=dataclasses.replace(config.crawl, max_pages=25))

    def attempt(number: int) -> int:
        found = start_iteration(
            open_stores(limited), run_id=f"run-{number % 6}", iteration=1, batch_size=4
        )
        return sum(found.batch_sizes.values())

    with ThreadPoolExecutor(6) as pool:
        shares = list(pool.map(attempt, range(12)))
    assert shares[:6] == shares[6:]
    assert sum(shares[:6]) == 25
    assert len(CrawlDirectory(open_stores(limited).storage, "crawl").folders()) == 6


def test_a_choice_that_cannot_be_read_names_the_file_and_what_to_do(stores: Stores) -> None:
    stores.storage.write_bytes("crawl/started/0-1", b"\xff//")
    with pytest.raises(
        DamagedFileError, match=r"crawl/started/0-1: names no attempt of a start; `krake fsck`"
    ):
        start_iteration(stores, run_id="r", iteration=1)


@pytest.mark.parametrize("asleep_at", ["data_of", "give_name"])
def test_a_start_that_slept_through_later_iterations_finds_the_folder_of_its_own(
    stores: Stores, asleep_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own folder would be younger than theirs, and would be found before the one in which all was done."""
    place = Starts if asleep_at == "give_name" else ScopeFile
    real = getattr(place, asleep_at)
    seen: list[str] = []

    def slept(*arguments: object) -> object:
        monkeypatch.setattr(place, asleep_at, real)
        first = start_iteration(stores, run_id="r", iteration=1)
        for node in first.nodes:
            lay_segment(stores, first.folder, node)
        commit_iteration(stores, run_id="r", iteration=1)
        second = start_iteration(stores, run_id="r", iteration=2)
        seen.extend([first.folder, second.folder])
        return real(*arguments)

    monkeypatch.setattr(place, asleep_at, slept)
    assert start_iteration(stores, run_id="r", iteration=1).folder == seen[0]
    assert CrawlDirectory(stores.storage, "crawl").folders() == seen
    assert start_iteration(stores, run_id="r", iteration=1).folder == seen[0]
    assert [
        entry.name for entry in stores.storage.list("crawl") if entry.name.startswith(".")
    ] == []


def test_an_attempt_that_died_after_its_decision_is_finished_by_the_next(stores: Stores) -> None:
    with dying_after("start.decided"):
        start_iteration(stores, run_id="r", iteration=1, batch_size=7)
    assert CrawlDirectory(stores.storage, "crawl").folders() == []
    found = start_iteration(stores, run_id="r", iteration=1, batch_size=8)
    assert set(found.batch_sizes.values()) == {7}, "what was decided holds"
    assert [
        entry.name for entry in stores.storage.list("crawl") if entry.name.startswith(".")
    ] == []


def test_an_iteration_whose_folder_was_deleted_by_hand_gets_a_new_one(stores: Stores) -> None:
    first = start_iteration(stores, run_id="r", iteration=1)
    for number in (1, 2):
        stores.storage.delete(f"crawl/{CrawlDirectory(stores.storage, 'crawl').folders()[0]}")
        again = start_iteration(
            stores, run_id="r", iteration=1, clock=lambda number=number: 5e9 + number
        )
        assert again.folder != first.folder
        assert CrawlDirectory(stores.storage, "crawl").folders() == [again.folder]


@pytest.mark.parametrize("iteration", [0, 6, -1])
def test_an_iteration_beyond_the_config_is_refused(stores: Stores, iteration: int) -> None:
    with pytest.raises(ConfigError, match=r"max_iterations \(5\)"):
        start_iteration(stores, run_id="r", iteration=iteration)


def test_a_batch_size_below_one_is_refused(stores: Stores) -> None:
    with pytest.raises(ConfigError, match="batch size 0"):
        start_iteration(stores, run_id="r", iteration=1, batch_size=0)


def lay_seeds(stores: Stores, digest: str, host: str) -> None:
    scope = ScopeFile.data_of([host])
    said = {"accepted": 0, "outlinks": {}, "scope_sha256": Scopes.digest(scope)}
    manifest = write_json_bytes(said)
    stores.storage.write_bytes(f"crawl/seeds/{digest}/manifest.json", manifest)
    stores.storage.write_bytes(f"crawl/seeds/{digest}/scope", scope)


def test_a_scope_that_was_cut_stops_the_start_which_would_carry_it_on(stores: Stores) -> None:
    """What it lacks would be out of the crawl for good; the error names the command."""
    lay_seeds(stores, "aa", "seed.example")
    stores.storage.delete("crawl/seeds/aa/scope")
    stores.storage.write_bytes("crawl/seeds/aa/scope", b"seed.exam")
    with pytest.raises(
        DamagedFileError, match=r"differs from the written file.*`krake fsck --repair`"
    ):
        start_iteration(stores, run_id="r", iteration=1)
    stores.storage.delete("crawl/seeds/aa")
    first = start_iteration(stores, run_id="r", iteration=1)
    stores.storage.delete(stores.crawl.scopes.path(first))
    with pytest.raises(
        DamagedFileError, match=r"scope/[0-9a-f]{64}: is not there; run `krake fsck --repair`"
    ):
        start_iteration(stores, run_id="r", iteration=2)


def test_the_scope_grows_by_seeds_and_by_what_segments_add(stores: Stores) -> None:
    """Every older folder counts, also one whose commit never ran, and one whose segment came late."""
    lay_seeds(stores, "aa", "seed.example")
    first = start_iteration(stores, run_id="r", iteration=1)
    lay_segment(stores, first.folder, "node-a", scope=["moved.example"])
    second = start_iteration(stores, run_id="r", iteration=2)
    lay_segment(stores, first.folder, "node-b", scope=["late.example"])
    commit_iteration(stores, run_id="r", iteration=1)
    lay_seeds(stores, "bb", "more.example")
    third = start_iteration(stores, run_id="r", iteration=3)

    def scope(folder: str) -> list[str]:
        return read_lines(
            stores.storage, stores.crawl.scopes.path(stores.crawl.folder(folder).iteration())
        )

    assert scope(first.folder) == ["seed.example"]
    assert scope(second.folder) == ["moved.example", "seed.example"]
    assert scope(third.folder) == ["late.example", "more.example", "moved.example", "seed.example"]
    stores.storage.delete(f"crawl/{first.folder}")
    stores.storage.delete(f"crawl/{second.folder}")
    fourth = start_iteration(stores, run_id="r", iteration=4)
    assert scope(fourth.folder) == scope(third.folder)


def test_max_pages_is_never_passed(config: Config) -> None:
    limited = dataclasses.replace(config, crawl=dataclasses.replace(config.crawl, max_pages=25))
    stores = open_stores(limited)
    first = start_iteration(stores, run_id="r", iteration=1, batch_size=10)
    assert first.batch_sizes == {"node-a": 10, "node-b": 10}
    lay_segment(stores, first.folder, "node-a", pages=10)
    open_take = start_iteration(stores, run_id="other", iteration=1, batch_size=10)
    assert sum(open_take.batch_sizes.values()) == 5, "node-b may still fetch its 10"
    lay_segment(stores, first.folder, "node-b", pages=3)
    for node in ("node-a", "node-b"):
        lay_segment(stores, open_take.folder, node, pages=2)
    commit_iteration(stores, run_id="r", iteration=1)
    commit_iteration(stores, run_id="other", iteration=1)
    last = start_iteration(stores, run_id="r", iteration=2, batch_size=10)
    assert sum(last.batch_sizes.values()) == 25 - 17


def test_a_url_counts_once_for_max_pages_when_it_ends(config: Config) -> None:
    """Tries of failures that pass leave room, committed or not, and also when start or commit runs again."""
    limited = dataclasses.replace(config, crawl=dataclasses.replace(config.crawl, max_pages=50))
    stores = open_stores(limited)
    first = start_iteration(stores, run_id="r", iteration=1, batch_size=10)
    lay_segment(
        stores, first.folder, "node-a", outcomes={"ok": 4, "timeout": 6}, retried={"timeout": 5}
    )
    lay_segment(
        stores, first.folder, "node-b", outcomes={"server_error": 3}, retried={"server_error": 3}
    )
    second = start_iteration(stores, run_id="other", iteration=1, batch_size=100)
    assert sum(second.batch_sizes.values()) == 50 - 5, "not committed yet"
    for _ in range(2):
        assert commit_iteration(stores, run_id="r", iteration=1).urls == 5
    lay_segment(stores, second.folder, "node-a", outcomes={"ok": 8, "timeout": 1})
    lay_segment(stores, second.folder, "node-b")
    assert commit_iteration(stores, run_id="other", iteration=1).urls == 9
    for _ in range(2):
        third = start_iteration(stores, run_id="r", iteration=2, batch_size=100)
        assert (third.taken_before, sum(third.batch_sizes.values())) == (14, 50 - 14)


def test_a_share_of_a_failed_run_is_free_once_its_node_has_gone_on(config: Config) -> None:
    """No one reruns the iteration: what it put by would lack for ever. And who does rerun it, takes nothing."""
    limited = dataclasses.replace(config, crawl=dataclasses.replace(config.crawl, max_pages=100))
    stores = open_stores(limited)
    failed = start_iteration(stores, run_id="failed", iteration=1, batch_size=30)
    lay_segment(stores, failed.folder, "node-a", pages=20)
    second = start_iteration(stores, run_id="r", iteration=1, batch_size=100)
    assert sum(second.batch_sizes.values()) == 100 - 20 - 30, "node-b may have its take open"
    assert share_of_node(stores, failed, "node-b") == (30, 30)
    lay_segment(stores, second.folder, "node-a", pages=10)
    third = start_iteration(stores, run_id="r", iteration=2, batch_size=100)
    assert sum(third.batch_sizes.values()) == 100 - 20 - 30 - 10 - second.batch_sizes["node-b"]
    lay_segment(stores, second.folder, "node-b", pages=5)
    fourth = start_iteration(stores, run_id="other", iteration=1, batch_size=100)
    assert sum(fourth.batch_sizes.values()) == 100 - 20 - 10 - 5 - sum(third.batch_sizes.values())
    assert share_of_node(stores, failed, "node-b") == (0, 0), "it went to others"
    assert share_of_node(stores, third, "node-b") == (third.batch_sizes["node-b"],) * 2


def test_without_a_limit_an_early_iteration_may_be_done_late(stores: Stores) -> None:
    early = start_iteration(stores, run_id="u", iteration=1, batch_size=7)
    later = start_iteration(stores, run_id="u", iteration=2, batch_size=7)
    lay_segment(stores, later.folder, "node-b")
    assert share_of_node(stores, early, "node-b") == (7, 7)


@given(st.integers(1, 1000), st.integers(1, 50), st.integers(-5, 5000), st.integers(0, 1000))
def test_shares_are_even_and_within_the_limit(
    batch_size: int, count: int, remaining: int, number: int
) -> None:
    nodes = tuple(f"n{index}" for index in range(count))
    shares = share_out(batch_size, nodes, remaining, number)
    assert set(shares) == set(nodes)
    assert sum(shares.values()) == min(max(0, remaining), sum(shares.values())) <= max(0, remaining)
    assert max(shares.values()) - min(shares.values()) <= 1
    assert sum(shares.values()) == max(0, remaining) or max(shares.values()) == batch_size


@given(st.integers(1, 20), st.integers(1, 60), st.integers(0, 100))
def test_the_last_pages_come_to_every_node(count: int, remaining: int, number: int) -> None:
    """Also where all that waits is in the queue of one node, `crawl.max_pages` is reached."""
    nodes = tuple(f"n{index}" for index in range(count))
    for busy in nodes:
        left = remaining
        for rounds in range(count * remaining):
            left -= share_out(10, nodes, left, number + rounds)[busy]
        assert left == 0


def test_commit_names_the_nodes_that_are_missing(stores: Stores) -> None:
    first = start_iteration(stores, run_id="r", iteration=1)
    lay_segment(stores, first.folder, "node-b", pages=2)
    with pytest.raises(PathNotFoundError, match="no segment of node-a; run the crawl task"):
        commit_iteration(stores, run_id="r", iteration=1)
    lay_segment(stores, first.folder, "node-a", pages=3)
    done = commit_iteration(stores, run_id="r", iteration=1)
    assert (done.folder, done.counts["fetched"], done.counts["outcomes"]) == (
        first.folder,
        5,
        {"ok": 5},
    )
    assert commit_iteration(stores, run_id="r", iteration=1) == done


def test_commit_that_died_after_it_kept_the_scope_goes_on(stores: Stores) -> None:
    """It wrote the hosts, and not yet the index; the hosts outlive the folder."""
    first = start_iteration(stores, run_id="r", iteration=1)
    stores.storage.write_bytes(f"crawl/scope/{first.folder}", b"found.example\n")
    for node in first.nodes:
        lay_segment(stores, first.folder, node, scope=["found.example"])
    commit_iteration(stores, run_id="r", iteration=1)
    stores.storage.delete(f"crawl/{first.folder}")
    again = start_iteration(stores, run_id="r", iteration=2)
    assert stores.crawl.scopes.read(again) == {"found.example"}


def test_commit_before_start_says_so(stores: Stores) -> None:
    with pytest.raises(
        PathNotFoundError, match="iteration 1 of run 'r' has no folder; run its crawl tasks first"
    ):
        commit_iteration(stores, run_id="r", iteration=1)


def test_a_crawl_whose_operator_cannot_be_reached_is_warned_of_and_no_other(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    """Nodes keep delays together, of hosts and of addresses."""
    fetch = dataclasses.replace(config.fetch, host_delay_s=1.0, ip_delay_s=0.25, contact=None)
    local = dataclasses.replace(
        config, fetch=fetch, frontier=dataclasses.replace(config.frontier, routing="local")
    )
    start_iteration(open_stores(local), run_id="a", iteration=1)
    assert "fetch.contact is not set" in caplog.text
    caplog.clear()
    reachable = dataclasses.replace(
        local,
        crawl=dataclasses.replace(config.crawl, directory="reachable"),
        fetch=dataclasses.replace(fetch, contact="me@x"),
    )
    start_iteration(open_stores(reachable), run_id="b", iteration=1)
    assert caplog.text == ""
