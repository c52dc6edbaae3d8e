"""`make realtime`: one command serves a web, the service and a page; Ctrl-C ends all of it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest

from crawl_lib.errors import KrakeError
from crawl_lib.realtime.answers import Decision, Page
from crawl_lib.realtime.documents import Document
from crawl_lib.realtime.protocol import Hop
from demo.realtime import CONFIG, EXAMPLES, make_app
from demo.stages import Watched, shown, stages_of

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 120.0


class Running:
    """The command, with data in a folder of its own. `lines`: its output so far."""

    def __init__(self, directory: Path) -> None:
        config = directory / "realtime.yml"
        text = (
            CONFIG.read_text()
            .replace("../data", str(directory))
            .replace("127.0.0.1:8095", "127.0.0.1:0")
        )
        config.write_text(text.replace("host_delay_s: 0.3", "host_delay_s: 0.0"))
        command = [
            "-m",
            "demo",
            "realtime",
            "--config",
            str(config),
            "--listen",
            "127.0.0.1:0",
            "--sites",
            "1",
        ]
        self.process = subprocess.Popen(
            [sys.executable, *command, "--pages-per-site", "2"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []

    def value(self, name: str) -> str:
        """The value of a line of the output, which is waited for."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if found := re.match(rf" *{name}:? +(\S+)", line):
                return found[1]
        raise AssertionError("".join(self.lines))

    def interrupt(self) -> str:
        """Do what Ctrl-C does: SIGINT to all processes of the terminal; return the rest of the output."""
        os.killpg(self.process.pid, signal.SIGINT)
        rest, _ = self.process.communicate(timeout=LIMIT_S)
        return str(rest)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    found = Running(tmp_path)
    yield found
    if found.process.poll() is None:
        os.killpg(found.process.pid, signal.SIGKILL)
        found.process.communicate()


def test_a_typed_url_ends_in_a_document_and_ctrl_c_ends_everything(
    running: Running, tmp_path: Path
) -> None:
    service, token, url = running.value("service"), running.value("token"), running.value("try")
    with httpx.Client(
        base_url=running.value("page"), follow_redirects=True, timeout=LIMIT_S
    ) as browser:
        answer = browser.post("/", data={"url": url})
        end_s = time.monotonic() + LIMIT_S
        while answer.headers["More"] == "1" and time.monotonic() < end_s:
            answer = browser.get(answer.url)
        text = unescape(answer.text)
        assert re.findall(r"/x/chain-\S+: (\d+ \w+),", text) == [
            "301 redirect",
            "302 redirect",
            "307 redirect",
            "200 ok",
        ]
        assert "End of the chain" in text
        assert "robots" in unescape(
            browser.post("/", data={"url": url.replace("x/chain-1", "private/secret.html")}).text
        )
    assert httpx.get(f"{service}/v1/pages", params={"url": url}).status_code == 401
    answer = httpx.get(
        f"{service}/v1/pages", params={"url": url}, headers={"Authorization": f"Bearer {token}"}
    )
    assert answer.json()["state"] == "known"
    rest = running.interrupt()
    assert rest.splitlines()[-1] == "Stopped."
    assert running.process.returncode == 0
    with pytest.raises(ProcessLookupError):
        os.killpg(running.process.pid, 0)
    assert token not in (tmp_path / "realtime" / "tokens.json").read_text()


HOSTILE = "<script>alert(1)</script>\u202e"


def page(**fields: object) -> Page:
    hop = Hop(
        url=HOSTILE, key="00", outcome="ok", status=200, time_ms=1_700_000_000_100, duration_ms=5
    )
    given = {"url": HOSTILE, "outcome": "ok", "final_url": HOSTILE, "hops": [hop], **fields}
    return Page(
        url=HOSTILE, state="known", fetched_ms=1_700_000_000_200, document=Document(**given)
    )  # type: ignore[arg-type]


def test_text_of_pages_is_shown_as_text() -> None:
    watched = Watched(
        page=page(facts={"title": HOSTILE, "image": "javascript:1", "sources": {"title": HOSTILE}})
    )
    answer = shown(HOSTILE, watched, [(HOSTILE, HOSTILE)], is_part=False)
    html = bytes(answer.body).decode()
    assert html.count("<script>") == 1, "the page's own"
    assert "<a " not in html
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert answer.headers["Referrer-Policy"] == "same-origin", (
        "else browsers hide the origin of the page's own form"
    )


def test_times_are_since_the_submission() -> None:
    decision = Decision(url=HOSTILE, decision="new", key="00")
    stages = stages_of(Watched(decision, began_ms=1_700_000_000_000, took_ms=3, page=page()))
    assert [(one.name, one.at) for one in stages] == [
        ("Decision", "+3 ms"),
        ("Request 1", "+100 ms"),
        ("Document", "+200 ms"),
    ]


@pytest.mark.parametrize(
    ("image", "state", "text"),
    [(None, "later", "asked for"), ({"outcome": "ok", "width": 7}, "done", "width 7")],
)
def test_the_picture_is_a_stage_of_its_own(
    image: dict[str, object] | None, state: str, text: str
) -> None:
    last = stages_of(Watched(page=page(facts={"image": "http://a.example/i"}, image=image)))[-1]
    assert (last.name, last.state) == ("Picture", state)
    assert text in last.text


class Away:
    """A service that does not answer."""

    def __enter__(self) -> Away:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing."""

    def page(self, url: str) -> None:
        """Fail."""
        raise KrakeError("the service does not answer")

    def submit(self, *given: object, **named: object) -> None:
        """Fail."""
        raise KrakeError("the service does not answer")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 400),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1"}, 303),
        ({}, 303),
    ],
)
def test_other_pages_cannot_submit(headers: dict[str, str], status: int) -> None:
    answer = asked([("POST", {"content": b"url=http://a/", "headers": headers})])[0]
    assert answer.status_code == status


def test_a_problem_of_the_service_is_shown() -> None:
    submit = {"content": b"url=http://a/", "follow_redirects": True}
    too_long, problem, form = asked(
        [("POST", {"content": b"x" * 100_000}), ("POST", submit), ("GET", {})]
    )
    assert too_long.status_code == 413
    assert "the service does not answer" in problem.text
    assert form.text.count("<li>") == len(EXAMPLES)


def asked(requests: list[tuple[str, dict[str, Any]]]) -> list[httpx.Response]:
    """Ask a page whose service is away."""

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(make_app(Away, list(EXAMPLES)))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as browser:
            return [await browser.request(method, "/", **options) for method, options in requests]

    return asyncio.run(ask())
