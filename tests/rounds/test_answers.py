"""`crawl.min_success`: an iteration of which few URLs were answered is told of, and is committed all the same."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import pytest

from crawl_lib.config import Config
from crawl_lib.crawldir import FolderState
from crawl_lib.errors import FewAnswersError
from crawl_lib.rounds import crawl_status, refresh_index
from crawl_lib.rounds.commit import commit_iteration, few_answers
from crawl_lib.rounds.start import start_iteration
from crawl_lib.states import Outcome, answers_of
from crawl_lib.storage import LocalStorage
from crawl_lib.stores import Stores, open_stores
from tests.rounds.test_start import lay_segment

ANSWERED = {
    "ok",
    "redirect",
    "not_modified",
    "gone",
    "client_error",
    "server_error",
    "unexpected_status",
}
ANSWERED |= {"mime_refused"}
NOT_ASKED = {"robots_denied", "address_refused", "port_refused", "filtered"}
Opened = Callable[[float], Stores]


@pytest.fixture
def opened(config: Config) -> Opened:
    """The stores of a crawl with such a `crawl.min_success`."""

    def with_share(share: float) -> Stores:
        return open_stores(
            dataclasses.replace(config, crawl=dataclasses.replace(config.crawl, min_success=share))
        )

    return with_share


def crawled(stores: Stores, *parts: dict[str, int], run_id: str = "r", iteration: int = 1) -> str:
    """An iteration whose nodes have such outcomes each; returns its folder."""
    folder = start_iteration(stores, run_id=run_id, iteration=iteration).folder
    for node, outcomes in zip(stores.config.servers, parts, strict=True):
        lay_segment(stores, folder, node, outcomes=outcomes)
    return folder


@pytest.mark.parametrize("outcome", list(Outcome))
def test_each_outcome_is_an_answer_or_none_or_was_not_asked_for(outcome: Outcome) -> None:
    wanted = (1, 1) if outcome in ANSWERED else (0, 0) if outcome in NOT_ASKED else (0, 1)
    assert answers_of({outcome: 1}) == wanted


@pytest.mark.parametrize(
    ("share", "outcomes", "said"),
    [
        (0.0, {"ok": 24, "timeout": 25}, ""),
        (0.0, {"ok": 25, "timeout": 25}, ""),
        (0.0, {"ok": 24, "timeout": 26}, "only 24 of 50"),
        (0.0, {"host_gave_up": 900, "dns_failed": 100}, "only 0 of 1,000"),
        (0.0, {"server_error": 20, "gone": 3, "redirect": 2, "timeout": 25}, ""),
        (
            0.0,
            {
                "robots_denied": 900,
                "address_refused": 90,
                "port_refused": 9,
                "ok": 9,
                "timeout": 40,
            },
            "",
        ),
        (0.8, {"ok": 79, "timeout": 21}, "only 79 of 100"),
        (0.8, {"ok": 80, "timeout": 20}, ""),
        (0.1, {"ok": 49, "timeout": 51}, "only 49 of 100"),
    ],
)
def test_few_answers_are_told_of(
    opened: Opened, share: float, outcomes: dict[str, int], said: str
) -> None:
    stores = opened(share)
    folder = crawled(stores, outcomes, {})
    warning = few_answers(stores, FolderState.read(stores.crawl, folder))
    assert warning == (f"{said} URLs were answered at all" if said else "")


def test_the_nodes_of_an_iteration_count_together(opened: Opened) -> None:
    stores = opened(0.5)
    crawled(stores, {"timeout": 60}, {"ok": 60})
    assert not commit_iteration(stores, run_id="r", iteration=1).warning


def test_by_default_it_is_a_warning_in_log_result_and_status(
    opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    stores = opened(0.0)
    folder = crawled(stores, {"timeout": 60}, {"ok": 3})
    warning = "only 3 of 63 URLs were answered at all"
    assert commit_iteration(stores, run_id="r", iteration=1).warning == warning
    assert f"crawl/{folder}: {warning}" in caplog.text
    assert [entry["warning"] for entry in crawl_status(stores)["iterations"]] == [warning]


def test_commit_fails_when_all_is_durable_and_only_once(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores, secured = opened(0.2), list[str]()
    folder = crawled(stores, {"timeout": 60}, {"ok": 3})
    monkeypatch.setattr(LocalStorage, "secure", lambda storage, path: secured.append(path))
    with pytest.raises(
        FewAnswersError,
        match=r"only 3 of 63 .*min_success is 0.2.*Nothing is lost.*A new run goes on",
    ):
        commit_iteration(stores, run_id="r", iteration=1)
    assert secured == [f"crawl/{folder}/index.json"]
    assert json.loads(stores.storage.read_bytes(secured[0]))["counts"]["outcomes"] == {
        "ok": 3,
        "timeout": 60,
    }
    again = commit_iteration(stores, run_id="r", iteration=1)
    assert (again.folder, again.warning) == (folder, "only 3 of 63 URLs were answered at all")


def test_a_new_run_goes_on(opened: Opened) -> None:
    stores = opened(0.2)
    first = crawled(stores, {"timeout": 60}, {})
    with pytest.raises(FewAnswersError):
        commit_iteration(stores, run_id="r", iteration=1)
    second = crawled(stores, {"ok": 60}, {}, run_id="s")
    assert commit_iteration(stores, run_id="s", iteration=1).counts["outcomes"] == {"ok": 60}
    assert [entry["folder"] for entry in crawl_status(stores)["iterations"]] == [first, second]


def test_above_the_share_a_warning_is_all(opened: Opened) -> None:
    stores = opened(0.2)
    crawled(stores, {"timeout": 60}, {"ok": 30})
    assert (
        commit_iteration(stores, run_id="r", iteration=1).warning
        == "only 30 of 90 URLs were answered at all"
    )


@pytest.mark.parametrize(
    ("outcomes", "words"),
    [
        ({"timeout": 1}, "timeout 1"),
        ({"dns_failed": 2, "robots_denied": 1}, "dns_failed 2, robots_denied 1"),
        ({"address_refused": 3}, "address_refused 3"),
        ({}, "no URL was taken"),
    ],
)
def test_a_run_that_fetched_nothing_says_so_at_any_size(
    opened: Opened, outcomes: dict[str, int], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    stores = opened(0.0)
    crawled(stores, outcomes, {})
    result = commit_iteration(stores, run_id="r", iteration=1)
    assert result.warning == f"this run has fetched nothing so far ({words})"
    assert result.warning in caplog.text


def test_a_later_iteration_without_an_answer_is_no_run_without_one(opened: Opened) -> None:
    stores = opened(0.5)
    crawled(stores, {"ok": 1}, {})
    commit_iteration(stores, run_id="r", iteration=1)
    crawled(stores, {"timeout": 3}, {}, iteration=2)
    assert not commit_iteration(stores, run_id="r", iteration=2).warning


def test_the_warning_counts_all_iterations_of_the_run(opened: Opened) -> None:
    stores = opened(0.0)
    for iteration in (1, 2):
        crawled(stores, {"timeout": 3}, {}, iteration=iteration)
        said = commit_iteration(stores, run_id="r", iteration=iteration).warning
    assert said == "this run has fetched nothing so far (timeout 6)"


@pytest.mark.parametrize("share", [0.01, 1.0])
def test_below_50_urls_a_run_fails_only_without_any_answer(opened: Opened, share: float) -> None:
    stores = opened(share)
    crawled(stores, {"timeout": 48, "gone": 1}, {}, run_id="one answer")
    assert commit_iteration(stores, run_id="one answer", iteration=1).urls == 49
    crawled(stores, {"robots_denied": 3}, {}, run_id="none asked")
    assert "fetched nothing" in commit_iteration(stores, run_id="none asked", iteration=1).warning
    crawled(stores, {"timeout": 1}, {}, run_id="no answer")
    with pytest.raises(
        FewAnswersError, match=r"only 0 of 1 URLs were answered at all, and crawl.min_success"
    ):
        commit_iteration(stores, run_id="no answer", iteration=1)
    assert "timeout 1" in commit_iteration(stores, run_id="no answer", iteration=1).warning, (
        "people have seen it"
    )


def test_a_repair_that_writes_the_index_again_says_nothing(opened: Opened) -> None:
    folder = crawled(opened(0.0), {"timeout": 60}, {})
    commit_iteration(opened(0.0), run_id="r", iteration=1)
    stores = opened(0.2)
    index = stores.crawl.folder(folder).at("index.json")
    before = stores.storage.read_bytes(index)
    stores.storage.delete(index)
    stores.storage.write_bytes(index, b"rubbish")
    refresh_index(stores, folder)
    assert stores.storage.read_bytes(index) == before
