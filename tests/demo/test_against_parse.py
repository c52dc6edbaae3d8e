"""Model and crawler were written apart; on every page of the web they must read the same links."""

import pytest

from crawl_lib.config import ParseConfig
from crawl_lib.errors import UrlError
from crawl_lib.parse import detect_mime, parse_html
from crawl_lib.urls import resolve
from demo import SynthWeb
from tests.parse.links import each_link

PORT = 8080


def read_links(url: str, mime: str | None, content: bytes) -> list[tuple[str, str, str, bool]]:
    charset = mime.partition("charset=")[2] or None if mime else None
    page = parse_html(content, url=url, header_charset=charset, config=ParseConfig())
    found = []
    for link in each_link(page):
        try:
            target = resolve(page.base, link.href)
        except UrlError:
            continue
        found.append(
            (
                target,
                link.element,
                link.rel,
                link.followable and not (link.nofollow or page.nofollow),
            )
        )
    return found


@pytest.mark.parametrize("seed", range(3))
def test_links_read_from_the_bytes_are_the_links_of_the_model(seed: int) -> None:
    web = SynthWeb(seed, sites=3, pages_per_site=60)
    pages = 0
    for target in web.targets():
        resource, url = web.resource(target), web.url(target, PORT)
        content = resource.content(PORT)
        declared = resource.mime.partition(";")[0] if resource.mime else None
        if detect_mime(declared, content) != "text/html":
            assert not resource.links
            continue
        followed = not resource.nofollow or any(
            name == "X-Robots-Tag" for name, _ in resource.headers
        )
        expected = [
            (web.url(link.target, PORT), link.element, link.rel, link.followed and followed)
            for link in resource.links
            if link.target is not None
        ]
        assert sorted(read_links(url, resource.mime, content)) == sorted(expected), url
        pages += 1
    assert pages > 180


def test_urls_of_the_model_are_canonical() -> None:
    web = SynthWeb(4, sites=2, pages_per_site=100)
    for target in web.targets():
        url = web.url(target, PORT)
        assert resolve(url, url) == url
