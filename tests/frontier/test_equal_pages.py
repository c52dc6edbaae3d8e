"""What was found on pages whose words too many pages have (`traps.max_equal`), at the intake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crawl_lib.frontier import Queue
from crawl_lib.records import QueuedUrl
from crawl_lib.urlfiles import HANDED_ON
from tests.frontier.helpers import Keys, key, source, take_in, urls_of

FULL, GOOD = key("http://a.test/full"), key("http://a.test/good")
OPTIONS: dict[str, Any] = {"full_pages": {FULL}.intersection}


def found(number: int, via: bytes | None = FULL, **fields: Any) -> QueuedUrl:
    return QueuedUrl(f"http://a.test/{number}", via, 2, **fields)


def test_it_does_not_join_and_joins_when_another_page_links_to_it(tmp_path: Path) -> None:
    queue, keys = Queue(tmp_path), Keys()
    urls = [
        found(1),
        found(2, GOOD),
        found(3, None),
        found(4, list_name="retry-1"),
        found(5, requisite=1),
    ]
    report = take_in(queue, keys, source("1", "n", urls), **OPTIONS)
    assert urls_of(queue) == [url.url for url in urls[1:]], (
        "seeds, lists and requisites are wanted in any case"
    )
    assert report.rejected == {"similar": 1}
    assert key(found(1).url) not in keys.keys
    take_in(queue, keys, source("2", "n", [found(1, GOOD)]), **OPTIONS)
    assert urls_of(queue)[-1] == found(1).url


def test_what_another_node_has_queued_joins_in_any_case(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    take_in(queue, Keys(), source("1", "n", [found(1)], HANDED_ON), **OPTIONS)
    assert urls_of(queue) == [found(1).url]
