"""Wildcard DNS: a farm that answers for every name of its domain ends, and a good site has its pages early."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from hashlib import md5
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from crawl_lib.urls import host_of
from tests.e2e.crawl import make_config, run_crawl
from tests.serving import Answering, running

PAGES, NEW_HOSTS, MOST = 63, 30, 1000
GOOD = "http://www.good.example/0"


class Web(Answering):
    """A proxy for a web of two sites: a farm whose pages differ in their words, and a tree of pages."""

    protocol_version = "HTTP/1.1"
    requests: ClassVar[Counter[str]] = Counter()

    def do_GET(self) -> None:
        host, _, path = self.path.removeprefix("http://").partition("/")
        self.requests[host.rpartition(".example")[0].rpartition(".")[2]] += 1
        links = self._links(host, path)
        body = (
            b""
            if links is None
            else "".join(f"<p>{link}</p><a href='{link}'>go</a>" for link in links).encode()
        )
        self.answer(404 if links is None else 200, body, {"Content-Type": "text/html"})

    def _links(self, host: str, path: str) -> list[str] | None:
        if path == "robots.txt":
            return None
        if host.endswith("good.example"):
            return [
                f"/{page}" for page in range(4 * int(path) + 1, 4 * int(path) + 5) if page < PAGES
            ]
        return [
            f"http://{md5(f'{host} {number}'.encode()).hexdigest()[:9]}.farm.example/"
            for number in range(NEW_HOSTS)
        ]


class Server(ThreadingHTTPServer):
    """One with room for the connections of a whole batch."""

    request_queue_size = 512
    daemon_threads = True


@pytest.fixture
def proxy() -> Iterator[str]:
    Web.requests.clear()
    with running(Server(("127.0.0.1", 0), Web)) as server:
        yield f"http://127.0.0.1:{server.server_port}"


@pytest.mark.parametrize("order", ["fifo", "crawldb"])
def test_a_farm_ends_and_a_good_site_has_all_its_pages_in_six_rounds(
    order: str, proxy: str, tmp_path: Path
) -> None:
    config = make_config(
        tmp_path,
        nodes=1,
        frontier={"order": order},
        batch={"size": 100},
        urls={"scope": "any"},
        fetch={"proxy": proxy, "host_delay_s": 0.0},
    )
    result = run_crawl(config, ["http://www.farm.example/", GOOD], 6, process=False)
    fetched = Counter(host_of(url) == "www.good.example" for url in result.outcomes())
    assert fetched[True] == PAGES
    farm = [url for url in result.outcomes() if url.endswith(".farm.example/")]
    assert len(farm) == 200, "hosts of a domain, and no more in the last rounds"
    assert result.commits[-1]["taken"] < 100
    assert Web.requests["farm"] < MOST, "with those for robots.txt"
    said = [commit["budgets"] for commit in result.commits if "budgets" in commit]
    assert said
    assert all(
        words.startswith("farm.example reached urls.max_hosts_per_domain (") for words in said
    )
    assert "urls.domains" in said[-1]
