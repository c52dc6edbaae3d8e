"""A small crawl behind the search page: in this process, or as the command that people run."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import httpx
import yaml

from crawl_lib.search import IndexReader, IndexVersions, Sites
from crawl_lib.serve import Service, make_app
from crawl_lib.serve.newest import NewestIndex
from crawl_lib.stores import Stores
from tests.index.made import Made

ADDRESS = "http://127.0.0.1:8090"
LIMIT_S = 60


def service(stores: Stores) -> Service:
    """What answers for a crawl, with the index that is there."""
    newest = NewestIndex(IndexReader(IndexVersions(stores), background=None))
    newest.look()
    return Service(stores, newest, Sites.of(stores.config.search))


class Client:
    """A client of the search page of a crawl, without a network."""

    def __init__(self, made: Made) -> None:
        self.service = service(made.stores)
        self._app = make_app(self.service)

    def get(self, path: str, method: str = "GET", **headers: str) -> httpx.Response:
        """The answer to a request. `headers`: with `_` in place of `-`."""
        return self.get_all([path], method, **headers)[0]

    def get_all(
        self, paths: Iterable[str], method: str = "GET", **headers: str
    ) -> list[httpx.Response]:
        """The answers to requests, one after the other."""
        return asyncio.run(
            self._get(
                list(paths), method, {name.replace("_", "-"): headers[name] for name in headers}
            )
        )

    async def _get(
        self, paths: list[str], method: str, headers: dict[str, str]
    ) -> list[httpx.Response]:
        transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as client:
            return [await client.request(method, path, headers=headers) for path in paths]

    def search(self, query: str, **more: Any) -> str:
        """The page of results of a query."""
        answer = self.get(f"/?{urlencode({'q': query, **more})}")
        assert answer.status_code == 200, answer.text
        return answer.text

    def key(self, query: str) -> str:
        """The key of the first result of a query."""
        return str(self.get(f"/api/search?{urlencode({'q': query})}").json()["results"][0]["key"])


class Served:
    """`krake serve search` in a process of its own, while the `with` block runs. `log`: its standard error."""

    def __init__(self, made: Made, **options: Any) -> None:
        self._file = made.root / "served.yml"
        search = {"listen": "127.0.0.1:0", "directory": str(made.root / "search"), **options}
        config = {"servers": ["node-0"], "dfs_primary": made.config.dfs_primary, "search": search}
        scratch = {
            "directory": made.config.scratch.directory
        }  # for commands that use the same file
        self._file.write_text(yaml.safe_dump({**config, "scratch": scratch}))
        self.log: Path = made.root / "served.log"
        self.url = ""

    def __enter__(self) -> Self:
        program = "from crawl_lib.cli import krake; krake()"
        command = [sys.executable, "-c", program, "--config", str(self._file), "serve", "search"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().removeprefix("search page: ").strip().rstrip("/")
        assert self.url, self.log.read_text()
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(LIMIT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()

    @property
    def place(self) -> tuple[str, int]:
        """Host and port."""
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        return host, int(port)
