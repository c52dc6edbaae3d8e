"""The metadata of pages through a whole crawl: columns of segments and of the export, null by default."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from crawl_lib.config import ParseConfig
from crawl_lib.parse import parse_html
from crawl_lib.worker.reading import IN_PLACE_BYTES
from tests.e2e.crawl import Result, make_config, run_crawl
from tests.parse.metadata_pages import PAGES
from tests.serving import Answering, running

COLUMNS = ["image_url", "author", "published", "modified", "language"]
LARGE = (
    b"<html lang=pt-br><meta property=og:image content=/i.png><meta name=author content='A B'>"
    b"<meta property=article:published_time content='2020-02-29T10:00:00Z'><meta name=last-modified content=2021-03>"
) + b"<p>text" * (IN_PLACE_BYTES // 7 + 1)


class _Answers(Answering):
    def do_GET(self) -> None:
        charset, body = answer_of(self.path)
        kind = f"text/html; charset={charset}" if charset else "text/html"
        self.answer(404 if self.path == "/robots.txt" else 200, body, {"Content-Type": kind})


def answer_of(path: str) -> tuple[str | None, bytes]:
    if not path[1:].isdecimal():
        return None, LARGE if path == "/large" else b"<title>no</title>"
    page = PAGES[int(path[1:])]
    return page.charset, page.data


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with running(ThreadingHTTPServer(("127.0.0.1", 0), _Answers)) as server:
        yield f"http://127.0.0.1:{server.server_port}"


def crawled(folder: Path, site: str, paths: list[str], **parse: bool) -> Result:
    config = make_config(
        folder, nodes=1, fetch={"host_delay_s": 0.0}, parse=parse, urls={"scope": "any"}
    )
    return run_crawl(config, [f"{site}{path}" for path in paths], iterations=1)


def rows_of(result: Result) -> dict[str, dict[str, Any]]:
    return {row.pop("url"): row for row in result.rows("pages", ["url", *COLUMNS])}


def test_columns_of_a_segment_and_of_an_export_are_what_the_pages_say(
    tmp_path: Path, site: str
) -> None:
    paths = [*(f"/{number}" for number in range(len(PAGES))), "/large"]
    result = crawled(tmp_path, site, paths, facts=True)
    rows = rows_of(result)
    for path in paths:
        charset, body = answer_of(path)
        said = parse_html(
            body, url=site + path, header_charset=charset, config=ParseConfig(), facts_at=1.8e9
        ).metadata
        assert said is not None
        values = (said.image, said.author, said.published, said.modified, said.language)
        assert [*rows[site + path].values()] == [value and value[0] for value in values], path
    large = [f"{site}/i.png", "A B", "2020-02-29T10:00:00+00:00", "2021-03", "pt-BR"]
    assert [*rows[f"{site}/large"].values()] == large
    config = result.config
    export = Path(config.dfs_primary) / config.export.directory / result.export / "pages.parquet"
    exported = {
        row.pop("url"): row for row in pq.read_table(export, columns=["url", *COLUMNS]).to_pylist()
    }
    assert exported == rows


def test_by_default_the_columns_are_null(tmp_path: Path, site: str) -> None:
    rows = rows_of(crawled(tmp_path, site, ["/20", "/large"]))
    assert {value for row in rows.values() for value in row.values()} == {None}
    assert len(rows) == 2
