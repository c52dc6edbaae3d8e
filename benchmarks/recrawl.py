"""Simulated years: what the adaptive schedule brings over the fixed one, for as many fetches.

Pages change by chance (a Poisson process each); their mean times between changes are log-uniform from a day to never.
All have been fetched once when the simulation begins. Each day a round visits as many pages as it may, those first
that are longest past due. `Years` does that with Krake's own `generate` and `update`; `simulate` is the same schedule
in a few lines, for other webs and for tests, which compare the two visit by visit.

A copy is fresh until its page changes; its age is the time since the first change that no visit has seen.

`python -m benchmarks.recrawl > docs/images/recrawl.svg` makes the plot.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from hashlib import sha1
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.report import Row, measure
from crawl_lib import stages
from crawl_lib.config import from_mapping
from crawl_lib.crawldb import KEYS_FILE, generate, update
from crawl_lib.crawldir import FileName
from crawl_lib.sealed import MANIFEST_FILE
from crawl_lib.segment import LINKS_SCHEMA, PAGES_SCHEMA, Manifest
from crawl_lib.stores import Stores, open_stores
from crawl_lib.version import VERSION

DAY_S = 86_400
DAYS = 730
PAGES = 20_000
SEEDS = 5
SHARE = 25
"""A round may visit one page of so many."""
INTERVAL_S = 7 * DAY_S
NEVER_DAYS = 1e6
FASTER, SLOWER = 0.2, 0.4
LEAST_S, MOST_S, ALWAYS_S = 60, 365 * DAY_S, 90 * DAY_S
Numbers = npt.NDArray[np.int64]


class Freshness(NamedTuple):
    """Means over all pages and all the time: which part of the copies is fresh, and how old they are."""

    fresh: float
    age_days: float
    fetches: int


class Web:
    """Pages that change. `versions`: how often visits have seen each of them change."""

    def __init__(self, pages: int, seed: int, fastest_days: float = 1.0) -> None:
        self._draw = np.random.default_rng(seed)
        self._mean = np.exp(self._draw.uniform(np.log(fastest_days), np.log(NEVER_DAYS), pages))
        self._change = self._draw.exponential(self._mean)
        self._stale, self._age = np.zeros(pages), np.zeros(pages)
        self.versions = np.zeros(pages, dtype=np.int64)
        self.fetches = pages

    def visit(self, pages: Numbers, day: float) -> npt.NDArray[np.bool_]:
        """Fetch some pages, in ascending order; returns which have changed since their last visit."""
        changed = self._change[pages] <= day
        self._count(pages[changed], day)
        self._change[pages[changed]] = day + self._draw.exponential(self._mean[pages[changed]])
        self.versions[pages[changed]] += 1
        self.fetches += len(pages)
        return changed

    def end(self, day: float) -> Freshness:
        """What it was like from day 0 to now."""
        self._count(np.flatnonzero(self._change < day), day)
        all_days = len(self._mean) * day
        return Freshness(1 - self._stale.sum() / all_days, self._age.sum() / all_days, self.fetches)

    def _count(self, pages: Numbers, day: float) -> None:
        late = day - self._change[pages]
        self._stale[pages] += late
        self._age[pages] += late**2 / 2


def simulate(
    web: Web, kind: str, days: int, a_round: int, interval_s: int = INTERVAL_S
) -> Iterator[Numbers]:
    """The days of a schedule; gives which pages were visited on each. `a_round`: so many may be."""
    pages = len(web.versions)
    interval = np.full(pages, interval_s)
    due = interval.copy()
    for day in range(1, days):
        chosen = np.flatnonzero(due <= day * DAY_S)
        first = np.lexsort((chosen, due[chosen]))[:a_round]
        visited = np.sort(chosen[first])
        changed = web.visit(visited, day)
        if kind == "adaptive":
            rate = np.where(changed, 1 - FASTER, 1 + SLOWER)
            interval[visited] = np.clip(
                np.round(interval[visited] * rate).astype(np.int64), LEAST_S, MOST_S
            )
        due[visited] = day * DAY_S + np.minimum(interval[visited], ALWAYS_S)
        yield visited


def freshness(
    kind: str, seed: int, *, pages: int = PAGES, fastest_days: float = 1.0, a_round: int = 0
) -> Freshness:
    """Of one web under a schedule, by `simulate`. `a_round`: what a round may visit, 0: one page of `SHARE`."""
    web = Web(pages, seed, fastest_days)
    # Where a round is limited, what a fixed interval says hardly counts: the pages take turns.
    for _ in simulate(
        web,
        kind,
        DAYS,
        a_round or pages // SHARE,
        DAY_S if a_round and kind == "fixed" else INTERVAL_S,
    ):
        pass
    return web.end(DAYS)


class Years:
    """The same by Krake itself: each round makes a list, and a segment of what it visits, and takes that in.

    Each web has a host of its own, and `a_round` visits a round. Pages are numbered in the order of their keys, by
    which those that have been due for the same time are told apart.
    """

    def __init__(self, directory: Path, webs: Sequence[Web], kind: str, a_round: int) -> None:
        self._directory, self._webs, self._kind = directory, webs, kind
        urls = [
            [f"http://s{web}.example/{page}" for page in range(len(one.versions))]
            for web, one in enumerate(webs)
        ]
        self._urls = [sorted(of_web, key=_key) for of_web in urls]
        self._places = {
            _key(url): (web, page)
            for web, of_web in enumerate(self._urls)
            for page, url in enumerate(of_web)
        }
        self._first, self._others = self._stores(None), self._stores(a_round)
        seeds = "\n".join(url for of_web in self._urls for url in of_web)
        stages.inject(self._first, run_id=_RUN, seeds=seeds)

    def days(self, days: int) -> Iterator[list[Numbers]]:
        """The days of the schedule; gives which pages of each web were visited on each but the first, when all are."""
        for day in range(days):
            stores, now = (
                self._others if day else self._first,
                datetime.fromtimestamp(_BEGIN_S + day * DAY_S, UTC),
            )
            update(stores, now=now)
            made = generate(stores, _RUN, day + 1, now=now)
            with stores.storage.open_read(
                stores.crawl.at(FileName.LISTS, made.list, KEYS_FILE)
            ) as file:
                listed = pq.read_table(file).to_pylist()
            places = [self._places[row["key"]] for row in listed]
            visits = [
                np.array(sorted(page for web, page in places if web == number), dtype=np.int64)
                for number in range(len(self._webs))
            ]
            if day:
                for web, pages in zip(self._webs, visits, strict=True):
                    web.visit(pages, day)
                yield visits
            if made.folder:  # else nothing is due
                self._segment(stores, made.folder, visits, now)

    def _stores(self, a_round: int | None) -> Stores:
        mapping = {
            "servers": ["node-a"],
            "dfs_primary": "dfs",
            "crawl": {"max_iterations": 1000},
            "key_storage": {"servers": ["keys/0.sqlite"]},
            "queue": {"local_dir": "queue"},
            "scratch": {"directory": "scratch"},
            "batch": {"size": 10_000_000},
            "urls": {"scope": "any"},
            "frontier": {"order": "crawldb"},
            "generate": {"max_per_host": a_round, "order": "age"},
            "schedule": {"kind": self._kind, "interval_s": INTERVAL_S},
            "fetch": {"contact": "bench@localhost"},
        }
        return open_stores(from_mapping(mapping, self._directory))

    def _segment(
        self, stores: Stores, folder: str, visits: Sequence[Numbers], now: datetime
    ) -> None:
        """What a node would leave of these visits: a page's content says how often it has changed."""
        rows = [
            {
                "key": _key(url := self._urls[web][page]),
                "url": url,
                "host": f"s{web}.example",
                "time": now,
                "outcome": "ok",
                "status": 200,
                "mime_detected": "text/html",
                "digest": sha1(f"{url} {self._webs[web].versions[page]}".encode()).digest(),
                "depth": 0,
                "attempts": 1,
                "duration_ms": 1,
                "warc_file": "x.warc.gz",
                "warc_offset": page,
                "warc_length": 1,
            }
            for web, pages in enumerate(visits)
            for page in pages.tolist()
        ]
        place = stores.storage.local_path(stores.crawl.at(folder, "node-a"))
        assert place is not None
        place.mkdir()
        pq.write_table(pa.Table.from_pylist(rows, PAGES_SCHEMA), place / Manifest.PAGES_NAME)
        pq.write_table(LINKS_SCHEMA.empty_table(), place / Manifest.LINKS_NAME)
        counts = {
            "taken": len(rows),
            "deferred": 0,
            "pages": len(rows),
            "links": 0,
            "outcomes": {"ok": len(rows)},
        }
        manifest = Manifest(
            krake_version=VERSION,
            take_id=folder,
            run_id=_RUN,
            iteration=1,
            folder=folder,
            node="node-a",
            config_digest="",
            user_agent="",
            robots_policy="",
            started="1970-01-01T00:00:00Z",
            counts=counts,
            queue_after=0,
            undecided=0,
        )
        (place / MANIFEST_FILE).write_bytes(manifest.to_bytes())


_RUN = "years"
_BEGIN_S = 1_600_000_000


def _key(url: str) -> bytes:
    return sha1(url.encode()).digest()


def years(directory: Path, kind: str, pages: int = PAGES, days: int = DAYS) -> list[Freshness]:
    """Of `SEEDS` webs under a schedule, by Krake itself."""
    webs = [Web(pages, seed) for seed in range(SEEDS)]
    for _ in Years(directory, webs, kind, pages // SHARE).days(days):
        pass
    return [web.end(days) for web in webs]


FASTEST_DAYS = {
    "a minute": 1 / 1440,
    "10 minutes": 1 / 144,
    "an hour": 1 / 24,
    "6 hours": 1 / 4,
    "a day": 1.0,
}
LIMITED, UNLIMITED = f"{PAGES // SHARE} pages a round", "as many as adaptive finds due"
_WIDTH, _HEIGHT, _LEFT, _TOP, _STEP, _ROOM, _LEAST, _MOST = 800, 290, 50, 40, 70, 200, 0.4, 1.0
_COLOURS = {"adaptive": "#0b6e99", "fixed": "#b5651d"}


def curves() -> dict[str, dict[str, list[Freshness]]]:
    """How fresh webs are whose fastest pages change after each of `FASTEST_DAYS`, by limit and schedule."""
    found: dict[str, dict[str, list[Freshness]]] = {
        name: {"adaptive": [], "fixed": []} for name in (LIMITED, UNLIMITED)
    }
    for days in FASTEST_DAYS.values():
        for kind, points in found[LIMITED].items():
            points.append(freshness(kind, 0, fastest_days=days))
        free = freshness("adaptive", 0, fastest_days=days, a_round=PAGES)
        found[UNLIMITED]["adaptive"].append(free)
        as_many = round((free.fetches - PAGES) / (DAYS - 1))
        found[UNLIMITED]["fixed"].append(freshness("fixed", 0, fastest_days=days, a_round=as_many))
    return found


def plot(found: dict[str, dict[str, list[Freshness]]]) -> str:
    """The curves as SVG, a panel for each limit."""
    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12"'
    text = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}><rect width="100%" height="100%" fill="white"/>'
    ]
    for number, (title, lines) in enumerate(found.items()):
        left = _LEFT + number * _WIDTH // 2
        text.append(f'<text x="{left}" y="20" font-weight="bold">fresh copies: {title}</text>')
        for tick in np.arange(_LEAST, _MOST + 0.01, 0.1):
            text.append(f'<path d="M{left} {_y(tick)}h{_STEP * 4 + 10}" stroke="#ddd"/>')
            text.append(
                f'<text x="{left - 6}" y="{_y(tick - 0.01)}" text-anchor="end">{tick:.1f}</text>'
            )
        for place, word in enumerate(FASTEST_DAYS):
            text.append(
                f'<text x="{left + 5 + place * _STEP}" y="{_TOP + _ROOM + 18}" text-anchor="middle">{word}</text>'
            )
        for row, (kind, points) in enumerate(lines.items()):
            line = " ".join(
                f"{left + 5 + place * _STEP},{_y(point.fresh)}"
                for place, point in enumerate(points)
            )
            text.append(
                f'<polyline points="{line}" fill="none" stroke="{_COLOURS[kind]}" stroke-width="2.5"/>'
            )
            text.append(
                f'<text x="{left + 20 + 70 * row}" y="60" fill="{_COLOURS[kind]}">{kind}</text>'
            )
        text.append(f'<text x="{left}" y="{_HEIGHT - 10}">the fastest pages change after</text>')
    return "\n".join([*text, "</svg>", ""])


def _y(value: float) -> str:
    return f"{_TOP + _ROOM * (_MOST - value) / (_MOST - _LEAST):.1f}"


def run(directory: Path) -> list[Row]:
    """Both schedules for two years, of all webs at once."""
    rows, found = [], {}
    for kind in _COLOURS:
        (directory / kind).mkdir()
        measured = measure(years, directory / kind, kind)
        found[kind] = measured.result
        rows.append(
            Row(
                f"recrawl: {DAYS} rounds, {SEEDS * PAGES:,} pages, {kind}",
                f"{measured.cpu_s:,.0f} s CPU",
            )
        )
    gains = [
        one.fresh - other.fresh
        for one, other in zip(found["adaptive"], found["fixed"], strict=True)
    ]
    ages = [
        one.age_days / other.age_days
        for one, other in zip(found["adaptive"], found["fixed"], strict=True)
    ]
    return [
        *rows,
        Row(
            "recrawl: freshness, adaptive less fixed",
            _each(gains),
            "at least 0.02",
            min(gains) >= 0.02,
        ),
        Row(
            "recrawl: mean age, adaptive over fixed", _each(ages), "at most 0.85", max(ages) <= 0.85
        ),
    ]


def _each(figures: Sequence[float]) -> str:
    return ", ".join(f"{figure:.3f}" for figure in figures)


if __name__ == "__main__":
    sys.stdout.write(plot(curves()))
