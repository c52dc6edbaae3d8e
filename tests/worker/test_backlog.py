"""Rows may come later than records, but never into another part, and none is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from crawl_lib.config import Config, from_mapping
from crawl_lib.errors import DamagedFileError
from crawl_lib.records import Fetched, QueuedUrl, TakenUrl
from crawl_lib.segment import PartWriter, Spool
from crawl_lib.segment.parts import Part
from crawl_lib.segment.tables import read_blocks
from crawl_lib.states import Outcome
from crawl_lib.urls import UrlFilter, key_of
from crawl_lib.worker.page import PageHandler
from tests.segment.helpers import INFO

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
COUNT = 300


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return from_mapping(
        {
            "servers": ["node"],
            "dfs_primary": "dfs",
            "key_storage": {"servers": ["0.sqlite"]},
            "segment": {"max_warc_bytes": 1 << 16},
        },
        base=tmp_path,
    )


def fetches() -> Iterator[tuple[TakenUrl, Fetched]]:
    """Pages that link to each other, with a failure now and then."""
    for position in range(COUNT):
        url = f"http://a.example/{position}"
        item = TakenUrl(position, key_of(url), QueuedUrl(url))
        if position % 7 == 3:
            yield item, Fetched(url, 1.0, Outcome.TIMEOUT, attempts=1)
            continue
        links = "".join(
            f"<a href='{(position * 13 + n) % 997}'>link {n}</a><img src='i{n}'>" for n in range(20)
        )
        yield (
            item,
            Fetched(
                url, 1.0, Outcome.OK, 200, "192.0.2.1", b"GET", HEAD, links.encode(), attempts=1
            ),
        )


def write(directory: Path, config: Config, *, kept_back: bool, hook: bool = True) -> None:
    with PartWriter(directory, "p", INFO, config.segment, clock=lambda: 1.0) as writer:
        handler = PageHandler(config, ["node"], 0, UrlFilter(config.urls, ["a.example"]), writer)
        if hook:
            writer.before_close = handler.drain
        for item, fetched in fetches():
            position = writer.append(item, fetched)
            if kept_back:
                handler.add(item, fetched, position)
            else:
                handler.handle_all([(item, fetched, position)])


def rows(part: Part, suffix: str) -> list[tuple]:
    """The rows of a part's table, without places in files, which depend on random record ids."""
    table = [row for block in read_blocks(part.path(suffix)) for row in block.to_pylist()]
    return [
        tuple(value for name, value in row.items() if not name.startswith("warc_")) for row in table
    ]


def outlinks(parts: list[Part]) -> list[str]:
    return sorted(
        {
            line
            for part in parts
            for run in part.runs(".outlinks")
            for line in run.read_text().splitlines()
        }
    )


def test_the_rows_of_each_record_stand_in_its_part(tmp_path, config, monkeypatch):
    monkeypatch.setattr("crawl_lib.worker.page.MOST_FETCHES", 17)
    write(tmp_path / "later", config, kept_back=True)
    parts = Spool(tmp_path / "later").parts()
    assert len(parts) > 2
    for part in parts:
        keys = [row[0] for row in rows(part, Part.PAGES_SUFFIX)]
        assert keys == [key_of(f"http://a.example/{n}") for n in part.positions()]
        assert {row[0] for row in rows(part, Part.LINKS_SUFFIX)} <= set(keys)


@pytest.mark.parametrize(
    ("fetches_kept", "bytes_kept"), [(17, 1 << 30), (1 << 30, 9_999), (1 << 30, 1 << 30)]
)
def test_all_that_is_kept_back_is_what_would_have_been_written_at_once(
    tmp_path, config, monkeypatch, fetches_kept, bytes_kept
):
    monkeypatch.setattr("crawl_lib.worker.page.MOST_FETCHES", fetches_kept)
    monkeypatch.setattr("crawl_lib.worker.page.MOST_BYTES", bytes_kept)
    monkeypatch.setattr("crawl_lib.worker.page._MOST_LINKS_BYTES", 3000)
    for name, later in (("later", True), ("once", False)):
        write(tmp_path / name, config, kept_back=later)
    found = {name: Spool(tmp_path / name).parts() for name in ("later", "once")}
    for suffix in (Part.PAGES_SUFFIX, Part.LINKS_SUFFIX):
        later, once = (
            [row for part in parts for row in rows(part, suffix)] for parts in found.values()
        )
        assert later == once
    assert outlinks(found["later"]) == outlinks(found["once"])
    rejected = [
        sum(
            (part.counts().rejections for part in parts), start=type(parts[0].counts().rejections)()
        )
        for parts in found.values()
    ]
    assert rejected[0] == rejected[1]
    assert rejected[0]["element"] > 0


def test_a_part_is_never_closed_without_the_rows_of_its_records(tmp_path, config):
    with pytest.raises(DamagedFileError, match="fetches, but"):
        write(tmp_path / "later", config, kept_back=True, hook=False)
