"""Pages of every type: which content has links, and the parser of each type."""

from typing import TypedDict

from crawl_lib.config import ParseConfig
from crawl_lib.parse.content import Content
from crawl_lib.parse.css import CSS, parse_css
from crawl_lib.parse.headers import Headers
from crawl_lib.parse.html import ParsedPage, parse_html
from crawl_lib.parse.mime import HTML_TYPES, XHTML
from crawl_lib.parse.refresh import with_refresh
from crawl_lib.parse.sitemap import SITEMAP_TYPES, may_be_sitemap, parse_sitemap


class _Common(TypedDict):
    url: str
    header_charset: str | None
    config: ParseConfig
    is_cut: bool


class PageParser:
    """Parses content as the config says. `token`: of our user agent; `max_bytes`: of what gzip decompresses to."""

    def __init__(self, config: ParseConfig, token: str, max_bytes: int) -> None:
        self._config, self._token, self._max_bytes = config, token, max_bytes

    def has_links(self, headers: Headers, mime: str | None, data: bytes) -> bool:
        """Return whether the links of an answer are read.

        Pages and Refresh fields have links, and so have sitemaps and style sheets, if wanted.
        """
        if mime in HTML_TYPES or headers.get("refresh"):
            return True
        if mime == CSS:
            return self._config.wants_requisites
        return self._is_list(mime) and may_be_sitemap(data)

    def page(
        self,
        headers: Headers,
        url: str,
        content: Content,
        mime: str | None,
        time: float | None = None,
    ) -> ParsedPage:
        """Read the page or sitemap in the content.

        Content of another type has only its Refresh field. Content that a limit, a break or a damaged coding cut off
        does not count. `time`: POSIX seconds of the visit. Without `time`, or without `parse.facts`, the page has no
        metadata.
        """
        data = content.data
        common: _Common = {
            "url": url,
            "header_charset": headers.content_type[1],
            "config": self._config,
            "is_cut": content.truncated or content.broken,
        }
        if mime in HTML_TYPES:
            facts_at = time if self._config.facts else None
            page = parse_html(
                data, user_agent=self._token, is_xml=mime == XHTML, facts_at=facts_at, **common
            )
        elif mime == CSS:
            page = parse_css(data, **common)
        else:
            data = data if self._is_list(mime) else b""
            page = parse_sitemap(data, max_bytes=self._max_bytes, **common)
        refresh = headers.get("refresh")
        return with_refresh(page, refresh, url=url, config=self._config) if refresh else page

    def _is_list(self, mime: str | None) -> bool:
        return self._config.sitemaps and mime in SITEMAP_TYPES
