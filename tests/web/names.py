"""A name server on loopback, for tests: UDP, port 0, one thread, every question noted.

with NameServer(lambda name: Said(["127.0.0.1"])) as dns:
    dns.address
"""

import heapq
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

_A, _AAAA = 1, 28


@dataclass
class Said:
    """What the server says of a name: its addresses (IPv4 or IPv6), after `delay_s` (None: never), with a code.

    `code`: 0, 2 (SERVFAIL), 3 (NXDOMAIN)...
    """

    addresses: list[str] = field(default_factory=list)
    delay_s: float | None = 0.0
    code: int = 0


class NameServer:
    """The server. `asked`: the names of the questions that came, in order, one for each family."""

    def __init__(
        self, says: Callable[[str], Said], place: tuple[str, int] = ("127.0.0.1", 0)
    ) -> None:
        self.asked: list[str] = []
        self._says = says
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self._socket.bind(place)
        self.address = ":".join(map(str, self._socket.getsockname()))
        self._closing, self._closer = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> "NameServer":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._closer.close()
        self._thread.join(5)
        self._closing.close()
        self._socket.close()

    def _serve(self) -> None:
        later: list[tuple[float, int, bytes, object]] = []
        numbers = count()
        while True:
            wait_s = max(0.0, later[0][0] - time.monotonic()) if later else None
            ready, _, _ = select.select([self._socket, self._closing], [], [], wait_s)
            if self._closing in ready:
                return
            if ready:
                data, sender = self._socket.recvfrom(4096)
                name, end = _question(data)
                self.asked.append(name)
                said = self._says(name)
                if said.delay_s is not None:
                    when = time.monotonic() + said.delay_s
                    heapq.heappush(later, (when, next(numbers), _answer(data, end, said), sender))
            while later and later[0][0] <= time.monotonic():
                _, _, answer, to = heapq.heappop(later)
                self._socket.sendto(answer, to)


def _question(data: bytes) -> tuple[str, int]:
    place, labels = 12, []
    while data[place]:
        labels.append(data[place + 1 : place + 1 + data[place]].decode())
        place += 1 + data[place]
    return ".".join(labels).lower(), place + 1


def _answer(data: bytes, end: int, said: Said) -> bytes:
    (kind,) = struct.unpack("!H", data[end : end + 2])
    packed = [
        socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
        for address in said.addresses
        if (":" in address) == (kind == _AAAA) and kind in (_A, _AAAA)
    ]
    records = b"".join(
        b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 60, len(one)) + one for one in packed
    )
    return (
        data[:2]
        + struct.pack("!HHHHH", 0x8180 | said.code, 1, len(packed), 0, 0)
        + data[12 : end + 4]
        + records
    )
