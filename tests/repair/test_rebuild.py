"""Key tables from pages and queues: equal to what the crawl wrote, also after a kill, and never from links."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from crawl_lib.config import load_config
from crawl_lib.frontier import NodeLock
from crawl_lib.keys import open_key_store
from crawl_lib.keys.dump import all_keys
from tests.cli.conftest import Krake
from tests.repair.killed import run_killed
from tests.repair.test_damages import both

FILL = ("fsck", "--repair")


def rows(krake: Krake) -> dict[bytes, int]:
    with open_key_store(load_config(str(krake.file)).key_storage) as store:
        return dict(all_keys(store.servers))


@pytest.fixture
def crawl(copy: Callable[..., Krake]) -> Krake:
    return copy()


def test_new_tables_get_exactly_the_keys_and_states_that_the_crawl_wrote(crawl: Krake) -> None:
    before = rows(crawl)
    assert set(before.values()) >= {1, 2}
    crawl.ok("keys", "create", "--drop", "--yes")
    planned = crawl(*FILL, "--dry-run", "--json").json["keys"]
    assert rows(crawl) == {}
    done = crawl.ok(*FILL, "--json").json["keys"]
    assert (planned["added"], planned["pages"], planned["queued"]) == (
        done["added"],
        done["pages"],
        done["queued"],
    )
    assert done["added"] == len(before)
    assert rows(crawl) == before
    assert crawl.ok(*FILL, "--json").json["keys"] is None


def test_what_has_not_been_taken_in_stays_unknown(copy: Callable[..., Krake]) -> None:
    """An intake was killed after it had decided, and before it told the key servers; links are not keys."""
    krake = copy("intake.chunk.journalled")
    before = rows(krake)
    krake.ok(*FILL)
    assert rows(krake) == before
    krake.ok("crawl", "--run-id", "one", "--iterations", "4")
    assert "clean" in krake.ok("fsck").out


@pytest.mark.parametrize("step", ["dropped", "folder", "node", "unheld"])
def test_killed_after_any_step_it_is_run_again(crawl: Krake, step: str) -> None:
    before = rows(crawl)
    both("INSERT INTO kraakekeys VALUES ('" + "a" * 40 + "', 1)")(crawl.directory)
    words = ["--config", str(crawl.file), *FILL]
    assert run_killed(words, f"repair.rebuild.{step}").code == -9
    crawl.ok(*FILL)
    assert rows(crawl) == before


def test_it_waits_for_nobody_and_names_who_works_on_a_node(crawl: Krake) -> None:
    directory = crawl.directory / "queue" / "node-a"
    with NodeLock(directory, "node-a", 1, what="a crawl"):
        assert "a crawl" in crawl.ok(*FILL).out
        done = crawl("fsck", "--json")
        assert (done.code, done.json["checked"].get("queues")) == (0, None)
        busy, unknown = done.json["skipped"]
        assert "a crawl" in busy, "fsck says which node is busy, and looks at the rest"
        assert "node node-a is worked on" in unknown
