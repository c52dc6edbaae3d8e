"""Pages whose words are equal: the number of pages of a registered domain with the same text, and URLs found on these
pages.

The host store keeps a row for each page and text: the domain, a digest of the words, the key of the page. A page counts
once, also if repeated after a kill or visited again. Once `traps.max_equal` pages of a domain have a text, this text is
full: links on pages with the text are refused, and URLs found on such pages end unfetched. A host counts with its
domain, under the same limit.

Most texts occur once. New texts wait in memory until the open part closes. Pages whose text occurs twice are written as
soon as they are a sixteenth of `traps.max_equal`, so that all processes of the node count together.

The queue names the page with a URL. The lists of a CrawlDb do not, so the host store keeps this too. An
already captured page is visited again in any case.

After a kill, pages of the open part are judged by counts that include these pages already, so links of a few more
pages may be refused than without the kill. Losing the host store is harmless: all counts begin at 0, and a trap ends
after as many fetches again.
"""

from collections.abc import Iterable

from crawl_lib.fetch import HostStore, Text, TextRow, domain_number, page_number
from crawl_lib.records import RETRY_LISTS, Fetched, TakenUrl
from crawl_lib.urls import host_of
from crawl_lib.worker.patterns import SIMILAR

_MOST_WAITING = 5_000
_MOST_FINDERS = 50_000
_SHARE_WAITING = 16


class Texts:
    """The texts of a worker's pages.

    `store`: None: nothing is counted, such as where pages are only read again. `most`: `traps.max_equal`.
    `keeps_finders`: whether URLs come from lists, which do not say where a URL was found.
    """

    def __init__(
        self,
        store: HostStore | None = None,
        most: int | None = None,
        *,
        keeps_finders: bool = False,
    ) -> None:
        self._store = store if most else None
        self._most = most or 0
        self.keeps_finders = keeps_finders and self._store is not None
        self._noted: list[tuple[Text, TextRow]] = []
        self._once: dict[Text, TextRow] = {}
        self._often: set[Text] = set()
        self._waiting: list[TextRow] = []
        self._full = self._store.pages.full_texts() if self._store is not None else set[Text]()
        self._full_pages: set[int] = set()
        self._refused: set[int] = set()
        self._domains: set[int] = set()
        self._finders: dict[tuple[int, int], int] = {}
        self._found_on: dict[int, int] = {}

    @property
    def counts(self) -> bool:
        """Whether pages are counted."""
        return self._store is not None

    def know(self, items: Iterable[TakenUrl]) -> None:
        """Look up URLs found on pages with full texts.

        Texts that may become full count too.
        """
        if self._store is None:
            return
        pages = set[int]()
        for taken in items:
            if (page := self._found(self._store, taken)) is not None:
                self._found_on[taken.position] = page
                pages.add(page)
        self._full_pages |= self._store.pages.full_pages(pages)

    def _found(self, store: HostStore, taken: TakenUrl) -> int | None:
        """Return the page with a URL.

        The page is None for seeds, requisites, and URLs that people listed: these are always fetched.
        """
        queued = taken.queued
        if queued.requisite:
            return None
        if not queued.list_name:
            return None if queued.via is None else page_number(queued.via)
        if not self.keeps_finders or queued.earlier or queued.list_name.startswith(RETRY_LISTS):
            return None
        return store.pages.finder(domain_number(host_of(queued.url)), page_number(taken.key))

    def objection(self, taken: TakenUrl) -> str:
        """Say why a URL is not to be fetched.

        The URL was found on a page with a full text. "": the URL is fetched.
        """
        if self._found_on.get(taken.position) not in self._full_pages:
            return ""
        return f"{SIMILAR}: {self._most} pages of a domain have the words of the page it was found on (traps.max_equal)"

    def note(self, taken: TakenUrl, fetched: Fetched, words: int | None) -> None:
        """Note the words of a page (`Page.words`), or of an error.

        None: there are no words.
        """
        if self._store is not None and words is not None and not taken.queued.requisite:
            text, time_us = (
                Text(domain_number(host_of(fetched.url)), words),
                round(fetched.time * 1_000_000),
            )
            self._noted.append((text, TextRow(*text, page_number(taken.key), time_us)))

    def found(self, taken: TakenUrl, key: bytes, host: str) -> None:
        """Note the first page with a URL.

        The URL is given by its key and host.
        """
        self._finders.setdefault((domain_number(host), page_number(key)), page_number(taken.key))
        if len(self._finders) >= _MOST_FINDERS:
            self._write_finders()

    def count(self) -> None:
        """Count what was noted. Raises StorageError."""
        noted, self._noted = self._noted, []
        waiting = self._waiting
        for text, row in noted:
            if text in self._full:
                continue
            if text in self._often:
                waiting.append(row)
            elif (first := self._once.pop(text, None)) is None:
                self._once[text] = row
            else:
                self._often.add(text)
                waiting += (first, row)
        if _SHARE_WAITING * len(waiting) >= self._most:
            self._write_waiting()
        if len(self._once) >= _MOST_WAITING:
            self._write_once()
        if noted:
            self._refused = (
                {row.page for text, row in noted if text in self._full} if self._full else set()
            )

    def _write(self, rows: list[TextRow]) -> None:
        """Add pages to the node's counts, and learn the full texts."""
        if self._store is None or not rows:
            return
        self._store.pages.add_texts(rows)
        full = self._store.pages.fill_texts({row.text for row in rows}, self._most)
        self._full.update(full)
        self._full_pages.update(*full.values())
        self._domains.update(row.domain for row in rows)

    def _write_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._write(waiting)

    def _write_once(self) -> None:
        once, self._once = self._once, {}
        self._often.update(once)
        self._write(sorted(once.values()))

    def _write_finders(self) -> None:
        finders, self._finders = self._finders, {}
        if self._store is not None and finders:
            self._store.pages.add_finders(sorted((*url, page) for url, page in finders.items()))

    def is_full(self, taken: TakenUrl) -> bool:
        """Return whether links of a page are refused.

        Call this after `count`, which follows the page's `note`.
        """
        return bool(self._refused) and page_number(taken.key) in self._refused

    def save(self) -> None:
        """Save the notes, and forget the oldest.

        Call this before closing the part that holds these pages.
        """
        self.count()
        self._write_waiting()
        self._write_once()
        self._write_finders()
        if self._store is not None and self._domains:
            self._store.pages.trim_texts(self._domains)
            self._domains.clear()
