"""The limits of a crawl, against the truth: a trap without end, rounds, scope."""

from pathlib import Path

from demo import Serving, SynthWeb, TruthOptions
from tests.e2e.crawl import make_config, run_crawl


def test_depth_limit_ends_an_endless_calendar(tmp_path: Path) -> None:
    web = SynthWeb(seed=2, sites=2, pages_per_site=15, specials=False, calendar=True)
    config = make_config(tmp_path, nodes=1, urls={"scope": "hosts", "max_depth": 3})
    with Serving(web) as serving:
        result = run_crawl(config, serving.seeds, process=False)
        truth = serving.truth(options=TruthOptions(max_depth=3))
    assert set(result.visited()) == set(truth.visits)
    assert sum("calendar" in url for url in truth.visits) == 3


def test_rounds_and_scope_widened_by_a_seeds_redirect(tmp_path: Path) -> None:
    """A seed that redirects to another host brings that host into the scope, and only that one."""
    web = SynthWeb(seed=2, sites=3, pages_per_site=20)
    config = make_config(tmp_path, nodes=2)
    with Serving(web) as serving:
        seeds = [serving.url(1, "/x/away")]
        result = run_crawl(config, seeds, 3, process=False)
        truth = serving.truth(seeds, TruthOptions(rounds=3))
    assert result.outcomes() == {url: str(outcome) for url, outcome in truth.outcomes().items()}
    assert len({url.split("/")[2] for url in truth.visits}) == 2


def test_second_run_goes_on_where_the_first_stopped(tmp_path: Path) -> None:
    """Two runs of two iterations are one run of four."""
    web = SynthWeb(seed=6, sites=2, pages_per_site=25, specials=False)
    config = make_config(tmp_path, nodes=2)
    with Serving(web) as serving:
        result = None
        for number in range(2):
            result = run_crawl(
                config, serving.seeds, 2, run_id=f"run-{number}", result=result, process=number == 1
            )
        truth = serving.truth(options=TruthOptions(rounds=4))
        counts = serving.log().counts()
    assert set(result.visited()) == set(truth.visits)
    assert set(result.visited().values()) == {1}
    assert result.arcs() == truth.arcs
    assert set(counts.values()) == {1}
