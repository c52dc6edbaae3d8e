"""The log of a worker: what a kill leaves of it, at every byte."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_lib.errors import DamagedFileError, StorageError
from crawl_lib.segment import Spool, build_segment
from crawl_lib.segment.parts import Part
from crawl_lib.segment.reader import SegmentReader
from crawl_lib.segment.recover import read_groups
from crawl_lib.segment.tables import read_blocks
from crawl_lib.storage import LocalStorage
from tests.forked import run_python
from tests.harms import flip
from tests.segment.helpers import (
    NODES,
    add_rows,
    answered,
    facts,
    failed,
    fetches,
    fill,
    robots,
    row,
    take_back,
    taken,
    writer,
)


def kill(out) -> None:
    """Leave the writer as SIGKILL leaves it: what was written stays, nothing more comes."""
    out._open.abandon()
    out._open = None


def content(directory: Path, count: int, deferred: int = 0) -> tuple:
    """What a segment built of a spool says, without positions in files."""
    built = directory / "built"
    shutil.rmtree(built, ignore_errors=True)
    manifest = build_segment(directory / "spool", built, facts(count, deferred), NODES)
    reader = SegmentReader(LocalStorage(directory), "built")
    columns = ["key", "url", "outcome", "status", "attempts", "metadata", "via_key", "ip", "time"]
    pages = sorted(
        (r for batch in reader.pages(columns) for r in batch.to_pylist()), key=lambda r: r["key"]
    )
    links = sorted(str(r) for batch in reader.links() for r in batch.to_pylist())
    outlinks = {owner: list(reader.outlinks(owner)) for owner in ("node-a", "node-b")}
    counts = {name: value for name, value in manifest.counts.items() if name != "robots_captures"}
    return pages, links, outlinks, counts


def test_a_torn_tail_at_every_byte_is_cut_to_the_last_whole_group(tmp_path):
    """Cut anywhere, run again: what was whole comes back, what was not is fetched again, the segment is the same."""
    items = fetches()
    out = writer(tmp_path / "whole" / "spool")
    fill(out, items)
    out.append(None, robots())
    ends = [
        group if isinstance(group, int) else group.end for group in read_groups(out._open.part.warc)
    ]
    data = out._open.part.warc.read_bytes()
    name = out._open.part.warc.name
    out.close()
    expected = content(tmp_path / "whole", len(items))
    assert ends[-1] == len(data)
    for cut in range(len(data) + 1):
        whole = sum(end <= cut for end in ends)
        spool = tmp_path / "cut" / "spool"
        spool.mkdir(parents=True, exist_ok=True)
        for path in spool.iterdir():
            path.unlink()
        (spool / name).write_bytes(data[:cut])
        groups = list(read_groups(spool / name))
        assert len(groups) == whole, cut
        if cut % 499 and cut not in ends and cut + 1 not in ends:
            continue  # the rest of the way is long, and the same for all bytes of a group
        again = writer(spool)
        done = take_back(again)
        assert done == set(range(min(max(whole - 1, 0), len(items))))
        fill(again, [item for item in items if item[0].position not in done])
        again.close()
        assert content(tmp_path / "cut", len(items)) == expected, cut


@given(noise=st.binary(min_size=1, max_size=300), at=st.integers(0, 3000))
def test_rubbish_in_the_log_ends_it_without_a_crash(tmp_path_factory, noise, at):
    """A power loss may leave blocks of anything."""
    spool = tmp_path_factory.mktemp("spool")
    out = writer(spool)
    fill(out, fetches())
    path = out._open.part.warc
    kill(out)
    data = path.read_bytes()
    path.write_bytes(data[:at] + noise + data[at + len(noise) :])
    again = writer(spool)
    done = take_back(again)
    fill(again, [item for item in fetches() if item[0].position not in done])
    again.close()
    groups = [group for group in read_groups(path) if not isinstance(group, int)]
    assert sorted(group.taken.position for group in groups) == list(range(7))


def test_recovered_groups_are_equal_and_the_file_goes_on(tmp_path):
    out = writer(tmp_path)
    items = fetches()
    first = fill(out, items[:4])
    out.append(None, robots())
    kill(out)
    again = writer(tmp_path)
    found = []
    for taken_url, fetched, position in again.recovered():
        found.append((taken_url, fetched, position))
        if taken_url:
            add_rows(again, taken_url, fetched, position)
    assert [(t, f) for t, f, _ in found] == [*items[:4], (None, robots())]
    assert [position for _, _, position in found[:4]] == first
    fill(again, items[4:])
    again.close()
    assert [part.warc.name for part in Spool(tmp_path).parts()] == [
        "krake-1-node-a-0-00000.warc.gz"
    ]
    assert Spool(tmp_path).finished_positions() == set(range(7))


def test_nothing_is_appended_before_the_spool_was_read_again(tmp_path):
    out = writer(tmp_path)
    fill(out, fetches()[:1])
    kill(out)
    again = writer(tmp_path)
    with pytest.raises(RuntimeError, match="recovered"):
        again.append(*fetches()[1])
    with pytest.raises(RuntimeError, match="recovered"):
        again.close()


def test_closed_parts_are_trusted_and_open_ones_are_not_finished(tmp_path):
    out = writer(tmp_path, max_warc_bytes=1 << 16)
    fill(out, [(taken(i), answered(f"http://a.example/{i}", os.urandom(30_000))) for i in range(7)])
    assert Spool(tmp_path).finished_positions() == {0, 1, 2, 3, 4, 5}
    kill(out)
    again = writer(tmp_path, max_warc_bytes=1 << 16)
    assert take_back(again) == {6}
    again.close()
    assert Spool(tmp_path).finished_positions() == set(range(7))


def test_files_rotate_and_each_begins_with_warcinfo(tmp_path):
    out = writer(tmp_path, max_warc_bytes=1 << 16)
    fill(out, [(taken(i), answered(f"http://a.example/{i}", os.urandom(30_000))) for i in range(7)])
    out.close()
    parts = Spool(tmp_path).parts()
    assert [part.warc.name[-13:] for part in parts] == [
        "00000.warc.gz",
        "00001.warc.gz",
        "00002.warc.gz",
    ]
    for part in parts:
        assert isinstance(next(iter(read_groups(part.warc))), int)
        assert part.warc.stat().st_size < (1 << 16) + 31_000


def test_workers_with_like_numbers_keep_apart(tmp_path):
    for number in (1, 11):
        out = writer(tmp_path, number)
        fill(out, [(taken(number), answered(f"http://a.example/{number}"))])
        out.close()
    assert Spool(tmp_path, "krake-1-node-a-1").finished_positions() == {1}
    assert Spool(tmp_path).finished_positions() == {1, 11}


def test_a_writer_without_work_leaves_no_file(tmp_path):
    out = writer(tmp_path / "spool")
    out.close()
    assert list((tmp_path / "spool").iterdir()) == []
    assert Spool(tmp_path / "none").finished_positions() == set()


def test_a_page_without_its_row_is_noticed(tmp_path):
    out = writer(tmp_path)
    out.append(*fetches()[0])
    with pytest.raises(DamagedFileError, match="1 fetches, but 0 rows"):
        out.close()


def test_an_exception_leaves_the_part_open(tmp_path):
    def broken():
        with writer(tmp_path) as out:
            fill(out, fetches()[:2])
            out.append(*fetches()[2])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
    assert Spool(tmp_path).finished_positions() == set()
    again = writer(tmp_path)
    assert take_back(again) == {0, 1, 2}
    again.close()


def test_a_full_disk_cuts_the_half_group_off_again(tmp_path, monkeypatch):
    out = writer(tmp_path)
    fill(out, fetches()[:1])
    size = out._open.part.warc.stat().st_size
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:10]))
    with pytest.raises(StorageError, match=r"00000\.warc\.gz.*No space"):
        out.append(*fetches()[1])
    monkeypatch.undo()
    assert out._open.part.warc.stat().st_size == size
    fill(out, fetches()[1:])
    out.close()
    assert Spool(tmp_path).finished_positions() == set(range(7))


def test_records_are_synced_every_interval(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    out = writer(tmp_path, sync_interval_s=0.0)
    fill(out, fetches())
    out._open.log._wait()
    assert synced.count(out._open.log._fd) >= 7
    out.close()


def test_an_unwritable_spool_is_a_clear_error(tmp_path):
    (tmp_path / "f").write_bytes(b"")
    with pytest.raises(StorageError, match="f/spool"):
        writer(tmp_path / "f" / "spool")


def test_text_that_is_not_unicode_does_not_break_a_table(tmp_path):
    out = writer(tmp_path)
    item = taken(0)
    position = out.append(item, failed("http://a.example/0"))
    out.part.pages.add(row(item, failed("http://a.example/0"), position)._replace(title="a\ud800b"))
    out.close()
    blocks = list(read_blocks(Spool(tmp_path).parts()[0].path(Part.PAGES_SUFFIX)))
    assert blocks[0].column("title").to_pylist() == ["a?b"]


KILLED = """
import os, sys
os.fsync = lambda descriptor: None
from pathlib import Path
from tests.segment.helpers import fetches, fill, writer, take_back
from crawl_lib.segment import Spool
spool = Path(sys.argv[1])
out = writer(spool)
done = take_back(out) | Spool(spool).finished_positions()
fill(out, [item for item in fetches() if item[0].position not in done])
out.close()
"""


@pytest.mark.parametrize(
    "step",
    [
        "segment.part.log_synced",
        "segment.part.rows_written",
        "segment.part.closed",
        "segment.part.recovered",
    ],
)
def test_killed_between_write_and_close(tmp_path, step):
    spool = tmp_path / "spool"
    if step == "segment.part.recovered":
        out = writer(spool)
        fill(out, fetches()[:3])
        kill(out)

    def run(**more):
        return run_python(KILLED, [str(spool)], os.environ | more).returncode

    assert run(KRAKE_KILL_AT=step) == -signal.SIGKILL
    assert run() == 0
    reference = writer(tmp_path / "reference" / "spool")
    fill(reference, fetches())
    reference.close()
    assert content(tmp_path, 7) == content(tmp_path / "reference", 7)


@pytest.mark.parametrize(
    "suffix",
    [
        ".warc.gz",
        ".pages.arrow",
        ".links.arrow",
        ".positions",
        ".cdxj.00000",
        ".outlinks.00000",
        ".closed.json",
    ],
)
def test_another_byte_in_what_a_closed_part_is_trusted_for_is_found(
    suffix: str, tmp_path: Path
) -> None:
    """Whichever byte it is: a segment is built of what was written, or not at all."""
    out = writer(tmp_path / "spool")
    fill(out, fetches())
    out.close()
    [part] = Spool(tmp_path / "spool").parts()
    part.require_whole()
    path = part.path(suffix)
    data = path.read_bytes()
    for place in {0, len(data) // 3, len(data) // 2, len(data) - 2}:
        path.write_bytes(
            data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :] if place else b""
        )
        with pytest.raises(DamagedFileError, match=re.escape(path.name)):
            part.require_whole()
        with pytest.raises(DamagedFileError, match=re.escape(path.name)):
            build_segment(tmp_path / "spool", tmp_path / "out", facts(7), NODES)
        if suffix in {".positions", ".closed.json"}:
            with pytest.raises(DamagedFileError, match=re.escape(path.name)):
                Spool(tmp_path / "spool").finished_positions()
    path.unlink()
    if suffix != ".closed.json":
        with pytest.raises(DamagedFileError, match=f"{re.escape(path.name)}: is gone"):
            build_segment(tmp_path / "spool", tmp_path / "out", facts(7), NODES)
    path.write_bytes(data)
    build_segment(tmp_path / "spool", tmp_path / "out", facts(7), NODES)


def test_a_part_whose_rows_wait_may_grow_to_twice_its_size(tmp_path):
    out = writer(tmp_path, max_warc_bytes=1 << 16)
    answers = [False] * 1000
    out.may_close = answers.pop
    body = random.Random(1).randbytes(10_000)
    sizes = []
    while len(Spool(tmp_path).parts()) < 2:
        fill(out, [(taken(len(sizes)), answered(f"http://a.example/{len(sizes)}", body))])
        sizes.append(Spool(tmp_path).parts()[0].warc.stat().st_size)
    out.close()
    assert 2 << 16 <= sizes[-1] < (2 << 16) + 12_000
    assert len(answers) < 1000, "it was asked"


def close_rowless(directory: Path, items: list, worker: int = 0) -> None:
    """Write groups to a part without rows."""
    out = writer(directory / "spool", worker, has_rows=False)
    out.append(None, robots())
    for item in items:
        out.append(*item)
    assert out.close_part()[1] == len(items)
    out.close()


def collect(directory: Path, most: int = 1 << 30) -> None:
    """Make the rows of all parts; killed after so many groups."""
    out, done = (
        writer(directory / "spool"),
        sum(len(part.positions()) for part in Spool(directory / "spool").parts() if part.is_closed),
    )
    for number, (item, fetched, position) in enumerate(out.recovered(iter(range(done, 1000)))):
        if number == most:
            kill(out)
            return
        if item is not None:
            add_rows(out, item, fetched, position)
    out.close()


def test_parts_without_rows_become_those_that_were_written_with_rows(tmp_path: Path) -> None:
    items = fetches()
    rowless, usual = tmp_path / "rowless", tmp_path / "usual"
    close_rowless(rowless, items[:3])
    close_rowless(rowless, items[3:])
    parts = Spool(rowless / "spool").parts()
    assert [(part.is_rowless, part.is_closed) for part in parts] == [(True, False)] * 2
    assert {path.suffix for path in (rowless / "spool").iterdir()} == {".gz", ".json"}
    collect(rowless)
    with writer(usual / "spool") as out:
        fill(out, items)
    assert content(rowless, len(items)) == content(usual, len(items))


def test_making_rows_may_be_killed_at_any_group(tmp_path: Path) -> None:
    items = fetches()
    close_rowless(tmp_path, items[:4])
    close_rowless(tmp_path, items[4:])
    for most in range(1, len(items) + 2):
        collect(tmp_path, most)
    collect(tmp_path)
    assert Spool(tmp_path / "spool").finished_positions() == set(range(len(items)))
    assert content(tmp_path, len(items))[0]


def test_a_part_without_rows_that_a_kill_left_open_is_closed_by_the_next_writer(
    tmp_path: Path,
) -> None:
    items = fetches()
    out = writer(tmp_path / "spool", has_rows=False)
    for item in items[:2]:
        out.append(*item)
    kill(out)
    (part,) = Spool(tmp_path / "spool").parts()
    with part.warc.open("ab") as file:
        file.write(b"torn")
    assert not part.is_rowless
    out = writer(tmp_path / "spool", has_rows=False)
    with pytest.raises(RuntimeError):
        out.append(*items[2])
    assert [taken.position for taken, _, _ in out.recovered() if taken] == [0, 1]
    out.close()
    assert part.is_rowless
    part.require_log()
    assert next(writer(tmp_path / "spool", has_rows=False).recovered(), None) is None, (
        "it is closed"
    )


def test_a_damaged_part_without_rows_is_named_with_what_it_held(tmp_path: Path) -> None:
    items = fetches()
    close_rowless(tmp_path, items)
    (part,) = Spool(tmp_path / "spool").parts()
    flip(part.warc)
    with pytest.raises(
        DamagedFileError,
        match=rf"{part.warc.name}: is not what was written.* {len(items)} fetches are lost",
    ):
        collect(tmp_path)
    part.warc.unlink()
    with pytest.raises(DamagedFileError, match=part.warc.name):
        collect(tmp_path)


def test_a_writer_without_rows_takes_none(tmp_path: Path) -> None:
    out = writer(tmp_path / "spool", has_rows=False)
    out.append(*fetches()[0])
    with pytest.raises(RuntimeError, match="a writer with rows"):
        _ = out.part
    out.close()
