"""Reading an answer at once: the target of a redirect or refresh, directives for robots, and facts of the page.

The links of a page wait for `collect`. Here only the beginning of the content is read, where metas are. This way no
page holds up the others.
"""

import time
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from crawl_lib.config import Config
from crawl_lib.parse import (
    HTML_TYPES,
    XHTML,
    Content,
    Directives,
    Headers,
    Metadata,
    ParsedPage,
    decode_content,
    detect_mime,
    parse_head,
    parse_html,
    with_refresh,
)
from crawl_lib.realtime.protocol import MAX_FACTS_BYTES, PageTarget, Robots
from crawl_lib.records import Fetched
from crawl_lib.states import Outcome
from crawl_lib.urls import Chain, LinkResolver, Scope, key_of, target_of_error

READ_BYTES = 512 << 10
"""The most bytes of a page's content for this first reading."""
_META = "m"
"""The letter of a meta refresh, or of a Refresh field, in the links of a page."""
_REFRESH_LINKS = 64
"""The number of links to search for a refresh: links of metas are among the first."""
_MAX_VALIDATOR_CHARS = 1024
_Fact = str | dict[str, str | int]
"""A text; the `image` with its size; or the `sources` of all facts."""


@dataclass(frozen=True)
class Told:
    """The result of the first reading. `length`: bytes of the content, None if only the beginning is known."""

    target: PageTarget | None = None
    mime: str | None = None
    length: int | None = None
    etag: str | None = None
    last_modified: str | None = None
    robots: Robots = field(default_factory=Robots)
    facts: dict[str, Any] = field(default_factory=dict)


def facts_of(page: ParsedPage) -> dict[str, _Fact]:
    """Return the facts of a page by name (docs/metadata.md).

    They are texts, the `image` with its size, and all `sources`.
    """
    said = {
        name: value
        for name, value in (page.metadata or Metadata())._asdict().items()
        if value is not None
    }
    facts: dict[str, Any] = {name: value[0] for name, value in said.items()}
    if image := (page.metadata or Metadata()).image:
        size = {"width": image.width, "height": image.height}
        facts["image"] = {
            "url": image.url,
            **{name: pixels for name, pixels in size.items() if pixels is not None},
        }
    return (
        {**facts, "sources": {name: value.source for name, value in said.items()}} if facts else {}
    )


class AnswerReader:
    """Reads answers as the config says; keeps nothing between two answers."""

    def __init__(self, config: Config) -> None:
        """Compile the rules. Raises ConfigError for an invalid rule."""
        self._parse = config.parse
        self._token = config.fetch.user_agent
        self._most_bytes = min(READ_BYTES, config.fetch.max_decompressed_bytes)
        chain = Chain(config.urls, Scope.OUTLINK)
        normalize = chain.normalize if chain.normalizes else None
        self._resolver = LinkResolver(config.urls.max_length_chars, normalize)

    def read(self, fetched: Fetched) -> Told:
        """Read an answer, or the rule against a URL."""
        if fetched.outcome is Outcome.FILTERED:
            url = target_of_error(fetched.error)
            return Told(PageTarget(url=url, key=key_of(url).hex(), how="rule") if url else None)
        if not fetched.head:
            return Told()
        headers = parse_head(fetched.head)
        told = Told(
            etag=_validator(headers.get("etag")),
            last_modified=_validator(headers.get("last-modified")),
        )
        if fetched.outcome is Outcome.REDIRECT:
            return replace(
                told, target=self._target(fetched.url, headers.location or "", "redirect")
            )
        if fetched.outcome is not Outcome.OK:
            return told
        return self._read_content(fetched, headers, told)

    def _read_content(self, fetched: Fetched, headers: Headers, told: Told) -> Told:
        content = decode_content(headers, fetched.body, max_bytes=self._most_bytes)
        mime = detect_mime(headers.content_type[0], content.data)
        is_cut = content.truncated or content.broken or fetched.truncated is not None
        told = replace(told, mime=mime, length=None if is_cut else len(content.data))
        page = self._page(fetched.url, headers, content, mime, is_cut=is_cut)
        said = Directives.of(
            page.meta_robots or "",
            headers.all("x-robots-tag"),
            user_agent=self._token,
            now=time.time(),
        )
        robots = Robots(noindex=said.noindex, noarchive=said.noarchive, nosnippet=said.nosnippet)
        facts: dict[str, Any] = facts_of(page)
        if said.nosnippet and facts.pop("description", None) is not None:
            del facts["sources"]["description"]
        return replace(
            told, target=self._refresh(page, headers), robots=robots, facts=bounded(facts)
        )

    def _page(
        self, url: str, headers: Headers, content: Content, mime: str | None, *, is_cut: bool
    ) -> ParsedPage:
        """Read the page; of content of another type, its Refresh field."""
        data = content.data if mime in HTML_TYPES else b""
        charset, is_xml = headers.content_type[1], mime == XHTML
        page = parse_html(
            data,
            url=url,
            header_charset=charset,
            config=self._parse,
            user_agent=self._token,
            is_xml=is_xml,
            is_cut=is_cut,
            facts_at=time.time(),
        )
        refresh = headers.get("refresh")
        return with_refresh(page, refresh, url=url, config=self._parse) if refresh else page

    def _refresh(self, page: ParsedPage, headers: Headers) -> PageTarget | None:
        """Return the target of a page's first refresh.

        A page with nofollow has none.
        """
        is_barred = page.nofollow or headers.says_nofollow(self._token)
        if is_barred and not self._parse.follow_nofollow:
            return None
        texts = page.links.split(b"\0", 3 * _REFRESH_LINKS)[: 3 * _REFRESH_LINKS : 3]
        for href in (text.decode() for text in texts):
            if href.startswith(_META):
                return self._target(page.base, href[1:], "refresh")
        return None

    def _target(self, base: str, reference: str, how: str) -> PageTarget | None:
        """Resolve a reference; None for an invalid target."""
        self._resolver.enter(base)
        target, _ = self._resolver.find(reference)
        return (
            None if target.rejection else PageTarget(url=target.url, key=target.key.hex(), how=how)
        )


def bounded(facts: dict[str, _Fact]) -> dict[str, _Fact]:
    """Return facts of at most `MAX_FACTS_BYTES`.

    The longest facts are left out first.
    """
    sizes = {name: len(msgspec.json.encode(value)) + len(name) + 4 for name, value in facts.items()}
    kept, total = dict(facts), sum(sizes.values())
    for name in sorted(sizes, key=lambda name: sizes[name], reverse=True):
        if total <= MAX_FACTS_BYTES:
            break
        del kept[name]
        total -= sizes[name]
    return kept


def _validator(value: str | None) -> str | None:
    return value if value and len(value) <= _MAX_VALIDATOR_CHARS else None
