"""Good and hostile hosts in one process: every address of loopback, by the habits of `hostile` and `attacks`.

    with CrowdServing(seed=1, hostile=500, urls=2) as crowd:
        crowd.port

Hosts of the good network answer `/good/<n>` with a page, after up to a second. A habit is written for a thread; here it
is asked once what it would send (`Recording`), and that is played on the loop, since hundreds of threads would take the
processor from the crawl. Requests to the network that may not be entered are logged as any other.
"""

import argparse
import asyncio
import json
import os
import socket
import struct
import sys
import time
import zlib
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import uvloop

from demo import ServerProcess
from demo.log import LoggedRequest
from demo.server import FLUSH_PATH
from tests.web.attacks import ALL
from tests.web.catalogue import GOOD, MISSING, Host, hosts_of
from tests.web.hostile import Seen, Talk
from tests.web.loopback import listen_everywhere

DRIP_S = 0.05
LONGEST_S = 1.0
"""What a good page takes at most to be answered."""
Step = tuple[str, bytes]
GOOD_PAGE = (
    b"<title>Good</title>"
    + b"<p>text of a page, and a <a href='/good/%d?more'>link</a> to another"
    * 40
    % tuple(range(40))
    + b"<p>more text without any link" * 100
)


class Recording(Talk):
    """What a habit does, written down as steps: `send`, `drip`, `endless`, `hang`, `reset`."""

    def __init__(self, seen: Seen, args: list[str], requests: list[Seen]) -> None:
        self.steps: list[Step] = []
        self.asked = 0
        self.requests = requests
        self.web = self.closing = self.sock = self  # type: ignore[assignment]
        self.seen = seen
        self.args = args

    def send(self, data: bytes) -> None:
        self.steps.append(("send", data))

    def hang(self) -> None:
        self.steps.append(("hang", b""))

    def drip(self, data: bytes, pause_s: float = DRIP_S) -> None:
        self.steps.append(("drip", data))

    def setsockopt(self, *_option: object) -> None:
        self.steps.append(("reset", b""))

    def is_set(self) -> bool:
        """A habit that sends until the web is closed does so once; then that is what it sends endlessly."""
        self.asked += 1
        if self.asked > 1 and self.steps:
            self.steps[-1] = ("endless", self.steps[-1][1])
        return self.asked > 1


class Crowd:
    """What the server knows: the robots.txt of hostile hosts, and the requests so far of each address."""

    def __init__(self, hosts: list[Host], log: TextIO) -> None:
        self.hosts = {host.address: host for host in hosts}
        self.requests: dict[str, list[Seen]] = defaultdict(list)
        self.connections = 0
        self.log = log
        for host in self.hosts.values():  # bodies are made now, not while good pages wait
            for path in (host.robots, *host.paths):
                self.steps(path, Seen(path, "", b"", 0, 0.0), [])

    def steps(self, path: str, seen: Seen, requests: list[Seen]) -> tuple[list[Step], bool]:
        """What is sent for a path, and whether the connection stays."""
        parts = path.partition("?")[0].strip("/").split("/")
        talk = Recording(seen, parts[1:], requests)
        stays = ALL.get(parts[0], lambda talk: talk.reply("404 Not Found"))(talk)
        return talk.steps, stays

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""
        self.connections += 1
        number, address = self.connections, writer.get_extra_info("sockname")[0]
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while await self.request(reader, writer, address, number):
                pass
        writer.close()

    async def request(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        address: str,
        connection: int,
    ) -> bool:
        """Serve one request; returns whether another one may come."""
        first = await reader.readexactly(1)
        if first == b"\x16":  # a TLS hello
            return False
        head = first + await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        host = next((line[6:] for line in lines if line.lower().startswith("host: ")), "")
        seen = Seen(lines[0].split(" ")[1], host, head, connection, time.monotonic())
        if seen.path == FLUSH_PATH:
            self.log.flush()
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            return True
        self.log.write(
            LoggedRequest(host, seen.path, 0, seen.start, seen.start, "", "GET").to_line()
        )
        if seen.path.startswith("/good/"):
            await asyncio.sleep(
                LONGEST_S * (zlib.crc32(f"{host}{seen.path}".encode()) % 1000) / 1000
            )
            steps, stays = self.steps_of(b"%d" % len(GOOD_PAGE), GOOD_PAGE), True
        else:
            steps, stays = self.hostile_steps(seen, address)
        await play(steps, reader, writer)
        return stays and not writer.is_closing()

    def hostile_steps(self, seen: Seen, address: str) -> tuple[list[Step], bool]:
        path = seen.path
        if path == "/robots.txt":
            path = self.hosts[address].robots if address in self.hosts else MISSING
        requests = self.requests[address]
        if not address.startswith(GOOD):
            requests.append(seen)
        return self.steps(path, seen, requests)

    @staticmethod
    def steps_of(length: bytes, body: bytes) -> list[Step]:
        head = (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: " + length + b"\r\n\r\n"
        )
        return [("send", head + body)]


async def play(
    steps: list[Step], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Do what a habit does, until it is done or the client goes away."""
    for kind, data in steps:
        if kind == "hang":
            await reader.read()
        elif kind == "reset":
            writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
        elif kind == "drip":
            for place in range(len(data)):
                await _send(data[place : place + 1], writer)
                await asyncio.sleep(DRIP_S)
        else:
            await _send(data, writer)
            while kind == "endless":
                await _send(data, writer)


async def _send(data: bytes, writer: asyncio.StreamWriter) -> None:
    if writer.is_closing():
        raise ConnectionResetError
    writer.write(data)
    await writer.drain()


class CrowdServing(ServerProcess):
    """Serves while its `with` block runs."""

    def __init__(self, seed: int, hostile: int, urls: int) -> None:
        super().__init__(["tests.web.crowd", str(seed), str(hostile), str(urls)], "127.0.0.1")
        self.hosts = hosts_of(seed, hostile, urls)


async def serve(crowd: Crowd, on_ready: Callable[[int], None]) -> None:
    """Serve until standard input ends."""
    opened = listen_everywhere()
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(
        sys.stdin.fileno(), lambda: os.read(0, 4096) or over.set()
    )
    async with await asyncio.start_server(crowd.connection, sock=opened):
        on_ready(opened.getsockname()[1])
        await over.wait()
        os._exit(
            0 if crowd.log.flush() is None else 1
        )  # connections that hang for ever need no goodbye


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("seed", type=int)
    parser.add_argument("hostile", type=int)
    parser.add_argument("urls", type=int)
    parser.add_argument("--until-eof", action="store_true")
    parser.add_argument("--log", type=Path)
    given = parser.parse_args()
    with given.log.open("a", encoding="utf-8") as log:
        crowd = Crowd(hosts_of(given.seed, given.hostile, given.urls), log)
        uvloop.run(serve(crowd, lambda port: print(json.dumps({"port": port}), flush=True)))


if __name__ == "__main__":
    main()
