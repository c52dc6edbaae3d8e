"""Airflow's metadata database: a PostgreSQL of Debian's packages in a private directory, on loopback."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
from pathlib import Path

import psycopg2

from tests.cluster.processes import end_all, spawn, wait_until

USER = "airflow"
START_S = 240.0
FAST = ("fsync=off", "full_page_writes=off", "synchronous_commit=off")
"""Options that keep tests fast; a power loss would cost such a server its data."""


def programs() -> Path | None:
    """The folder of `postgres` and `initdb`, the newest where Debian has several; None if there is none."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    debian = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3])
    )
    return debian[-1].parent if debian else None


def why_not() -> str:
    """Why PostgreSQL cannot run here, "" if it can."""
    return "" if programs() else "PostgreSQL is not installed (Debian package postgresql)"


class Postgres:
    """One server. `directory`: where its data is, made if missing. `options`: `name=value` of its config."""

    def __init__(self, directory: Path, port: int, options: tuple[str, ...] = ()) -> None:
        self.directory, self.port, self.options = directory, port, options
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """As SQLAlchemy names it, password included."""
        return f"postgresql+psycopg2://{USER}:{self.password}@127.0.0.1:{self.port}/postgres"

    @property
    def password(self) -> str:
        """The user's password, made with the data directory."""
        return (self.directory / "password").read_text()

    def start(self) -> None:
        """Start it, with a new data directory the first time; returns when it answers."""
        if not (self.directory / "data" / "PG_VERSION").exists():
            self._install()
        command = [
            self._program("postgres"),
            "-D",
            str(self.directory / "data"),
            "-p",
            str(self.port),
        ]
        for option in ("listen_addresses=127.0.0.1", "unix_socket_directories=", *self.options):
            command += ["-c", option]
        self.process = spawn(command, self._log, user=_other_user(), death=signal.SIGINT)
        wait_until("PostgreSQL answers", self._answers, START_S)

    def stop(self) -> None:
        """End it: its fast shutdown, which ends its connections."""
        if self.process is not None:
            end_all([self.process], signal.SIGINT, 30)
            self.process = None

    @property
    def _log(self) -> Path:
        return self.directory / "log"

    def _install(self) -> None:
        user = _other_user()
        self.directory.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.directory / "data", ignore_errors=True)
        password = self.directory / "password"
        password.touch(0o600)
        password.write_text(secrets.token_hex(16))
        if user is not None:
            for path in (self.directory, password):
                os.chown(path, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
        command = [
            self._program("initdb"),
            "--no-sync",
            "--auth=scram-sha-256",
            f"--username={USER}",
        ]
        command += [
            "--encoding=UTF8",
            "--locale=C",
            f"--pwfile={password}",
            "-D",
            str(self.directory / "data"),
        ]
        done = spawn(command, self._log, user=user)
        assert done.wait(START_S) == 0, (
            f"initdb failed{f' as user {user}, who must be able to enter the directory' if user else ''}:"
            f" {self._log.read_text()[-2000:]}"
        )

    def _answers(self) -> bool:
        assert self.process is not None
        code = self.process.poll()
        assert code is None, f"PostgreSQL ended with {code}: {self._log.read_text()[-2000:]}"
        try:
            psycopg2.connect(
                host="127.0.0.1",
                port=self.port,
                user=USER,
                password=self.password,
                dbname="postgres",
            ).close()
        except psycopg2.OperationalError:
            return False
        return True

    @staticmethod
    def _program(name: str) -> str:
        folder = programs()
        assert folder is not None, why_not()
        return str(folder / name)


def _other_user() -> str | None:
    """Who runs the server: PostgreSQL refuses root."""
    if os.getuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"
