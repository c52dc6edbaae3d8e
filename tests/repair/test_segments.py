"""Segments: each damage has a name, `krake fsck` gives it, and a whole segment gives nothing."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crawl_lib.sealed import sealed, sealed_json, unsealed
from crawl_lib.segment import build_segment, check_segment
from crawl_lib.segment.manifest import DroppedLists
from crawl_lib.storage import LocalStorage
from tests.cli.conftest import Krake
from tests.harms import Harm, Kept, changed, harmed
from tests.repair.checked import REPAIR, found, into_queue, newest_folder
from tests.segment.helpers import NODES, facts, fetches, fill, robots, writer

WARC = "krake-1-node-a-0-00000.warc.gz"
PAGES, LINKS, INDEX = "pages.parquet", "links.parquet", "index.cdxj"


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """A whole segment, one fetch of each kind in it."""
    out = writer(tmp_path / "spool")
    fill(out, fetches())
    out.append(None, robots())
    out.close()
    (tmp_path / "dfs" / "crawl" / "1").mkdir(parents=True)
    path = tmp_path / "dfs" / "crawl" / "1" / "node-a"
    build_segment(tmp_path / "spool", path, facts(8, 1), NODES)
    return path


def check(segment: Path, *, full: bool = True) -> set[str]:
    return {
        one.name
        for one in check_segment(LocalStorage(segment.parents[2]), "crawl/1/node-a", full=full)
    }


def manifest(change: Callable[[dict[str, Any], Random], object]) -> Harm:
    """Harm a segment: change what its manifest says."""

    def harm(segment: Path, rng: Random) -> None:
        path = segment / "manifest.json"
        value = unsealed(path.read_bytes())
        change(value, rng)
        path.write_text(json.dumps(sealed(value)))

    return harm


def sign(segment: Path, name: str) -> None:
    """List a file in the manifest as it is now, so that only its content can give it away."""

    def change(value: dict[str, Any], rng: Random) -> None:
        data = (segment / name).read_bytes()
        for entry in value["files"]:
            if entry["name"] == name:
                entry.update(size_bytes=len(data), sha256=sha256(data).hexdigest())

    manifest(change)(segment, Random())


def rows(name: str, change: Callable[[list[dict[str, Any]], Random], object]) -> Harm:
    """Harm a segment: change the rows of a table."""

    def harm(segment: Path, rng: Random) -> None:
        table = pq.read_table(segment / name)
        values = table.to_pylist()
        change(values, rng)
        pq.write_table(pa.Table.from_pylist(values, schema=table.schema), segment / name)
        sign(segment, name)

    return harm


def one(name: str, column: str, value: Callable[[Random], object]) -> Harm:
    """Harm a segment: put another value into a column of one row, but of a row about a robots.txt."""

    def change(values: list[dict[str, Any]], rng: Random) -> None:
        rng.choice([row for row in values if row.get("element") != "robots"])[column] = value(rng)

    return rows(name, change)


def lines(change: Callable[[list[bytes], Random], object]) -> Harm:
    """Harm a segment: change the lines of its index."""

    def harm(segment: Path, rng: Random) -> None:
        path = segment / INDEX
        found = path.read_bytes().splitlines(keepends=True)
        change(found, rng)
        path.write_bytes(b"".join(found))
        sign(segment, INDEX)

    return harm


def replaced(old: bytes, new: bytes) -> Harm:
    """Harm a segment: replace bytes in one line of its index."""

    def change(found: list[bytes], rng: Random) -> None:
        number = rng.randrange(len(found))
        found[number] = found[number].replace(old, new)

    return lines(change)


def swap_places(values: list[dict[str, Any]], rng: Random) -> None:
    """Have two rows point at each other's records."""
    first, second = rng.sample(values, 2)
    for field in ("warc_offset", "warc_length"):
        first[field], second[field] = second[field], first[field]


FAST = {
    "manifest_foreign": manifest(lambda value, rng: value.update(node=f"node-{rng.random()}")),
    "counts_differ": manifest(lambda value, rng: value["counts"].update(taken=rng.randint(9, 99))),
    "outlinks_parts": manifest(
        lambda value, rng: value["outlinks"].pop(rng.choice(sorted(value["outlinks"])))
    ),
    "dropped_damaged": lambda segment, rng: (
        segment / f"dropped-{rng.randbytes(8).hex()}"
    ).write_text(f"{rng.randbytes(20).hex()}\n"),
    "table_rows": rows(PAGES, lambda values, rng: values.pop(rng.randrange(len(values)))),
}
FULL = {
    "record_without_row": FAST["table_rows"],
    "row_key": one(PAGES, "key", lambda rng: rng.randbytes(20)),
    "row_outcome": one(PAGES, "outcome", lambda rng: rng.choice(("splendid", "", "OK"))),
    "row_repeated": rows(PAGES, lambda values, rng: values.append(rng.choice(values))),
    "row_record": one(PAGES, "warc_offset", lambda rng: rng.randint(1, 99)),
    "link_source": one(LINKS, "source", lambda rng: rng.randbytes(20)),
    "link_target": one(LINKS, "target", lambda rng: rng.randbytes(20)),
    "index_order": lines(lambda found, rng: found.reverse()),
    "index_damaged": replaced(b'"offset"', b'"of'),
    "index_record": replaced(b'"offset": "', b'"offset": "9'),
    "index_count": lines(lambda found, rng: found.pop(rng.randrange(len(found)))),
}
"""By name of the finding, damage that only the content shows: sizes and digests are as the manifest says."""
SEEDS = range(3)


def test_a_whole_segment_has_no_findings(segment: Path) -> None:
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in segment.iterdir()}
    assert check(segment) == set()
    assert {
        path: (path.stat().st_mtime_ns, path.read_bytes()) for path in segment.iterdir()
    } == before


@pytest.mark.parametrize("name", FAST | FULL)
def test_what_only_the_content_shows_has_its_own_name(segment: Path, name: str) -> None:
    kept = Kept(segment)
    for seed in SEEDS:
        (FAST | FULL)[name](segment, Random(seed))
        assert name in check(segment)
        assert (name in check(segment, full=False)) >= (name in FAST)
        kept.put_back()


NAMES = {
    "manifest.json": {"manifest_damaged", "manifest_missing"},
    WARC: {"file_missing", "file_size", "file_digest"},
    PAGES: {"file_missing", "file_size", "file_digest"},
    LINKS: {"file_missing", "file_size", "file_digest"},
    INDEX: {"file_missing", "file_size", "file_digest"},
    "outlinks": {"file_missing", "file_size", "file_digest"},
}
"""How any harm to the bytes of a file is named."""


CHECKED = {
    PAGES: ["key", "url", "outcome", "warc_file", "warc_offset", "warc_length"],
    LINKS: ["source", "target", "target_url", "element"],
}
"""The columns that a check reads; the other ones are only under the digest of the file."""


def meaning(path: Path) -> object:
    """Read what a file says, however its bytes lie."""
    if path.suffix == ".json":
        return unsealed(path.read_bytes())
    if path.suffix == ".parquet":
        return pq.read_table(path, columns=CHECKED[path.name]).to_pylist()
    return gzip.decompress(path.read_bytes())


@pytest.mark.parametrize("file", NAMES)
def test_any_harm_to_a_file_is_named_and_crashes_nothing(segment: Path, file: str) -> None:
    """No advice deletes what holds records or rows; a fast check names all but other bytes of the same number.

    A line of the manifest that is there twice says nothing else.
    """
    kept, path = Kept(segment), segment / file
    assert {one.name for one in segment.iterdir()} == NAMES.keys()
    size, before = path.stat().st_size, meaning(path) if file == "manifest.json" else None
    for seed in range(30):
        how = harmed(path, Random(seed))
        found = check_segment(LocalStorage(segment.parents[2]), "crawl/1/node-a", full=True)
        if not {one.name for one in found} & NAMES[file]:
            assert meaning(path) == before, (seed, how)
        elif not path.exists() or path.stat().st_size != size:
            assert check(segment, full=False) & NAMES[file], (seed, how)
        deleted = [one.where for one in found if "delete" in one.repair]
        assert {where.rpartition("/")[2] for where in deleted}.isdisjoint(NAMES), (seed, how)
        kept.put_back()
    assert check(segment) == set()


@pytest.mark.parametrize(
    ("file", "name"),
    [
        (WARC, "record_damaged"),
        (PAGES, "table_damaged"),
        (LINKS, "table_damaged"),
        ("outlinks", "outlinks_damaged"),
    ],
)
def test_harm_to_a_file_that_the_manifest_agrees_to_is_named_or_changes_no_meaning(
    segment: Path, file: str, name: str
) -> None:
    """As if the disk had lied while the segment was built: the file's own sums and its records tell."""
    kept, before, named = Kept(segment), meaning(segment / file), 0
    for seed in range(30):
        how = changed(segment / file, Random(seed))
        sign(segment, file)
        found = check(segment)
        named += name in found
        if not found:
            assert meaning(segment / file) == before, (seed, how)
        kept.put_back()
    assert named > 15


def test_dropped_pages_are_no_damage(segment: Path) -> None:
    DroppedLists(LocalStorage(segment.parents[2]), "crawl/1/node-a").write([fetches()[0][0].key])
    assert check(segment) == set()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_row_that_points_at_another_page_s_record_is_named(segment: Path, seed: int) -> None:
    rows(PAGES, swap_places)(segment, Random(seed))
    assert check(segment) == {"row_record"}


def test_a_finding_says_where_and_what_to_run_and_counts_its_places(segment: Path) -> None:
    change = lambda values, rng: [value.update(target=b"t" * 20) for value in values]  # noqa: E731
    rows(LINKS, change)(segment, Random())
    [one] = check_segment(LocalStorage(segment.parents[2]), "crawl/1/node-a")
    assert (one.name, one.where, one.count) == ("link_target", "crawl/1/node-a/links.parquet", 14)
    assert "krake fsck --repair" in one.repair


@pytest.mark.parametrize("name", ["lost", "dropped", "deferred"])
def test_a_count_that_is_none_in_a_manifest_is_named(name: str, segment: Path) -> None:
    value = unsealed((segment / "manifest.json").read_bytes())
    value["counts"][name] = "many"
    (segment / "manifest.json").write_bytes(sealed_json(value))
    assert check(segment) == {"manifest_damaged"}


def test_two_members_in_one_are_counted(segment: Path) -> None:
    path = segment / WARC
    members = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(members))
    sign(segment, WARC)
    assert "record_damaged" in check(segment)


def test_no_record_or_table_is_ever_advised_to_be_deleted(segment: Path) -> None:
    """Whatever the manifest says: a file of its own that it does not list is for salvage, which keeps what it holds."""
    listed = {WARC, PAGES, "outlinks", INDEX}
    manifest(
        lambda value, rng: value.update(
            files=[entry for entry in value["files"] if entry["name"] not in listed]
        )
    )(segment, Random())
    findings = check_segment(LocalStorage(segment.parents[2]), "crawl/1/node-a", full=False)
    unknown = [one for one in findings if one.name == "file_unknown"]
    assert len(unknown) == 4
    assert not any("delete" in one.repair for one in unknown)


def test_a_segment_that_somebody_deleted(copy: Callable[..., Krake]) -> None:
    """It is named, and may be meant: with its folder gone, too, all that is left agrees."""
    krake = copy()
    folder = min(krake.directory.glob("dfs/crawl/1*"))
    away = krake.directory / "away"
    (folder / "node-a").rename(away)
    assert found(krake)["segment_missing"] == found(krake, "--fast")["segment_missing"] == 1
    away.rename(folder / "node-a")
    assert found(krake) == {}


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


def test_a_part_is_not_repaired_alone_while_what_it_is_made_from_is_damaged(
    copy: Callable[..., Krake],
) -> None:
    krake = copy()
    segment = max(krake.directory.glob("dfs/crawl/1*")) / "node-a"
    (segment / "links.parquet").unlink()
    into_queue("state", b"one\n")(krake.directory)
    error = krake(*REPAIR, "--only", "keys").error()
    assert "links.parquet" in error
    assert "this comes first: run `krake fsck --repair`" in error
    krake.ok(*REPAIR, "--only", "segments")
    assert set(found(krake, "--fast")) == {"state_damaged"}
    krake.ok(*REPAIR, "--only", "queue")
    assert found(krake) == {}
