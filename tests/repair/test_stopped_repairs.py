"""A repair that is asked to stop at a durable step ends behind it, in order, with 143; run again it does the rest.

Nothing ends it by force here: what looks at nothing runs to its end, and fails the test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.config import load_config
from crawl_lib.errors import StoppedError
from crawl_lib.repair import fsck
from crawl_lib.stores import open_stores
from tests.cli.conftest import Done, Krake
from tests.repair.killed import run_stopped
from tests.repair.test_damages import DAMAGES, REPAIR, found, queue, visited, waiting, whole
from tests.repair.test_leftovers import LEFT_BESIDE, leave
from tests.repair.test_reshard import change

__all__ = ["whole"]


def stopped(krake: Krake, words: list[str], step: str) -> Done:
    """Run a command that is asked to stop at a step; it says so, and nothing else."""
    done = run_stopped(["--config", str(krake.file), *words], step)
    assert done.code == 143, done
    assert done.err.splitlines()[-1] == "krake: stopped; run it again to go on"
    assert "Traceback" not in done.err
    return done


def tree(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    ("damage", "step"),
    [
        ("journal: nonsense", "repair.queue.rescued"),
        ("scope_added is cut", "repair.queue.rescued"),
        ("positions of a part: cut", "repair.queue.reopened"),
    ],
)
def test_a_queue_repair(
    damage: str, step: str, copy: Callable[..., Krake], whole: tuple[Counter[str], Counter[str]]
) -> None:
    chosen = DAMAGES[damage]
    krake = copy(chosen.kill_at)
    chosen.do(krake.directory)
    assert found(krake)  # SQLite puts the log of the killed crawl into its file
    before = tree(krake.directory)
    stopped(krake, [*REPAIR, "--dry-run"], step)
    assert tree(krake.directory) == before, "a dry run that is stopped leaves no trace"
    stopped(krake, [*REPAIR], step)
    krake.ok(*REPAIR)
    if chosen.kill_at is None:
        krake.ok("settle")
        assert waiting(krake) == whole[1]
    else:
        krake.ok("crawl", "--run-id", "one", "--iterations", "4")
        assert set(visited(krake)) | set(waiting(krake)) >= set(whole[0]) | set(whole[1])
    assert found(krake) == Counter()


def test_urls_that_a_queue_repair_found_gone_are_noted_before_it_stops(
    copy: Callable[..., Krake],
) -> None:
    """What says that they were there is set aside: the next repair would not know of them."""
    krake = copy("intake.chunk.journalled")
    new = queue(krake.directory) / "new"
    new.write_bytes(new.read_bytes().partition(b"\n")[0] + b"\n")
    stopped(krake, [*REPAIR], "queue.lost")
    krake(*REPAIR, "--only", "queue")
    assert found(krake)["urls_lost"] == 1


@pytest.mark.parametrize(
    ("damage", "step"),
    [
        ("an iteration and its scope are gone", "repair.folder.written"),
        ("the decision of a repair that is none", "repair.folder.placed"),
    ],
)
def test_a_folder_repair(
    damage: str, step: str, copy: Callable[..., Krake], whole: tuple[Counter[str], Counter[str]]
) -> None:
    krake = copy()
    DAMAGES[damage].do(krake.directory)
    stopped(krake, [*REPAIR], step)
    krake.ok(*REPAIR)
    assert found(krake) == Counter()
    krake.ok("settle")
    assert waiting(krake) == whole[1]
    assert visited(krake) == whole[0]


def test_a_look_at_the_key_tables(copy: Callable[..., Krake]) -> None:
    """That it was to stop was taken for a finding of the tables, and the check went on."""
    config = load_config(copy().file)

    def stop(counts: Mapping[str, Any]) -> None:
        if str(counts.get("checking")).startswith("keys of"):
            raise StoppedError("stopped")

    with pytest.raises(StoppedError):
        fsck(open_stores(config, on_progress=stop))


def test_a_sweep(copy: Callable[..., Krake]) -> None:
    krake = copy()
    left = [leave(krake, name) for name in LEFT_BESIDE]
    stopped(krake, ["sweep"], "repair.sweep.deleted")
    assert sum(path.exists() for path in left) == len(left) - 1
    krake.ok("sweep")
    assert not any(path.exists() for path in left)


def test_a_change_of_key_servers(copy: Callable[..., Krake]) -> None:
    krake = copy()
    total = krake.status()["keys"][0]["total"]
    change(krake, ["keys/0.sqlite", "keys/1.sqlite", "keys/2.sqlite"], 2)
    stopped(krake, ["keys", "reshard"], "keys.reshard.copied:3")
    assert "under way: run `krake keys reshard`" in krake("settle").error()
    krake.ok("keys", "reshard")
    assert found(krake) == Counter()
    assert sum(server["total"] for server in krake.status()["keys"]) == 2 * total
