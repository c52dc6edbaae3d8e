"""Each step from an event, or a link, to a row of the next version."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crawl_lib.config import Config
from crawl_lib.engine import Engine, Workplace, open_engine
from crawl_lib.engine.engine import sql_text
from crawl_lib.storage import LocalStorage

T, DAY = datetime(2026, 11, 1), 86400
TIMES = {"moment", "due", "began", "linked_at"}
NUMBERS = {
    "cost",
    "retries",
    "depth",
    "old_depth",
    "redirects",
    "inlinks",
    "place",
    "places",
    "steps",
    "max_depth",
}
SCHEDULE = {
    "always_s": 90 * DAY, "min_s": 60, "max_s": 365 * DAY, "gone_s": 180 * DAY, "interval_s": 30 * DAY, "faster": 0.5,
    "slower": 0.5, "orphans": "gone", "hint_s": 3600, "ranked": False,
}  # fmt: skip


def kind_of(name: str) -> pa.DataType:
    if name in TIMES or name.endswith("_time"):
        return pa.timestamp("us")
    if (name.startswith("is_") and name != "is_newer") or name == "ranked":
        return pa.bool_()
    if name in {"faster", "slower"}:
        return pa.float64()
    if name == "score" or name.endswith("_score"):
        return pa.decimal128(18, 9)
    is_number = name in NUMBERS or name.endswith(
        ("_s", "_offset", "_inlinks", "_redirects", "_depth", "_newer")
    )
    return pa.int64() if is_number else pa.string()


class Step:
    """A query of `sql/crawldb` over tables of one row. A column without a value is null."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def __call__(
        self, query: str, aliases: dict[str, str] | None = None, **tables: dict[str, Any]
    ) -> dict[str, Any]:
        text = sql_text(f"crawldb/{query}")
        given = {"schedule": SCHEDULE} | tables
        for table, row in given.items():
            alias = (aliases or {}).get(table, table)
            names = {*re.findall(rf"\b{alias}\.(\w+)", text), *row}
            columns = {name: pa.array([row.get(name)], kind_of(name)) for name in sorted(names)}
            self.engine.values(table, pa.table(columns).slice(0, bool(row)))
        [found] = self.engine.rows(f"crawldb/{query}")
        return found


@pytest.fixture
def step(tmp_path: Path, config: Config) -> Iterator[Step]:
    (tmp_path / "scratch").mkdir()
    room = Workplace(LocalStorage(tmp_path), tmp_path / "scratch", "hidden", 1 << 28)
    with open_engine(config, room) as engine:
        yield Step(engine)


@pytest.mark.parametrize(
    ("before", "turn", "seen", "stored"),
    [
        ({}, {"seen": "content"}, "first", "none"),
        ({"signature": "s"}, {"seen": "content", "signature": "s"}, "same", "fetched"),
        ({"signature": "s"}, {"seen": "content", "signature": "t"}, "changed", "fetched"),
        ({"signature": "s"}, {"seen": "not_modified"}, "lost", "fetched"),
        (
            {"signature": "s", "capture_segment": "1/a"},
            {"seen": "not_modified"},
            "not_modified",
            "fetched",
        ),
        ({"status": "requisite", "fetch_status": "gone"}, {"seen": "gone"}, "gone", "gone"),
    ],
)
def test_a_pair_says_what_is_stored_and_what_is_seen(
    step: Step, before: dict[str, Any], turn: dict[str, Any], seen: str, stored: str
) -> None:
    row = {"key": "k", "status": "fetched", **before} if before else {}
    found = step(
        "event_pairs", turn={"key": "k", "kind": "visit", "is_requisite": False, **turn}, before=row
    )
    assert (found["seen"], found["stored"]) == (seen, stored)
    assert found["is_new"] == (not before or before.get("status") == "requisite")


@pytest.mark.parametrize(
    ("believed", "visit", "status", "fetch_status", "scheduled_s"),
    [
        ("kept", "sooner", "fetched", "unfetched", DAY // 2),
        ("restored", "kept", "unfetched", "unfetched", DAY),
        ("duplicate", "later", "duplicate", "not_modified", DAY * 3 // 2),
        ("gone", "longer", "gone", "gone", DAY * 3 // 2),
    ],
)
def test_a_state_is_that_of_the_matrix(
    step: Step, believed: str, visit: str, status: str, fetch_status: str, scheduled_s: int
) -> None:
    pair = {
        "stored": "fetched",
        "stored_fetch": "unfetched",
        "seen": "gone",
        "kind": "visit",
        "interval_s": DAY,
    }
    row = {
        "stored": "fetched",
        "seen": "gone",
        "believed": believed,
        "visit": visit,
        "content": "kept",
    }
    found = step("event_states", {"event_pairs": "judged"}, event_pairs=pair, matrix=row)
    assert (found["status"], found["fetch_status"], found["scheduled_s"]) == (
        status,
        fetch_status,
        scheduled_s,
    )


@pytest.mark.parametrize(
    ("event", "limits", "interval_s"),
    [
        ({"is_seeded": True, "seed_interval_s": 7}, {}, 7),
        ({"visit": "retry"}, {"least_s": 4 * DAY}, DAY),
        ({"visit": "sooner", "scheduled_s": 10}, {}, 60),
        ({"visit": "sooner", "scheduled_s": 10}, {"least_s": 600}, 600),
        ({"visit": "later", "scheduled_s": 999 * DAY}, {}, 365 * DAY),
        ({"visit": "later", "scheduled_s": 999 * DAY}, {"fixed_s": 5}, 5),
    ],
)
def test_an_interval_has_the_bounds_of_its_kind(
    step: Step, event: dict[str, Any], limits: dict[str, Any], interval_s: int
) -> None:
    state = {
        "is_seeded": False,
        "seed_interval_s": None,
        "interval_s": DAY,
        "min_s": 60,
        "max_s": 365 * DAY,
    }
    state |= {"scheduled_s": DAY, "visit": "none", "host": "h", "status": "fetched"} | event
    found = step(
        "event_intervals",
        {"event_states": "believed"},
        event_states=state,
        kinds={"host": "h", "mime": "", "metadata": "", "sort": "1"} if limits else {},
        limits={"sort": "1", "status": "fetched", **limits} if limits else {},
    )
    assert found["new_interval_s"] == interval_s


def test_a_link_adds_an_inlink_and_shortens_the_way(step: Step) -> None:
    met = {
        "key": "k",
        "is_page": True,
        "is_new": False,
        "is_found": True,
        "depth": 3,
        "linked_depth": 2,
        "inlinks": 4,
    }
    met |= {
        "new_inlinks": 1,
        "began": T,
        "linked_at": T - timedelta(1),
        "score": Decimal(1),
        "linked_score": Decimal(2),
    }
    found = step("linked_rows", met=met, facts={}, scores={}, ended={})
    assert (found["seen"], found["depth"], found["inlinks"], found["score"]) == (
        "link",
        2,
        5,
        Decimal(2),
    )
    assert (
        step("linked_rows", met=met, facts={}, scores={"key": "k", "score": Decimal(7)}, ended={})[
            "score"
        ]
        == 7
    )


@pytest.mark.parametrize(
    ("lost", "left"), [({}, 4), ({"key": "k", "inlinks": 3}, 1), ({"key": "k", "inlinks": 5}, 0)]
)
def test_a_current_row_has_the_inlinks_that_are_left(
    step: Step, lost: dict[str, Any], left: int
) -> None:
    row = {
        "key": "k",
        "is_page": True,
        "stored": "fetched",
        "seen": "link",
        "inlinks": 4,
        "retries": 0,
    }
    row |= {
        "fetched_time": T,
        "fetch_time": T + timedelta(9),
        "interval_s": DAY,
        "capture_segment": "1/a",
    }
    matrix = {"stored": "fetched", "seen": "link", "believed": "kept"}
    hinted = {"key": "k", "is_newer": 1, "every_s": None}
    tables = {
        "matrix": matrix,
        "hinted": hinted,
        "lost": lost,
        "there": {"name": "1/a"},
        "taken_out": {},
    }
    found = step("current_rows", {"linked_rows": "joined"}, linked_rows=row, **tables)
    assert (found["status"], found["inlinks"], found["is_there"]) == ("fetched", left, True)
    assert found["fetch_time"] == T + timedelta(hours=1)
    tables["taken_out"] = {"key": "k", "name": "1/a"}
    assert not step("current_rows", {"linked_rows": "joined"}, linked_rows=row, **tables)[
        "is_there"
    ]


@pytest.mark.parametrize(
    ("status", "inlinks", "depth", "becomes"),
    [
        ("fetched", 0, 1, "gone"),
        ("fetched", 1, 1, None),
        ("fetched", 0, 0, None),
        ("gone", 0, 1, None),
    ],
)
def test_a_page_without_links_is_an_orphan_unless_it_is_a_seed(
    step: Step, status: str, inlinks: int, depth: int, becomes: str | None
) -> None:
    row = {"status": status, "inlinks": inlinks, "depth": depth, "interval_s": DAY}
    found = step("ruled_rows", {"current_rows": "linked"}, current_rows=row)
    assert (found["becomes"], found["longer_s"]) == (becomes, DAY * 3 // 2)
