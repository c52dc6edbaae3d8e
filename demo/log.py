"""The log of a test server: one JSON object a line and request, and what tests ask of it."""

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

    `host`: the Host header (address and port). `path`: with query, as sent. `start`: when its head was whole, `end`:
    when the last part of the answer was about to be written; both `time.monotonic()` seconds of this machine, the same
    clock for all processes. So the measured gap between two requests is never less than what the client left.
    """

    host: str
    path: str
    status: int
    start: float
    end: float
    agent: str = ""
    method: str = "GET"

    def to_line(self) -> str:
        """Its line of the log, with the line's end."""
        return json.dumps(asdict(self)) + "\n"


@dataclass(frozen=True)
class RequestLog:
    """Requests in the order of their start."""

    requests: Sequence[LoggedRequest]

    @classmethod
    def of(cls, requests: Iterable[LoggedRequest]) -> RequestLog:
        """A log of these requests, in any order; several servers' logs may be chained."""
        return cls(sorted(requests, key=lambda request: request.start))

    @classmethod
    def read(cls, path: Path) -> RequestLog:
        """The log in a file; a last line without its end is left out."""
        lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
        return cls.of(LoggedRequest(**json.loads(line)) for line in lines)

    def hosts(self) -> list[str]:
        """The Host headers seen, sorted."""
        return sorted({request.host for request in self.requests})

    def closest_gap_s(self, host: str) -> float:
        """The shortest time in seconds from the end of an answer of `host` to the start of the next request to it.

        `host`: a Host header value. Negative where two requests overlapped; infinity below two requests.
        """
        closest = float("inf")
        latest_end = float("-inf")
        for request in self.requests:
            if request.host == host:
                closest = min(closest, request.start - latest_end)
                latest_end = max(latest_end, request.end)
        return closest

    def closest_starts_s(self) -> float:
        """The shortest time in seconds between the starts of any two requests; infinity below two."""
        return min(
            (after.start - before.start for before, after in pairwise(self.requests)),
            default=float("inf"),
        )

    def counts(self, *, robots: bool = False) -> Counter[str]:
        """Requests per URL. `robots`: those for /robots.txt too."""
        return Counter(
            f"http://{request.host}{request.path}"
            for request in self.requests
            if robots or request.path != "/robots.txt"
        )

    def agents(self) -> set[str]:
        """The User-Agent headers seen."""
        return {request.agent for request in self.requests}
