"""`krake serve realtime` as people run it, with its real fetcher and a web on loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from crawl_lib.cli.program import run as krake
from crawl_lib.config import Config
from crawl_lib.realtime import Client
from tests.e2e.crawl import make_config, write_config
from tests.web.hostile import HostileWeb

STOP_S = 10.0


@pytest.fixture
def web() -> Iterator[HostileWeb]:
    with HostileWeb() as web:
        yield web


def live_config(folder: Path, **sections: dict[str, object]) -> Config:
    given = {
        "urls": {"scope": "any"},
        "frontier": {"order": "crawldb"},
        "realtime": {
            "listen": "127.0.0.1:0",
            "tokens": str(folder / "tokens.json"),
            "give_up_s": 5.0,
        },
        **sections,
    }
    return make_config(folder, nodes=1, **given)


@contextmanager
def service(
    folder: Path, capsys: pytest.CaptureFixture[str], **sections: dict[str, object]
) -> Iterator[Live]:
    config = write_config(live_config(folder, **sections), folder)
    assert krake(["--config", str(config), "realtime", "tokens", "--add", f"t{os.getpid()}"]) == 0
    token = capsys.readouterr().out.strip()
    command = [
        str(Path(sys.executable).with_name("krake")),
        "--config",
        str(config),
        "serve",
        "realtime",
    ]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        assert said.startswith("real-time service: "), (folder / "log").read_text()
        with Client(said.split(": ")[1].strip(), token) as client:
            yield Live(process, client, folder)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class Live:
    """A service that runs. `client`: may submit and read."""

    def __init__(self, process: subprocess.Popen[str], client: Client, folder: Path) -> None:
        self.process, self.client, self.folder = process, client, folder

    def document(self, url: str):
        """The document of a URL, waited for."""
        self.client.submit([url])
        page = self.client.page(url, wait_s=30)
        assert page is not None
        assert page.document is not None, (self.folder / "log").read_text()
        return page.document

    def fetchers(self) -> list[int]:
        """The ids of the processes that hold the spool open: the fetchers."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    names = [str(link.readlink()) for link in (folder / "fd").iterdir()]
                except OSError:
                    continue
                if any(
                    str(self.folder / "queue") in name and name.endswith(".warc.gz")
                    for name in names
                ):
                    found.append(int(folder.name))
        return found


def test_the_command_fetches_follows_and_stops(tmp_path: Path, web: HostileWeb, capsys) -> None:
    head = b"<html><head><title>A title</title></head>"
    web.on("/page", lambda talk: talk.reply(headers=b"Content-Type: text/html\r\n", body=head))
    web.on("/moved", lambda talk: talk.reply("301 Moved", b"Location: /meta\r\n", b""))
    web.on(
        "/meta",
        lambda talk: talk.reply(
            headers=b"Content-Type: text/html\r\n",
            body=b"<meta http-equiv=refresh content='0; url=/page'>",
        ),
    )
    with service(tmp_path, capsys) as live:
        document = live.document(web.url("/moved"))
        assert [hop.url for hop in document.hops] == [
            web.url("/moved"),
            web.url("/meta"),
            web.url("/page"),
        ]
        assert (document.outcome, document.status, document.facts["title"]) == (
            "ok",
            200,
            "A title",
        )
        assert document.warc is not None
        assert live.document(web.url("/nothing")).outcome == "gone"
        assert live.document(web.url("/hang-in-body")).outcome == "timeout"
        assert live.document("http://10.1.2.3/").outcome == "address_refused"
        (fetcher,) = live.fetchers()
        os.kill(fetcher, signal.SIGKILL)
        assert live.document(web.url("/ok")).outcome == "ok", "a new fetcher is there"
        requests = len(web.paths())
        assert live.document(web.url("/page")).facts["title"] == "A title"
        assert len(web.paths()) == requests, "the document of a hop is one of its own"
        live.client.submit([web.url("/hang-in-body?again")])
        live.process.send_signal(signal.SIGTERM)
        assert live.process.wait(STOP_S) != 0
        assert not live.fetchers()


def test_a_killed_service_leaves_no_fetcher_and_loses_no_url(
    tmp_path: Path, web: HostileWeb, capsys
) -> None:
    is_open, is_asked = threading.Event(), threading.Event()

    def hold(talk):
        is_asked.set()
        return is_open.wait(30) and talk.reply()

    web.on("/held", hold)
    with service(tmp_path, capsys) as live:
        live.client.submit([web.url("/held"), web.url("/ok")])
        assert is_asked.wait(30)
    is_open.set()
    (tmp_path / "tokens.json").unlink()
    with service(tmp_path, capsys) as live:
        for path in ("/held", "/ok"):
            page = live.client.page(web.url(path), wait_s=30)
            assert page is not None
            assert page.document is not None
            assert page.document.outcome == "ok"
