"""Folders of the crawl directory: scopes, seeds and indexes, and what killed attempts left there."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.crawldir import Starts
from crawl_lib.durable import KILL_VARIABLE
from crawl_lib.repair import sweep
from crawl_lib.repair.fsck import fsck, repair_crawl
from crawl_lib.rounds import start_iteration
from crawl_lib.sealed import sealed_json, unsealed
from crawl_lib.stores import Stores, open_stores
from crawl_lib.versions import answer_folder
from demo import Serving
from tests.cli.conftest import Krake
from tests.forked import run_forked
from tests.repair.checked import REPAIR, findings, found, newest_folder, visited
from tests.scopes import scope_of, shared_scopes

HOSTS = ("a.test", "b.test", "c.test")


@pytest.fixture
def grown(config: Config) -> Stores:
    """Six iterations. A host came before the first, the third and the fifth of them."""
    stores = open_stores(config)
    for host in HOSTS:
        stages.inject(stores, run_id=f"seeds of {host}", seeds=f"http://{host}/")
        for turn in ("first", "second"):
            start_iteration(stores, run_id=f"{turn} of {host}", iteration=1)
    return stores


def begin(stores: Stores) -> None:
    """Begin an iteration in another process, which remembers no folder."""
    start_iteration(open_stores(stores.config), run_id="next", iteration=1)


def directory(stores: Stores) -> Path:
    return Path(stores.config.dfs_primary) / stores.config.crawl.directory


def folders(stores: Stores) -> list[Path]:
    return sorted(directory(stores).glob("[0-9]*"))


def scopes(stores: Stores) -> list[list[str]]:
    """The hosts in scope of each iteration."""
    return [
        sorted(stores.crawl.scopes.read(stores.crawl.folder(path.name).iteration()))
        for path in folders(stores)
    ]


SCOPES = [["a.test"]] * 2 + [["a.test", "b.test"]] * 2 + [["a.test", "b.test", "c.test"]] * 2


def problems(stores: Stores) -> list[str]:
    return [one.name for one in fsck(stores).findings if one.name != "leftover"]


def test_iterations_of_one_scope_share_its_file(grown: Stores) -> None:
    assert scopes(grown) == SCOPES
    assert len(shared_scopes(directory(grown))) == 3
    assert problems(grown) == []


@pytest.mark.parametrize("data", [None, b"", b"b.test\n", b"\xff\xfe"])
@pytest.mark.parametrize("number", [0, 3, 5])
def test_a_damaged_scope_is_one_finding_and_is_made_again(
    grown: Stores, number: int, data: bytes | None
) -> None:
    path = scope_of(folders(grown)[number])
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)
    assert problems(grown) == ["scope_damaged"]
    repair_crawl(grown)
    assert problems(grown) == []
    assert scopes(grown) == SCOPES


def test_a_lost_iteration_without_a_segment_is_left_to_people(grown: Stores) -> None:
    """No file tells what the iteration was. Moved away, its folder gives way to the next start."""
    newest = folders(grown)[-1]
    (newest / "iteration.json").unlink()
    report = repair_crawl(grown)
    assert "no segment or open take here has a copy" in " ".join(report.skipped)
    [damage] = [one for one in report.findings if one.name != "leftover"]
    assert (damage.name, newest.name in damage.repair) == ("iteration_damaged", True)
    assert not (newest / "iteration.json").exists()
    shutil.rmtree(newest)
    assert problems(grown) == []
    begin(grown)
    assert scopes(grown) == SCOPES


def test_a_scope_that_neither_a_segment_nor_the_seeds_have_is_left_to_people(
    grown: Stores,
) -> None:
    for path in [*shared_scopes(directory(grown))]:
        path.write_bytes(b"")
    for path in directory(grown).glob("seeds/*"):
        shutil.rmtree(path)
    assert "no segment or open take here has a copy" in " ".join(repair_crawl(grown).skipped)
    assert set(problems(grown)) == {"scope_damaged"}
    assert {path.read_bytes() for path in shared_scopes(directory(grown))} == {b""}


def test_a_repair_copies_the_files_of_an_iteration_from_a_segment(
    copy: Callable[..., Krake],
) -> None:
    """Other files of the crawl directory do not matter."""
    krake = copy()
    crawl = krake.directory / "dfs/crawl"
    files = [*crawl.glob("1*/iteration.json"), *shared_scopes(crawl)]
    before = {path: path.read_bytes() for path in files}
    for path in files:
        path.unlink()
    for path in [*crawl.glob("1*/index.json"), *crawl.glob("seeds/*/scope")]:
        path.write_bytes(b"{")
    krake.ok(*REPAIR)
    assert {path: path.read_bytes() for path in files} == before
    assert findings(krake) == {}


OF_EXPORT = {"input_changed"}
"""The note of an export whose segments are other ones now."""


def test_a_damaged_copy_is_no_source(copy: Callable[..., Krake]) -> None:
    """The segment is made again once the file of the iteration is there."""
    krake = copy()
    folder = newest_folder(krake.directory)
    whole = (folder / "iteration.json").read_bytes()
    for path in folder.glob("*/iteration.json"):
        path.write_bytes(b"{}" + path.read_bytes())
    (folder / "iteration.json").unlink()
    assert "no segment or open take here has a copy" in krake(*REPAIR).out
    assert not (folder / "iteration.json").exists()
    (folder / "iteration.json").write_bytes(whole)
    krake.ok(*REPAIR)
    assert findings(krake).keys() <= OF_EXPORT
    assert {path.read_bytes() for path in folder.glob("node-?/iteration.json")} == {whole}


def test_a_segment_that_was_set_aside_has_copies(copy: Callable[..., Krake]) -> None:
    krake = copy()
    folder = newest_folder(krake.directory)
    (folder / "node-a").rename(folder / ".damaged-node-a-1")
    (folder / "iteration.json").unlink()
    krake.ok(*REPAIR)
    assert findings(krake) == {}


def test_an_older_segment_without_copies_stays_readable(copy: Callable[..., Krake]) -> None:
    """Its iteration cannot be repaired from it."""
    krake = copy()
    folder = newest_folder(krake.directory)
    for path in folder.glob("*/manifest.json"):
        value = unsealed(path.read_bytes())
        copies = ("iteration.json", "scope")
        value["files"] = [entry for entry in value["files"] if entry["name"] not in copies]
        path.write_bytes(sealed_json(value))
        for name in copies:
            (path.parent / name).unlink()
    assert findings(krake).keys() <= OF_EXPORT
    krake.ok("segment", "list")
    (folder / "iteration.json").unlink()
    assert "no segment or open take here has a copy" in krake(*REPAIR).out


def delete_first_four(stores: Stores) -> None:
    for folder in folders(stores)[:4]:
        shutil.rmtree(folder)


def delete_newest_two(stores: Stores) -> None:
    for folder in folders(stores)[-2:]:
        shutil.rmtree(folder)


def keep_all(_: Stores) -> None:
    pass


@pytest.mark.parametrize(
    ("delete", "left"), [(keep_all, 3), (delete_first_four, 1), (delete_newest_two, 3)]
)
def test_a_sweep_deletes_scopes_that_no_iteration_will_have(
    grown: Stores, delete: Callable[[Stores], None], left: int
) -> None:
    """The next start may name the scope of the newest folder again, after people deleted that."""
    delete(grown)
    sweep(grown)
    assert len(shared_scopes(directory(grown))) == left
    assert problems(grown) == []
    begin(grown)
    assert scopes(grown)[-1] == SCOPES[-1]
    assert len(shared_scopes(directory(grown))) == left


def test_a_sweep_keeps_every_scope_while_an_iteration_cannot_be_read(grown: Stores) -> None:
    delete_first_four(grown)
    (folders(grown)[0] / "iteration.json").write_bytes(b"{")
    sweep(grown)
    assert len(shared_scopes(directory(grown))) == 3


def test_a_sweep_keeps_the_scope_that_a_start_is_about_to_name(
    grown: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages.inject(grown, run_id="seeds of d.test", seeds="http://d.test/")
    give_name, swept = Starts.give_name, []

    def give_name_later(*given: Any) -> None:
        swept.append(sweep(open_stores(grown.config)).deleted)
        give_name(*given)

    monkeypatch.setattr(Starts, "give_name", give_name_later)
    begin(grown)
    assert swept == [[]]
    assert scopes(grown)[-1] == [*HOSTS, "d.test"]
    assert problems(grown) == []


def test_a_start_after_a_damaged_scope_nobody_has_names_the_repair(grown: Stores) -> None:
    """Nothing takes the file for the scope that its name promises."""
    newest = scope_of(folders(grown)[-1])
    delete_newest_two(grown)
    newest.write_bytes(b"a.test\n")
    begin(grown)
    assert (
        json.loads((folders(grown)[-1] / "iteration.json").read_bytes())["scope_sha256"]
        == newest.name
    )
    assert problems(grown) == ["scope_damaged"]
    repair_crawl(grown)
    assert scopes(grown)[-1] == SCOPES[-1]


UPLOADED = "segment.publish.uploaded"
"""Killed here, the hidden folder of a take holds some of its files."""


def hidden(krake: Krake) -> list[Path]:
    return list(krake.directory.glob("dfs/crawl/1*/.node-a-*"))


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
    krake.change(servers=["node-b"])
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


def test_damaged_seeds_are_injected_again_for_the_nodes_that_there_are_now(
    copy: Callable[..., Krake], web: Serving
) -> None:
    """Inject read the manifest that it is to replace, to see whether nodes have to be settled first."""
    krake = copy()
    krake.change(servers=["node-b"])
    krake.ok("nodes", "retire", "node-a")
    for manifest in krake.directory.glob("dfs/crawl/seeds/*/manifest.json"):
        if '"retired"' not in manifest.read_text():
            manifest.write_bytes(b"{")
    assert "seeds_damaged" in findings(krake)
    krake.ok("inject", "\n".join(web.seeds), "--run-id", "one")
    assert "seeds_damaged" not in findings(krake)
    krake.ok("settle")


def test_a_look_that_fails_calls_nothing_clean(copy: Callable[..., Krake]) -> None:
    """It was listed as skipped, with exit code 0, and no input of the part that was to be repaired."""
    krake = copy()
    (newest_folder(krake.directory) / ".swap-node-a.json").mkdir()
    for words in (("fsck",), ("fsck", "--fast"), (*REPAIR, "--only", "segments")):
        assert ".swap-node-a.json: cannot be read" in krake(*words).error()


def test_a_repair_that_cannot_be_done_yet_is_not_told_as_done(copy: Callable[..., Krake]) -> None:
    """An index is made from the segments: it is written when the damaged one is made again."""
    krake = copy()
    folder = max(krake.directory.glob("dfs/crawl/1*"))
    (folder / "index.json").write_bytes(b"{")
    (folder / "node-a/manifest.json").write_bytes(b"{")
    first = krake.ok(*REPAIR).out.splitlines()[0]
    assert f"{folder.name}/node-a" in first
    assert "index.json" not in first
    assert found(krake) == {}


def test_seeds_that_are_damaged_are_put_aside_when_they_are_injected_again(
    copy: Callable[..., Krake], web: Serving
) -> None:
    """No file of URLs is deleted before others took its place."""
    krake = copy()
    [seeds] = krake.directory.glob("dfs/crawl/seeds/*")
    (seeds / "manifest.json").write_bytes(b"{")
    krake.ok("inject", "\n".join(web.seeds), "--run-id", "one")
    [aside] = krake.directory.glob("dfs/crawl/seeds/.damaged-*")
    assert (aside / "outlinks").exists()
    assert str(aside.relative_to(krake.directory / "dfs")) in krake.ok("sweep", "--damaged").out
    assert not aside.exists()
    assert found(krake) == {}
