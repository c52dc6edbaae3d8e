"""`krake terms ...` as a user types it."""

from __future__ import annotations

from demo import Serving
from tests.cli.conftest import Krake


def test_the_words_of_a_crawl(krake: Krake, serving: Serving) -> None:
    assert (
        "has no table of terms yet; run `krake terms update`"
        in krake("terms", "get", "word").error()
    )
    assert "has no segment yet; `krake crawl` makes some" in krake("terms", "update").error()
    krake.ok("inject", "\n".join(serving.seeds))
    krake.ok("crawl", "--iterations", "2")
    made = krake.ok("terms", "update", "--json").json
    assert krake.ok("terms", "update", "--json").json == made
    assert made["rows"] > 5
    best = krake.ok("terms", "search", "page", "links", "--count", "2", "--json").json
    assert 0 < len(best) <= 2
    [row] = krake.ok("terms", "get", "PAGE", "--json").json
    assert (row["word"], row["pages"]) == ("page", len(row["postings"]))
    assert row["postings"][0]["url"] in krake.ok("terms", "get", "page").out
    assert best[0]["url"] in krake.ok("terms", "search", "page", "links").out
    for command in ("get", "search"):
        nothing = krake("terms", command, "octopuses")
        assert (nothing.code, "`krake terms update` adds new segments" in nothing.out) == (
            1,
            True,
        )
