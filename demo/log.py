"""The log of a test server: a line with a JSON object for each request, and questions of tests to the log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One request as the server saw it.

    `host`: the Host header (address and port). `path`: with query, as sent. `start`: the time when the server had the
    whole head; `end`: the time just before the last part of the answer. Both are seconds of `time.monotonic()`, one
    clock for all processes of this machine. So the measured gap between two requests is at least the client's gap.
    """

    host: str
    path: str
    status: int
    start: float
    end: float
    agent: str = ""
    method: str = "GET"

    def to_line(self) -> str:
        """Return the request's line of the log, with the line's end."""
        return json.dumps(asdict(self)) + "\n"


@dataclass(frozen=True)
class RequestLog:
    """Requests in the order of their start."""

    requests: Sequence[LoggedRequest]

    @classmethod
    def of(cls, requests: Iterable[LoggedRequest]) -> RequestLog:
        """Make a log of requests in any order, also of several servers."""
        return cls(sorted(requests, key=lambda request: request.start))

    @classmethod
    def read(cls, path: Path) -> RequestLog:
        """Read the log in a file, without an incomplete last line."""
        lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
        return cls.of(LoggedRequest(**json.loads(line)) for line in lines)

    def hosts(self) -> list[str]:
        """Return all Host headers, sorted."""
        return sorted({request.host for request in self.requests})

    def closest_gap_s(self, host: str) -> float:
        """Return the shortest time between an answer and the next request.

        The time is in seconds: negative if two requests overlapped, infinity below two requests. `host`: a Host header
        value; only requests to this host count.
        """
        closest = float("inf")
        latest_end = float("-inf")
        for request in self.requests:
            if request.host == host:
                closest = min(closest, request.start - latest_end)
                latest_end = max(latest_end, request.end)
        return closest

    def closest_starts_s(self) -> float:
        """Return the shortest time between two starts; infinity below two."""
        return min(
            (after.start - before.start for before, after in pairwise(self.requests)),
            default=float("inf"),
        )

    def counts(self, *, robots: bool = False) -> Counter[str]:
        """Count requests by URL. `robots`: count requests for /robots.txt, too."""
        return Counter(
            f"http://{request.host}{request.path}"
            for request in self.requests
            if robots or request.path != "/robots.txt"
        )

    def agents(self) -> set[str]:
        """Return all User-Agent headers."""
        return {request.agent for request in self.requests}
