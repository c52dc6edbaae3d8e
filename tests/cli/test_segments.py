"""`krake segment ...` and `krake import` as a user types them: reports, exit codes, what to do next."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from demo import Serving
from tests.cli.conftest import Krake
from tests.harms import flip, shorten
from tests.repair.archives import page, pages_archive, write
from tests.repair.killed import run_killed


@pytest.fixture
def crawled(krake: Krake, serving: Serving) -> Krake:
    krake.ok("inject", "\n".join(serving.seeds))
    krake.ok("crawl", "--iterations", "2")
    return krake


def segment_of(krake: Krake) -> Path:
    """The one with the largest WARC file."""
    warcs = (krake.directory / "dfs" / "crawl").glob("[0-9]*/[!.]*/*.warc.gz")
    return max(warcs, key=lambda path: path.stat().st_size).parent


def test_salvage_from_damage_to_a_clean_check(crawled: Krake) -> None:
    segment = segment_of(crawled)
    shorten(segment / "pages.parquet")
    flip(next(segment.glob("*.warc.gz")), 0.7)
    assert "run `krake fsck --repair`" in crawled("fsck").out
    dry = crawled("fsck", "--repair", "--dry-run")
    assert dry.code == 1
    assert "would: crawl/" in dry.out
    assert "dry run: nothing was changed" in dry.out
    done = crawled.ok("fsck", "--repair")
    assert "made again from its WARC files" in done.out
    assert "clean" in crawled.ok("fsck").out
    [aside] = segment.parent.glob(".damaged-*")
    shorten(segment / "pages.parquet")
    assert "is not whole" in crawled.ok("sweep", "--damaged").out, "only a whole one replaces it"
    crawled.ok("fsck", "--repair")
    assert len(crawled.ok("sweep", "--damaged", "--json").json["deleted"]) == 2
    assert not aside.exists()
    crawled.ok("export")


def test_drop_and_compact(crawled: Krake) -> None:
    for words in (("export", "--label", "before"), ("graph", "link"), ("graph", "finalize")):
        crawled.ok(*words)
    seed = crawled.ok("show", "0", "--export", "before", "--json").json["url"]
    looked = crawled("segment", "drop", seed, "http://nowhere.example/", "--dry-run")
    assert (looked.code, looked.out.startswith("would drop: ")) == (1, True)
    assert "before" in crawled.ok("segment", "drop", "--yes", seed).out
    assert "was dropped" in crawled("show", seed, "--export", "before").error()
    assert "dropped" in crawled("export", "--label", "before").error()
    assert "compacted" in crawled.ok("segment", "compact", "--yes").out
    assert "nothing to do" in crawled.ok("segment", "compact", "--yes").out
    told = crawled.ok("fsck").out  # the export is whole, though the crawl has moved on: exit code 0
    assert "note: input_changed" in told
    assert "clean" in told
    shutil.rmtree(crawled.directory / "dfs" / "export" / "before")  # as the report says
    assert "note" not in crawled.ok("fsck").out
    again = crawled("segment", "drop", "--yes", "mailto:x")
    assert "neither a URL" in again.error()


def test_compact_without_names_ends_what_was_killed(krake: Krake, serving: Serving) -> None:
    """The segment that the killed one put aside is nowhere, so no list of segments has it, nor another of its
    folder, where it was the only one.
    """
    krake.configure(servers=["node-a"])
    krake.ok("inject", serving.seeds[0])
    krake.ok("crawl", "--iterations", "1")
    folders = krake.directory / "dfs" / "crawl"
    before = {path for path in folders.glob("[0-9]*/*") if path.is_dir()}
    krake.ok("segment", "drop", "--yes", serving.seeds[0])
    words = ["--config", str(krake.file), "segment", "compact", "--yes"]
    assert run_killed(words, "repair.swap.aside").code == -9
    assert len(before - set(folders.glob("[0-9]*/*"))) == 1
    krake.ok("segment", "compact", "--yes")
    assert {path for path in folders.glob("[0-9]*/*") if path.is_dir()} == before
    assert "clean" in krake.ok("fsck").out


def test_import(crawled: Krake) -> None:
    path = write(crawled.directory / "old.warc.gz", pages_archive(range(3)))
    assert "dry run" in crawled.ok("import", str(path), "--dry-run").out
    done = crawled.ok("import", str(path))
    assert "/import" in done.out
    assert "already imported" in crawled.ok("import", str(path)).out
    assert "clean" in crawled.ok("fsck").out
    crawled.ok("crawl", "--iterations", "1")
    crawled.ok("export", "--label", "all")
    assert crawled.ok("show", page(1)[0], "--export", "all", "--json").json["url"] == page(1)[0]
    refused = crawled("import", str(write(crawled.directory / "x.warc", b"no archive")))
    assert refused.code == 1
    assert "not_an_archive" in refused.out


def test_import_begins_a_crawl(krake: Krake) -> None:
    """Nothing was injected or crawled before; a dry run makes nothing."""
    path = write(krake.directory / "old.warc.gz", pages_archive(range(3)))
    assert "readable" in krake.ok("import", str(path), "--dry-run").out
    assert not (krake.directory / "dfs").exists()
    assert "/import" in krake.ok("import", str(path)).out
    assert "clean" in krake.ok("fsck").out


def test_what_import_prints_is_a_line_an_archive_whatever_its_name_or_its_urls(
    crawled: Krake,
) -> None:
    path = write(crawled.directory / ("long" * 40 + ".warc.gz"), pages_archive(range(3)))
    lines = crawled.ok("import", str(path), "--dry-run").out.splitlines()
    assert lines == [
        f"{path}: readable: 3 pages of 7 records; skipped 1 warcinfo",
        "dry run: nothing was changed",
    ]
    evil = write(crawled.directory / "evil.warc", b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: \x1b[2Jx\r\n"
                 b"Content-Length: 0\r\n\r\n\r\n\r\n")  # fmt: skip
    out = crawled("import", str(evil)).out
    assert "\x1b" not in out
    assert "\\x1b[2Jx" in out


@pytest.mark.parametrize("name", ["nonsense", "1795000000", "1795000000/.node", "/"])
def test_names_that_are_no_segment(name: str, krake: Krake) -> None:
    assert "is no segment" in krake("segment", "compact", "--yes", name).error()


def test_segments_that_are_not_there(crawled: Krake) -> None:
    folder = segment_of(crawled).parent.name
    assert "is not there" in crawled("segment", "compact", "--yes", f"{folder}/node-z").error()
    assert "no such iteration" in crawled("segment", "compact", "--yes", "1/node-a").error()
