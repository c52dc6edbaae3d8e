"""`krake linkdb ...` as a user types it, on a crawl with a FIFO queue."""

from __future__ import annotations

import csv
import io
import json

from demo import Serving
from tests.cli.conftest import Krake


def test_the_links_of_a_crawl(krake: Krake, serving: Serving) -> None:
    krake.configure(
        linkdb={"within_host": True, "max_outlinks": 1000},
        linkrank={"within_host": True, "within_domain": True},
    )
    seed = serving.seeds[0]
    assert (
        "has no linkdb yet; `krake linkdb update` makes it" in krake("linkdb", "get", seed).error()
    )
    assert "has no segment yet, and so no links; crawl first" in krake("linkdb", "update").error()
    krake.ok("inject", "\n".join(serving.seeds))
    krake.ok("crawl", "--iterations", "8")
    made = krake.ok("linkdb", "update", "--json").json
    assert krake.ok("linkdb", "update", "--json").json == made
    rows = [json.loads(line) for line in krake.ok("linkdb", "dump").out.splitlines()]
    assert len(rows) == made["rows"] > 50
    found = krake.ok("linkdb", "get", seed, "--json").json
    assert found == [row for row in rows if row["url"] == seed]
    assert found
    assert found[0]["source_url"] in krake.ok("linkdb", "get", seed).out
    nowhere = krake("linkdb", "get", f"{seed}nowhere")
    assert (nowhere.code, "has no link to the URL" in nowhere.out) == (1, True)
    table = list(
        csv.DictReader(
            io.StringIO(krake.ok("linkdb", "dump", "--table", "outlinks", "--format", "csv").out)
        )
    )
    sources = {row["key"] for row in table if not row["target"]}
    assert sources >= {row["source"] for row in rows}
    ranked = krake.ok("linkdb", "rank", "--json").json
    assert (
        len(krake.ok("linkdb", "dump", "--table", "ranks").out.splitlines()) == ranked["rows"] > 10
    )
    assert "clean" in krake.ok("settle").out + krake.ok("fsck").out
    krake.configure(linkdb={"within_host": False})
    krake.ok("linkdb", "update")
    within = len(
        {(row["source"], row["anchor"]) for row in found if row["source_url"].startswith(seed)}
    )
    assert within
    assert (
        f"left out: {within} of its links (linkdb.within_host: false)"
        in krake("linkdb", "get", seed).out
    )
