"""The most frequent language of a host."""

from __future__ import annotations

import duckdb

from crawl_lib.engine import sql_text


def test_pages_without_a_language_get_the_most_frequent_one_of_their_host() -> None:
    said = [("a", "en"), ("a", "de"), ("a", "en"), ("a", None), ("a", None), ("a", None), ("b", "fr"), ("b", "de")]
    with duckdb.connect() as db:
        db.execute("create table said (host text, language text)")
        db.executemany("insert into said values (?, ?)", [*said, ("c", None)])
        assert db.execute(sql_text("text/languages")).fetchall() == [("a", "en"), ("b", "de")]
