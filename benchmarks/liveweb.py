"""A web of 2,000 loopback hosts for the part `realtime`: own answer times, redirects by the URL, pages of 43 KB.

`/<hops>/<number>` redirects to another host with one hop less; `/0/<number>` is a page. Each request is noted, and at
the end a line of JSON has the number of requests and the shortest pause of a host.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import sys
from collections import defaultdict
from functools import cache

import uvloop

from tests.web.loopback import listen_everywhere

HOSTS = 2_000
MEDIAN_S, SIGMA = 0.12, 0.5
ANSWERED = "HTTP/1.1 {}\r\nContent-Type: text/html\r\nContent-Length: {}\r\n{}\r\n"
LINK = b"<li><a href='/0/%d'>a page of this site, by its number</a><p>" + b"words of a text " * 9
HEAD = b"<!doctype html><html lang=en><head><title>A page</title><meta property=og:title content='A page'></head><ul>"
PAGE = HEAD + b"".join(LINK % number for number in range(215))
ROBOTS = b"User-agent: *\nAllow: /\n"


def address(host: int) -> str:
    """Return the address of a host, by its number."""
    return f"127.1.{host // 250}.{1 + host % 250}"


@cache
def answer_s(host: int) -> float:
    """Return the answer time of a host in seconds."""
    return random.Random(host).lognormvariate(math.log(MEDIAN_S), SIGMA)


def next_host(host: int, number: int) -> int:
    """Return the host that a redirect leads to."""
    return (host * 31 + number * 17 + 7) % HOSTS


class Web:
    """All hosts. `closest_s`: the shortest time from an answer to the next request of a host."""

    def __init__(self) -> None:
        self.requests, self.closest_s = 0, math.inf
        self._ended: dict[int, float] = defaultdict(lambda: -math.inf)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection."""
        ip, port = writer.get_extra_info("sockname")[:2]
        third, fourth = map(int, ip.split(".")[2:])
        host, loop = third * 250 + fourth - 1, asyncio.get_running_loop()
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.requests += 1
                self.closest_s = min(self.closest_s, loop.time() - self._ended[host])
                await asyncio.sleep(answer_s(host))
                answer = self.answer(host, head.split(b" ", 2)[1].decode(), port)
                self._ended[host] = loop.time()  # before the client has the answer
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def answer(self, host: int, path: str, port: int) -> bytes:
        """Return the answer of a path."""
        if path == "/robots.txt":
            return ANSWERED.format("200 OK", len(ROBOTS), "").encode() + ROBOTS
        hops, number = map(int, path.strip("/").split("/"))
        if not hops:
            return ANSWERED.format("200 OK", len(PAGE), "").encode() + PAGE
        location = f"http://{address(next_host(host, number))}:{port}/{hops - 1}/{number}"
        return ANSWERED.format("302 Found", 0, f"Location: {location}\r\n").encode()


async def main() -> None:
    """Serve until the end of standard input."""
    web, listening = Web(), listen_everywhere()
    await asyncio.start_server(web.serve, sock=listening)
    sys.stdout.write(json.dumps({"port": listening.getsockname()[1]}) + "\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    sys.stdout.write(json.dumps({"requests": web.requests, "closest_s": web.closest_s}) + "\n")


if __name__ == "__main__":
    uvloop.run(main())
