"""Every query of `docs/tour.md` runs on a crawl of the synthetic web, and has an answer."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from demo import Serving, SynthWeb
from tests.e2e.crawl import make_config, run_crawl
from tests.test_readme import ROOT, fences

TOUR = (ROOT / "docs" / "tour.md").read_text()
TABLES, *QUERIES = fences(TOUR, "sql")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the data of a demo."""
    folder = tmp_path_factory.mktemp("project")
    data = folder / "data" / "demo"
    data.mkdir(parents=True)
    fetch = {"host_delay_s": 0.0, "max_crawl_delay_s": 0.1, "time_limit_s": 2}
    with Serving(SynthWeb(seed=1, sites=2, pages_per_site=10)) as web:
        run_crawl(make_config(data, nodes=2, urls={"scope": "any"}, fetch=fetch), web.seeds, 4)
    return folder


def test_every_query_of_the_tour_has_an_answer(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    ask = duckdb.connect().sql
    ask(TABLES)
    assert len(QUERIES) >= 12
    for query in QUERIES:
        rows = ask(query).to_arrow_table().to_pylist()
        assert rows, query
        assert any(cell is not None for row in rows for cell in list(row.values())[1:]), query
