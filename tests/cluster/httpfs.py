"""A real HttpFS before an HDFS: the gateway of clusters whose datanodes no one else reaches."""

from __future__ import annotations

import subprocess
import time
from http import HTTPStatus
from pathlib import Path

import requests

from tests.cluster.hdfs import (
    FAST_START,
    LOG4J,
    NAMENODE,
    START_LIMIT_S,
    Hdfs,
    archive,
    classpath,
    die_with_parent,
    own_names,
    site,
)
from tests.ports import free_port

MAIN = "org.apache.hadoop.fs.http.server.HttpFSServerWebServer"


class HttpFs:
    """The gateway of one cluster, which trusts it. Use as a context manager."""

    def __init__(self, hdfs: Hdfs, folder: Path) -> None:
        self._hdfs, self._folder, self._port = hdfs, folder, free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """What `dfs_primary` names in place of namenodes."""
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> HttpFs:
        for name in ("conf", "log", "temp", "tmp"):
            (self._folder / name).mkdir(parents=True)
        conf = self._folder / "conf"
        for name in ("core-site.xml", "hdfs-site.xml", "httpfs-site.xml"):
            (conf / name).write_text(site(self.options(conf)))
        (conf / "httpfs-signature.secret").write_text("of one run")
        for name in ("log4j.properties", "httpfs-log4j.properties"):
            (conf / name).write_text(LOG4J)
        with (self._folder / "httpfs.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*self._command(), MAIN],
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - one call, no lock
            )
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def options(self, folder: Path) -> dict[str, str]:
        """Its configuration, which lies in `folder`: also that of a client of HDFS."""
        return self._hdfs.options("nn1", folder) | {
            "hadoop.tmp.dir": str(self._folder / "tmp"),
            "httpfs.http.hostname": "127.0.0.1",
            "httpfs.http.port": str(self._port),
        }

    def stop(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _command(self) -> list[str]:
        options = {
            "httpfs.home.dir": self._folder,
            "httpfs.config.dir": self._folder / "conf",
            "httpfs.log.dir": self._folder / "log",
            "httpfs.temp.dir": self._folder / "temp",
            "httpfs.hadoop.config.dir": self._folder / "conf",
        }
        told = [f"-D{name}={value}" for name, value in options.items()]
        java = [
            "java",
            *FAST_START,
            f"-XX:SharedArchiveFile={archive(NAMENODE)}",
            own_names(self._folder),
            *self._hdfs.java_options,
        ]
        return [*java, *told, "-cp", classpath(self._folder / "conf")]

    def _wait(self) -> None:
        end = time.monotonic() + START_LIMIT_S
        while not self._answers():
            assert self._process is not None
            told = (self._folder / "httpfs.log").read_text()[-3000:]
            assert self._process.poll() is None, f"no HttpFS: {told}"
            assert time.monotonic() < end, f"no HttpFS after {START_LIMIT_S} s: {told}"
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            answer = requests.get(
                f"{self.url}/webhdfs/v1/?op=GETFILESTATUS&user.name=krake", timeout=60
            )
        except requests.RequestException:
            return False
        return (
            answer.ok or answer.status_code == HTTPStatus.UNAUTHORIZED
        )  # a secured one asks for a ticket
