"""OPIC and depth in plain Python, over crawls written by hand: what rows are to have after each round."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from tests.crawldb.crawls import Crawl, Visit
from tests.crawldb.test_update import DAY, T

BILLION = 10**9


def rounded(value: float) -> int:
    """Billionths, half away from zero."""
    exact = Decimal(value * 1e9)
    return int(exact.to_integral_value("ROUND_HALF_UP"))


@dataclass
class Web:
    """A web that changes: each round some pages have other content and other links."""

    seed: int
    size: int = 60
    bodies: dict[str, str] = field(default_factory=dict)
    links: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.urls = [f"http://{number % 7}.example/{number}" for number in range(self.size)]
        for url in self.urls:
            self.change(url)

    def change(self, url: str) -> None:
        """Other content; some pages have no links, some link twice, some to themselves."""
        self.bodies[url] = str(self.rng.random())
        self.links[url] = self.rng.choices(self.urls, k=self.rng.choice([0, 1, 2, 3, 3, 7]))


@dataclass
class Simulation:
    """The rows as they should be: scores in billionths, and depths."""

    max_depth: int
    gives_always: bool
    scores: dict[str, int] = field(default_factory=dict)
    depths: dict[str, int] = field(default_factory=dict)
    seen: dict[str, str] = field(default_factory=dict)

    def round(self, visits: list[Visit]) -> None:
        """One round's visits."""
        given, found, before = Counter[str](), dict[str, int](), dict(self.scores)
        for visit in visits:
            is_changed, self.seen[visit.url] = self.seen.get(visit.url) != visit.body, visit.body
            links = [url for url in visit.links if url != visit.url]
            if not links or self.depths[visit.url] >= self.max_depth:
                continue
            share = (
                rounded(before[visit.url] / 1e9 / len(links))
                if is_changed or self.gives_always
                else 0
            )
            for url in links:
                given[url] += share
                found[url] = min(found.get(url, 99), self.depths[visit.url] + 1)
        for url, depth in found.items():
            self.scores[url] = self.scores.get(url, 0) + given[url]
            self.depths[url] = min(self.depths.get(url, 99), depth)


def rounds(crawl: Crawl, simulation: Simulation, web: Web) -> Iterator[None]:
    """Five rounds, after each of which an update is to be made."""
    seeds = {web.urls[0]: 1 * BILLION, web.urls[1]: 2 * BILLION + 500_000_001}
    crawl.seeds("\n".join(f"{url}\tscore={score / 1e9:.9f}" for url, score in seeds.items()))
    simulation.scores, simulation.depths = dict(seeds), dict.fromkeys(seeds, 0)
    yield
    for number in range(5):
        for url in web.rng.sample(web.urls, 10):
            web.change(url)
        known = sorted(simulation.scores)
        chosen = web.rng.sample(known, max(1, len(known) * 3 // 4)) if number else known
        visits = [
            Visit(
                url,
                body=web.bodies[url],
                links=web.links[url],
                more={"depth": simulation.depths[url]},
            )
            for url in chosen
        ]
        crawl.segment(T + number * DAY, visits)
        simulation.round(visits)
        yield


def as_simulated(crawl: Crawl) -> tuple[dict[str, int], dict[str, int]]:
    """Scores in billionths, and depths, of the newest version."""
    rows = crawl.rows()
    return {url: int(row["score"] * BILLION) for url, row in rows.items()}, {
        url: row["depth"] for url, row in rows.items()
    }
