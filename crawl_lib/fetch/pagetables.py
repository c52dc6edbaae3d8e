"""A node's memory of pages: sketches of large patterns (`urls.pattern_of`), and texts of many pages."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from crawl_lib.errors import sqlite_errors
from crawl_lib.urls import budget_domain_of

REMEDY = "it may be deleted while no task of the node runs"
_FULL_TEXTS = """
SELECT column1, column2 FROM (VALUES {}) WHERE ? <= (SELECT count(*) FROM
    (SELECT 1 FROM texts WHERE domain = column1 AND words = column2 LIMIT ?))
"""
_PAGES_OF_TEXT = "SELECT page FROM texts WHERE domain = ? AND words = ?"
_TRIM_TEXTS = """
DELETE FROM texts WHERE domain = ?1
AND time <= (SELECT time FROM texts WHERE domain = ?1 ORDER BY time DESC LIMIT 1 OFFSET ?2)
"""
_SKETCHES = (
    "SELECT sketch FROM sketches WHERE pattern = ? AND typeof(sketch) = 'blob' ORDER BY time"
)
_KEPT_TEXTS = 10_000
_MOST_FULL = 100_000
_ASKED = 500


class Text(NamedTuple):
    """What pages say: the words (`Page.words`) on pages of a registered domain, given as a number of 64 bits."""

    domain: int
    words: int


@lru_cache(maxsize=4096)
def domain_number(host: str) -> int:
    """Return the number of a canonical host's registered domain.

    `Text` has this number.
    """
    return int.from_bytes(
        blake2b(budget_domain_of(host).encode(), digest_size=8).digest(), signed=True
    )


def page_number(key: bytes) -> int:
    """Return a page's number for lookups by text.

    The number is the first 64 bits of the key.
    """
    return int.from_bytes(key[:8], signed=True)


class TextRow(NamedTuple):
    """A page and its text. `page`: see `page_number`. `time`: of its fetch, in POSIX microseconds."""

    domain: int
    words: int
    page: int
    time: int

    @property
    def text(self) -> Text:
        """The text, which other pages may have too."""
        return Text(self.domain, self.words)


class Tables:
    """Tables of an open SQLite file. `path`: of the file, for errors. Methods raise StorageError naming the file."""

    def __init__(self, path: Path, db: sqlite3.Connection) -> None:
        self.path = path
        self._db = db

    @contextmanager
    def _transaction(self, *, durable: bool = False) -> Iterator[None]:
        with sqlite_errors(self.path, REMEDY):
            self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")

    def _row(self, query: str, *values: str | float) -> Any:
        with sqlite_errors(self.path, REMEDY):
            return self._db.execute(query, values).fetchone()


class PageTables(Tables):
    """The tables of pages in the file of a `HostStore`."""

    def sketches(self, pattern: str) -> list[bytes]:
        """Return the sketches of a pattern's newest pages, the oldest first.

        An empty sketch means that the document is no page.
        """
        with sqlite_errors(self.path, REMEDY):
            rows = self._db.execute(_SKETCHES, (pattern,)).fetchall()
        return [sketch for (sketch,) in rows]

    def save_sketches(self, pattern: str, sketches: Mapping[int, bytes], most: int) -> None:
        """Add sketches of pages by fetch time, and keep the newest `most`.

        Times are in POSIX microseconds.
        """
        with self._transaction():
            rows = [(pattern, *item) for item in sketches.items()]
            self._db.executemany("INSERT OR REPLACE INTO sketches VALUES (?, ?, ?)", rows)
            self._db.execute(
                "DELETE FROM sketches WHERE pattern = ?1 AND time NOT IN"
                " (SELECT time FROM sketches WHERE pattern = ?1 ORDER BY time DESC LIMIT ?2)",
                (pattern, most),
            )

    def add_texts(self, rows: Iterable[TextRow]) -> None:
        """Note texts of pages. A page counts once for a text."""
        with self._transaction():
            self._db.executemany("INSERT OR REPLACE INTO texts VALUES (?, ?, ?, ?)", rows)

    def fill_texts(self, texts: Iterable[Text], most: int) -> dict[Text, list[int]]:
        """Find and remember the texts of at least `most` pages.

        The result has the pages of each such text.
        """
        wanted, full = [*texts], dict[Text, list[int]]()
        with self._transaction():
            for start in range(0, len(wanted), _ASKED):
                some = wanted[start : start + _ASKED]
                query = _FULL_TEXTS.format(",".join(["(?, ?)"] * len(some)))
                for text in map(
                    Text._make, self._db.execute(query, (*chain(*some), most, most)).fetchall()
                ):
                    full[text] = [page for (page,) in self._db.execute(_PAGES_OF_TEXT, text)]
                    self._db.execute("INSERT OR IGNORE INTO full_texts VALUES (?, ?)", text)
                    rows = ((page, text.domain) for page in full[text])
                    self._db.executemany("INSERT OR IGNORE INTO full_pages VALUES (?, ?)", rows)
        return full

    def full_texts(self) -> set[Text]:
        """Return the known full texts, 100,000 at most.

        Other full texts are found again when they are counted.
        """
        with sqlite_errors(self.path, REMEDY):
            rows = self._db.execute("SELECT domain, words FROM full_texts LIMIT ?", (_MOST_FULL,))
            return set(map(Text._make, rows))

    def full_pages(self, pages: Iterable[int]) -> set[int]:
        """Return the pages (`page_number`) with a full text."""
        wanted, found = [*pages], set[int]()
        with sqlite_errors(self.path, REMEDY):
            for start in range(0, len(wanted), _ASKED):
                some = wanted[start : start + _ASKED]
                marks = ",".join("?" * len(some))
                rows = self._db.execute(
                    f"SELECT page FROM full_pages WHERE page IN ({marks})", some
                )
                found.update(page for (page,) in rows)
        return found

    def trim_texts(self, domains: Iterable[int]) -> None:
        """Keep the newest 10,000 pages of each domain. Full texts stay full."""
        with self._transaction():
            for domain in domains:
                (count,) = self._db.execute(
                    "SELECT count(*) FROM texts WHERE domain = ?", (domain,)
                ).fetchone()
                if count > _KEPT_TEXTS:
                    self._db.execute(_TRIM_TEXTS, (domain, _KEPT_TEXTS))

    def forget_texts(self, hosts: Iterable[str]) -> None:
        """Forget the texts of the domains of these hosts, durably."""
        domains = {(domain_number(host),) for host in hosts}
        with self._transaction(durable=True):
            for table in ("texts", "full_texts", "full_pages"):
                self._db.executemany(f"DELETE FROM {table} WHERE domain = ?", domains)

    def add_finders(self, rows: Iterable[tuple[int, int, int]]) -> None:
        """Record on which page each URL was found first.

        A row has the domain and number of the URL, and the number of the page.
        """
        with self._transaction():
            self._db.executemany("INSERT OR IGNORE INTO finders VALUES (?, ?, ?)", rows)

    def finder(self, domain: int, url: int) -> int | None:
        """Return the page on which a URL was found first, if known."""
        row = self._row("SELECT page FROM finders WHERE domain = ? AND url = ?", domain, url)
        return None if row is None else row[0]
