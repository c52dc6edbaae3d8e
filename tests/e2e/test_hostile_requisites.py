"""Pages that name 100,000 requisites each, over sub-domains without end: limits hold, and a good site loses nothing."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.stores import open_stores
from crawl_lib.urls import budget_domain_of
from tests.e2e.crawl import Result, check_counts, make_config, write_config
from tests.e2e.hostile import MOST_BYTES, Memory
from tests.pythons import python_of
from tests.serving import Answering, running
from tests.web.names import NameServer, Said

NAMED = 100_000
"""Requisites that a hostile page or style sheet names."""
GOOD, MARKUP, SHEETS = "good.test", "markup.test", "sheets.test"
CRAWL = "import sys; from crawl_lib import cli; sys.exit(cli.main(sys.argv[1:]))"


@dataclass(frozen=True)
class Shape:
    """The size of the web, and the limits of its crawl.

    `good`: pages of the good site; `hostile`: pages of each of the two hostile domains; `of_page`: requisites of a
    page; `of_domain`, `hosts`: URLs and hosts of a domain; `batch`: URLs of an iteration; `iterations`: of pages.
    """

    good: int
    hostile: int
    of_page: int
    of_domain: int
    hosts: int
    batch: int
    iterations: int


SMALL = Shape(good=5, hostile=4, of_page=20, of_domain=40, hosts=16, batch=30, iterations=2)
LARGE = Shape(
    good=50, hostile=500, of_page=200, of_domain=1500, hosts=200, batch=1000, iterations=5
)


def many(pattern: bytes) -> bytes:
    """Return references to `NAMED` requisites: every other one on a host of its own, all others on one host.

    `pattern`: bytes around the reference `%b`. The bytes `PAGE` and `PORT` stand for numbers.
    """
    hosts = (b"//PAGE-%d.%b:PORT/", b"//cdn.%b:PORT/PAGE/%d")
    domain = SHEETS if pattern.startswith(b"b{") else MARKUP
    args = (
        (number, domain.encode()) if number % 2 == 0 else (domain.encode(), number)
        for number in range(NAMED)
    )
    return b"".join(pattern % (hosts[number % 2] % pair) for number, pair in enumerate(args))


class Web:
    """The bodies of all pages by host and path; `asked` counts the requests."""

    def __init__(self, shape: Shape) -> None:
        self.asked = Counter[str]()
        self._good = "".join(f"<a href=/{number}>x</a>" for number in range(shape.good)).encode()
        self._markup = many(b"<img src=%b>")
        self._style = b"<style>" + many(b"a{b:url(%b)}")
        self._sheet = many(b"b{c:url('%b')}")

    def body(self, host: str, path: str) -> tuple[str, bytes]:
        """Return the type and the body of an answer."""
        number = path.rpartition("/")[2].partition(".")[0].encode()
        if path.endswith(".css"):
            is_good = host == GOOD
            return "text/css", b"a{b:url(/%b.gif)}" % number if is_good else self._sheet.replace(
                b"PAGE", b"s" + number
            )
        if host == GOOD and not path.endswith((".png", ".gif")):
            return "text/html", b"<link rel=stylesheet href=/%b.css><img src=/%b.png>" % (
                number,
                number,
            ) + self._good
        if path.startswith("/page/") and host.endswith(SHEETS):
            return "text/html", b"<link rel=stylesheet href=/sheet/%b.css>" % number
        if path.startswith("/page/"):
            body = self._markup if int(number) % 2 else self._style
            return "text/html", body.replace(b"PAGE", number)
        return "image/png", b"\x89PNG\r\n\x1a\n"


class _Answer(Answering):
    def do_GET(self) -> None:
        server: Any = self.server
        host, _, port = self.headers["Host"].partition(":")
        server.web.asked[f"{host}{self.path}"] += 1
        kind, body = server.web.body(host, self.path)
        status = 404 if self.path == "/robots.txt" else 200
        self.answer(status, body.replace(b"PORT", port.encode()), {"Content-Type": kind})


@contextmanager
def served(web: Web) -> Iterator[int]:
    """Serve a web; gives the port."""
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Answer)
    server.web = web
    with running(server):
        yield server.server_address[1]


def config_for(directory: Path, shape: Shape) -> Config:
    return make_config(
        directory,
        nodes=1,
        crawl={"max_iterations": shape.iterations},
        batch={"size": shape.batch},
        parse={"requisites": "all", "requisites_per_page": shape.of_page},
        urls={"max_pages_per_domain": shape.of_domain, "max_hosts_per_domain": shape.hosts},
        fetch={"host_delay_s": 0.0, "time_limit_s": 60},
    )


def seeds_of(shape: Shape, port: int) -> list[str]:
    """Return the seeds: all hostile pages on a few hosts, then the good site."""
    numbers = range(shape.hostile)
    hostile = [
        f"http://w{n % 4}.{domain}:{port}/page/{n}" for domain in (MARKUP, SHEETS) for n in numbers
    ]
    return [*hostile, f"http://{GOOD}:{port}/0"]


@pytest.mark.parametrize(
    "shape",
    [SMALL, pytest.param(LARGE, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])],
    ids=["small", "large"],
)
def test_limits_hold_and_a_good_site_loses_nothing(shape: Shape, tmp_path: Path) -> None:
    config, web = config_for(tmp_path, shape), Web(shape)
    with (
        NameServer(lambda _: Said(["127.0.0.1"])) as names,
        served(web) as port,
        Memory() as memory,
    ):
        line = f"import tests.web.lookups as lookups; lookups.install({names.address!r})"
        stages.inject(open_stores(config), run_id="run-1", seeds="\n".join(seeds_of(shape, port)))
        path, program = write_config(config, tmp_path), python_of(tmp_path / "python", line)
        words = [
            "--config",
            str(path),
            "crawl",
            "--iterations",
            str(shape.iterations),
            "--run-id",
            "run-1",
        ]
        subprocess.run([program, "-c", CRAWL, *words], check=True, stdout=subprocess.DEVNULL)
    result = Result(config)
    check_counts(result)
    check_good_site(result, web, shape)
    check_budgets(result, shape)
    check_rounds(result, shape)
    print({"peaks_mb": sorted(peak // 10**6 for peak in memory.peaks.values())})
    assert memory.peak_bytes < MOST_BYTES


def check_good_site(result: Result, web: Web, shape: Shape) -> None:
    """Check that each URL of the good site was fetched once, at the first try."""
    expected = {
        f"{GOOD}/{number}{kind}"
        for number in range(shape.good)
        for kind in ("", ".css", ".png", ".gif")
    }
    rows = result.rows("pages", ["host", "url", "outcome", "attempts"])
    fetched = [
        (row["url"].split("/", 3)[3], row["outcome"], row["attempts"])
        for row in rows
        if row["host"] == GOOD
    ]
    assert sorted(fetched) == sorted((one.partition("/")[2], "ok", 1) for one in expected)
    assert {one for one in web.asked if one.startswith(GOOD)} == {*expected, f"{GOOD}/robots.txt"}
    assert {web.asked[one] for one in expected} == {1}


def check_budgets(result: Result, shape: Shape) -> None:
    """Check the limits of page, host and domain, and that each refused requisite was counted."""
    rows = result.rows("pages", ["host", "url"])
    urls = Counter(budget_domain_of(row["host"]) for row in rows)
    hosts = Counter(budget_domain_of(host) for host in {row["host"] for row in rows})
    assert (urls[MARKUP], hosts[MARKUP]) == (shape.of_domain, shape.hosts)
    assert (urls[SHEETS], hosts[SHEETS]) == (shape.of_domain, shape.hosts)
    sheets = sum(row["url"].endswith(".css") and row["host"] != GOOD for row in rows)
    found, refused = Counter[str](), Counter[str]()
    for manifest in result.manifests():
        found.update(manifest["counts"]["rejections"])
        refused.update(manifest["intake"]["rejected"])
    assert found["requisite_limit"] == (shape.hostile + sheets) * (NAMED - shape.of_page)
    handed_on = (shape.hostile + sheets) * shape.of_page + shape.hostile
    joined = 2 * shape.of_domain - 2 * shape.hostile
    assert refused["domain_hosts"] > 0 < refused["domain_pages"]
    assert sum(refused.values()) == handed_on - joined
    print({"sheets": sheets, "found": dict(found), "refused": dict(refused), "rows": len(rows)})


def check_rounds(result: Result, shape: Shape) -> None:
    """Check that a round has a batch at most, and that hostile domains delay no URL of the good site by a round.

    The good site needs four rounds: its seed, its pages, their requisites, the pictures in style sheets.
    """
    counts = [
        Counter(row["host"] for row in result.rows("pages", ["host"], one))
        for one in result.taken()
    ]
    assert max(sum(count.values()) for count in counts) <= shape.batch
    assert [number for number, count in enumerate(counts, start=1) if count[GOOD]] == [1, 2, 3, 4]
