"""The file of counts of hosts whose schema is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawl_lib.errors import StorageError
from crawl_lib.findings import sqlite_problem
from crawl_lib.frontier.hostcounts import HostCounts


def test_a_schema_that_is_no_text_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    """SQLite's message quotes it, so Python cannot decode the message."""
    counts = HostCounts(tmp_path)
    counts.add("1", lambda: [(b"a.test", 1)])
    assert counts.all() == {"a.test": 1}
    counts.path.write_bytes(
        counts.path.read_bytes().replace(b"CREATE TABLE hosts", b"CREATE TABL\xff hosts")
    )
    with pytest.raises(StorageError, match="krake fsck --repair"):
        counts.all()
    assert sqlite_problem(counts.path, {}) is not None
