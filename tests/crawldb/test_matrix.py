"""Every pair of what is stored and what is seen, with both schedules and 0 to 3 links, against a table by hand."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from hashlib import sha1
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crawl_lib.config import Config
from crawl_lib.crawldb import CRAWLDB, CRAWLDB_SCHEMA, Status, matrix, update
from crawl_lib.crawldb.matrix import MATRIX, NONE, SEEN_OF_OUTCOME, Seen, matrix_table
from crawl_lib.states import Outcome
from crawl_lib.storage import open_storage
from crawl_lib.versions import Versions, write_version
from tests.crawldb.crawls import Crawl, Visit
from tests.crawldb.test_update import DAY, NOW, T, at
from tests.export.crawls import key
from tests.stores import stores_on

LETTERS = {
    "U": "unfetched", "F": "fetched", "N": "not_modified", "t": "redirected_temporary", "p": "redirected_permanent",
    "G": "gone", "P": "parse_failed", "D": "duplicate", "O": "orphan",
}  # fmt: skip
STORED = [NONE, *(str(status) for status in Status if status is not Status.REQUISITE)]
BY_HAND = """
seen                    none U F N t p G P D O
first                      F F F F F F F F F F
changed                    . . F F F F F F F F
same                       . . N N N N N N D N
not_modified               . . N N N N N N D N
lost                       U U U U U U U U U U
redirect_temporary         t t t t t t t t t t
redirect_permanent         p p p p p p p p p p
gone                       G G G G G G G G G G
passing                    U U F N t p G P D O
parse_failed               P P P P P P P P P P
link                       U U F N t p G P D F
nothing                    . U F N t p G P D O
"""
"""Written from the notes on Nutch's CrawlDbReducer. A dot: there is no such row, or it cannot be told from `first`.

Where this is not what Nutch does:
* passing: Nutch makes a fetched row unfetched at the first time-out, and the page leaves the index because a site was
  down for a night; ours keeps status, signature and content until the last try has failed.
* redirects: Nutch forgets the signature; ours keeps it, so that a page that comes back as it was is no new one.
* lost: Nutch has no such case; it forces a visit without conditions above its longest interval.
* same and not_modified of a duplicate: Nutch makes it not_modified, and a later job a duplicate again.
* parse_failed: Nutch takes a page that cannot be parsed as fetched with an empty signature.
* intervals: Nutch leaves its longest interval at 0.9 of 90 days for all rows beyond it; ours bounds the visit alone.
"""
INTERVALS = {
    "first": (1, 1), "changed": (1, 0.8), "same": (1, 1.4), "not_modified": (1, 1.4), "lost": (1, 1),
    "redirect_temporary": (1, 1), "redirect_permanent": (1, 1), "gone": (1.5, 1.5), "passing": (1, 1),
    "parse_failed": (1.5, 1.5), "link": (1, 1), "nothing": (1, 1),
}  # fmt: skip
"""By how much the interval grows: with the fixed schedule, with the adaptive one."""
INTERVAL_S = 10 * DAY
OLD = f"{T - 100}/node-a"


def cells() -> Iterator[tuple[str, str, str]]:
    """Seen, stored, the letter of the status that follows."""
    _, *lines = (line.split() for line in BY_HAND.strip().splitlines())
    for line in lines:
        for stored, letter in zip(STORED, line[1:], strict=True):
            yield line[0], stored, letter


def url_of(seen: str, stored: str, inlinks: int) -> str:
    return f"http://{seen.replace('_', '-')}.example/{stored}/{inlinks}"


def stored_row(url: str, seen: str, stored: str) -> dict[str, Any]:
    """A row as a visit 20 days ago left it."""
    then = at(T - 20 * DAY)
    known = None if seen == "first" else sha1(b"known").digest()
    capture = None if seen == "lost" else OLD
    has_content = stored != "unfetched" and known is not None
    return {
        **dict.fromkeys(CRAWLDB_SCHEMA.names),
        "key": key(url),
        "url": url,
        "host": url.split("/")[2],
        "domain": "old.example",
        "status": stored,
        "fetch_status": "fetched" if stored in {"duplicate", "orphan"} else stored,
        "fetch_time": at(T - 10 * DAY),
        "fetched_time": then,
        "modified_time": then,
        "retries": 2,
        "interval_s": INTERVAL_S,
        "score": Decimal(3),
        "redirects": 0,
        "inlinks": 0,
        "metadata": None,
        "depth": 2 if stored == "orphan" else 0,
        "signature": known if has_content else None,
        "etag": '"old"' if has_content else None,
        "capture_segment": capture if has_content else None,
        "capture_file": "old.warc.gz" if has_content and capture else None,
        "capture_offset": 7 if has_content and capture else None,
        "capture_time": then if has_content and capture else None,
    }


VISITS: dict[str, dict[str, Any]] = {
    "first": {"body": "known"},
    "changed": {"body": "other"},
    "same": {"body": "known"},
    "not_modified": {"outcome": "not_modified", "refers_to": (OLD, "old.warc.gz", 7)},
    "lost": {"outcome": "not_modified", "refers_to": (OLD, "old.warc.gz", 7)},
    "redirect_temporary": {
        "outcome": "redirect",
        "status": 302,
        "redirect_url": "http://elsewhere.example/",
    },
    "redirect_permanent": {
        "outcome": "redirect",
        "status": 308,
        "redirect_url": "http://elsewhere.example/",
    },
    "gone": {"outcome": "gone"},
    "passing": {"outcome": "timeout", "retry_s": 600},
    "parse_failed": {"parse_error": "not HTML"},
}


@pytest.fixture(params=["fixed", "adaptive"])
def crawl(config: Config, request: pytest.FixtureRequest) -> Crawl:
    config = dataclasses.replace(
        config, schedule=dataclasses.replace(config.schedule, kind=request.param)
    )
    return Crawl(stores_on(open_storage(config), config))


@pytest.fixture
def rows(crawl: Crawl) -> dict[str, dict[str, Any]]:
    """The rows after an update that sees each pair once for 0, 1, 2 and 3 links."""
    crawl.segment(T - 100, [])
    pairs = [
        (seen, stored, inlinks)
        for seen, stored, letter in cells()
        if letter != "."
        for inlinks in range(4)
    ]
    pairs = [(seen, stored, inlinks) for seen, stored, inlinks in pairs if fits(seen, inlinks)]
    old = [stored_row(url_of(*pair), *pair[:2]) for pair in pairs if pair[1] != NONE]
    sources = [f"http://source.example/{number}" for number in range(3)]
    old += [{**stored_row(url, "nothing", "unfetched"), "inlinks": 1} for url in sources]
    table = pa.Table.from_pylist(sorted(old, key=lambda row: row["key"]), CRAWLDB_SCHEMA)
    segments = {OLD: ""}
    facts = {"parent": None, "now": 1, "segments": segments, "seeds": []}
    write_version(Versions(crawl.stores, CRAWLDB), 1, table.to_batches(), facts)
    depths = {pair: {"depth": 2 if pair[1] == "orphan" else 0} for pair in pairs}
    visits = [
        Visit(url_of(*pair), more=depths[pair], **VISITS[pair[0]])
        for pair in pairs
        if pair[0] in VISITS
    ]
    for number, source in enumerate(sources):
        visits.append(
            Visit(source, links=[url_of(*pair) for pair in pairs if pair[2] > number], at=5)
        )
    crawl.segment(T, visits)
    return crawl.rows(update(crawl.stores, now=NOW))


def fits(seen: str, inlinks: int) -> bool:
    """A link is seen where there is one, nothing where there is none."""
    return {"link": inlinks > 0, "nothing": inlinks == 0}.get(seen, True)


def wanted(seen: str, stored: str, letter: str, inlinks: int, kind: str) -> dict[str, Any]:
    """What the row says then, by the words of the notes."""
    is_new, visited = stored == NONE, seen in VISITS
    status = LETTERS[letter]
    if stored == "orphan" and not inlinks and status in {"fetched", "not_modified", "unfetched"}:
        status = "orphan"  # nothing links there still
    if stored == "orphan" and inlinks and status == "orphan":
        status = "orphan" if seen == "nothing" else "fetched"
    grows = INTERVALS[seen][kind == "adaptive"]
    interval_s = (30 * DAY if is_new else INTERVAL_S) * grows
    seconds = {"lost": 0, "passing": 600}.get(seen, interval_s)
    fetch_time = at(T) + timedelta(seconds=seconds) if visited else at(T - 10 * DAY)
    if is_new and seen == "link":
        fetch_time = at(T, 5)
    retries = (0 if is_new else 2) + (seen == "passing") if not visited or seen == "passing" else 0
    return {
        "status": status,
        "interval_s": interval_s,
        "fetch_time": fetch_time,
        "retries": retries,
    }


def test_every_cell(crawl: Crawl, rows: dict[str, dict[str, Any]]) -> None:
    kind, wrong, count = crawl.stores.config.schedule.kind, [], 0
    for (seen, stored, letter), inlinks in itertools.product(cells(), range(4)):
        if letter == "." or not fits(seen, inlinks):
            continue
        row = rows[url_of(seen, stored, inlinks)]
        should = wanted(seen, stored, letter, inlinks, kind)
        found = {name: row[name] for name in should}
        count += 1
        if found != should:
            wrong.append((seen, stored, inlinks, found, should))
    assert wrong == []
    assert count > 400


def test_what_becomes_of_the_content(rows: dict[str, dict[str, Any]]) -> None:
    known, other = sha1(b"known").digest(), sha1(b"other").digest()
    new = f"{T}/node-a"
    facts = {
        "first": (known, new, at(T)),
        "changed": (other, new, at(T)),
        "same": (known, new, at(T - 20 * DAY)),
        "not_modified": (known, OLD, at(T - 20 * DAY)),
        "lost": (None, None, None),
        "redirect_temporary": (known, OLD, at(T - 20 * DAY)),
        "gone": (known, OLD, at(T - 20 * DAY)),
        "passing": (known, OLD, at(T - 20 * DAY)),
        "parse_failed": (known, OLD, at(T - 20 * DAY)),
        "link": (known, OLD, at(T - 20 * DAY)),
        "nothing": (known, OLD, at(T - 20 * DAY)),
    }
    for seen, should in facts.items():
        row = rows[url_of(seen, "fetched", 0 if seen == "nothing" else 1)]
        assert (row["signature"], row["capture_segment"], row["modified_time"]) == should, seen
        visited = at(T - 20 * DAY) if seen in {"link", "nothing"} else at(T)
        assert row["fetched_time"] == visited, seen
        assert row["etag"] == (None if seen in {"first", "changed", "same", "lost"} else '"old"'), (
            seen
        )
        redirect = "http://elsewhere.example/" if seen.startswith("redirect") else None
        assert row["redirect_url"] == redirect, seen


def test_the_matrix_has_every_pair() -> None:
    pairs = [(row["stored"], row["seen"]) for row in matrix_table().to_pylist()]
    assert sorted(pairs) == sorted(itertools.product(STORED, map(str, Seen)))


def test_a_pair_that_is_missing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [line for line in MATRIX.splitlines() if not line.startswith("| gone |")]
    monkeypatch.setattr(matrix, "MATRIX", "\n".join(lines))
    with pytest.raises(KeyError, match="'gone'"):
        matrix_table()


def test_every_outcome_is_seen_as_something() -> None:
    """Redirects and content are told apart by the query; what has no 2xx, 3xx or 304 and does not pass is gone."""
    other = {"ok": "content", "redirect": "redirect", "not_modified": "not_modified"}
    assert {str(one): SEEN_OF_OUTCOME[one] for one in Outcome} == {
        str(o): other.get(o, "gone") for o in Outcome
    }


def test_the_docs_have_the_matrix() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "recrawl.md").read_text()
    assert MATRIX.strip() in text
