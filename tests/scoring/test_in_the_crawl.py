"""Five rounds on the synthetic web with OPIC, depth, and a plug-in of a wheel of its own, which looks at pages: the
scores are those of plain Python over what the segments say."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from crawl_lib import stages
from crawl_lib.errors import KrakeError
from crawl_lib.storage import open_storage
from crawl_lib.stores import open_stores
from demo import Serving, SynthWeb
from tests.crawldb.crawls import Crawl
from tests.crawldb.test_generate import config_of
from tests.e2e.crawl import run_iteration
from tests.scoring.simulation import BILLION, as_simulated, rounded
from tests.scoring.wheel import give_wheel
from tests.stores import stores_on

WEB = SynthWeb(seed=30, sites=2, pages_per_site=25, specials=False)
MAX_DEPTH = 3


def simulated(crawl: Crawl, folder: str, scores: dict[str, int], depths: dict[str, int]) -> int:
    """Add what a round has brought; returns how many pages with a title it had."""
    pages = pq.read_table(crawl.root / folder / "node-0" / "pages.parquet").to_pylist()
    links = pq.read_table(crawl.root / folder / "node-0" / "links.parquet").to_pylist()
    targets: dict[bytes, list[str]] = {}
    for link in links:
        if link["followed"] and link["target"] != link["source"]:
            targets.setdefault(link["source"], []).append(link["target_url"])
    given, found, before = Counter[str](), dict[str, int](), dict(scores)
    for page in pages:
        aims = targets.get(page["key"], []) if page["outcome"] == "ok" else []
        aims = [page["redirect_url"]] if page["outcome"] == "redirect" else aims
        if aims and depths[page["url"]] < MAX_DEPTH:
            share, depth = rounded(before[page["url"]] / 1e9 / len(aims)), depths[page["url"]]
            for aim in aims:
                given[aim] += share
                found[aim] = min(found.get(aim, 99), depth + (page["outcome"] != "redirect"))
    titled = {page["url"] for page in pages if page["outcome"] == "ok" and page["title"]}
    for url in {*found, *titled}:
        score = before.get(url, 0) / 1e9
        scores[url] = rounded(score + given[url] / 1e9 + (2 * 1.0 * score if url in titled else 0))
        depths[url] = min(depths.get(url, 99), found.get(url, 99))
    return len(titled)


def test_five_rounds_of_a_crawl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give_wheel(tmp_path / "site", monkeypatch)
    scoring = {"plugins": ["opic", "depth", "titled"], "max_depth": MAX_DEPTH}
    options: dict[str, Any] = {
        "generate": {"order": "score"},
        "batch": {"size": 15},
        "scoring": scoring,
    }
    config = config_of(tmp_path, **options)
    crawl = Crawl(stores_on(open_storage(config), config))
    with Serving(WEB) as serving:
        stages.inject(open_stores(config), run_id="run", seeds="\n".join(serving.seeds))
        scores, depths = as_simulated(crawl)
        assert set(scores.values()) == {BILLION}
        titled = 0
        for number in range(1, 6):
            made = stages.generate(open_stores(config), run_id="run", iteration=number)
            run_iteration(config, "run", number)
            stages.update_crawldb(open_stores(config))
            titled += simulated(crawl, made["folder"], scores, depths)
            assert as_simulated(crawl) == (scores, depths)
    assert titled > 20
    assert len(scores) > 30


def test_one_that_fails_in_the_crawl_names_the_url_and_goes_on_when_it_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_wheel(tmp_path / "site", monkeypatch)
    module = tmp_path / "site" / "krake_titled.py"
    right = module.read_text()
    module.write_text(right.replace('page["title"]', 'page["titel"]'))
    config = config_of(tmp_path, scoring={"plugins": ["titled"]})
    with Serving(WEB) as serving:
        stages.inject(open_stores(config), run_id="run", seeds=serving.seeds[0])
        stages.generate(open_stores(config), run_id="run", iteration=1)
        with pytest.raises(
            KrakeError, match=f"titled, after_parsing: {serving.seeds[0]}: KeyError: 'titel'"
        ):
            run_iteration(config, "run", 1)
        asked = len(serving.log().requests)
        module.write_text(right)
        run_iteration(config, "run", 1)
        assert len(serving.log().requests) == asked, "what was fetched is kept"
