"""Pages that are nearly the same: when a pattern is a trap, and what is fetched before that is known."""

from __future__ import annotations

import random
from collections.abc import Sequence
from hashlib import sha1
from pathlib import Path

import pytest

from benchmarks.crawl import TREES
from crawl_lib.config import TrapsConfig
from crawl_lib.fetch import HostStore
from crawl_lib.parse import sketch
from crawl_lib.records import Fetched, QueuedUrl, TakenUrl
from crawl_lib.states import Outcome
from crawl_lib.urls import pattern_of
from crawl_lib.worker.patterns import Patterns, room_of
from tests.urls.test_traps import OTHERS

NAME = pattern_of(b"http://a.test/x/1", b"a.test").decode()
TEXT = " ".join(f"word{number}" for number in range(100))
HTML = "text/html"


def taken(number: int, place: str = "x", **fields: object) -> TakenUrl:
    queued = QueuedUrl(
        **{"url": f"http://a.test/{place}/{number}", "via": bytes(20), "depth": 3, **fields}
    )  # type: ignore[arg-type]
    return TakenUrl(number, sha1(queued.url.encode()).digest(), queued)


def fetched(number: int, outcome: Outcome = Outcome.OK) -> Fetched:
    return Fetched(f"http://a.test/x/{number}", 1000.0 + number, outcome)


def store(folder: Path, sketches: Sequence[bytes], most: int = 10) -> int | None:
    with HostStore(folder) as hosts:
        hosts.pages.save_sketches(NAME, dict(enumerate(sketches)), 2 * most)
        return room_of(hosts, NAME, most)


def same(count: int, changed: int = 1) -> list[bytes]:
    """Sketches of pages with so many other words of a hundred."""
    texts = (
        TEXT + "".join(f" new{number}x{one}" for one in range(changed)) for number in range(count)
    )
    return [sketch(text.encode()) for text in texts]


def other(count: int) -> list[bytes]:
    texts = (" ".join(f"{number}word{one}" for one in range(100)) for number in range(count))
    return [sketch(text.encode()) for text in texts]


def test_a_pattern_is_a_trap_if_half_of_its_newest_pages_are_nearly_the_same(
    tmp_path: Path,
) -> None:
    rooms = {
        "nothing is known": ([], 10),
        "too few": (same(9), 10),
        "enough": (same(10), 0),
        "enough among others": ([*other(10), *same(10)], 0),
        "too few among others": ([*other(11), *same(9)], None),
        "enough, but long ago": ([*same(10), *other(11)], None),
        "what is no page is like nothing": ([b""] * 20, None),
        "pages without words are not either": ([bytes(64)] * 20, None),
        "a third of their words differs": (same(20, 33), None),
    }
    for name, (sketches, room) in rooms.items():
        (folder := tmp_path / name).mkdir()
        assert store(folder, sketches) == room, name


def test_so_many_are_fetched_before_it_is_known_and_seeds_lists_and_requisites_in_any_case(
    tmp_path: Path,
) -> None:
    items = [taken(number) for number in range(30)]
    wanted = [
        taken(30, via=None, depth=0),
        taken(31, list_name="list"),
        taken(32, "elsewhere"),
        taken(33, requisite=1),
    ]
    now, later, traps = Patterns({NAME: 10}, 10, tmp_path).divided([*items, *wanted])
    assert (now, later, traps) == ([*items[:10], *wanted], items[10:], [])
    assert Patterns({NAME: 0}, 10, tmp_path).divided([*items, *wanted]) == (wanted, [], items)
    assert Patterns({NAME: None}, 10, tmp_path).divided([*items, *wanted]) == (
        [*items, *wanted],
        [],
        [],
    )


@pytest.mark.parametrize(("html", "room"), [(TEXT, 0), ("", 10)])
def test_what_pages_are_like_decides_on_the_rest_also_if_they_are_handled_twice(
    tmp_path: Path, html: str, room: int
) -> None:
    items = [taken(number) for number in range(30)]
    patterns = Patterns({NAME: 10}, 10, tmp_path)
    now, later, _ = patterns.divided(items)
    for _ in range(2):
        for one in now:
            patterns.note(
                one,
                fetched(one.position),
                HTML,
                f"<p>{html} {one.position}".encode() if html else b"",
            )
        patterns.save()
    patterns.note(later[0], fetched(99, Outcome.FILTERED), None, b"")
    patterns.save()
    patterns.compare(later)
    assert patterns.divided(later) == (
        later[:room],
        later[room:] if room else [],
        [] if room else later,
    )
    with HostStore(tmp_path) as hosts:
        assert len(hosts.pages.sketches(NAME)) == 10


def test_of_a_large_pattern_that_is_no_trap_an_eighth_is_looked_at(tmp_path: Path) -> None:
    patterns = Patterns({NAME: None}, 1000, tmp_path)
    for number in range(800):
        patterns.note(taken(number), fetched(number), HTML, TEXT.encode())
    patterns.save()
    with HostStore(tmp_path) as hosts:
        assert 60 < len(hosts.pages.sketches(NAME)) < 140


@pytest.mark.parametrize(
    ("package", "tree", "_"), [*TREES, *OTHERS], ids=lambda value: str(value)[:20]
)
def test_no_folder_of_real_documentation_is_a_trap(
    tmp_path: Path, package: str, tree: Path, _: str
) -> None:
    """However few pages it has, in two orders."""
    folders: dict[bytes, list[bytes]] = {}
    for file in sorted(tree.rglob("*.html")):
        url = f"http://doc.test/{file.relative_to(tree)}".encode()
        folders.setdefault(pattern_of(url, b"doc.test"), []).append(
            sketch(file.read_bytes()[: 64 << 10])
        )
    if not folders:
        pytest.skip(f"Debian's {package} is not installed")
    most = TrapsConfig().max_similar
    assert most is not None
    with HostStore(tmp_path) as hosts:
        for sketches in folders.values():
            for order in (sketches, random.Random(1).sample(sketches, len(sketches))):
                for start in range(0, len(order) - most, 2 * most):
                    hosts.pages.save_sketches(
                        NAME, dict(enumerate(order[start : start + 2 * most])), 2 * most
                    )
                    assert room_of(hosts, NAME, most) != 0
