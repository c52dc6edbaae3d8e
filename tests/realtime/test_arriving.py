"""Parts of a fetcher on another machine: each fetch is in exactly one segment, wherever the collection is killed."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from crawl_lib.config import Config, from_mapping
from crawl_lib.durable import KILL_VARIABLE
from crawl_lib.errors import KrakeError, NoRoomError, StorageError
from crawl_lib.frontier import NodeDirectory
from crawl_lib.realtime import collect_all, collect_from
from crawl_lib.realtime.arriving import NOTE_FILE, PartsLine
from crawl_lib.realtime.certificates import SCHEDULER, Identity
from crawl_lib.realtime.fetcher import queued_of
from crawl_lib.realtime.leases import Leases
from crawl_lib.realtime.protocol import Fetch
from crawl_lib.realtime.remote import RemoteLink, setup_of
from crawl_lib.realtime.spooling import SUFFIXES, Backlog
from crawl_lib.realtime.store import PageStore
from crawl_lib.records import TakenUrl
from crawl_lib.segment import Part, PartWriter, Spool, WarcInfo
from crawl_lib.urls import key_of
from tests.e2e.crawl import make_config
from tests.forked import run_forked
from tests.ports import free_port
from tests.realtime.remote import NAME, Remote, remote
from tests.realtime.test_collect import BODY, HOST, pages
from tests.repair.crawled import stores_of
from tests.segment.helpers import HEAD, answered

STEPS = [
    "realtime.arriving.noted:1",
    "realtime.arriving.moved:2",
    "realtime.collect.moved",
    "segment.publish.renamed",
    "commit.written",
    "realtime.collect.ended",
    "realtime.arriving.acknowledged",
]


def config_of(directory: Path, there: Remote) -> Config:
    config = make_config(
        directory, nodes=1, urls={"scope": "any"}, frontier={"order": "crawldb", "routing": "host"}
    )
    fetchers = [{"name": NAME, "address": there.address}]
    given = {
        **config.to_mapping(),
        "realtime": {"fetchers": fetchers, "certificates": str(there.home)},
    }
    return from_mapping(given, directory, "test")


def fetched(there: Remote, config: Config, *urls: str, prefix: str = "krake-1000-live-1-0") -> None:
    """Leave a closed part as the fetcher does."""
    info = WarcInfo("", "", "", "", f"live/{NAME}")
    with PartWriter(there.place.spool, prefix, info, config.segment, has_rows=False) as writer:
        for number, url in enumerate(urls):
            wanted = Fetch(id=number, url=url, key=key_of(url).hex())
            writer.append(
                TakenUrl(number, key_of(url), queued_of(wanted)), answered(url, BODY, HEAD)
            )


def names(config: Config) -> list[str]:
    """The files that are left in the fetcher's folder on this machine."""
    room = NodeDirectory(stores_of(config).node_dir("node-0")).live / NAME
    return sorted(path.name for path in room.rglob("*") if path.is_file())


def test_parts_are_brought_collected_and_deleted_there(tmp_path: Path) -> None:
    with remote(tmp_path) as there:
        config = config_of(tmp_path, there)
        assert collect_from(stores_of(config), NAME).folder == ""
        fetched(there, config, f"{HOST}/1", f"{HOST}/2")
        fetched(there, config, f"{HOST}/3", prefix="krake-2000-live-1-0")
        (there.place.spool / "krake-3000-live-1-0-00000.warc.gz").write_bytes(
            b"of a part that is open"
        )
        report = collect_from(stores_of(config), NAME)
        assert (report.name, report.parts, report.pages) == (NAME, 2, 3)
        assert pages(config) == [f"{HOST}/{page}" for page in (1, 2, 3)]
        assert [part.stem.name for part in Spool(there.place.spool).parts()] == [
            "krake-3000-live-1-0-00000"
        ]
        assert collect_from(stores_of(config), NAME).folder == ""
        assert names(config) == [NOTE_FILE]


def test_a_fetcher_that_is_away_delays_no_other(tmp_path: Path) -> None:
    """The parts of the others are collected, and the failure is told."""
    with remote(tmp_path) as there:
        config = config_of(tmp_path, there)
        given = config.to_mapping()
        away = {"name": "live-9", "address": f"127.0.0.1:{free_port()}"}
        given["realtime"]["fetchers"] = [away, *given["realtime"]["fetchers"]]
        given["fetch"]["ip_delay_s"] = 0
        both = from_mapping(given, tmp_path, "test")
        fetched(there, both, f"{HOST}/1")
        with pytest.raises(StorageError, match="live-9"):
            collect_all(stores_of(both))
        assert pages(both) == [f"{HOST}/1"]


def test_a_kill_at_any_step_leaves_each_fetch_in_one_segment(tmp_path: Path) -> None:
    with remote(tmp_path) as there:
        config, urls = config_of(tmp_path, there), []
        for number, step in enumerate(STEPS):
            urls += [f"{HOST}/{number}/{page}" for page in (1, 2)]
            for page, url in enumerate(urls[-2:]):
                fetched(there, config, url, prefix=f"krake-{number}{page}-live-1-0")
            assert run_forked(_collect, config, step) == -9
            collect_from(stores_of(config), NAME)
            assert pages(config) == sorted(urls), step
        assert not Spool(there.place.spool).parts()
        assert names(config) == [NOTE_FILE]


def _collect(config: Config, step: str) -> None:
    os.environ[KILL_VARIABLE] = step
    collect_from(stores_of(config), NAME)
    raise AssertionError(f"{step} was not reached")


def test_a_damaged_part_is_not_taken_over(tmp_path: Path) -> None:
    with remote(tmp_path) as there:
        config = config_of(tmp_path, there)
        fetched(there, config, f"{HOST}/1")
        (part,) = Spool(there.place.spool).parts()
        part.warc.write_bytes(b"x" + part.warc.read_bytes()[1:])
        with pytest.raises(KrakeError, match="is not what was written"):
            collect_from(stores_of(config), NAME)
        assert Spool(there.place.spool).parts() == [part]
        assert pages(config) == []


def test_a_fetcher_that_is_away_or_full_of_data_is_told(tmp_path: Path) -> None:
    with remote(tmp_path) as there:
        config = config_of(tmp_path, there)
        fetched(there, config, f"{HOST}/1")
        small = replace(config, watermarks=replace(config.watermarks, min_free_local_bytes=1 << 60))
        with pytest.raises(NoRoomError, match="min_free_local_bytes"):
            collect_from(stores_of(small), NAME)
    with pytest.raises(StorageError, match=NAME):
        collect_from(stores_of(config), NAME)


def test_the_gate_brings_files_of_closed_parts_only(tmp_path: Path) -> None:
    with remote(tmp_path) as there:
        config = config_of(tmp_path, there)
        fetched(there, config, f"{HOST}/1")
        (there.place.spool / "krake-9-live-1-0-00000.warc.gz").write_bytes(b"of a killed fetcher")
        identity = Identity(there.home, SCHEDULER)
        for name, suffix in (
            ("krake-9-live-1-0-00000", SUFFIXES[0]),
            ("krake-1000-live-1-0-00000", "/../../log"),
        ):
            with PartsLine(there.config, identity) as line:
                assert b"".join(line.get(name, suffix, 0)) == b""
        with (
            PartsLine(there.config, identity) as line,
            pytest.raises(StorageError, match="malformed"),
        ):
            list(line.get("../../etc/passwd-00000", SUFFIXES[0], 0))
        with PartsLine(there.config, identity) as line:
            (entry,) = line.list()
            with pytest.raises(StorageError, match="bytes in place of"):
                list(line.get(entry.name, SUFFIXES[0], entry.sizes[0] - 1))


def backlogs(config: Config, there: Remote) -> tuple[Backlog | None, Backlog | None]:
    """What the gate says of its spool, and what a line to another port says."""
    setup = setup_of(config, "", NAME)
    identity = Identity(there.home, SCHEDULER)
    links = [
        RemoteLink(
            replace(there.config, address=address),
            identity,
            setup,
            cast(Leases, None),
            cast(PageStore, None),
        )
        for address in (there.address, f"127.0.0.1:{free_port()}")
    ]

    async def ask() -> tuple[Backlog | None, Backlog | None]:
        return await links[0].backlog(), await links[1].backlog()

    return asyncio.run(ask())


def test_the_gate_tells_the_scheduler_what_waits_for_the_collection(tmp_path: Path) -> None:
    with remote(tmp_path) as there:
        config = config_of(tmp_path, there)
        found, nowhere = backlogs(config, there)
        assert nowhere is None
        assert found is not None
        assert (found.parts, found.oldest_ms) == (0, 0)
        fetched(there, config, f"{HOST}/1")
        [note] = there.place.spool.glob(f"*{Part.ROWLESS_SUFFIX}")
        os.utime(note, (note.stat().st_mtime - 7200,) * 2)
        found, _ = backlogs(config, there)
        assert found is not None
        assert found.parts == 1
        assert 7_200_000 <= found.oldest_ms < 7_300_000
        assert found.free_bytes > 0
        collect_from(stores_of(config), NAME)
        found, _ = backlogs(config, there)
        assert found is not None
        assert (found.parts, found.oldest_ms) == (0, 0)
