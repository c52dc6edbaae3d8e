"""The program of a child process for one look-up, see `apart`. The argument is the id of the parent."""

import json
import math
import pickle
import sys
import time
from functools import cached_property
from typing import Any

from crawl_lib.ask.apart import LINKS_SHARE, PARTS, ChildQuestion
from crawl_lib.ask.page import find_page, full_row, newest_rows, read_answer
from crawl_lib.ask.why import explain
from crawl_lib.dataclass import dataclass
from crawl_lib.errors import KrakeError
from crawl_lib.export import PageView, url_named
from crawl_lib.rounds import open_to_look
from crawl_lib.stores import Stores
from crawl_lib.text import read_text
from crawl_lib.urls import key_of
from crawl_lib.walls import data_bytes, die_with_parent, set_limits

MEMORY_BYTES = 1 << 30
SHOWN_CHARS = 100_000
"""The most characters of a source or text: people read a part, and a page of 64 MB would stop their browser."""
_WAIT_S = 1.0


@dataclass(frozen=True)
class _ShownSource:
    """What a server answered. `source`: its first `SHOWN_CHARS`; `left_out`: the number of others."""

    head: str
    source: str
    left_out: int
    time: str
    error: str


@dataclass(frozen=True)
class _ShownText:
    """The main text of a page. `text`: its first `SHOWN_CHARS`; `left_out`: the number of others."""

    text: str
    left_out: int
    language: str
    error: str


class Asking:
    """The answers to one question, by the names of `PARTS`. Each may raise KrakeError.

    `until_s`: when the search for links ends, by the monotonic clock.
    """

    def __init__(self, asked: ChildQuestion, until_s: float) -> None:
        self._asked, self._until_s = asked, until_s

    def why(self) -> dict[str, Any]:
        """Return the result of `explain`."""
        return explain(self._stores, self._asked.url, links_until_s=self._until_s)

    def cat(self) -> "_ShownSource | None":
        """Return headers and source of the newest capture, if any."""
        row = self._row
        if row is None:
            return None
        view = PageView(key=row["key"].hex(), url=row["url"], row=row)
        answer = read_answer(self._stores, view)
        source = answer.source()
        return _ShownSource(
            head=answer.head.decode("latin-1"),
            source=source[:SHOWN_CHARS],
            left_out=max(0, len(source) - SHOWN_CHARS),
            time=f"{row['time']:%Y%m%d%H%M%S}",
            error=answer.content.error or "",
        )

    def text(self) -> "_ShownText | None":
        """Return the main text of the newest capture, if any."""
        row = self._row
        if row is None:
            return None
        if row["refers_to"]:
            row = full_row(self._stores, row["key"], row["refers_to"]["segment"])
        page = read_text(self._stores, row)
        text = page.text or ""
        return _ShownText(
            text=text[:SHOWN_CHARS],
            left_out=max(0, len(text) - SHOWN_CHARS),
            language=page.language or "",
            error=page.error or "",
        )

    def show(self) -> PageView:
        """Return the result of `find_page`."""
        return find_page(self._stores, self._asked.url)

    @cached_property
    def _stores(self) -> Stores:
        return open_to_look(self._asked.config, self._asked.secrets, _WAIT_S)

    @cached_property
    def _row(self) -> dict[str, Any] | None:
        """The newest capture."""
        key = key_of(url_named(self._stores, self._asked.url))
        return newest_rows(self._stores, [key]).get(key)


def main() -> int:
    """Answer the question on standard input.

    An empty line says that all modules are loaded.
    """
    die_with_parent(int(sys.argv[1]))
    sys.stdout.write("\n")
    sys.stdout.flush()
    began_s = time.monotonic()
    asked: ChildQuestion = pickle.load(sys.stdin.buffer)  # noqa: S301  # the parent wrote it
    set_limits(
        DATA=data_bytes() + MEMORY_BYTES,
        CPU=math.ceil(time.process_time() + asked.seconds) + 1,
        CORE=0,
    )
    asking = Asking(asked, began_s + asked.seconds * LINKS_SHARE)
    for name in PARTS:
        try:
            facts = getattr(asking, name)()
        except KrakeError as error:
            facts = {"error": str(error)}
        sys.stdout.write(f"{json.dumps({name: facts or {}}, default=vars)}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
