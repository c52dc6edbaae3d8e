"""A look-up in a child process: all that `why`, `cat` and `show` say, and an end at the limit of time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.ask import PARTS, apart, look_up
from crawl_lib.config import Config
from crawl_lib.stores import Secrets
from demo import Serving, SynthWeb
from tests.e2e.crawl import make_config, run_crawl

PATIENCE_S = 120.0
"""A busy machine takes its time to start Python."""


@dataclass(frozen=True)
class Crawled:
    """A crawl of one iteration: a page, a missing page, a refused page, and many waiting URLs."""

    config: Config
    web: Serving


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crawled]:
    with Serving(SynthWeb(seed=5, sites=1, pages_per_site=8, specials=False)) as web:
        config = make_config(tmp_path_factory.mktemp("crawl"), nodes=1, batch={"size": 3})
        seeds = [web.url(0, "/"), web.url(0, "/no-such-page"), web.url(0, "/private/x")]
        run_crawl(config, seeds, 1, process=False)
        yield Crawled(config, web)


def asked(made: Crawled, path: str, seconds: float = PATIENCE_S) -> apart.LookUp:
    url = made.web.url(0, path) if path.startswith("/") else path
    return look_up(made.config, Secrets(), url, seconds=seconds)


def test_all_parts_of_a_page(made: Crawled) -> None:
    found = asked(made, "/")
    assert found.missed == ()
    assert list(found.parts) == list(PARTS)
    assert found.parts["why"]["answer"] == "ended as ok"
    assert found.parts["cat"]["head"].startswith("HTTP/1.1 200 OK\r\n")
    assert "<html" in found.parts["cat"]["source"]
    assert found.parts["text"]["text"]
    assert "<" not in found.parts["text"]["text"]
    assert found.parts["show"]["row"]["status"] == 200


def test_what_is_no_page_is_said(made: Crawled) -> None:
    visits = made.web.truth([made.web.url(0, "/")]).visits
    waiting = asked(made, next(url for url, visit in visits.items() if visit.round == 2))
    assert waiting.missed == ()
    assert waiting.parts["why"]["answer"].startswith("is yet to be fetched")
    assert waiting.parts["cat"] == waiting.parts["text"] == {}
    assert "is not a URL" in asked(made, "no url").parts["why"]["error"]


def test_at_the_limit_the_child_is_killed_and_what_it_missed_is_said(made: Crawled) -> None:
    """In an instant no Python is started."""
    assert asked(made, "/", 0.0) == apart.LookUp({}, PARTS)


def test_what_was_found_before_the_limit_is_kept(
    made: Crawled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child hangs after the first line, and another child dies within a line."""
    program = "import sys,time;print();print('{\"why\":{}}');print('{\"cat\"',end='',flush=True);sys.stdin.read();"
    popen: Any = apart.subprocess.Popen
    for ending in ("time.sleep(600)", "1/0"):
        command = [apart.sys.executable, "-c", program + ending]
        monkeypatch.setattr(
            apart.subprocess, "Popen", lambda _, command=command, **given: popen(command, **given)
        )
        began_s = time.monotonic()
        found = asked(made, "/", 5.0 if "sleep" in ending else PATIENCE_S)
        assert time.monotonic() - began_s < PATIENCE_S
        assert found == apart.LookUp({"why": {}}, PARTS[1:])


def test_a_long_question_to_a_child_that_does_not_read_ends_in_time(
    made: Crawled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe holds 64 KB, and a config with rules from a file may have more."""
    hanging = tmp_path / "python"
    hanging.write_text("#!/bin/sh\nexec sleep 100\n")
    hanging.chmod(0o700)
    monkeypatch.setattr(apart.sys, "executable", str(hanging))
    began_s = time.monotonic()
    assert (
        look_up(made.config, Secrets(), f"http://a.test/{'x' * 200_000}", seconds=0.2).missed
        == PARTS
    )
    assert time.monotonic() - began_s < 50
