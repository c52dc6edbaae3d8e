"""Scrapy with a WARC pipeline, run in an environment of its own: `python -m benchmarks.scrapy_peer WARC SEED...`.

It asks what Krake's benchmark asks: as many connections, robots.txt obeyed, no delays, the elements that Krake follows,
never off the seeds' hosts, requests and responses stored as WARC by warcio, redirects and errors too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from scrapy import Request, Spider
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response, TextResponse
from scrapy.linkextractors import LinkExtractor
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

SETTINGS: dict[str, Any] = {
    "ROBOTSTXT_OBEY": True,
    "CONCURRENT_REQUESTS": 64,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
    "DOWNLOAD_DELAY": 0,
    "HTTPERROR_ALLOW_ALL": True,
    "COOKIES_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
    "LOG_LEVEL": "ERROR",
    "DOWNLOADER_MIDDLEWARES": {
        "benchmarks.scrapy_peer.Archive": 950
    },  # next to the downloader: what was sent
}


class Archive:
    """Stores each exchange as it comes from the downloader."""

    def __init__(self, path: str) -> None:
        self.file = Path(path).open("wb")  # noqa: SIM115 - closed with the process
        self.writer = WARCWriter(self.file, gzip=True)

    @classmethod
    def from_crawler(cls, crawler: Any) -> Archive:
        """Scrapy's way to make one."""
        return cls(crawler.settings["WARC"])

    def process_response(
        self, request: Request, response: Response, spider: Any = None
    ) -> Response:
        """Write the pair."""
        parts = urlsplit(request.url)
        line = f"{request.method} {parts.path or '/'}{'?' + parts.query if parts.query else ''} HTTP/1.1"
        answer = self._record(
            response.url, "response", str(response.status), response.headers, response.body
        )
        asked = self._record(request.url, "request", line, request.headers, request.body)
        self.writer.write_request_response_pair(asked, answer)
        return response

    def _record(self, url: str, kind: str, line: str, headers: Any, body: bytes) -> Any:
        fields = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, values in headers.items()
            for value in values
        ]
        protocol = "HTTP/1.1" if kind == "response" else ""
        head = StatusAndHeaders(line, fields, protocol=protocol, is_http_request=kind == "request")
        return self.writer.create_warc_record(
            url, kind, payload=BytesIO(body), length=len(body), http_headers=head
        )


class Follow(Spider):
    """Every link, once."""

    name = "follow"

    def __init__(self, seeds: list[str]) -> None:
        super().__init__(self.name)
        self.start_urls = seeds
        self.allowed_domains = [str(urlsplit(seed).hostname) for seed in seeds]
        self.extractor = LinkExtractor(
            tags=("a", "area", "frame", "iframe"),
            attrs=("href", "src"),
            deny_extensions=(),
            canonicalize=False,
        )

    def parse(self, response: Response) -> Iterator[Request]:
        """The links of a page."""
        if isinstance(response, TextResponse) and b"html" in (
            response.headers.get("Content-Type") or b""
        ):
            for link in self.extractor.extract_links(response):
                yield Request(link.url)


def main() -> None:
    """Crawl to the end."""
    warc, *seeds = sys.argv[1:]
    process = CrawlerProcess({**SETTINGS, "WARC": warc})
    process.crawl(Follow, seeds=seeds)
    process.start()


if __name__ == "__main__":
    main()
