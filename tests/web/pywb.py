"""pywb on a free port of loopback, as a process of its own environment (`make setup-pywb`).

    with Pywb(directory, index=..., archive=...) as wayback:
        wayback.replay("http://a.example/", "20260101000000")

The process is its app `FrontEndApp` behind the server that its command `wayback` starts; that command can not say which
port it was given.
"""

from __future__ import annotations

import http.client
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self

PYTHON = Path(__file__).resolve().parents[2] / ".venv-pywb" / "bin" / "python"
COLLECTION = "krake"
TIMEOUT_S = 30.0

PROGRAM = """
from gevent.monkey import patch_all; patch_all()
import sys
import gevent
from gevent.pywsgi import WSGIServer
from pywb.apps.frontendapp import FrontEndApp

server = WSGIServer(("127.0.0.1", 0), FrontEndApp(config_file="config.yaml"), log=None)
server.start()
print(server.server_port, flush=True)
gevent.get_hub().threadpool.apply(sys.stdin.read)
"""
"""Ends with its standard input, so also with the process that started it."""

CONFIG = """
collections:
  {collection}:
    index_paths: {index}
    archive_paths: {archive}/
"""
BARE = """
framed_replay: false
banner_html: false
"""
"""Pages as they are, without a frame and a banner."""


@dataclass(frozen=True)
class Replayed:
    """An answer of pywb. `body`: transfer coding undone, content coding as the page's server sent it."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


class Pywb:
    """Replays an archive while its `with` block runs.

    `directory`: where it may write; `index`: a CDXJ file; `archive`: what the names of WARC files in it begin at.
    `is_bare`: leave pages without a frame and a banner. `port`: of loopback, once it runs.
    """

    def __init__(
        self, directory: Path, *, index: Path, archive: Path, is_bare: bool = False
    ) -> None:
        self._directory = directory
        config = CONFIG.format(collection=COLLECTION, index=index, archive=archive) + (
            BARE if is_bare else ""
        )
        (directory / "config.yaml").write_text(config)
        self._process: subprocess.Popen[str] | None = None
        self._connection = http.client.HTTPConnection("127.0.0.1")
        self.port = 0

    def __enter__(self) -> Self:
        with (self._directory / "pywb.log").open("w") as log:
            self._process = subprocess.Popen(
                [PYTHON, "-c", PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self._directory,
            )
        assert self._process.stdout is not None
        port = self._process.stdout.readline()
        assert port, (self._directory / "pywb.log").read_text()
        self.port = int(port)
        self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()
        assert self._process is not None
        with self._process:
            self._process.kill()

    def replay(self, url: str, stamp: str) -> Replayed:
        """The capture of a URL (canonical) nearest to a time (YYYYMMDDhhmmss), with the body as it was captured."""
        self._connection.request(
            "GET", f"/{COLLECTION}/{stamp}id_/{url}", headers={"Accept-Encoding": "gzip, br"}
        )
        response = self._connection.getresponse()
        return Replayed(response.status, response.headers, response.read())
