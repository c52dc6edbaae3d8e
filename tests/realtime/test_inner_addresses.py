"""The service sends no byte to an inner address: directly, by a redirect, a refresh, or a picture, however written."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.realtime import Client, TokenFile, fetcher_of
from crawl_lib.realtime.tokens import RIGHTS
from crawl_lib.stores import open_stores
from tests.e2e.crawl import make_config
from tests.fetch.test_live import Live, live
from tests.fetch.test_refused import ALLOWED, ONLY, Edge, answers, edge, spellings
from tests.realtime.test_service import running

__all__ = ["edge"]
HTML = b"Content-Type: text/html\r\n"
WAYS = {
    "redirect": lambda talk, url: talk.reply("302 Found", b"Location: %s\r\n" % url, b""),
    "refresh": lambda talk, url: talk.reply(
        headers=HTML, body=b"<meta http-equiv=refresh content='0; url=%s'>" % url
    ),
    "field": lambda talk, url: talk.reply(
        headers=b"%sRefresh: 0; url=%s\r\n" % (HTML, url), body=b"<p>"
    ),
    "image": lambda talk, url: talk.reply(
        headers=HTML, body=b"<meta property=og:image content='%s'>" % url
    ),
    "moved-image": lambda talk, url: talk.reply(
        headers=HTML,
        body=b"<meta property=og:image content='/redirect/%s'>"
        % talk.seen.path.rpartition("/")[2].encode(),
    ),
}


def with_image(client: Client, url: str) -> Any:
    """The document of a URL, once its picture was probed."""
    while True:
        page = client.page(url, wait_s=30)
        assert page is not None
        assert page.document is not None
        if page.document.image is not None:
            return page.document
        threading.Event().wait(0.01)


@pytest.mark.parametrize("seed", range(2))
def test_inner_addresses_are_refused_by_each_way(tmp_path: Path, edge: Edge, seed: int) -> None:
    draw = random.Random(seed)
    inner = [
        edge.web.url(f"/{number}", host=spellings(draw.choice(edge.refused), draw))
        for number in range(8)
    ]
    for number, url in enumerate(inner):
        for way, answer in WAYS.items():
            edge.web.on(
                f"/{way}/{number}", lambda talk, answer=answer, url=url: answer(talk, url.encode())
            )
    config = make_config(
        tmp_path,
        nodes=1,
        urls={"scope": "any"},
        frontier={"order": "crawldb"},
        fetch={"allow_networks": [f"{ALLOWED}/32"], "host_delay_s": 0.0},
        realtime={
            "tokens": str(tmp_path / "tokens.json"),
            "listen": "127.0.0.1:0",
            "policies": [{"name": "cards", "image": "probe"}],
        },
    )
    stores = open_stores(config)
    token = TokenFile(config.realtime.tokens).add("test", RIGHTS)
    with running(stores, fetcher_of(stores)) as service, Client(service, token) as client:
        by_way = {
            way: [edge.web.url(f"/{way}/{number}", host=ALLOWED) for number in range(8)]
            for way in WAYS
        }
        client.submit([*inner, *(url for urls in by_way.values() for url in urls)], "cards")
        for url in (*inner, *by_way["redirect"], *by_way["refresh"], *by_way["field"]):
            page = client.page(url, wait_s=30)
            assert page is not None
            assert page.document is not None
            assert page.document.outcome == "address_refused", (url, page.document)
            assert client.fetch(url).outcome in {"address_refused", "redirect", "ok"}, (
                "a bare fetch follows nothing"
            )
        for url in (*by_way["image"], *by_way["moved-image"]):
            document = with_image(client, url)
            assert document.outcome == "ok"
            assert document.image["outcome"] == "address_refused", (url, document.image)


@pytest.mark.parametrize("seed", range(4))
def test_a_name_that_leads_to_an_inner_address_later_is_refused_then(
    tmp_path: Path, edge: Edge, seed: int
) -> None:
    draw = random.Random(seed)
    first, asked = draw.randrange(1, 3), list[str]()

    def resolver(host: str) -> list[str]:
        asked.append(host)
        return [ALLOWED] if len(asked) <= first else answers(draw.choice(edge.refused), draw)

    async def script(found: Live) -> None:
        outcomes: list[str] = []
        for number in range(4):
            found.submit(
                edge.web.url(f"/http10?{number}", host="a.test"),
                redirects=number % 2,
                later=number == 3,
            )
            outcomes = await found.all()
        assert set(outcomes[first:]) == {"address_refused"}

    steps = count()  # the clock hurries, so that each address is old at the next request
    config = replace(ONLY, robots="ignore", host_delay_s=0.0)
    live(
        tmp_path,
        script,
        config,
        resolver=resolver,
        clock=lambda: time.monotonic() + 2.0 * next(steps),
    )
    assert len(asked) > first
