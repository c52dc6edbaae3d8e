"""A server that speaks as much of MySQL's protocol as it takes to ask a client for its password.

https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_connection_phase.html
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from pymysql.constants import CLIENT

SALT = bytes(range(1, 21))
OK = b"\0\0\0\2\0\0\0"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PUBLIC_KEY = KEY.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)


def switch_to(plugin: bytes) -> bytes:
    """A request to log in by another plugin."""
    return b"\xfe" + plugin + b"\0" + SALT + b"\0"


ASKS = {
    "clear": switch_to(b"mysql_clear_password"),
    "old": switch_to(b"mysql_old_password"),
    "sha256": switch_to(b"sha256_password"),
    "caching": switch_to(b"caching_sha2_password"),
    "native": switch_to(b"mysql_native_password"),
    "dialog": b"\xfedialog\0\x05Password: ",
    "full": b"\x01\x04",
    "key": b"\x01" + PUBLIC_KEY,
}
"""What a server may say during a login, by name."""


class FakeServer:
    """Serves connections until it is closed, and keeps what the clients said.

    `greeting`: the plugin that it names first. `script`: what it says after each packet of the login, then it accepts.
    `answer`: what it says to all commands after that. `drips`: then the server says so many single bytes of an answer
    that has 16 MB. `certificate`: file and key, None: no encryption.
    """

    def __init__(
        self,
        greeting: bytes,
        script: Sequence[bytes],
        certificate: tuple[Path, Path] | None,
        answer: bytes,
        drips: int,
    ) -> None:
        self._drips = drips
        self.heard = b""
        self.packets: list[bytes] = []
        self._greeting, self._script, self._answer = greeting, script, answer
        self._context: ssl.SSLContext | None = None
        if certificate is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(*certificate)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.name = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        """Stop serving, and wait for the end of what goes on."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(20)
        assert not self._thread.is_alive()

    def knows(self, password: str) -> bool:
        """Whether the password can be told from what was heard."""
        secret = password.encode()
        return secret in self.heard or any(
            secret in opened for opened in map(_opened, self.packets)
        )

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                client.settimeout(10)
                with client, suppress(OSError, EOFError):
                    self._talk(client)

    def _talk(self, client: socket.socket) -> None:
        flags = (
            CLIENT.CAPABILITIES
            | CLIENT.PLUGIN_AUTH
            | CLIENT.SECURE_CONNECTION
            | CLIENT.CONNECT_WITH_DB
        )
        flags &= ~CLIENT.SSL
        if self._context:
            flags |= CLIENT.SSL
        low, high = flags & 0xFFFF, flags >> 16
        said = b"\x0a8.0.0\0" + struct.pack("<I", 1) + SALT[:8] + b"\0"
        said += (
            struct.pack("<HBHHB", low, 45, 2, high, 21)
            + bytes(10)
            + SALT[8:]
            + b"\0"
            + self._greeting
            + b"\0"
        )
        _send(client, 0, said)
        number, login = self._hear(client)
        if len(login) == 32 and self._context:
            client = self._context.wrap_socket(client, server_side=True)
            number, _ = self._hear(client)
        for answer in self._script:
            _send(client, number + 1, answer)
            number, _ = self._hear(client)
        _send(client, number + 1, OK)
        while True:
            number, _ = self._hear(client)
            if not self._drips:
                _send(client, number + 1, self._answer)
                continue
            client.sendall(b"\xff\xff\xff" + bytes([number + 1]))
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(self._drips):
                client.sendall(b"\x01")
            return

    def _hear(self, client: socket.socket) -> tuple[int, bytes]:
        head = self._exactly(client, 4)
        packet = self._exactly(client, int.from_bytes(head[:3], "little"))
        self.packets.append(packet)
        return head[3], packet

    def _exactly(self, client: socket.socket, size: int) -> bytes:
        found = b""
        while len(found) < size:
            data = client.recv(size - len(found))
            if not data:
                raise EOFError
            self.heard += data
            found += data
        return found


def _send(client: socket.socket, number: int, packet: bytes) -> None:
    client.sendall(len(packet).to_bytes(3, "little") + bytes([number % 256]) + packet)


def _opened(packet: bytes) -> bytes:
    """What a packet holds if it was hidden with our key and salt."""
    try:
        found = KEY.decrypt(packet, padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None))
    except ValueError:
        return b""
    return bytes(byte ^ SALT[place % len(SALT)] for place, byte in enumerate(found))


@contextmanager
def fake_server(
    greeting: bytes = b"mysql_native_password",
    script: Sequence[bytes] = (),
    certificate: tuple[Path, Path] | None = None,
    answer: bytes = OK,
    drips: int = 0,
) -> Iterator[FakeServer]:
    """A fake server for the time of a block."""
    server = FakeServer(greeting, script, certificate, answer, drips)
    try:
        yield server
    finally:
        server.close()
