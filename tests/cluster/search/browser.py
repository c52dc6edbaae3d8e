"""A browser that says whom it asked."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="the extra `browser`: make setup-browser"
)
CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium")


@contextmanager
def chromium(*arguments: str) -> Iterator[Any]:
    """Chromium, while the block lasts."""
    with (
        sync_api.sync_playwright() as playwright,
        playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", *arguments]
        ) as browser,
    ):
        yield browser


@dataclass
class Listener:
    """A server that no one must ask. `heard`: what each connection began with."""

    port: int
    heard: list[bytes] = field(default_factory=list)

    @property
    def origin(self) -> str:
        """Its origin under a name of its own."""
        return f"http://evil.example:{self.port}"

    @property
    def rules(self) -> str:
        """The argument by which Chromium finds all its names."""
        return f"--host-resolver-rules=MAP *.evil.example 127.0.0.1:{self.port}, MAP evil.example 127.0.0.1"


@contextmanager
def listener() -> Iterator[Listener]:
    """A listener, while the block lasts."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        made = Listener(listening.getsockname()[1])

        def hear() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                made.heard.append(b"")
                Thread(target=answer, args=(connection, len(made.heard) - 1), daemon=True).start()

        def answer(connection: socket.socket, number: int) -> None:
            with closing(connection):
                made.heard[number] = connection.recv(1 << 16)
                connection.sendall(
                    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                )

        Thread(target=hear, daemon=True).start()
        yield made
        listening.shutdown(socket.SHUT_RDWR)


def names_in(net_log: Path) -> set[str]:
    """Names that Chromium looked up or connected to, by its log of the network."""
    text = net_log.read_text()
    events = json.loads(text if text.rstrip().endswith("}") else text.rstrip().rstrip(",") + "]}")[
        "events"
    ]
    found = (str(value) for event in events for value in (event.get("params") or {}).values())
    return {value for value in found if "evil.example" in value}
