"""The Refresh field of an answer: a hop, as a meta refresh is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from crawl_lib.config import Config
from crawl_lib.parse import ParsedPage, parse_head
from crawl_lib.records import Fetched
from crawl_lib.states import Outcome
from crawl_lib.worker.reading import Reader
from tests.e2e.crawl import make_config
from tests.parse.links import columns

URL = "http://a.test/folder/page"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return make_config(tmp_path, nodes=1)


def page_of(config: Config, body: str, *fields: str) -> ParsedPage:
    head = (
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
        + "".join(f"{field}\r\n" for field in fields)
        + "\r\n"
    )
    fetched = Fetched(URL, 0.0, Outcome.OK, head=head.encode("latin-1"), body=body.encode())
    reader, headers = Reader(config), parse_head(fetched.head)
    content = reader.content(headers, fetched)
    return reader.page(headers, URL, content, reader.facts(headers, fetched, content).mime)


@pytest.mark.parametrize("value", [
    "5; url=x", "0;URL='x'", '0, url = "x" y', "0 x", ".5;x", "1.5 url=x", "5", "x", "-1; url=x", "0; url=",
    "0;url=x?a&amp;b", "0;url=x?a=1&lt=2", "0;url=<x>\"y'", "0; url=//b.test/\\x", "", "0;;x",
])  # fmt: skip
def test_the_field_means_what_a_meta_refresh_means(config: Config, value: str) -> None:
    quoted = value.replace("&", "&amp;").replace('"', "&quot;")
    meta = page_of(config, f'<meta http-equiv=refresh content="{quoted}">')
    assert page_of(config, "", f"Refresh: {value}").links == meta.links


def test_the_hop_is_the_first_link_and_the_page_says_the_rest(config: Config) -> None:
    page = page_of(
        config,
        "<title>T</title><meta name=robots content=nofollow><a href=y>z</a>",
        "Refresh: 0;url=x",
    )
    links = columns(page.links)
    assert (links.hrefs, links.elements, links.anchors) == (["x", "y"], ["meta", "a"], ["", "z"])
    assert (page.title, page.nofollow, page.links_cut) == ("T", True, 0)


def test_the_target_is_relative_to_the_page_and_not_to_its_base(config: Config) -> None:
    page = page_of(config, "<base href=/other/><a href=y>z</a>", "Refresh: 0;url=x")
    assert (page.base, columns(page.links).hrefs) == (
        "http://a.test/other/",
        ["http://a.test/folder/x", "y"],
    )


def test_octets_are_escaped_as_they_are(config: Config) -> None:
    utf8, latin1 = (
        f"Refresh: 0;url=/caf{text}?q={text}" for text in ("é".encode().decode("latin-1"), "é")
    )
    assert columns(page_of(config, "", utf8).links).hrefs == ["/caf%C3%A9?q=%C3%A9"]
    assert columns(page_of(config, "", latin1).links).hrefs == ["/caf%E9?q=%E9"]


def test_of_several_fields_the_first_that_is_not_empty_counts(config: Config) -> None:
    fields = ("Refresh:", "Refresh: 0;url=x", "Refresh: 0;url=y")
    assert columns(
        page_of(config, "<meta http-equiv=refresh content='0;url=z'>", *fields).links
    ).hrefs == ["x", "z"]


@pytest.mark.parametrize("kind", ["", "text/plain", "image/png", "text/xml"])
@pytest.mark.parametrize("body", [b"", b"text", b"<urlset><url><loc>/y</loc></url></urlset>"])
def test_an_answer_of_any_type_may_be_a_hop(config: Config, kind: str, body: bytes) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nRefresh: 0;url=x\r\n\r\n".encode()
    fetched = Fetched(URL, 0.0, Outcome.OK, head=head, body=body)
    reader, headers = Reader(config), parse_head(head)
    content = reader.content(headers, fetched)
    mime = reader.facts(headers, fetched, content).mime
    assert reader.is_page(headers, Outcome.OK, mime, content.data)
    page = reader.page(headers, URL, content, mime)
    assert (columns(page.links).hrefs, page.words) == (["x"], None)
    assert not reader.is_page(headers, Outcome.GONE, mime, content.data)


def test_the_most_links_of_a_page_hold(config: Config) -> None:
    few = replace(config, parse=replace(config.parse, max_links_per_page=2))
    page = page_of(few, "<a href=1></a><a href=2></a><a href=3></a>", "Refresh: 0;url=x")
    assert (columns(page.links).hrefs, page.links_cut) == (["x", "1"], 2)
