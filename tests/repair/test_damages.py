"""Each damage: `krake fsck` names it, the commands repair it, `krake fsck` is clean, and no URL is lost."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest

from crawl_lib.sealed import sealed, sealed_json, unsealed
from crawl_lib.segment.manifest import DroppedLists
from crawl_lib.storage import LocalStorage
from demo import Serving
from tests.cli.conftest import Krake
from tests.harms import Harm, byte, character, cut, empty, gone, nonsense
from tests.repair.checked import (
    EXPORT,
    REPAIR,
    another_url,
    both,
    carry_out,
    found,
    into_queue,
    newest_folder,
    node_a,
    snapshot,
    sql,
    visited,
    waiting,
)
from tests.scopes import scope_of, shared_scopes

FIND_AGAIN = (REPAIR, ("settle",))


@dataclass(frozen=True)
class Damage:
    """`name`: of the finding. `do`: damages the directory of a crawl. `repair`: commands, in order.

    `kill_at`: the crawl was killed at this step before. `fast`: found without reading everything.
    """

    name: str
    do: Callable[[Path], object]
    repair: Sequence[tuple[str, ...]] = (REPAIR,)
    kill_at: str | None = None
    fast: bool = True


def note_another_place(directory: Path) -> None:
    """Note a place of other key servers on each server."""
    for path in directory.glob("keys/[01].sqlite"):
        with closing(sqlite3.connect(path)) as connection, connection:
            ((note,),) = connection.execute("SELECT note FROM krakenote").fetchall()
            other = sealed_json({**unsealed(note.encode()), "place": 7})
            connection.execute("UPDATE krakenote SET note = ?", (other.decode(),))


def each(
    name: str,
    file: str,
    pattern: str,
    *harms: Harm,
    repair: Sequence[tuple[str, ...]] = (REPAIR,),
    fast: bool = True,
) -> dict[str, Damage]:
    """Give the damages of a kind of file, which are found as `name`; the newest file of `pattern`."""

    def damage(harm: Harm) -> Damage:
        def do(directory: Path) -> None:
            path = max(directory.glob(pattern), default=directory / pattern)
            harm(path, Random(f"{file}: {harm.__name__}"))

        return Damage(name, do, repair, fast=fast)

    return {f"{file}: {harm.__name__}": damage(harm) for harm in harms}


def last_data_file(directory: Path) -> Path:
    names = [path.name for path in node_a(directory).iterdir() if path.name.isdecimal()]
    return node_a(directory) / max(names, key=int)


def data_file_loses_lines(directory: Path) -> None:
    """The second half of the last data file is gone, and so are those URLs: only segments have them."""
    path = last_data_file(directory)
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) > 1
    path.write_bytes(b"".join(lines[: len(lines) // 2]))


def last_line_is_cut(directory: Path) -> None:
    """The last data file ends within a URL, with as many lines as before."""
    path = last_data_file(directory)
    path.write_bytes(path.read_bytes()[:-7])


def retry_says(directory: Path, pattern: bytes, instead: bytes) -> None:
    """The meta of failures that wait says something else of them, with as many bytes."""
    found = 0
    for path in node_a(directory).glob("*.meta"):
        data, count = re.subn(pattern, instead, path.read_bytes(), flags=re.MULTILINE)
        path.write_bytes(data)
        found += count
    assert found


def header_says(directory: Path, **fields: object) -> None:
    """The header of a take contradicts itself, and has the right digest."""
    path = node_a(directory) / "take"
    head, _, lines = path.read_bytes().partition(b"\n")
    path.write_bytes(sealed_json({**unsealed(head), **fields}) + lines)


def record_is_off(name: str) -> Callable[[Path], object]:
    """The record says another byte, within a line."""

    def damage(directory: Path) -> None:
        assert json.loads((node_a(directory) / "state.krake").read_bytes())[name]
        value = unsealed((node_a(directory) / "state.krake").read_bytes())
        (node_a(directory) / "state.krake").write_bytes(
            sealed_json({**value, name: value[name] + 3})
        )

    return damage


def dropped_without_mark(directory: Path) -> None:
    """A page was dropped, and nothing tells `krake status` to look closer."""
    [segment] = max(directory.glob("dfs/crawl/1*")).glob("node-a")
    key = pq.read_table(segment / "pages.parquet", columns=["key"]).column("key").to_pylist()[0]
    DroppedLists(
        LocalStorage(directory / "dfs"), str(segment.relative_to(directory / "dfs"))
    ).write([key])


def next_line_is_lost(directory: Path) -> None:
    """One of the URLs that are fetched now is not in its data file any more."""
    path = node_a(directory) / "0"
    done = int((node_a(directory) / "state").read_bytes().split()[0])
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) >= done + 2
    path.write_bytes(b"".join(lines[: done + 1] + lines[done + 2 :]))


def state_says_more(directory: Path) -> None:
    path = node_a(directory) / "state"
    path.write_bytes(path.read_bytes().rstrip() + b"7\n")


def other_inode(directory: Path) -> None:
    """A move renames a file that is another one now, as after a restored backup."""
    value = unsealed((node_a(directory) / "move").read_bytes())
    for step in (step for group in value["groups"] for step in group):
        step[1] += 1_000_000
    (node_a(directory) / "move").write_bytes(sealed_json(value))


Q = "queue/node-a"
SPOOL, BUILT, HOST_COUNTS = f"{Q}/spool", f"{Q}/spool/segment", f"{Q}/hostcounts.sqlite"
SEALED = "dfs/crawl/1*/.node-a-*/*.warc.gz"
MARK, ITERATION = "dfs/crawl/settled/node-a/*", "dfs/crawl/1*/iteration.json"
SEEDS_SCOPE = "dfs/crawl/seeds/*/scope"
SEEDS_LINES, SEEDS_MANIFEST = "dfs/crawl/seeds/*/outlinks", "dfs/crawl/seeds/*/manifest.json"
E, ARCS = "dfs/export/e", "arcs-in.parquet"
NEW_SEEDS = (("inject", "SEEDS", "--run-id", "one"),)
RETIRE = (("rm", f"{Q}/retire"),)
NEW_MARK = (("rm", MARK), ("settle",))
FOLDER_AWAY = (("rm", "NEWEST"),)


def anew(*names: str) -> tuple[tuple[str, ...], ...]:
    """Files of the export are deleted, and made again."""
    return (*(("rm", f"{E}/{name}") for name in names), *EXPORT)


CONTENT, WEBGRAPH = anew("content", "offsets"), anew("webgraph", "webgraph-index")
OF_FILES = {
    None: (
        each("state_damaged", "state", f"{Q}/state", nonsense, gone),
        each("meta_changed", "meta", f"{Q}/0.meta", cut, gone, fast=False),
        each("data_changed", "data file", f"{Q}/0", character, repair=FIND_AGAIN, fast=False),
        each("record_damaged", "record", f"{Q}/state.krake", nonsense, character),
        each("lost_damaged", "lost", f"{Q}/lost", nonsense, repair=FIND_AGAIN),
        each("retire_damaged", "retire", f"{Q}/retire", nonsense, repair=RETIRE),
        each("undecided_damaged", "undecided", f"{Q}/undecided", nonsense, repair=FIND_AGAIN),
        each("handed_on_damaged", "handed on", f"{Q}/handed_on", nonsense, repair=FIND_AGAIN),
        each("hosts_damaged", "hosts", f"{Q}/hosts/hosts.sqlite", nonsense),
        each("hostcounts_damaged", "host counts", f"{Q}/hostcounts.sqlite", nonsense),
        each("mark_damaged", "mark", MARK, nonsense, character, repair=NEW_MARK),
        each("index_damaged", "index", "dfs/crawl/1*/index.json", nonsense),
        each("iteration_damaged", "iteration", ITERATION, nonsense),
        each("scope_damaged", "scope of seeds", SEEDS_SCOPE, cut, gone),
        each("started_damaged", "choice of a start", "dfs/crawl/started/*", nonsense),
        each("seeds_damaged", "manifest of seeds", SEEDS_MANIFEST, nonsense, repair=NEW_SEEDS),
        each("seeds_damaged", "seeds", SEEDS_LINES, byte, repair=NEW_SEEDS, fast=False),
        each("seeds_damaged", "seeds", SEEDS_LINES, gone, repair=NEW_SEEDS),
        each("mapping_damaged", "mapping", f"{E}/urlmapping", cut, repair=anew("urlmapping")),
        each("export_file_missing", "mapping", f"{E}/urlmapping", gone, repair=EXPORT),
        each("content_damaged", "content", f"{E}/content", byte, repair=CONTENT, fast=False),
        each("offsets_damaged", "offsets", f"{E}/offsets", byte, repair=CONTENT, fast=False),
        each("graph_damaged", "web graph", f"{E}/webgraph", byte, repair=WEBGRAPH, fast=False),
        each("export_table_damaged", "arcs", f"{E}/{ARCS}", cut, repair=anew(ARCS)),
        each("inputs_damaged", "inputs", f"{E}/inputs", nonsense, repair=anew("")),
    ),
    "start.renamed": (
        each(
            "iteration_damaged", "iteration, nothing fetched", ITERATION, gone, repair=FOLDER_AWAY
        ),
    ),
    "take.written": (
        each("take_damaged", "take", f"{Q}/take", nonsense, character, cut),
        each("iteration_damaged", "iteration, a take is open", ITERATION, gone),
    ),
    "take.leftover": (
        each("leftover_damaged", "leftover", f"{Q}/leftover", nonsense, character),
        each("spool_damaged", "positions of a part", f"{SPOOL}/*.positions", cut),
        each("spool_damaged", "rows of a part", f"{SPOOL}/*.links.arrow", byte, fast=False),
    ),
    "seal.freed": (
        each("sealed_damaged", "sealed file", SEALED, gone, cut),
        each("sealed_damaged", "sealed file", SEALED, byte, fast=False),
        each("sealed_damaged", "seal", f"{SPOOL}/*.sealed.json", nonsense),
        each("spool_damaged", "outlinks of a part", f"{SPOOL}/*.outlinks.0*", byte, fast=False),
        each("spool_damaged", "scope of a take", f"{SPOOL}/scope", nonsense, empty, character),
    ),
    "segment.build.manifest": (
        each("spool_damaged", "pages of a built segment", f"{BUILT}/pages.parquet", cut),
        each("spool_damaged", "manifest of a built segment", f"{BUILT}/manifest.json", nonsense),
    ),
    "segment.publish.uploaded": (
        each("spool_damaged", "outlinks of a built segment", f"{BUILT}/outlinks", byte, fast=False),
    ),
    "segment.publish.renamed": (
        each("take_damaged", "take, its segment stands", f"{Q}/take", nonsense),
        each("leftover_damaged", "leftover, the segment stands", f"{Q}/leftover", gone),
    ),
    "intake.chunk.journalled": (each("intake_missing", "journal", f"{Q}/intake", gone),),
    "intake.chunk.inserted": (
        each("intake_damaged", "journal", f"{Q}/intake", nonsense, character),
        each("intake_short", "new URLs", f"{Q}/new", cut, repair=FIND_AGAIN),
    ),
    "queue.move.written": (
        each("move_damaged", "move", f"{Q}/move", nonsense, character),
        each("hostcounts_damaged", "host counts, a move is open", HOST_COUNTS, nonsense),
    ),
    "queue.move.step": (each("move_damaged", "move half done", f"{Q}/move", nonsense),),
}
"""By the step at which the crawl was killed (None: settled), what random damage any file may get."""
RANDOM = {
    name: replace(damage, kill_at=kill_at)
    for kill_at, kinds in OF_FILES.items()
    for damages in kinds
    for name, damage in damages.items()
}
DAMAGES = RANDOM | {
    "state says more": Damage("state_differs", state_says_more),
    "state says that more is done": Damage("state_damaged", into_queue("state", b"999\n1\n")),
    "a data file is missing": Damage(
        "data_files", lambda d: (node_a(d) / "0").rename(node_a(d) / "9")
    ),
    "a data file lost lines": Damage("state_differs", data_file_loses_lines, FIND_AGAIN),
    "a data file is cut within its last line": Damage("line_cut", last_line_is_cut, FIND_AGAIN),
    "a data file is cut within its last line, and state is gone": Damage(
        "state_damaged", lambda d: (last_line_is_cut(d), (node_a(d) / "state").unlink()), FIND_AGAIN
    ),
    "handed_on is cut": Damage(
        "handed_on_damaged", into_queue("handed_on", b"http://a.example/\t\t0\t0\th\t"), FIND_AGAIN
    ),
    "meta lost a line": Damage("meta_differs", into_queue("0.meta", b"\t0\t0\t\n")),
    "meta says another depth": Damage(
        "meta_changed", lambda d: _replace(node_a(d) / "0.meta", b"\t1\t0", b"\t7\t0"), fast=False
    ),
    "meta puts a failure off for centuries": Damage(
        "meta_changed", lambda d: retry_says(d, rb"\t(\d+)\t1(\d{9})$", rb"\t\1\t9\2"), fast=False
    ),
    "meta says that a failure was tried more often": Damage(
        "meta_changed", lambda d: retry_says(d, rb"\t1\t(\d{10})$", rb"\t9\t\1"), fast=False
    ),
    "the record is off by some bytes": Damage(
        "record_damaged", record_is_off("offset"), fast=False
    ),
    "the record is off by some bytes of meta": Damage(
        "record_damaged", record_is_off("meta_offset"), fast=False
    ),
    "scope_added is cut": Damage(
        "scope_added_damaged", into_queue("scope_added", b"127.0.0.1\nexam")
    ),
    "host counts that are something else": Damage(
        "hostcounts_damaged",
        lambda d: (node_a(d) / "hostcounts.sqlite").write_bytes(
            (node_a(d) / "hosts" / "hosts.sqlite").read_bytes()
        ),
    ),
    "a move of other files": Damage("move_impossible", other_inode, kill_at="queue.move.written"),
    "a take has the URL of another page": Damage(
        "take_damaged", lambda d: another_url(node_a(d) / "take"), kill_at="take.written"
    ),
    "a take of another run": Damage(
        "take_damaged",
        lambda d: _replace(node_a(d) / "take", b'"run_id": "one"', b'"run_id": "onf"'),
        kill_at="take.written",
    ),
    "a take that says it took other lines": Damage(
        "take_damaged", lambda d: header_says(d, runs=[[1, 99]]), kill_at="take.written"
    ),
    "a take that says it looked at fewer lines": Damage(
        "take_damaged", lambda d: header_says(d, looked_at=1), kill_at="take.written"
    ),
    "a data file lost a line whose segment stands": Damage(
        "state_differs", next_line_is_lost, FIND_AGAIN, kill_at="segment.publish.renamed"
    ),
    "one key server lost keys": Damage(
        "replica_missing", sql(0, "DELETE FROM kraakekeys WHERE hash < '8'"), fast=False
    ),
    "one key server has old states": Damage(
        "replica_behind", sql(1, "UPDATE kraakekeys SET keyinfo = 1"), fast=False
    ),
    "all key servers lost keys": Damage(
        "page_key_unknown", both("DELETE FROM kraakekeys WHERE keyinfo = 2"), fast=False
    ),
    "all key servers lost queued keys": Damage(
        "queued_key_unknown", both("DELETE FROM kraakekeys WHERE keyinfo = 1"), fast=False
    ),
    "all key servers have old states": Damage(
        "page_key_behind", both("UPDATE kraakekeys SET keyinfo = 1"), fast=False
    ),
    "no key tables": Damage(
        "server_failed", lambda d: [path.unlink() for path in d.glob("keys/*")]
    ),
    "a key server is no data base": Damage(
        "server_failed",
        lambda d: (
            [path.unlink() for path in d.glob("keys/0.sqlite-*")],
            (d / "keys" / "0.sqlite").write_bytes(b"nothing" * 1000),
        ),
    ),
    "the note of a key server is none": Damage(
        "ring_note_damaged", sql(1, "UPDATE krakenote SET note = '{'")
    ),
    "the notes of all key servers are none": Damage(
        "ring_note_damaged", both("UPDATE krakenote SET note = '{'")
    ),
    "other key servers": Damage(
        "ring_differs",
        note_another_place,
        (),
    ),
    "the pages of an export have other bytes": Damage(
        "export_table_damaged",
        lambda d: _overwrite(d / E / "pages.parquet"),
        anew("pages.parquet"),
        fast=False,
    ),
    "an index that says something else": Damage(
        "index_differs",
        lambda d: _edit(_newest(d, "index.json"), lambda value: value["counts"].update(taken=99)),
    ),
    "a scope that lacks a host": Damage(
        "scope_damaged",
        lambda d: _scope(d).write_bytes(_scope(d).read_bytes().split(b"\n", 1)[1]),
    ),
    "a scope that is none": Damage("scope_damaged", lambda d: _scope(d).write_bytes(b"\xcb\xff\n")),
    "a scope that is gone": Damage("scope_damaged", lambda d: _scope(d).unlink()),
    "all scopes are cut": Damage(
        "scope_damaged",
        lambda d: [
            path.write_bytes(path.read_bytes()[:5])
            for path in [*shared_scopes(d / "dfs/crawl"), *d.glob(SEEDS_SCOPE)]
        ],
    ),
    "an iteration of another run": Damage(
        "iteration_damaged",
        lambda d: _edit(_newest(d, "iteration.json"), lambda value: value.update(run_id="twp")),
    ),
    "an iteration without its nodes": Damage(
        "iteration_damaged",
        lambda d: _edit(_newest(d, "iteration.json"), lambda value: value.pop("nodes")),
    ),
    "an iteration and its scope are gone": Damage(
        "iteration_damaged", lambda d: (_scope(d).unlink(), _newest(d, "iteration.json").unlink())
    ),
    "all iterations are none": Damage(
        "iteration_damaged",
        lambda d: [path.write_bytes(b"nothing") for path in d.glob("dfs/crawl/*/iteration.json")],
    ),
    "a note of what was agreed that is none": Damage(
        "agreed_damaged",
        lambda d: _newest(d, "iteration.json").with_name("agreed-1.json").write_bytes(b"\xff{"),
        kill_at="take.written",
    ),
    "the mark of dropped pages is gone": Damage("dropped_unmarked", dropped_without_mark),
    "the decision of a repair that is none": Damage(
        "repair_damaged", lambda d: _newest(d, ".swap-node-a.json").write_bytes(b"{")
    ),
    "the decision of a repair that is none, and no segment stands": Damage(
        "repair_damaged",
        lambda d: (
            _newest(d, ".swap-node-a.json").write_bytes(b"{"),
            _newest(d, "node-a").rename(_newest(d, ".damaged-node-a-1")),
        ),
    ),
    "a forgotten list that is none": Damage(
        "forgotten_damaged",
        lambda d: (
            (d / "dfs/crawl/forgotten").mkdir(),
            (d / "dfs/crawl/forgotten/1-a").write_bytes(b"{"),
        ),
        (("rm", "dfs/crawl/forgotten/1-a"),),
        fast=False,
    ),
}


def _newest(directory: Path, name: str) -> Path:
    """A small file of the newest iteration."""
    return newest_folder(directory) / name


def _scope(directory: Path) -> Path:
    """The scope of the newest iteration."""
    return scope_of(_newest(directory, ""))


def _overwrite(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4] + b"\xff" * (len(data) // 8) + data[4 + len(data) // 8 :])


def _replace(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))


def _edit(path: Path, change: Callable[[dict], object]) -> None:
    value = json.loads(path.read_bytes())
    del value["sha1"]
    change(value)
    path.write_text(json.dumps(sealed(value)))


def meant(web: Serving, words: tuple[str, ...]) -> tuple[str, ...]:
    """The command that words say: in place of SEEDS, those of the crawl."""
    return tuple("\n".join(web.seeds) if word == "SEEDS" else word for word in words)


@pytest.mark.parametrize("which", DAMAGES)
def test_damage_is_named_and_repaired(
    which: str, copy: Callable[..., Krake], web: Serving, whole: tuple[Counter[str], Counter[str]]
) -> None:
    damage = DAMAGES[which]
    krake = copy(damage.kill_at)
    assert found(krake) == Counter(), "what a kill leaves open is no damage"
    damage.do(krake.directory)
    assert damage.name in found(krake)
    assert (damage.name in found(krake, "--fast")) == damage.fast
    for words in (meant(web, some) for some in damage.repair):
        if words == REPAIR:
            before = snapshot(krake.directory)
            assert krake(*words, "--dry-run").code == 1
            assert snapshot(krake.directory) == before, "a dry run changes nothing"
            krake(*words)
        carry_out(krake, words)  # again: the same
    if which == "other key servers":
        return
    assert found(krake) - Counter({"urls_lost": 1}) == Counter()
    krake.ok("settle") if damage.kill_at is None else krake.ok(
        "crawl", "--run-id", "one", "--iterations", "4"
    )
    assert found(krake) == Counter()
    crawled, queued = whole
    if damage.kill_at is None:
        assert waiting(krake) == queued
        assert visited(krake) == crawled
    else:
        assert set(visited(krake)) >= set(crawled)
        assert set(visited(krake)) | set(waiting(krake)) >= set(crawled) | set(queued)
        assert max(visited(krake).values()) == 1, "a page was fetched again"
        assert not waiting(krake).keys() & visited(krake).keys()


def test_a_spool_whose_segment_stands_may_be_damaged(copy: Callable[..., Krake]) -> None:
    """No one reads it any more: fsck names nothing that its command would leave as it is."""
    krake = copy("segment.publish.renamed")
    DAMAGES["positions of a part: cut"].do(krake.directory)
    assert found(krake) == Counter()
    krake.ok("crawl", "--run-id", "one", "--iterations", "4")
    assert not (node_a(krake.directory) / "spool").exists()


def test_fsck_changes_nothing_and_makes_no_store(
    copy: Callable[..., Krake], tmp_path: Path
) -> None:
    krake = copy()
    before = snapshot(krake.directory)
    assert found(krake) == Counter()
    assert snapshot(krake.directory) == before
    fresh = Krake(tmp_path / "fresh", krake._run)
    (tmp_path / "fresh").mkdir()
    fresh.configure()
    assert found(fresh) == Counter(), "nothing was crawled, and what is not there yet is no damage"
    assert {path.name for path in (tmp_path / "fresh").iterdir()} <= {"krake.yml", "dfs"}
