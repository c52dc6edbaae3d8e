"""Versions of the CrawlDb: written whole or not at all, the newest whole one counts, older ones go."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import sha1, sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crawl_lib.config import ScheduleRuleConfig
from crawl_lib.crawldb import CRAWLDB, CRAWLDB_SCHEMA, Status, newest_version
from crawl_lib.errors import DamagedFileError
from crawl_lib.repair import fsck, repair_crawl, sweep
from crawl_lib.stores import Stores
from crawl_lib.versions import Version, Versions, VersionWork, columns, write_version, writing
from tests.harms import flipped
from tests.stores import rows_of

NOW = datetime(2026, 11, 1, tzinfo=UTC)


def row(url: str, **more: Any) -> dict[str, Any]:
    """A row of the table that was never visited, with what is otherwise."""
    nulls = dict.fromkeys(CRAWLDB_SCHEMA.names)
    known = {
        "key": sha1(url.encode()).digest(),
        "url": url,
        "host": "a.example",
        "domain": "a.example",
    }
    numbers = {
        "retries": 0,
        "redirects": 0,
        "depth": 0,
        "inlinks": 0,
        "interval_s": 2592000,
        "score": Decimal(0),
    }
    status = {"status": Status.UNFETCHED, "fetch_status": Status.UNFETCHED, "fetch_time": NOW}
    return {**nulls, **known, **numbers, **status, **more}


def write(stores: Stores, number: int, rows: list[dict[str, Any]], size: int = 2) -> Version | None:
    """A version of these rows, written in batches of so many."""
    rows = sorted(rows, key=lambda one: one["key"])
    batches = pa.Table.from_pylist(rows, CRAWLDB_SCHEMA).to_batches(size) if rows else []
    facts = {"parent": None, "now": 1, "segments": {}, "seeds": []}
    return write_version(Versions(stores, CRAWLDB), number, batches, facts)


def test_before_the_first_there_is_none(stores: Stores) -> None:
    assert newest_version(stores) is None
    assert Versions(stores, CRAWLDB).check() == []


def test_rows_are_in_parts_by_interval_of_keys(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "PART_ROWS", 4)
    rows = [row(f"http://a.example/{number}", depth=number) for number in range(9)]
    rows[3]["status"] = Status.GONE
    version = write(stores, 1, rows)
    assert version == newest_version(stores)
    assert [path.rsplit("/", 2)[1:] for path in version.paths] == [
        ["1", f"part-{n:05d}.parquet"] for n in range(3)
    ]
    assert rows_of(stores, version) == sorted(rows, key=lambda one: one["key"])
    parts = version.manifest["parts"]
    assert [part["rows"] for part in parts] == [4, 4, 1]
    ends = [(part["first_key"], part["last_key"]) for part in parts]
    assert [key for pair in ends for key in pair] == sorted(key for pair in ends for key in pair)
    assert version.manifest["statuses"] == {"gone": 1, "unfetched": 8}
    assert version.manifest["rows"] == 9


def test_no_rows_are_a_version_too(stores: Stores) -> None:
    version = write(stores, 1, [])
    assert rows_of(stores, version) == []
    assert version.manifest["rows"] == 0


def test_the_same_rows_are_the_same_bytes_however_they_came(stores: Stores) -> None:
    rows = [row(f"http://a.example/{number}") for number in range(50)]
    first, second = (write(stores, number, rows, 8) for number in (1, 2))
    assert [part["sha256"] for part in first.manifest["parts"]] == [
        p["sha256"] for p in second.manifest["parts"]
    ]
    root = Path(stores.config.dfs_primary)
    assert (
        sha256((root / second.paths[0]).read_bytes()).hexdigest()
        == second.manifest["parts"][0]["sha256"]
    )


def test_so_many_versions_are_kept(stores: Stores) -> None:
    folder = Path(stores.config.dfs_primary) / "crawl/crawldb"
    (folder / ".2-left").mkdir(parents=True)
    (folder / ".9-another").mkdir()
    for number in range(1, 6):
        write(stores, number, [])
    assert sorted(path.name for path in folder.iterdir()) == [".9-another", "3", "4", "5"]


@pytest.mark.parametrize("damage", ["manifest", "no manifest", "part", "no part"])
def test_of_damaged_versions_the_last_whole_one_counts(
    stores: Stores, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(stores, 1, [row("http://a.example/")])
    newest = Path(stores.config.dfs_primary) / write(stores, 2, []).paths[0]
    file = newest if "part" in damage else newest.with_name("manifest.json")
    if damage.startswith("no"):
        file.unlink()
    else:
        file.write_bytes(
            file.read_bytes().replace(b'"rows": 0', b'"rows": 1') + b" " * ("part" in damage)
        )
    with caplog.at_level(logging.WARNING):
        assert newest_version(stores).number == 1
    assert "crawldb/2" in caplog.text
    [finding] = Versions(stores, CRAWLDB).check()
    assert (finding.name, finding.where) == ("crawldb_damaged", "crawl/crawldb/2")
    assert "run `krake fsck --repair`, which sets the version aside" in finding.to_text()
    assert [line for line in repair_crawl(stores).done if "aside" in line] == [
        "crawl/crawldb/2: set aside; the earlier version counts, and the next update adds missing rows"
    ]
    assert Versions(stores, CRAWLDB).check() == []
    assert Versions(stores, CRAWLDB).numbers() == [1]
    assert Versions(stores, CRAWLDB).next_number() == 3


def test_a_full_check_reads_every_byte(stores: Stores) -> None:
    file = Path(stores.config.dfs_primary) / write(stores, 1, [row("http://a.example/")]).paths[0]
    file.write_bytes(flipped(file.read_bytes(), 800))
    assert Versions(stores, CRAWLDB).check(full=False) == []
    assert [finding.name for finding in Versions(stores, CRAWLDB).check()] == ["crawldb_damaged"]
    assert [finding.name for finding in fsck(stores).findings] == ["crawldb_damaged"]


def test_where_no_version_is_whole_the_error_says_what_to_do(stores: Stores) -> None:
    version = write(stores, 1, [])
    (Path(stores.config.dfs_primary) / version.paths[0]).unlink()
    with pytest.raises(DamagedFileError, match="run `krake crawldb rebuild`"):
        newest_version(stores)


def test_of_two_that_write_a_version_the_first_one_wins(stores: Stores) -> None:
    def rows() -> Any:
        write(stores, 1, [row("http://a.example/")])  # another one, meanwhile
        return iter([])

    assert write_version(Versions(stores, CRAWLDB), 1, lazily(rows), {}) is None
    assert newest_version(stores).manifest["rows"] == 1
    folder = Path(stores.config.dfs_primary) / "crawl/crawldb"
    assert [path.name for path in folder.iterdir()] == ["1"]


def test_who_is_late_keeps_its_own_tables(stores: Stores) -> None:
    """Both make version 1; the first to be done does not delete what the other one still reads."""
    versions = Versions(stores, CRAWLDB)
    with VersionWork.of(versions, 1) as late:
        own = late.write("own", columns("number int64"), [pa.table({"number": [7]})])
        with VersionWork.of(versions, 1):
            write(stores, 1, [])
        assert own is not None
        assert stores.storage.exists(own)


def lazily(rows: Any) -> Any:
    yield from rows()


def test_rules_of_the_schedule_may_name_every_status() -> None:
    choices = ScheduleRuleConfig.__dataclass_fields__["status"].metadata["choices"]
    assert choices == tuple(str(status) for status in Status)


def test_what_a_killed_attempt_left_is_swept_once_there_is_such_a_version(stores: Stores) -> None:
    write(stores, 3, [])
    folder = Path(stores.config.dfs_primary) / "crawl/crawldb"
    over, other, at_work = (f".{name}-{'0' * 32}" for name in ("3", "2", "4"))
    for name in (over, other, at_work):
        (folder / name).mkdir()
    found = [one.where for one in fsck(stores).findings if one.name == "leftover"]
    assert found == [f"crawl/crawldb/{name}" for name in sorted((over, other))]
    assert sweep(stores).deleted == found
    assert sorted(path.name for path in folder.iterdir()) == [at_work, "3"]
