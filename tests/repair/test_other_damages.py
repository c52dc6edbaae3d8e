"""Damages whose repair is not one command for all: `krake fsck` names them, and doing what it says leaves it clean."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from crawl_lib.errors import KeyAccessError
from crawl_lib.keys.sqlite import SqliteKeyServer
from tests.cli.conftest import Krake
from tests.repair.test_damages import (
    EXPORT,
    REPAIR,
    both,
    carry_out,
    flip,
    found,
    queue,
    sql,
    visited,
    waiting,
)


def newest_folder(directory: Path) -> Path:
    return max(directory.glob("dfs/crawl/1*"))


def test_a_take_whose_folder_is_gone(copy: Callable[..., Krake]) -> None:
    """Its URLs are still in the queue: nothing is lost where the file is moved away, as the finding says."""
    krake = copy("take.written")
    queued = waiting(krake)
    shutil.rmtree(newest_folder(krake.directory))
    assert found(krake) == found(krake, "--fast") == {"take_folder_gone": 1}
    assert "was deleted" in krake("settle").error() or "is gone" in krake("settle").error()
    [finding] = krake("fsck", "--json").json["findings"]
    assert "delete" not in finding["repair"]
    (queue(krake.directory) / "take").rename(krake.directory / "take")
    krake.ok("settle")
    assert found(krake) == {}
    assert waiting(krake) == queued
    krake.ok("crawl", "--iterations", "1")
    assert max(visited(krake).values()) == 1


def test_a_spool_that_an_earlier_repair_put_aside_stays(copy: Callable[..., Krake]) -> None:
    krake = copy("take.leftover")
    node = queue(krake.directory)
    names = {path.name for path in (node / "spool").iterdir()}
    (node / "spool.broken").mkdir()
    (node / "spool.broken/a.warc.gz").write_bytes(b"records")
    (node / "take").write_bytes(b"{")
    krake.ok(*REPAIR)
    assert (node / "spool.broken/a.warc.gz").read_bytes() == b"records"
    assert {path.name for path in (node / "spool.broken-2").iterdir()} == names
    assert found(krake) == {}


def test_a_take_that_begins_elsewhere(copy: Callable[..., Krake]) -> None:
    """Somebody moved the queue on by hand while a take was open."""
    krake = copy("take.written")
    state = queue(krake.directory) / "state"
    processed, rest = state.read_bytes().split(b"\n", 1)
    state.write_bytes(b"%d\n" % (int(processed) + 1) + rest)
    assert found(krake, "--fast") == {"take_position": 1, "state_damaged": 1}
    krake.ok(*REPAIR)
    krake.ok("crawl", "--run-id", "one", "--iterations", "4")
    assert found(krake) == {}
    assert max(visited(krake).values()) == 1


def test_a_node_with_a_file_in_place_of_its_directory_is_one_that_is_not_here(
    copy: Callable[..., Krake],
) -> None:
    krake = copy("take.written")
    node, away = queue(krake.directory), krake.directory / "away"
    node.rename(away)
    missing = found(krake)
    node.write_text("no directory")
    assert found(krake) == missing
    node.unlink()
    away.rename(node)
    krake.ok("settle")
    assert found(krake) == {}


def test_states_that_nobody_knows(copy: Callable[..., Krake]) -> None:
    krake = copy()
    both("UPDATE kraakekeys SET keyinfo = 9 WHERE hash < '8'")(krake.directory)
    names = found(krake)
    assert names["keyinfo_unknown"] == 2
    assert found(krake, "--fast") == {"keyinfo_unknown": 2}
    krake.ok(*REPAIR)
    assert found(krake) == {}


def test_key_tables_of_an_older_version_have_no_table_of_turns(copy: Callable[..., Krake]) -> None:
    """It is a warning: a crawl of one node needs none. A dry run makes none, the repair does."""
    krake = copy()
    both("DROP TABLE kraakeslots")(krake.directory)
    assert found(krake) == found(krake, "--fast") == {"slots_missing": 2}
    assert "has no table of turns; one is made" in krake("fsck", "--repair", "--dry-run").out
    assert found(krake, "--fast") == {"slots_missing": 2}
    krake.ok(*REPAIR)
    assert found(krake) == {}


def test_who_may_make_no_tables_is_told_what_is_left_and_all_else_is_repaired(
    copy: Callable[..., Krake], monkeypatch
):
    def refuse(server: SqliteKeyServer) -> None:
        raise KeyAccessError(
            f"{server.name}: CREATE command denied: an administrator runs GRANT ALL"
        )

    krake = copy()
    both("DROP TABLE kraakeslots")(krake.directory)
    sql(1, "UPDATE krakenote SET note = '{'")(krake.directory)
    monkeypatch.setattr(SqliteKeyServer, "make_slots", refuse)
    report = krake(*REPAIR)
    assert "CREATE command denied" in report.out
    assert "has no table of turns; one is made" not in report.out
    assert found(krake) == {"slots_missing": 2}


def test_a_segment_that_somebody_deleted(copy: Callable[..., Krake]) -> None:
    """It is named, and may be meant: with its folder gone, too, all that is left agrees."""
    krake = copy()
    folder = min(krake.directory.glob("dfs/crawl/1*"))
    away = krake.directory / "away"
    (folder / "node-a").rename(away)
    assert found(krake)["segment_missing"] == found(krake, "--fast")["segment_missing"] == 1
    away.rename(folder / "node-a")
    assert found(krake) == {}


def test_an_unfinished_export_whose_input_is_gone(copy: Callable[..., Krake]) -> None:
    krake = copy()
    (krake.directory / "dfs/export/e/webgraph").unlink()
    shutil.rmtree(min(krake.directory.glob("dfs/crawl/1*")))
    assert found(krake)["input_gone"] == found(krake, "--fast")["input_gone"] == 1
    carry_out(krake, ("rm", "dfs/export/e"))
    for words in EXPORT:
        krake.ok(*words)
    assert "input_gone" not in found(krake)


def test_tables_that_changed_places(copy: Callable[..., Krake]) -> None:
    """Arrow reads a table without the columns that are asked for, and says nothing."""
    krake = copy()
    segment = newest_folder(krake.directory) / "node-a"
    pages, links = segment / "pages.parquet", segment / "links.parquet"
    pages.rename(segment / "away")
    links.rename(pages)
    (segment / "away").rename(links)
    assert found(krake)["table_damaged"] == 2
    krake.ok(*REPAIR)
    assert found(krake) == {}


def test_of_damaged_segments_that_lie_aside_the_newest_is_put_back(
    copy: Callable[..., Krake],
) -> None:
    """The one that stood last: an older one may lack what was dropped or salvaged since."""
    krake = copy()
    folder = newest_folder(krake.directory)
    (folder / "node-a").rename(folder / ".damaged-node-a-1700000000")
    for older in ("1699999999", "99"):
        (folder / f".damaged-node-a-{older}").mkdir()
    assert found(krake)["segment_missing"] > 0
    put_back = [line for line in krake.ok(*REPAIR).out.splitlines() if "put back" in line]
    assert len(put_back) == 1
    assert found(krake) == {}
    assert (folder / "node-a" / "manifest.json").exists()


def test_missing_tables_are_told_how_they_are_made_and_filled_once(
    copy: Callable[..., Krake],
) -> None:
    krake = copy()
    lost, broken = sorted(krake.directory.glob("keys/*.sqlite"))
    lost.unlink()
    broken.write_bytes(b"no tables\n" * 1000)
    told = {
        Path(one["where"]).name: one for one in krake("fsck", "--fast", "--json").json["findings"]
    }
    assert told[lost.name]["problem"] == "no such file"
    for one in told.values():
        assert one["repair"] == "put it back as it was, or run `krake fsck --repair`"


def test_zeros_in_a_queue_are_no_url(copy: Callable[..., Krake]) -> None:
    """Its digest is compared by `krake fsck` only: a crawl before that fetched the URL with the zeros in it."""
    krake = copy()
    data = max(queue(krake.directory).glob("[0-9]"))
    lines = data.read_bytes().split(b"\n")
    data.write_bytes(b"\n".join(line[:-2] + b"\0\0" if line else line for line in lines))
    error = krake("crawl", "--run-id", "two", "--iterations", "1").error()
    assert "is not a URL" in error
    assert "krake fsck --repair" in error
    krake.ok(*REPAIR)
    krake.ok("settle")
    assert found(krake) == {}
    krake.ok("crawl", "--run-id", "two", "--iterations", "1")
    assert not any("\0" in url for url in visited(krake))


@pytest.mark.parametrize("name", ["manifest.json", "pages.parquet", "links.parquet"])
def test_a_file_of_a_segment_that_is_gone_is_named_with_its_repair(
    name: str, copy: Callable[..., Krake]
) -> None:
    """By each command that reads it; `krake fsck` ended with an error where the manifest was gone."""
    krake = copy()
    (newest_folder(krake.directory) / "node-a" / name).unlink()
    assert found(krake)
    commands = iter([("export", "--label", "x"), ("graph", "link", "--export", "x")])
    assert "krake fsck --repair" in next(
        done.err for words in commands if (done := krake(*words)).code
    )
    shutil.rmtree(krake.directory / "dfs/export/x", ignore_errors=True)
    krake.ok(*REPAIR)
    assert found(krake) == {}


def test_a_look_that_fails_calls_nothing_clean(copy: Callable[..., Krake]) -> None:
    """It was listed as skipped, with exit code 0, and no input of the part that was to be repaired."""
    krake = copy()
    (newest_folder(krake.directory) / ".swap-node-a.json").mkdir()
    for words in (("fsck",), ("fsck", "--fast"), (*REPAIR, "--only", "segments")):
        assert ".swap-node-a.json: cannot be read" in krake(*words).error()


def test_damage_of_an_export_is_found_though_its_segments_have_changed(
    copy: Callable[..., Krake],
) -> None:
    """The note of it ended the check, and what is advised must not make files of other segments."""
    krake = copy()
    page = sorted(urls_of(newest_folder(krake.directory) / "node-a"))[0]
    krake.ok("segment", "drop", page, "--yes")
    assert found(krake) == {}
    mapping = krake.directory / "dfs/export/e/urlmapping"
    data = bytearray(mapping.read_bytes())
    data[4:24], data[24:44] = data[24:44], data[4:24]
    mapping.write_bytes(data)
    [finding] = [
        one for one in krake("fsck", "--json").json["findings"] if one["name"] == "mapping_damaged"
    ]
    assert finding["repair"] == "move the folder export/e away, and export again"


def urls_of(segment: Path) -> list[str]:
    """URLs of a segment's pages."""
    return [
        str(url)
        for url in pq.read_table(segment / "pages.parquet", columns=["url"])
        .column("url")
        .to_pylist()
    ]


@pytest.mark.parametrize(
    "keys", ["hash > '8'", "hash = (SELECT min(hash) FROM kraakekeys)", "keyinfo = 1"]
)
def test_a_replica_that_lacks_what_pages_and_queues_say(
    copy: Callable[..., Krake], keys: str
) -> None:
    """It is filled, and the repair that did it says so and no more that it is missing."""
    krake = copy()
    sql(1, f"DELETE FROM kraakekeys WHERE {keys}")(krake.directory)
    assert "replica_missing" in found(krake)
    done = krake.ok(*REPAIR)
    assert "were copied to replicas that lacked them" in done.out
    assert found(krake) == {}


def test_records_that_cannot_be_read_again_in_their_place_stay_next_to_the_spool(
    copy: Callable[..., Krake],
) -> None:
    """The spool goes with its take. Records behind an open part would count twice, so all of it is fetched again."""
    krake = copy("seal.written")
    node = queue(krake.directory)
    [log] = (node / "spool").glob("*-00000.warc.gz")
    records = log.read_bytes()
    log.with_name(log.name.replace("-00000.", "-00001.")).touch()  # the next part is begun
    flip("queue/node-a/spool/*.links.arrow")(krake.directory)
    assert found(krake) == {"spool_damaged": 1}
    krake.ok(*REPAIR)
    assert (node / f"{log.name}.broken").read_bytes() == records
    assert not log.exists()
    krake.ok("crawl", "--run-id", "one", "--iterations", "4")
    assert found(krake) == {}
    assert max(visited(krake).values()) == 1
    assert (node / f"{log.name}.broken").read_bytes() == records
