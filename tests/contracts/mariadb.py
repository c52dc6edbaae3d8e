"""A real MariaDB for tests: Debian's mariadb-server, in a private directory, on a free port of the loopback.

Use: `from tests.contracts.mariadb import mariadb` in a conftest, then the fixture `mariadb` (one server a session),
or `start_mariadb(directory)` for a server of one's own.
"""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pymysql
import pytest

from crawl_lib.keys import MySqlKeyServer

START_S = 60
PASSWORD = "kr\u00e4ke-s3cret"


@dataclass
class MariaDb:
    """A running server. `root` may do everything; `krake` has PASSWORD and may do everything in databases krake%."""

    port: int
    socket: Path
    process: subprocess.Popen[bytes]
    databases: list[str] = field(default_factory=list)

    @property
    def server(self) -> str:
        """The server as `key_storage.servers` names it."""
        return f"127.0.0.1:{self.port}"

    def new_database(self) -> str:
        """The name of a database that does not exist yet and that `krake` may create."""
        self.databases.append(f"krake_{uuid.uuid4().hex[:12]}")
        return self.databases[-1]

    def key_server(self, database: str | None = None, **options: object) -> MySqlKeyServer:
        """A key server with a database of its own; its name says which, as they share host and port."""
        database = database or self.new_database()
        options = {"user": "krake", "password": PASSWORD, "timeout_s": 20.0, **options}
        server = MySqlKeyServer(self.server, database=database, **options)
        server.name = f"{self.server}/{database}"
        return server

    def run(self, statement: str, database: str | None = None) -> list[tuple]:
        """Run one statement as root."""
        connection = pymysql.connect(
            unix_socket=str(self.socket), user="root", database=database, autocommit=True, ssl_disabled=True
        )
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall())
        finally:
            connection.close()

    def stop(self) -> None:
        """Stop the server (cleanly, else by force) and wait for its end."""
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _programs() -> tuple[str, str]:
    path = os.environ.get("PATH", "") + os.pathsep + "/usr/sbin"
    server, install = shutil.which("mariadbd", path=path), shutil.which("mariadb-install-db", path=path)
    if server is None or install is None:
        pytest.skip("mariadbd is not installed (Debian package mariadb-server): MariaDB back end not tested")
    return server, install


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def start_mariadb() -> Iterator[MariaDb]:
    """Start a server, stop it at the end and delete its files. Skips the test if MariaDB is not installed."""
    server, install = _programs()
    # Not below tmp_path: a Unix socket's path may have 107 bytes only.
    directory = Path(tempfile.mkdtemp(prefix="krake-mariadb-"))
    user = ["--user=root"] if os.getuid() == 0 else []
    try:
        subprocess.run(
            [
                install,
                "--no-defaults",
                f"--datadir={directory}/data",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                *user,
            ],
            check=True,
            capture_output=True,
        )
        database = _started(server, user, directory)
        try:
            database.run(f"CREATE USER krake@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'")
            database.run("GRANT ALL ON `krake%`.* TO krake@'127.0.0.1'")
            yield database
        finally:
            database.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _started(server: str, user: list[str], directory: Path) -> MariaDb:
    for _ in range(5):  # another process may take the free port first
        port = _free_port()
        with (directory / "log").open("ab") as log:
            process = subprocess.Popen(
                [
                    server,
                    "--no-defaults",
                    *user,
                    f"--datadir={directory}/data",
                    f"--socket={directory}/socket",
                    f"--pid-file={directory}/pid",
                    f"--port={port}",
                    "--bind-address=127.0.0.1",
                    "--skip-name-resolve",
                    "--skip-log-bin",
                    "--innodb-flush-log-at-trx-commit=0",  # fast; a real key server keeps the default, 1
                    "--innodb-flush-method=nosync",
                    "--skip-innodb-doublewrite",
                    "--innodb-buffer-pool-size=256M",
                    "--innodb-log-file-size=96M",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        database = MariaDb(port, directory / "socket", process)
        end = time.monotonic() + START_S
        while process.poll() is None and time.monotonic() < end:
            if _listens(database.socket):
                database.run("SELECT 1")
                return database
            time.sleep(0.05)  # nothing tells that a server is ready but its socket
        database.stop()
    raise AssertionError(f"MariaDB does not start: {(directory / 'log').read_text()[-3000:]}")


def _listens(path: Path) -> bool:
    """Whether a server listens. Asked without PyMySQL, which leaks the socket of a refused connection."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    """One MariaDB for the whole session."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with start_mariadb() as database, pytest.MonkeyPatch.context() as patch:
        # PyMySQL reads all root certificates for each connection, and tests open hundreds: half their time.
        patch.setattr(pymysql.connections.Connection, "_create_ssl_ctx", lambda self, options: context)
        yield database
