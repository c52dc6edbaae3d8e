"""What an intake costs does not depend on what strangers write into URLs: its time, its memory, and the room of counts.

`KRAKE_HOSTILE_SECONDS=3600` drives it with new seeds for so long.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from itertools import count
from pathlib import Path
from statistics import median
from time import monotonic, process_time

from crawl_lib.config import TrapsConfig, UrlsConfig
from crawl_lib.frontier import IntakeRules, Queue
from crawl_lib.frontier.hostcounts import HostCounts
from crawl_lib.keys.server import KnownKeys
from crawl_lib.records import QueuedUrl
from crawl_lib.urlfiles import CHUNK_BYTES, OutlinkWriter, Source, encode_line, read_outlinks
from crawl_lib.urlfiles.outlinks import _line_blocks
from crawl_lib.urls import Budgets, Traps
from tests.frontier.helpers import Keys, held
from tests.urls.hostile import Habit, ordinary

RULES = IntakeRules("host", Budgets(UrlsConfig()), Traps(TrapsConfig()))
SECONDS = float(os.environ.get("KRAKE_HOSTILE_SECONDS", "0"))
FEW, AT_ONCE = 60, 10


class NewKeys(Keys):
    """Servers that know nothing, as fast as can be. `most`: of keys that were asked for at once."""

    most = 0

    def unknown(self, keys: Collection[bytes]) -> KnownKeys:
        self.most = max(self.most, len(keys))
        return KnownKeys(set(keys), set(), set())

    def _add(self, keys: object) -> None:
        pass


def taken_in(
    directory: Path, urls: Collection[str], keys: NewKeys | None = None
) -> tuple[Queue, float]:
    """A queue that took these URLs in, and the seconds of CPU that a URL cost."""
    directory.mkdir()
    queue = Queue(directory)
    held(queue).queue.create()
    lines = [encode_line(QueuedUrl(url, bytes(20), 3)) for url in urls]
    start = process_time()
    held(queue).intake.run([Source("1", "n", lambda: iter(lines))], keys or NewKeys(), RULES)  # type: ignore[arg-type]
    return queue, (process_time() - start) / len(urls)


def seeds() -> Iterator[int]:
    """The first seed of some: of 200 seeds in all; with the variable set, new ones until the time is over."""
    end = monotonic() + SECONDS
    for seed in count(0, AT_ONCE):
        if seed >= 200 and monotonic() > end:
            return
        yield seed


def test_a_url_costs_twice_an_ordinary_one_at_most_and_its_counts_little_room(
    tmp_path: Path,
) -> None:
    """An ordinary one: of a forum or a shop. Some strangers are read at once, since each intake begins with files."""
    for first in seeds():
        costs = []
        for number in range(3):
            habits = [Habit(first + one) for one in range(AT_ONCE)]
            urls = [
                habit.url((60, 120)[first // AT_ONCE % 2]) for habit in habits for _ in range(FEW)
            ]
            queue, cost = taken_in(tmp_path / f"{first}-{number}", urls)
            _, usual = taken_in(
                tmp_path / f"usual-{first}-{number}", ordinary(first + number, len(urls))
            )
            costs.append(cost / usual)
            room = HostCounts(queue.directory).path.stat().st_size
            assert room < 100_000 + 4 * sum(map(len, urls)), first
            if costs[0] < 1.8:
                break
        assert median(costs) < 2, first


def test_a_query_of_many_short_parts_costs_twice_an_ordinary_url_at_most(tmp_path: Path) -> None:
    """Each part was tried against each form of a session id and of a date, and cost 2.3 times."""
    ratios = []
    for number in range(5):
        habit = Habit(4553)
        urls = [habit.url(120) for _ in range(10 * FEW)]
        _, cost = taken_in(tmp_path / f"{number}", urls)
        _, usual = taken_in(tmp_path / f"usual-{number}", ordinary(number, len(urls)))
        ratios.append(cost / usual)
    assert median(ratios) < 2


def test_a_chunk_ends_by_bytes_too_whatever_archives_shrink_to(tmp_path: Path) -> None:
    """Long URLs that are alike: 20 MB that are 0.2 MB in the file."""
    lines = [
        encode_line(QueuedUrl(f"http://a.test/{'x' * 2000}{number}", bytes(20), 3))
        for number in range(10_000)
    ]
    with (tmp_path / "outlinks").open("wb") as file:
        OutlinkWriter(file).add_part("n", lines)
    blocks = [len(block) for block in read_blocks(tmp_path / "outlinks")]
    assert sum(blocks) == len(lines)
    assert max(blocks) < 1000
    keys = NewKeys()
    (tmp_path / "n").mkdir()
    queue = Queue(tmp_path / "n")
    held(queue).queue.create()
    read = Source(
        "1", "n", lambda: read_outlinks((tmp_path / "outlinks").open("rb"), count=len(lines))
    )
    held(queue).intake.run([read], keys, RULES)  # type: ignore[arg-type]
    assert queue.record().report().new == len(lines)
    assert 3_000 < keys.most <= CHUNK_BYTES // 2000 + 250


def read_blocks(path: Path) -> Iterator[list[bytes]]:
    with path.open("rb") as file:
        yield from _line_blocks(file, "outlinks")


def test_three_pages_of_long_queries_leave_little_behind(tmp_path: Path) -> None:
    """Each query has 400 parts, each of them new: every part was counted once."""
    urls = [
        "http://a.test/list?" + "&".join(f"{n * 400 + part:x}" for part in range(400))
        for n in range(1_000)
    ]
    queue, _ = taken_in(tmp_path / "n", urls)
    assert HostCounts(queue.directory).path.stat().st_size < sum(map(len, urls)) / 4
