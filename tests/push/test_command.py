"""`krake index push`, and the stage behind the task `push`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crawl_lib import stages
from crawl_lib.errors import ConfigError
from crawl_lib.usable import require_usable
from tests.cli.conftest import Krake, run_in_process
from tests.index.made import Made, a, answer, linking, page
from tests.push.fake import FakeOpenSearch, fake_opensearch


@pytest.fixture
def server() -> Iterator[FakeOpenSearch]:
    with fake_opensearch() as fake:
        yield fake


@pytest.fixture
def made(tmp_path: Path, server: FakeOpenSearch) -> Made:
    """A crawl of three pages, one of which links to another."""
    made = Made.below(tmp_path / "crawl", push={"url": server.url}, outputs={"tasks": ["push"]})
    made.crawl(
        page(a("one"), "first words"),
        page(a("two"), "second words"),
        linking(a("three"), "x", {a("one"): "link"}),
    )
    return made


def test_a_crawl_is_updated_and_pushed(
    made: Made,
    server: FakeOpenSearch,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    krake = Krake(made.root, lambda words: run_in_process(capsys, words))
    krake.configure(servers=["node-0"], push={"url": server.url})
    done = krake("index", "push")
    assert done.code == 1
    assert "run `krake index update`" in done.err
    krake.ok("index", "update")
    monkeypatch.setenv("KRAKE_SEARCH_USER", "anna")
    monkeypatch.setenv("KRAKE_SEARCH_PASSWORD", "very-secret")
    done = krake.ok("index", "push", "--json")
    assert (done.json["sent"], done.json["alias"]) == (3, "krake")
    assert "very-secret" not in done.out + done.err
    assert server.requests[-1].authorization == "Basic YW5uYTp2ZXJ5LXNlY3JldA=="
    documents = {one["url"]: one for one in server.documents("krake").values()}
    assert documents[a("one")]["anchors_en"] == ["link"]
    assert documents[a("two")]["body_en"] == "second words"


def test_the_task_pushes_what_the_task_before_made(made: Made, server: FakeOpenSearch) -> None:
    stages.make_output(made.stores, output="index")
    found = stages.make_output(made.stores, output="push")
    assert (found["pages"], found["sent"], found["deleted"]) == (3, 3, 0)
    made.crawl(answer(a("two"), "gone", 404, time=2000.0))
    stages.make_output(made.stores, output="index")
    found = stages.make_output(made.stores, output="push")
    assert (found["pages"], found["sent"], found["deleted"]) == (2, 0, 1)
    assert {one["url"] for one in server.documents("krake").values()} == {a("one"), a("three")}


def test_a_task_without_an_address_is_named_before_the_crawl(made: Made) -> None:
    config: Any = replace(made.config, push=replace(made.config.push, url=None))
    with pytest.raises(ConfigError, match=r"outputs\.tasks: push needs push\.url"):
        require_usable(config, made.stores.secrets)
