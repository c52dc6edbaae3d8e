"""One visit of a page, for `krake shell`: the answer, the parser's results, and a verdict on each link.

`Discovery` judges the links, as in a crawl, with the scope of the newest iteration.
"""

from collections import Counter
from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple, cast

from crawl_lib.ask.check import fetch_once
from crawl_lib.ask.why import Facts, filter_at
from crawl_lib.parse import Headers, ParsedPage, parse_head, require_scanner
from crawl_lib.records import Fetched, QueuedUrl, TakenUrl
from crawl_lib.segment import LinkBlock, PartWriter
from crawl_lib.stores import Stores
from crawl_lib.urls import host_of, key_of
from crawl_lib.worker import Discovery, Reader


class Link(NamedTuple):
    """A link of a page, as in a row of `links`. `rule`: the rule that decided whether the link is `followed`."""

    url: str
    anchor: str
    rel: str
    element: str
    followed: bool
    rule: str


@dataclass(frozen=True)
class CheckedFetch:
    """Result of a single fetch of a URL.

    `verdicts`: the result of `check_url`, and `rejections`: the number of links that each rule rejects. `fetched`: the
    answer as received; `headers`: its headers; `content`: its body without codings. `page`: the parser's result, None
    if the answer is no page. `links`: the links of the page; `rejections` also counts links that are no URLs.
    """

    verdicts: Facts
    fetched: Fetched
    headers: Headers
    content: bytes
    page: ParsedPage | None
    links: list[Link]


def visit_url(stores: Stores, text: str) -> CheckedFetch:
    """Fetch a URL once, and read the answer like a seed's.

    The crawl notices nothing, as with `check_url`. Raises the errors of `check_url`, and SetupError if the scanner of
    links is missing: the operator runs `make setup`.
    """
    require_scanner()
    verdicts, fetched = fetch_once(stores, text)
    reader, headers = Reader(stores.config), parse_head(fetched.head)
    content = reader.content(headers, fetched)
    mime = reader.facts(headers, fetched, content).mime
    is_page = reader.is_page(headers, fetched.outcome, mime, content.data)
    page = reader.page(headers, fetched.url, content, mime, fetched.time) if is_page else None
    links, rejections = ([], {}) if page is None else _judged(stores, fetched.url, page, headers)
    return CheckedFetch(
        {**verdicts, "rejections": rejections}, fetched, headers, content.data, page, links
    )


def _judged(
    stores: Stores, url: str, page: ParsedPage, headers: Headers
) -> tuple[list[Link], dict[str, int]]:
    """Return a page's links, and the number rejected by each rule."""
    config, block, rejections = stores.config, LinkBlock(), Counter[str]()
    links = SimpleNamespace(block=block, grown=lambda size: None)
    outlinks = SimpleNamespace(add=lambda *found: None)
    part = SimpleNamespace(
        counts=SimpleNamespace(rejections=rejections, requisites=0), links=links, outlinks=outlinks
    )
    writer, judge = cast(PartWriter, SimpleNamespace(part=part)), filter_at(stores, host_of(url), 1)
    nofollow = page.nofollow or headers.says_nofollow(config.fetch.user_agent)
    discovery = Discovery(config, config.servers, 0, judge, writer, seeds_widen_scope=False)
    discovery.links(TakenUrl(0, key_of(url), QueuedUrl(url)), page, nofollow)
    names = ["target_url", *Link._fields[1:]]
    found = (
        [Link(*row.values()) for row in block.batch().select(names).to_pylist()]
        if block.rows
        else []
    )
    block.free()
    return found, dict(rejections)
