"""What fsck tells of nodes that left, of pages that a salvage lost, and of what killed attempts left on the store."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from crawl_lib.config import Config
from crawl_lib.crawldir import Starts
from crawl_lib.durable import KILL_VARIABLE
from crawl_lib.repair import sweep
from crawl_lib.rounds import start_iteration
from crawl_lib.stores import open_stores
from crawl_lib.versions import answer_folder
from demo import Serving
from tests.cli.conftest import Krake
from tests.forked import run_forked
from tests.repair.crawled import flip
from tests.repair.killed import run_killed
from tests.repair.test_damages import found, visited

UPLOADED = "segment.publish.uploaded"
"""Killed here, the hidden folder of a take holds some of its files."""


def with_servers(krake: Krake, *nodes: str) -> None:
    value = yaml.safe_load(krake.file.read_text())
    krake.file.write_text(yaml.safe_dump({**value, "servers": list(nodes)}))


def findings(krake: Krake) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in krake("fsck", "--fast", "--json").json["findings"]}


def hidden(krake: Krake) -> list[Path]:
    return list(krake.directory.glob("dfs/crawl/1*/.node-a-*"))


def test_a_node_that_left_without_being_retired_is_named_until_it_is(
    copy: Callable[..., Krake],
) -> None:
    krake = copy()
    assert "node_not_retired" not in findings(krake)
    with_servers(krake, "node-b")
    found = findings(krake)["node_not_retired"]
    assert found["severity"] == "warning"
    assert "`krake nodes retire node-a`" in found["repair"]
    krake.ok("nodes", "retire", "node-a")
    assert "node_not_retired" not in findings(krake)


def test_pages_that_a_salvage_lost_are_noted_until_they_are_requeued_or_crawled(
    copy: Callable[..., Krake],
) -> None:
    krake = copy()
    warc = max(
        krake.directory.glob("dfs/crawl/1*/node-a/*.warc.gz"), key=lambda path: path.stat().st_size
    )
    for share in (0.3, 0.7):
        flip(warc, share)
    assert (
        run_killed(["--config", str(krake.file), "fsck", "--repair"], "repair.swap.indexed").code
        == -9
    )
    (warc.parent.parent / ".swap-node-a.json").unlink()
    report = krake.ok("fsck", "--json").json
    [note] = [one for one in report["findings"] if one["name"] == "pages_lost"]
    assert report["clean"]
    assert note["severity"] == "note"
    assert note["count"] >= 1
    assert "`krake fsck --repair`" in note["repair"]
    before = set(krake.directory.glob("dfs/crawl/seeds/*"))
    krake.ok("fsck", "--repair")
    assert "pages_lost" not in findings(krake), "they are requeued"
    krake.ok("crawl", "--batch-size", "1000")
    krake.ok("settle")
    [requeued] = set(krake.directory.glob("dfs/crawl/seeds/*")) - before
    shutil.rmtree(requeued)
    assert "pages_lost" not in findings(krake), "they are crawled again"
    krake.ok("fsck", "--repair")
    assert set(krake.directory.glob("dfs/crawl/seeds/*")) == before, (
        "a repair does not queue them once more"
    )


def test_the_hidden_folder_of_a_take_that_was_deleted_is_named_and_swept(
    copy: Callable[..., Krake],
) -> None:
    krake = copy(UPLOADED)
    [folder] = hidden(krake)
    (folder.parent / f".node-a-{'0' * 32}").mkdir()  # of a take before this one
    krake.ok("sweep")
    assert hidden(krake) == [folder], "its take is open: the next attempt needs it"
    assert "leftover" not in findings(krake)
    (krake.directory / "queue" / "node-a" / "take").unlink()
    found = findings(krake)["leftover"]
    assert (found["severity"], found["where"].split("/")[-1]) == ("note", folder.name)
    assert "`krake sweep`" in found["repair"]
    assert folder.name in krake.ok("sweep", "--dry-run").out
    assert hidden(krake) == [folder]
    assert folder.name in krake.ok("sweep").out
    assert hidden(krake) == []
    assert krake.ok("sweep").out == "nothing is left over\n"
    assert findings(krake) == {}


def test_a_note_of_a_node_that_an_attempt_did_not_finish_is_swept(
    copy: Callable[..., Krake],
) -> None:
    krake = copy(UPLOADED)
    krake.ok("crawl", "--batch-size", "1000")
    krake.ok("settle")
    [note, *_] = krake.directory.glob("dfs/crawl/settled/node-a/*")
    left = note.with_name(f".{note.name}.{'0' * 32}")
    left.write_bytes(note.read_bytes())
    assert left.name in findings(krake)["leftover"]["where"]
    krake.ok("sweep")
    assert (left.exists(), note.exists()) == (False, True)


def test_the_hidden_folder_of_a_lost_node_is_named_once_the_node_is_retired(
    copy: Callable[..., Krake],
) -> None:
    krake = copy(UPLOADED)
    shutil.move(krake.directory / "queue" / "node-a", krake.directory / "gone")
    [folder] = hidden(krake)
    krake.ok("sweep")
    assert hidden(krake) == [folder], "its machine may be just out of sight"
    with_servers(krake, "node-b")
    krake.ok("nodes", "retire", "node-a", "--lost", "--yes")
    assert "leftover" in findings(krake)
    krake.ok("sweep")
    assert hidden(krake) == []
    assert findings(krake) == {}


LEFT_BESIDE = (
    "dfs/crawl/.start-{start}-{id}",
    "dfs/crawl/seeds/.{seeds}-{id}",
    "{one}/.index.json.{id}",
)
"""What attempts leave that were killed while they made what is there: names of folders."""


def leave(krake: Krake, name: str, **other: str) -> Path:
    """Make one of these; `other`: in place of what is there."""
    [seeds] = krake.directory.glob("dfs/crawl/seeds/[0-9a-f]*")
    one = min(krake.directory.glob("dfs/crawl/1*")).relative_to(krake.directory)
    names = {
        "start": Starts.hidden_prefix("one", 1).split("-")[1],
        "seeds": seeds.name,
        "one": str(one),
    }
    made = krake.directory / name.format(**{**names, **other}, id="0123456789abcdef" * 2)
    made.mkdir()
    return made


@pytest.mark.parametrize("name", LEFT_BESIDE)
def test_what_killed_attempts_left_beside_what_stands_is_swept(
    copy: Callable[..., Krake], name: str
) -> None:
    krake = copy()
    made = leave(krake, name)
    other = leave(krake, name.replace("index", "x"), start="0" * 40, seeds="0" * 40)
    krake.ok("sweep")
    assert not made.exists()
    assert other.exists(), "nothing is in its place: an attempt may be at work on it"


def test_what_a_killed_drop_left_in_a_segment_is_swept(copy: Callable[..., Krake]) -> None:
    """SIGKILL between its writing and its renaming; the drop was run again."""
    krake = copy()
    page = next(iter(visited(krake)))
    krake.ok("segment", "drop", page, "--yes")
    listed = next(krake.directory.glob("dfs/crawl/1*/node-a/dropped-*"))
    left = listed.with_name(f".{listed.name}.{'0123456789abcdef' * 2}")
    left.write_bytes(b"")
    before, where = found(krake), str(left.relative_to(krake.directory / "dfs"))
    assert [
        one["name"] for one in krake("fsck", "--json").json["findings"] if one["where"] == where
    ] == ["leftover"]
    krake.ok("sweep")
    assert not left.exists()
    assert listed.exists()
    assert found(krake) == {name: count for name, count in before.items() if name != "leftover"}


def begin_and_die(config: Config) -> None:
    os.environ[KILL_VARIABLE] = "start.written"
    start_iteration(open_stores(config), run_id="given up", iteration=1)


def test_a_start_of_a_run_that_was_given_up_is_swept_once_another_folder_was_chosen(
    config: Config,
) -> None:
    """Until then it may go on, and be the one."""
    stores = open_stores(config)
    start_iteration(stores, run_id="run", iteration=1, clock=lambda: 1000)
    assert run_forked(begin_and_die, config) == -9
    sweep(stores)
    [hidden] = Path(config.dfs_primary).glob("crawl/.start-*")
    second = start_iteration(stores, run_id="run", iteration=2, clock=lambda: 2000)
    sweep(stores)
    assert not hidden.exists()
    assert stores.crawl.folders() == ["1000", second.folder]


DELETED_IN = (
    "dfs/crawl",
    "dfs/crawl/seeds",
    "dfs/crawl/held",
    "dfs/crawl/{one}",
    "dfs/export",
    "dfs/export/x",
)


def test_tables_of_an_answer_are_swept_once_no_answer_can_need_them(config: Config) -> None:
    """Of Spark on many machines."""
    stores = open_stores(config)
    now = answer_folder(stores, 1_800_000_000.0)
    old = answer_folder(stores, 1_700_000_000.0)
    for folder in (now, old):
        stores.storage.write_bytes(f"{folder}/engine/x", b"x")
    for at_s, left in ((1_800_000_000.0, [now]), (1_800_000_000.0 + 30 * 86_400.0, [])):
        sweep(stores, clock=lambda at_s=at_s: at_s)
        assert [folder for folder in (now, old) if stores.storage.exists(folder)] == left


@pytest.mark.parametrize("place", DELETED_IN)
def test_what_a_killed_attempt_was_deleting_is_named_and_swept(
    copy: Callable[..., Krake], place: str
) -> None:
    krake = copy()
    krake.ok("export", "--label", "x")
    one = min(krake.directory.glob("dfs/crawl/1*")).name
    made = krake.directory / place.format(one=one) / f".deleted.{'0123456789abcdef' * 2}"
    (made / "below").mkdir(parents=True)
    assert findings(krake)["leftover"]["where"] == str(made.relative_to(krake.directory / "dfs"))
    krake.ok("sweep")
    assert not made.exists()
    assert findings(krake) == {}


def test_a_node_called_deleted_keeps_the_hidden_folder_of_its_take(
    copy: Callable[..., Krake],
) -> None:
    krake = copy()
    made = min(krake.directory.glob("dfs/crawl/1*")) / f".deleted-{'a' * 32}"
    made.mkdir()
    assert krake.ok("sweep").out == "nothing is left over\n"


@pytest.mark.parametrize(("segment", "kind"), [("import", "import"), ("live-0", "live")])
def test_the_hidden_folder_of_an_import_is_left_until_its_segment_stands(
    copy: Callable[..., Krake], segment: str, kind: str
) -> None:
    """It may be at work on any machine."""
    krake = copy()
    folder = min(krake.directory.glob("dfs/crawl/1*"))
    (folder / f".{segment}-{kind}-{'a' * 32}").mkdir()
    assert krake.ok("sweep").out == "nothing is left over\n"
    (folder / segment).mkdir()
    krake.ok("sweep")
    assert not list(folder.glob(f".{segment}-*"))


def test_the_directory_of_a_node_that_left_is_looked_at_and_repaired(
    copy: Callable[..., Krake],
) -> None:
    """Its damage was not found, and `nodes retire` and `fsck --repair` named each other."""
    krake = copy()
    with_servers(krake, "node-b")
    (krake.directory / "queue" / "node-a" / "state").write_text("x\n")
    assert {"state_damaged", "node_not_retired"} <= findings(krake).keys()
    assert "krake fsck --repair" in krake("nodes", "retire", "node-a").error()
    krake("fsck", "--repair")
    assert findings(krake).keys() == {"node_not_retired"}
    krake.ok("nodes", "retire", "node-a")
    assert findings(krake) == {}


def test_key_tables_are_filled_from_the_queue_of_a_node_that_left(
    copy: Callable[..., Krake],
) -> None:
    """They lacked its keys for good, and no task could begin."""
    krake = copy()
    with_servers(krake, "node-b")
    for table in krake.directory.glob("keys/*.sqlite"):
        table.unlink()
    krake("fsck", "--repair")
    assert findings(krake).keys() == {"node_not_retired"}
    krake.ok("nodes", "retire", "node-a")
    assert krake("fsck", "--json").json["findings"] == []


def test_damaged_seeds_are_injected_again_for_the_nodes_that_there_are_now(
    copy: Callable[..., Krake], web: Serving
) -> None:
    """Inject read the manifest that it is to replace, to see whether nodes have to be settled first."""
    krake = copy()
    with_servers(krake, "node-b")
    krake.ok("nodes", "retire", "node-a")
    for manifest in krake.directory.glob("dfs/crawl/seeds/*/manifest.json"):
        if '"retired"' not in manifest.read_text():
            manifest.write_bytes(b"{")
    assert "seeds_damaged" in findings(krake)
    krake.ok("inject", "\n".join(web.seeds), "--run-id", "one")
    assert "seeds_damaged" not in findings(krake)
    krake.ok("settle")
