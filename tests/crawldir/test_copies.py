"""Each segment has copies of its iteration's files, which lie in a spool until then."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crawl_lib.crawldir import FileName
from crawl_lib.rounds import start_iteration
from crawl_lib.stores import open_stores
from tests.e2e.crawl import make_config


def test_copies_are_durable_and_written_again_where_they_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power loss may tear a copy without a sync, and a built segment is a link to the copy."""
    stores = open_stores(make_config(tmp_path, nodes=1))
    started = start_iteration(stores, run_id="run", iteration=1)
    folder, room = stores.crawl.folder(started.folder), tmp_path / "spool"
    synced, sync = list[Path](), os.fsync

    def noted(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    iteration, scope = folder.copy_identity(room)
    wanted = iteration.read_bytes(), scope.read_bytes()
    assert wanted[0] == stores.storage.read_bytes(folder.at(FileName.ITERATION))
    assert len(synced) == 2
    assert {path.parent for path in synced} == {room}
    assert folder.copy_identity(room) == [iteration, scope]
    assert len(synced) == 2, "whole copies are not written again"
    linked = tmp_path / "linked"
    linked.hardlink_to(iteration)
    iteration.write_bytes(wanted[0][:-9])
    scope.unlink()
    folder.copy_identity(room)
    assert (iteration.read_bytes(), scope.read_bytes()) == wanted
    assert linked.read_bytes() == wanted[0][:-9], "a copy takes the place of the earlier file"
    assert len(synced) == 4
