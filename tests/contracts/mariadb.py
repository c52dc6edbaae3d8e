"""A real MariaDB for tests: Debian's mariadb-server, in a private directory, on a free port of the loopback.

Use: `from tests.contracts.mariadb import mariadb` in a conftest, then the fixture `mariadb` (one server a session) or
`three_mariadbs`; `start_mariadb()` for a server of one's own.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pymysql
import pytest

from crawl_lib.keys.mysql import MySqlKeyServer
from tests.ports import free_port

START_S = 240
PASSWORD = "kr\u00e4ke-s3cret"
FAST = (
    "--innodb-flush-log-at-trx-commit=0",  # a real key server keeps the default, 1
    "--innodb-flush-method=nosync",
    "--skip-innodb-doublewrite",
)
"""Options that keep tests fast; a power loss would cost such a server its last second."""


@dataclass
class MariaDb:
    """A server. `root` may do everything; `krake` has PASSWORD and may do everything in databases krake%.

    `directory`: its private directory. `options`: of mariadbd, besides those that say where it lives.
    """

    directory: Path
    options: tuple[str, ...] = ()
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def server(self) -> str:
        """The server as `key_storage.servers` names it."""
        return f"127.0.0.1:{self.port}"

    @property
    def socket(self) -> Path:
        """Its Unix socket, for root."""
        return self.directory / "socket"

    def new_database(self) -> str:
        """The name of a database that does not exist yet and that `krake` may create."""
        return f"krake_{uuid.uuid4().hex[:12]}"

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
            unix_socket=str(self.socket),
            user="root",
            database=database,
            autocommit=True,
            ssl_disabled=True,
        )
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall())
        finally:
            connection.close()

    def status(self, *names: str) -> list[int]:
        """Counters of the whole server, e.g. `Rows_sent`."""
        found = dict(self.run("SHOW GLOBAL STATUS"))
        return [int(found[name]) for name in names]

    def install(self) -> None:
        """Make an empty data directory, as on a new disk; what stood there is gone. The server must not run."""
        _, install = _programs()
        shutil.rmtree(self.directory / "data", ignore_errors=True)
        command = [install, "--no-defaults", *_USER, *self._directories()]
        command += ["--auth-root-authentication-method=normal", "--skip-test-db"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, f"no key server: {done.stdout[-2000:]}{done.stderr[-2000:]}"

    def prepare(self) -> None:
        """What an administrator does on a new server: the user `krake`, and its rights."""
        self.run(f"CREATE USER krake@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'")
        self.run("GRANT ALL ON `krake%`.* TO krake@'127.0.0.1'")

    def start(self) -> None:
        """Start it: at first on any free port, later always on the same one."""
        for _ in range(5):  # another process may take the free port first
            port = self.port or free_port()
            if self._started_on(port):
                self.port = port
                return
        raise AssertionError(
            f"MariaDB does not start: {(self.directory / 'log').read_text()[-3000:]}"
        )

    def _directories(self) -> list[str]:
        """Its data, and its temporary files: a server that starts deletes those of all others in a shared one."""
        return [f"--datadir={self.directory}/data", f"--tmpdir={self.directory}"]

    def _started_on(self, port: int) -> bool:
        server, _ = _programs()
        own = [f"--{name}={self.directory}/{name}" for name in ("socket", "pid-file")]
        command = [server, "--no-defaults", *_USER, *self._directories(), *own, f"--port={port}"]
        command += [
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            "--skip-log-bin",
            *self.options,
        ]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C at the terminal is for us alone
                preexec_fn=_end_with_parent,  # noqa: PLW1509 - one call, no lock
            )
        end = time.monotonic() + START_S
        while self.process.poll() is None and time.monotonic() < end:
            if _listens(self.socket):
                self.run("SELECT 1")
                return True
            time.sleep(0.05)  # nothing tells that a server is ready but its socket
        self.stop()
        return False

    def stop(self) -> None:
        """Stop the server (cleanly, else by force) and wait for its end."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End the server by force, in the middle of whatever it does, and wait for its end."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()


_USER = ["--user=root"] if os.getuid() == 0 else []


def _end_with_parent() -> None:
    """In the server: an orderly end when the thread that started it ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def why_not() -> str:
    """Why MariaDB cannot run here, "" if it can."""
    return "" if all(_found()) else "mariadbd is not installed (Debian package mariadb-server)"


def _found() -> tuple[str | None, str | None]:
    path = os.environ.get("PATH", "") + os.pathsep + "/usr/sbin"
    return shutil.which("mariadbd", path=path), shutil.which("mariadb-install-db", path=path)


def _programs() -> tuple[str, str]:
    server, install = _found()
    if server is None or install is None:
        pytest.skip(f"{why_not()}: MariaDB back end not tested")
    return server, install


@contextmanager
def start_mariadb(*options: str, pool_mb: int = 256) -> Iterator[MariaDb]:
    """Start a server, stop it at the end and delete its files. Skips the test if MariaDB is not installed.

    `options`: of mariadbd, FAST if there are none. `pool_mb`: memory for its pages.
    """
    _programs()
    # Not below tmp_path: a Unix socket's path may have 107 bytes only.
    directory = Path(tempfile.mkdtemp(prefix="krake-mariadb-"))
    memory = (f"--innodb-buffer-pool-size={pool_mb}M", "--innodb-log-file-size=96M")
    database = MariaDb(directory, (*memory, *(options or FAST)))
    try:
        database.install()
        database.start()
        database.prepare()
        yield database
    finally:
        database.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _listens(path: Path) -> bool:
    """Whether a server listens. Asked without PyMySQL, which leaks the socket of a refused connection."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    """One MariaDB for the whole session; tests leave it running."""
    with start_mariadb() as database:
        yield database


@pytest.fixture(scope="session")
def three_mariadbs() -> Iterator[list[MariaDb]]:
    """Three servers of about 100 MB each; a test that stops one starts it again."""
    with ExitStack() as stack:
        yield [stack.enter_context(start_mariadb(*FAST, pool_mb=32)) for _ in range(3)]
