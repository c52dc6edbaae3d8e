"""Connections to MySQL servers: how they are encrypted, and what a server that is not the right one may not get.

`tls` is `key_storage.tls`: `verify` trusts a certificate that `ca_file` (else the system) vouches for and that names
the server; `require` and `prefer` take any, so they hide what is said from those who listen, not from a server in
between; `prefer` and `off` speak in the clear to a server that offers no encryption. The server chooses how a
password is proved. Over an open line Krake takes only ways that do not give it away: never the password itself,
never hidden by a key that the server names in the same breath. On loopback there are no others who listen.
"""

import ipaddress
import socket
import ssl
import time
from functools import cache
from io import BufferedReader
from typing import Any

from pymysql.connections import Connection
from pymysql.constants import CR
from pymysql.err import OperationalError

from crawl_lib.errors import ConfigError, KeyAccessError


class GuardedConnection(Connection):
    """PyMySQL's connection, with `tls` and `ca_file` of the config. Raises ConfigError for an invalid file.

    A login, and each command with its whole answer, has `read_timeout` seconds: PyMySQL itself gives each piece of an
    answer that long, so a server that sends a byte now and then would hold a task for ever.

    PyMySQL's own way to encryption reads all root certificates, and uses none, for every connection: 20 ms.
    """

    _secure: bool
    _sock: socket.socket
    _rfile: BufferedReader
    _read_timeout: float

    def __init__(self, *, tls: str, ca_file: str | None, **options: Any) -> None:
        if tls == "off":
            options["ssl_disabled"] = True
        elif tls != "prefer":  # a context means: no connection without encryption
            options["ssl"] = _verified(ca_file) if tls == "verify" else _unverified()
        super().__init__(**options)

    def _create_ssl_ctx(self, sslp: object) -> ssl.SSLContext:
        return sslp if isinstance(sslp, ssl.SSLContext) else _unverified()

    def connect(self, sock: socket.socket | None = None) -> None:
        """Connect and log in."""
        self._ends_s = time.monotonic() + self._read_timeout
        super().connect(sock)

    def _execute_command(self, command: int, sql: str | bytes) -> None:
        """Send a command; from now on its answer is waited for."""
        self._ends_s = time.monotonic() + self._read_timeout
        if self._sock is not None:
            self._sock.settimeout(self._read_timeout)
        super()._execute_command(command, sql)  # type: ignore[misc]

    def _read_bytes(self, num_bytes: int) -> bytes:
        """Read so many bytes of an answer, within its time."""
        data = bytearray()
        try:
            while len(data) < num_bytes:
                rest_s = self._ends_s - time.monotonic()
                if rest_s <= 0:
                    raise TimeoutError(f"no whole answer in {self._read_timeout:g} s")
                self._sock.settimeout(rest_s)
                piece = self._rfile.read1(num_bytes - len(data))
                if not piece:
                    raise ConnectionError("the connection was closed")
                data += piece
        except BaseException as error:
            self._force_close()  # type: ignore[attr-defined]
            if isinstance(error, OSError):
                text = f"Lost connection to MySQL server during query ({error})"
                raise OperationalError(CR.CR_SERVER_LOST, text) from error
            raise
        return bytes(data)

    def write_packet(self, payload: bytes) -> None:
        """Send a packet of the login, unless it reveals the password."""
        if (
            payload == self.password + b"\0"
        ):  # `mysql_clear_password`, `dialog` and whatever comes after them
            self._require_hidden("the password in clear")
        super().write_packet(payload)

    def _process_auth(self, plugin_name: bytes, *others: Any) -> Any:
        if plugin_name == b"mysql_old_password":
            raise KeyAccessError(
                f"{self.host}:{self.port}: asks for a login of MySQL 4.0: give the user another one"
            )
        return super()._process_auth(plugin_name, *others)  # type: ignore[misc]

    @property
    def server_public_key(self) -> bytes | None:
        """What `sha256_password` and `caching_sha2_password` hide the password with, where nothing else does."""
        return self._server_public_key

    @server_public_key.setter
    def server_public_key(self, key: bytes | None) -> None:
        self._server_public_key = key
        if key is not None:
            self._require_hidden("the password by a key of its own, which proves nothing")

    def _require_hidden(self, what: str) -> None:
        """Raise KeyAccessError if the password could be read on the way."""
        if not self.password or self._secure or is_loopback(self._sock.getpeername()[0]):
            return
        raise KeyAccessError(
            f"{self.host}:{self.port}: asks for {what}, over a connection that is not encrypted: let the server offer"
            " TLS, and set key_storage.tls: verify, or give the user a login by mysql_native_password or ed25519"
        )


def is_loopback(address: str) -> bool:
    """Say whether a socket's other end is on this machine."""
    found = ipaddress.ip_address(address.partition("%")[0])
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback


@cache
def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@cache
def _verified(ca_file: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # SSLError is one
        problem = error.strerror or str(error)
        raise ConfigError(
            f"key_storage.ca_file: {ca_file}: holds no certificates: {problem}"
        ) from error
