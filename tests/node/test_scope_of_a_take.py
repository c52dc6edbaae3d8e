"""The scope that a batch is fetched with covers every URL in it, whenever its iteration began."""

import shutil
from pathlib import Path

from crawl_lib import stages
from crawl_lib.rounds.start import start_iteration
from crawl_lib.stores import open_stores
from demo import Serving, SynthWeb, TruthOptions
from tests.e2e.crawl import Result, make_config, run_crawl, run_iteration

WEB = SynthWeb(seed=2, sites=3, pages_per_site=8, specials=False)


def test_seeds_injected_after_an_iteration_began_bring_their_hosts(tmp_path: Path) -> None:
    """The seed is taken in by the iteration that began before it; its page's links are in scope all the same."""
    config = make_config(tmp_path, nodes=1, fetch={"host_delay_s": 0.0})
    with Serving(WEB) as serving:
        stages.inject(open_stores(config), run_id="one", seeds=serving.seeds[0])
        start_iteration(open_stores(config), run_id="one", iteration=1)
        stages.inject(open_stores(config), run_id="two", seeds=serving.seeds[1])
        for number in (1, 2, 3):
            run_iteration(config, "one", number)
        truth = serving.truth(serving.seeds[:2], TruthOptions(rounds=3))
    assert set(Result(config).visited()) == set(truth.visits)


def test_iteration_that_is_done_late_has_the_scope_of_what_was_queued_meanwhile(
    tmp_path: Path,
) -> None:
    """A task of a failed run is cleared after a later run queued other seeds."""
    config = make_config(tmp_path, nodes=1, fetch={"host_delay_s": 0.0})
    with Serving(WEB) as serving:
        stages.inject(open_stores(config), run_id="one", seeds=serving.seeds[0])
        start_iteration(open_stores(config), run_id="one", iteration=1)
        stages.inject(open_stores(config), run_id="two", seeds=serving.seeds[1])
        stages.settle_node(open_stores(config), node="node-0")
        run_iteration(config, "one", 1)
        run_iteration(config, "two", 1)
        truth = serving.truth(serving.seeds[:2], TruthOptions(rounds=2))
    assert set(Result(config).visited()) == set(truth.visits)


def test_host_that_a_later_iteration_brought_into_the_scope(tmp_path: Path) -> None:
    """An early iteration, done late, fetches the target of a redirect that a later one found."""
    web = SynthWeb(seed=2, sites=3, pages_per_site=8)
    config = make_config(tmp_path, nodes=1, fetch={"host_delay_s": 0.0})
    with Serving(web) as serving:
        seed = serving.url(1, "/x/away")
        start_iteration(open_stores(config), run_id="one", iteration=1)
        stages.inject(open_stores(config), run_id="two", seeds=seed)
        run_iteration(config, "two", 1)
        stages.settle_node(open_stores(config), node="node-0")
        run_iteration(config, "one", 1)
        run_iteration(config, "two", 2)
        truth = serving.truth([seed], TruthOptions(rounds=3))
    assert set(Result(config).visited()) == set(truth.visits)


def test_scope_outlives_the_folders_that_widened_it(tmp_path: Path) -> None:
    """Settled folders may be deleted by hand, the newest one too."""
    web = SynthWeb(seed=2, sites=3, pages_per_site=8)
    config = make_config(tmp_path, nodes=1, fetch={"host_delay_s": 0.0})
    with Serving(web) as serving:
        seed = serving.url(1, "/x/away")
        result = run_crawl(config, seed, 1, process=False)
        visited = set(result.visited())
        for folder in result.crawl_dir.glob("[0-9]*"):
            shutil.rmtree(folder)
            later_s = int(folder.name) + 10
        start_iteration(open_stores(config), run_id="run-2", iteration=1, clock=lambda: later_s)
        run_crawl(config, "", 2, run_id="run-2", process=False)
        truth = serving.truth([seed], TruthOptions(rounds=3))
    assert visited | set(result.visited()) == set(truth.visits)
