"""`krake fsck --repair` as a whole: its steps are killed, parts wait for each other, old names say the new ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from demo import Serving
from tests.cli.conftest import Krake, krake
from tests.repair.killed import run_killed
from tests.repair.test_damages import REPAIR, cut, delete, found, queue, waiting, whole, write
from tests.repair.test_rebuild import rows

__all__ = ["krake", "whole"]


@pytest.mark.parametrize("step", ["repair.tables.marked", "keys.tables.aside", "keys.tables.made"])
def test_tables_that_were_made_again_are_not_asked_before_they_are_filled(
    step: str, copy: Callable[..., Krake], whole: tuple[Counter[str], Counter[str]]
) -> None:
    """Killed in between, each page would be crawled again."""
    krake = copy()
    before = rows(krake)
    for path in krake.directory.glob("keys/*"):
        path.write_bytes(b"nothing" * 1000) if path.suffix == ".sqlite" else path.unlink()
    assert run_killed(["--config", str(krake.file), *REPAIR], step).code == -9
    assert "lack keys" in krake("settle").error()
    assert found(krake)["keys_unfilled"]
    krake.ok(*REPAIR)
    assert rows(krake) == before
    assert found(krake) == {}
    assert list(krake.directory.glob("keys/*.damaged-*")), "what was broken is kept"
    krake.ok("settle")
    assert waiting(krake) == whole[1]


def test_a_queue_is_not_judged_by_tables_that_lack_pages(
    copy: Callable[..., Krake], whole: tuple[Counter[str], Counter[str]]
) -> None:
    """Neither `state` nor the record says what was processed, and the tables that would are gone too."""
    krake = copy()
    for name in ("state", "state.krake"):
        write(name, b"{")(krake.directory)
    delete("keys/*")(krake.directory)
    krake.ok(*REPAIR)
    krake.ok("settle")
    assert waiting(krake) == whole[1]
    assert found(krake) == {}


def test_a_part_is_not_repaired_alone_while_what_it_is_made_from_is_damaged(
    copy: Callable[..., Krake],
) -> None:
    krake = copy()
    segment = max(krake.directory.glob("dfs/crawl/1*")) / "node-a"
    (segment / "links.parquet").unlink()
    write("state", b"one\n")(krake.directory)
    error = krake(*REPAIR, "--only", "keys").error()
    assert "links.parquet" in error
    assert "this comes first: run `krake fsck --repair`" in error
    krake.ok(*REPAIR, "--only", "segments")
    assert set(found(krake, "--fast")) == {"state_damaged"}
    krake.ok(*REPAIR, "--only", "queue")
    assert found(krake) == {}


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


def test_what_is_repaired_says_first_how_many_urls_are_fetched_again(
    copy: Callable[..., Krake],
) -> None:
    krake = copy("take.leftover")
    [note] = (queue(krake.directory) / "spool").glob("*.positions")
    cut(f"spool/{note.name}", 3)(krake.directory)
    lines = krake.ok(*REPAIR).out.splitlines()
    [told] = [number for number, line in enumerate(lines) if "URLs are fetched again" in line]
    assert "at most 5 URLs" in lines[told]
    assert told == 0


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
