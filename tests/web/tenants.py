"""Many hosts on few addresses of loopback, as a provider of web space has them; each page links to other hosts.

    with TenantServing() as web, NameServer(says) as names: ...
        f"http://{name_of(7, addresses=20)}:{web.port}/page/1"

Host `h7.a3.test` has the address 127.0.7.3. `/page/<n>` is a page, and `/links/<hosts>/<addresses>/<n>` one with a link
to the page n of as many hosts. The log says when a request came and when its answer went.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import uvloop

from demo import ServerProcess
from demo.log import LoggedRequest
from demo.server import FLUSH_PATH
from tests.web.loopback import listen_everywhere
from tests.web.names import Said

ANSWER_S = 0.005


def name_of(number: int, addresses: int) -> str:
    """The name of a host: the hosts are dealt to the addresses in turn."""
    return f"h{number}.a{number % addresses + 1}.test"


def address_of(name: str) -> str:
    """The address of such a name."""
    return f"127.0.7.{name.split('.')[1].removeprefix('a')}"


def says(name: str) -> Said:
    """What a `NameServer` says."""
    return Said([address_of(name)])


def page(path: str, port: str) -> bytes:
    """What a path answers with; nothing for robots.txt."""
    parts = path.strip("/").split("/")
    if parts[0] != "links":
        return b"<title>Page</title>" if parts[0] == "page" else b""
    hosts, addresses, number = map(int, parts[1:])
    urls = (f"http://{name_of(host, addresses)}:{port}/page/{number}" for host in range(hosts))
    return "".join(f"<a href='{url}'>a page</a>" for url in urls).encode()


async def connection(
    log: TextIO, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Serve one connection to its end."""
    with suppress(OSError, asyncio.IncompleteReadError):
        while head := (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n"):
            start, path = time.monotonic(), head[0].split(" ")[1]
            if path == FLUSH_PATH:
                log.flush()
                body = b""
            else:
                host = next(line[6:] for line in head if line.lower().startswith("host: "))
                await asyncio.sleep(ANSWER_S)
                body = page(path, host.partition(":")[2])
                log.write(LoggedRequest(host, path, 200, start, time.monotonic()).to_line())
            kind = b"text/html" if body else b"text/plain"
            length = b"%d" % len(body)
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: "
                + kind
                + b"\r\nContent-Length: "
                + length
                + b"\r\n\r\n"
                + body
            )
    writer.close()


class TenantServing(ServerProcess):
    """Serves while its `with` block runs."""

    def __init__(self) -> None:
        super().__init__(["tests.web.tenants"], "127.0.0.1")


async def serve(log: TextIO) -> None:
    """Serve until standard input ends."""
    opened, over = listen_everywhere(), asyncio.Event()
    asyncio.get_running_loop().add_reader(
        sys.stdin.fileno(), lambda: os.read(0, 4096) or over.set()
    )
    async with await asyncio.start_server(lambda *streams: connection(log, *streams), sock=opened):
        print(json.dumps({"port": opened.getsockname()[1]}), flush=True)
        await over.wait()
        log.flush()
        os._exit(0)  # kept connections need no goodbye


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--until-eof", action="store_true")
    parser.add_argument("--log", type=Path)
    with parser.parse_args().log.open("a", encoding="utf-8") as log:
        uvloop.run(serve(log))


if __name__ == "__main__":
    main()
