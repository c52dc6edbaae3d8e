"""A server as a child process, for tests, the demo and benchmarks: `Serving` for synthetic webs."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Self

from crawl_lib.errors import KrakeError
from demo.log import RequestLog
from demo.model import Target
from demo.server import FLUSH_PATH
from demo.spelling import address
from demo.truth import Truth, TruthOptions
from demo.web import SynthWeb

_STOP_S = 10.0
_ROOT = Path(__file__).resolve().parents[1]


class ServerProcess:
    """Runs a server of `server.serve` during a `with` block; the server also ends when this process dies.

    `command`: a Python module with its arguments; `--until-eof --log FILE` is added. The module must print a line of
    JSON with its `port` when the server answers. `host`: an address of the server. Raises KrakeError if the server does
    not start.
    """

    def __init__(self, command: Sequence[str], host: str) -> None:
        self.port = 0
        self._command, self._host = command, host
        self._process: subprocess.Popen[str] | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._finished: RequestLog | None = None

    def __enter__(self) -> Self:
        self._directory = tempfile.TemporaryDirectory(prefix="synthweb-")
        command = [
            sys.executable,
            "-m",
            *self._command,
            "--until-eof",
            "--log",
            str(self._log_path),
        ]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._stop()
            raise KrakeError(
                f"the server {' '.join(self._command[:2])} did not start; its error is above"
            )
        self.port = int(json.loads(line)["port"])
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    @property
    def _log_path(self) -> Path:
        assert self._directory is not None
        return Path(self._directory.name) / "requests.jsonl"

    def _stop(self) -> None:
        if self._process is None or self._directory is None:
            return
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._finished = RequestLog.read(self._log_path)
        self._directory.cleanup()
        self._process = self._directory = None

    def log(self) -> RequestLog:
        """Return all requests so far; after the `with` block, all.

        Raises KrakeError if the server is gone.
        """
        if self._finished is not None:
            return self._finished
        connection = http.client.HTTPConnection(self._host, self.port, timeout=_STOP_S)
        try:
            connection.request("GET", FLUSH_PATH)
            connection.getresponse().read()
        except OSError as error:
            raise KrakeError(
                f"{self._host}:{self.port}: the server does not answer: {error}"
            ) from error
        finally:
            connection.close()
        return RequestLog.read(self._log_path)


class Serving(ServerProcess):
    """Serves a synthetic web during a `with` block.

    `port`: 0 chooses a port that is free on all addresses. `least_s`: the least time in seconds for a page's body.
    """

    def __init__(self, web: SynthWeb, *, port: int = 0, least_s: float = 0.0) -> None:
        options = ["--port", str(port), "--least-s", str(least_s), "--web", json.dumps(asdict(web))]
        super().__init__(["demo", "serve", *options], address(0))
        self.web = web

    @property
    def seeds(self) -> list[str]:
        """Return the root of every site."""
        return self.web.seeds(self.port)

    def url(self, site: int, path: str) -> str:
        """Return the canonical URL of a path of a site."""
        return self.web.url(Target(site, path), self.port)

    def truth(
        self, seeds: Sequence[str] | None = None, options: TruthOptions | None = None
    ) -> Truth:
        """Return the truth for a crawl of this server; see `SynthWeb.truth`."""
        return self.web.truth(self.port, seeds, options)
