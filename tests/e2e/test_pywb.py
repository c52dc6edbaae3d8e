"""pywb replays every page of a crawl, with the index that `krake index cdxj` makes, and of a WACZ of the crawl."""

from __future__ import annotations

import random
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from hashlib import sha1
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.curate.index import merge_indexes
from crawl_lib.parse import decode_content, parse_head
from crawl_lib.records import Earlier
from crawl_lib.segment import surt
from crawl_lib.stores import open_stores
from crawl_lib.urls import canonicalize
from demo import Serving, SynthWeb
from tests.e2e.crawl import Result, make_config, run_crawl
from tests.e2e.shown import HOPS, running_pages
from tests.e2e.visits import config_for, full_captures, rows_of, running_site, visit
from tests.serving import Answering, running
from tests.test_readme import ROOT, fences
from tests.web.pywb import PYTHON, Pywb

WEB = SynthWeb(seed=10, sites=1, pages_per_site=10)
ITERATIONS = 2
ODD = (
    # Not `%09`, `%0A`, `%0D`: pywb undoes an escape before it makes the key, and these are then white space in a URL.
    "/",
    "//double//slashes///",
    "/%C3%A9/%E6%97%A5%E6%9C%AC",
    "/%25/%2525/100%",
    "/a%2Fb%3Fc%23d",
    "/[brackets]/{braces}|pipe^",
    "/semi;colon,comma!(round)'*$@:",
    "/?",
    "/?b=2&a=1&a=0&b",
    "/?q=%26%3D%23&x=a+b",
    "/??",
    "/?a[]=1&a[0]=2&url=http://a.example/?x=y",
    "/?u=%E6%97%A5&v=\u65e5",
    "/case/UPPER?Query=VALUE",
    "/session.php?PHPSESSID=0123456789abcdef0123456789abcdef&a=1",
    "/session/(0123456789abcdefghijklmn)/page.aspx?a=1",
    "/path=with?equals==&&amps&",
    f"/long/{'x' * 700}/{'y' * 700}?{'z' * 300}",
    f"/long/{'%C3%A9' * 150}?{'%2B' * 150}",
    "/dots/.../..a/a..",
    "/\u00fc/~tilde/%7Etilde2/%41",
    "/bell%07null%00",
    "/ends/with/slash/",
    "/missing",
    "/cgi?http://other.example/path/",
    "/redirect?/target?b&a",
    "/target?b&a",
)


class OddPages(Answering):
    """A page for every path, which says what was asked for; `/redirect?PATH` leads to PATH, `/missing` is none."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        redirect = self.path.partition("/redirect?")[2]
        status = 301 if redirect else 404 if self.path in {"/robots.txt", "/missing"} else 200
        body = f"<p>{self.headers['Host']} {self.path.replace('&', '&amp;')}</p>".encode()
        self.answer(status, body, {"Location": redirect or None, "Content-Type": "text/html"})


class OddServer(ThreadingHTTPServer):
    """On IPv4 and IPv6."""

    def __init__(self, address: str) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, 0), OddPages)


@pytest.fixture(scope="module")
def odd_urls() -> Iterator[list[str]]:
    """All by an IPv4 address, some by an IPv6 address, some by name."""
    with running(OddServer("127.0.0.1")) as four, running(OddServer("::1")) as six:
        yield [
            *(f"http://127.0.0.1:{four.server_port}{path}" for path in ODD),
            *(f"http://[::1]:{six.server_port}{path}" for path in ODD[::3]),
            *(f"http://localhost:{four.server_port}{path}" for path in ODD[1::3]),
        ]


@pytest.fixture(scope="module")
def crawled(odd_urls: list[str], tmp_path_factory: pytest.TempPathFactory) -> Result:
    fetch = {"host_delay_s": 0.0, "max_redirects": 4, "allow_networks": ["127.0.0.0/8", "::1/128"]}
    config = make_config(tmp_path_factory.mktemp("crawl"), nodes=2, fetch=fetch)
    with Serving(WEB) as serving:
        result = run_crawl(config, [*odd_urls, *serving.seeds], ITERATIONS, process=False)
    merge_indexes(open_stores(config))
    return result


@pytest.fixture(scope="module")
def wayback(crawled: Result, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pywb]:
    if not PYTHON.exists():
        pytest.skip("pywb is not there: run `make setup-pywb`")
    directory = tmp_path_factory.mktemp("pywb")
    with Pywb(
        directory, index=crawled.crawl_dir / "index.cdxj", archive=crawled.crawl_dir
    ) as running:
        yield running


@pytest.fixture(scope="module")
def from_wacz(crawled: Result, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pywb]:
    """pywb with a WACZ of the crawl."""
    if not PYTHON.exists():
        pytest.skip("pywb is not there: run `make setup-pywb`")
    with wacz_of(crawled, tmp_path_factory.mktemp("wacz")) as running:
        yield running


@contextmanager
def wacz_of(crawled: Result, directory: Path) -> Iterator[Pywb]:
    """Run pywb with what the commands of docs/field-tools.md unpack of the WACZ that they make."""
    [block] = [
        one
        for one in fences((ROOT / "docs" / "field-tools.md").read_text(), "sh")
        if "wacz create" in one
    ]
    packing, replaying = block.split("wayback --bind")
    assert "/krake/" in replaying
    commands = packing.replace("data/dfs/crawl/", f"{crawled.crawl_dir}/")
    variables = {"PATH": f"{PYTHON.parent}:/usr/bin:/bin", "HOME": str(directory)}
    done = subprocess.run(
        ["sh", "-ec", commands], cwd=directory, env=variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    folder = directory / "collections" / "krake"
    with Pywb(
        directory, index=folder / "indexes" / "index.cdxj", archive=folder / "archive"
    ) as running:
        yield running


def answers(result: Result) -> list[dict[str, Any]]:
    """Rows of pages that answered. pywb shows no redirect to the page itself, by intent: in a browser it has no end."""
    rows = result.rows("pages", ["url", "time", "status", "digest", "redirect_url"])
    return [row for row in rows if row["status"] is not None and row["redirect_url"] != row["url"]]


def stamp_of(row: dict[str, Any]) -> str:
    return str(row["time"].strftime("%Y%m%d%H%M%S"))


def test_the_crawl_has_what_is_to_be_replayed(crawled: Result, odd_urls: list[str]) -> None:
    rows = answers(crawled)
    urls = {row["url"] for row in rows}
    assert {canonicalize(url) for url in odd_urls} <= urls
    assert len({(surt(row["url"]), stamp_of(row)) for row in rows}) == len(rows), (
        "two captures pass for one"
    )
    assert {row["status"] for row in rows} >= {200, 301, 404}
    assert len(crawled.segments()) == 2 * ITERATIONS


@pytest.mark.parametrize("where", ["wayback", "from_wacz"])
def test_every_page_is_replayed_as_it_was_captured(
    crawled: Result, where: str, request: pytest.FixtureRequest
) -> None:
    check_replay(request.getfixturevalue(where), answers(crawled))


@pytest.mark.slow
def test_three_hundred_random_pages_are_replayed(tmp_path: Path) -> None:
    """Of a crawl of a thousand, by its own index and from its WACZ."""
    if not PYTHON.exists():
        pytest.skip("pywb is not there: run `make setup-pywb`")
    config = make_config(tmp_path, nodes=2, fetch={"host_delay_s": 0.0, "max_redirects": 4})
    with Serving(SynthWeb(seed=15, sites=8, pages_per_site=150)) as serving:
        result = run_crawl(config, serving.seeds, ITERATIONS + 1, process=False)
    merge_indexes(open_stores(config))
    rows = random.Random(1).sample(answers(result), 300)
    for name in ("own", "wacz"):
        (tmp_path / name).mkdir()
    with Pywb(
        tmp_path / "own", index=result.crawl_dir / "index.cdxj", archive=result.crawl_dir
    ) as wayback:
        check_replay(wayback, rows)
    with wacz_of(result, tmp_path / "wacz") as wayback:
        check_replay(wayback, rows)


def check_replay(wayback: Pywb, rows: list[dict[str, Any]]) -> None:
    """Compare what pywb shows of pages with what was captured: status and every byte."""
    expected, found = {}, {}
    for row in rows:
        replayed = wayback.replay(row["url"], stamp_of(row))
        head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {replayed.headers.get('Content-Encoding', '')}\r\n\r\n"
        content = decode_content(parse_head(head.encode()), replayed.body, max_bytes=1 << 30).data
        expected[row["url"]] = row["status"], row["digest"].hex()
        found[row["url"]] = replayed.status, sha1(content).hexdigest()
    assert found == expected


def test_a_page_that_was_not_crawled_is_not_there(wayback: Pywb) -> None:
    assert wayback.replay("http://127.0.0.1:9/never", "20260101000000").status == 404


@pytest.fixture(scope="module")
def visited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Result, Pywb]]:
    """A site whose pages a list asked for again, in another second than before."""
    if not PYTHON.exists():
        pytest.skip("pywb is not there: run `make setup-pywb`")
    config = config_for(tmp_path_factory.mktemp("visited"))
    with running_site() as site:
        run_crawl(config, [site.urls["/"]], ITERATIONS, process=False)
        site.later()
        wait_for_another_second(full_captures(config))
        visit(config, "7-1", ITERATIONS + 1)
    merge_indexes(open_stores(config))
    result = Result(config)
    directory = tmp_path_factory.mktemp("pywb-again")
    with Pywb(
        directory, index=result.crawl_dir / "index.cdxj", archive=result.crawl_dir
    ) as running:
        yield result, running


def wait_for_another_second(captures: dict[str, Earlier]) -> None:
    """The index of replay tools knows captures of a URL apart by their second."""
    newest = max(int(one.time) for one in captures.values())
    while int(time.time()) <= newest:
        time.sleep(0.05)


def test_captures_and_revisits_are_replayed(visited: tuple[Result, Pywb]) -> None:
    result, wayback = visited
    rows = [row for number in (1, 2, 3) for row in rows_of(result.config, number).values()]
    bodies = {
        row["url"]: row
        for row in rows
        if row["status"] == 200 and not row["refers_to"] and row["digest"]
    }
    again = [row for row in rows if row["refers_to"]]
    assert {row["outcome"] for row in again} == {"ok", "not_modified"}
    for row in again:
        full = bodies[row["url"]]
        for asked in (full, row):
            replayed = wayback.replay(row["url"], stamp_of(asked))
            head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {replayed.headers.get('Content-Encoding', '')}\r\n\r\n"
            content = decode_content(
                parse_head(head.encode()), replayed.body, max_bytes=1 << 30
            ).data
            assert (replayed.status, sha1(content).digest()) == (200, full["digest"]), (
                row["url"],
                stamp_of(asked),
            )
            shown = parsedate_to_datetime(replayed.headers["Memento-Datetime"])
            assert shown.strftime("%Y%m%d%H%M%S") == stamp_of(asked), (
                "the capture that was asked for"
            )


def test_requisites_of_pages_are_replayed(tmp_path: Path) -> None:
    """Each of them as it was captured, by its URL and the second of the page that needs it."""
    if not PYTHON.exists():
        pytest.skip("pywb is not there: run `make setup-pywb`")
    config = make_config(
        tmp_path, nodes=1, fetch={"host_delay_s": 0.0}, parse={"requisites": "all"}
    )
    with running_pages() as site:
        result = run_crawl(config, [f"http://127.0.0.1:{site.server_address[1]}/"], process=False)
    merge_indexes(open_stores(config))
    rows = [row for row in answers(result) if row["status"] == 200]
    page = min(rows, key=lambda row: row["time"])
    (tmp_path / "pywb").mkdir()
    with Pywb(
        tmp_path / "pywb", index=result.crawl_dir / "index.cdxj", archive=result.crawl_dir
    ) as wayback:
        found = {row["url"]: wayback.replay(row["url"], stamp_of(page)) for row in rows}
    assert {url: (one.status, sha1(one.body).digest()) for url, one in found.items()} == {
        row["url"]: (200, row["digest"]) for row in rows
    }
    assert len(rows) == sum(path not in {"/gone", "/moved"} for path in HOPS)
