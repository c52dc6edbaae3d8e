"""Requisites: images, style sheets, scripts and fonts of a page.

Other rules judge a requisite than a link: depth and scope do not refuse requisites. The verdict on a URL as a requisite
has no effect on links to the same URL.
"""

from crawl_lib.config import Config
from crawl_lib.records import MOST_IMPORTS, TakenUrl
from crawl_lib.urls import Rejection, UrlFilter, budget_domain_of, host_of
from crawl_lib.worker.rows import REMEMBERED_BYTES, LinkRows

_FRAMES, _IMPORT = b"fi", b"q"
"""Letters of elements, as `native/tags.c` and `native/links.c` have them."""


class Requisites:
    """Judges requisites. `rows` remembers URLs and verdicts, apart from links."""

    def __init__(self, config: Config, url_filter: UrlFilter) -> None:
        self._is_same_site = config.parse.requisites == "same_site"
        self._filter = url_filter
        self.rows = LinkRows(REMEMBERED_BYTES // 4)

    def verdict(self, taken: TakenUrl, url: str, host: str) -> tuple[bool, str]:
        """Return whether a requisite may be fetched, and the rule's name.

        See `UrlFilter.verdict_on_requisite`.

        `taken`: the page, or another requisite of it; both have the same registered domain where that counts.
        """
        domain = budget_domain_of(host_of(taken.queued.url)) if self._is_same_site else None
        return self._filter.verdict_on_requisite(url, host, domain)

    def judge(self, taken: TakenUrl, url: str, host: str, letter: bytes) -> tuple[bool, str, bool]:
        """Judge a URL by the letter of its element.

        Returns the verdict, and whether it holds for all pages. A frame is a requisite if scope or depth refuse the
        link, or the page is a requisite itself.
        """
        steps, lasts = taken.queued.requisite, not self._is_same_site
        if letter == _IMPORT:
            lasts = False
            if steps > MOST_IMPORTS:
                return False, Rejection.REQUISITE_DEPTH, False
        if letter in _FRAMES:
            lasts = False
            is_link, rule = self._filter.verdict(url, host, taken.queued.depth + 1)
            if not steps and (is_link or rule not in {Rejection.SCOPE, Rejection.DEPTH}):
                return False, rule, False
        return *self.verdict(taken, url, host), lasts
