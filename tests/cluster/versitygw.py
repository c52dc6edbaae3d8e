"""A server that speaks S3 and keeps objects as files of a directory: versitygw, which Go builds from a pinned version.

Go compares the module and all that the module needs with the sums of sum.golang.org. The program is kept in
`target/versitygw`. The first build takes two minutes of CPU. Debian 12's Go is too old for this module.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Self

from crawl_lib.errors import StorageError
from crawl_lib.storage.access import S3Credentials
from crawl_lib.storage.s3_client import RequestRefusedError, S3Client
from tests.cluster.processes import end_all, spawn, wait_until
from tests.ports import free_port
from tests.s3 import BUCKET, CREDENTIALS, S3Server

VERSION = "v1.8.0"
MODULE = "github.com/versity/versitygw/cmd/versitygw"
TARGET = Path(__file__).resolve().parent / "target" / "versitygw" / VERSION
BUILD_LIMIT_S = 1200.0
START_LIMIT_S = 60.0


def why_not() -> str:
    """Return why the server cannot run here, "" if it can."""
    return "" if shutil.which("go") else "Go is not there: install Go 1.25 or newer"


def program() -> Path:
    """Return the server's program, built if it is missing; a process that needs it meanwhile waits."""
    TARGET.mkdir(parents=True, exist_ok=True)
    built = TARGET / "versitygw"
    with (TARGET / "lock").open("w") as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        if not built.exists():
            env = {**os.environ, "GOBIN": str(TARGET / "new")}
            command = ["go", "install", f"{MODULE}@{VERSION}"]
            done = subprocess.run(
                command, env=env, capture_output=True, text=True, timeout=BUILD_LIMIT_S
            )
            assert done.returncode == 0, f"Go cannot build versitygw:\n{done.stderr[-2000:]}"
            (TARGET / "new" / "versitygw").rename(built)
    return built


class VersityGw(S3Server):
    """A server with the bucket of the tests, while its `with` block runs.

    `directory`: where its files lie, on a file system with extended attributes. `port`: None takes a free one.
    """

    def __init__(self, directory: Path, port: int | None = None) -> None:
        self.port = port or free_port()
        super().__init__(address=f"http://127.0.0.1:{self.port}")
        self.directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def files(self, prefix: str) -> Path:
        """Return the directory that holds the objects below a prefix of the bucket, as files."""
        return self.directory / "root" / BUCKET / prefix

    def __enter__(self) -> Self:
        root = self.directory / "root"
        root.mkdir(parents=True, exist_ok=True)
        env = {
            "ROOT_ACCESS_KEY_ID": CREDENTIALS.key_id,
            "ROOT_SECRET_ACCESS_KEY": CREDENTIALS.secret,
        }
        users = self.directory / "users"
        users.mkdir(exist_ok=True)
        command = [str(program()), "--port", f"127.0.0.1:{self.port}", "--quiet", "--keep-alive"]
        command += ["--iam-dir", str(users), "posix", str(root)]
        self._process = spawn(command, self.directory / "log", env=env)
        wait_until("versitygw answers", self._has_bucket, START_LIMIT_S)
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server."""
        if self._process is not None:
            end_all([self._process], signal.SIGTERM, 10)
            self._process = None

    def add_user(self, user: S3Credentials) -> None:
        """Make a user who has the rights that a policy of the bucket gives."""
        command = [
            str(program()),
            "admin",
            "--endpoint-url",
            self.address,
            "create-user",
            "--role",
            "user",
        ]
        command += ["--access", user.key_id, "--secret", user.secret]
        admin = {
            "ADMIN_ACCESS_KEY_ID": CREDENTIALS.key_id,
            "ADMIN_SECRET_ACCESS_KEY": CREDENTIALS.secret,
        }
        subprocess.run(command, check=True, env={**os.environ, **admin}, capture_output=True)

    def _has_bucket(self) -> bool:
        """Make the bucket; whether it is there."""
        client = S3Client(self.config(wait_s=0.0), CREDENTIALS)
        with suppress(StorageError):
            try:
                client.ask_once("cannot be made", "", "create_bucket")
            except RequestRefusedError as error:
                return error.code in {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}
            return True
        return False
