"""`krake graph rank` and `krake score update` as a user types them."""

from __future__ import annotations

import pytest

from demo import Serving
from tests.cli.conftest import Krake


@pytest.mark.parametrize("order", ["crawldb", "fifo"])
def test_ranks_become_scores_of_a_crawl_that_has_some(
    krake: Krake, serving: Serving, order: str
) -> None:
    krake.configure(frontier={"order": order})
    assert "no export yet; run `krake export` first" in krake("graph", "rank").error()
    krake.ok("inject", "\n".join(serving.seeds))
    krake.ok("crawl", "--iterations", "8")
    krake.ok("export")
    krake.ok("graph", "link")
    found = krake.ok("graph", "rank", "--json").json
    assert found["nodes"] >= 10
    assert found["change"] <= 1e-9
    assert "complete_already" in krake.ok("graph", "rank").out
    if order == "fifo":
        assert "frontier.order: is fifo, and this needs crawldb" in krake("score", "update").error()
        return
    made = krake.ok("score", "update", "--json").json
    assert krake.ok("score", "update", "--json").json == made
    best = krake.ok("crawldb", "top", "--count", "3", "--json").json
    assert float(best[0]["score"]) > 1
    assert "clean" in krake.ok("settle").out + krake.ok("fsck").out
