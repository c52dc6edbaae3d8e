"""Settled folders may be deleted by hand; what is found afterwards is taken in all the same (I1)."""

import shutil
from pathlib import Path

import pytest

from crawl_lib import stages
from crawl_lib.crawldir import SettledNotes
from crawl_lib.curate.importing import import_archives
from crawl_lib.errors import OutputConflictError
from crawl_lib.rounds.start import start_iteration
from crawl_lib.stores import open_stores
from demo import Serving, SynthWeb, TruthOptions
from tests.e2e.crawl import Result, make_config, run_iteration
from tests.repair.archives import pages_archive, write

WEB = SynthWeb(seed=2, sites=1, pages_per_site=6, specials=False)


@pytest.mark.parametrize("has_note", [True, False])
def test_name_of_a_deleted_folder_is_not_used_again(has_note: bool, tmp_path: Path) -> None:
    """The clock was set back: the new folder's URLs would count as taken in. Where no note says so, the task does."""
    config = make_config(tmp_path, nodes=1, fetch={"host_delay_s": 0.0})
    crawl_dir = Result(config).crawl_dir
    with Serving(WEB) as serving:
        stages.inject(open_stores(config), run_id="a", seeds=serving.seeds[0])
        start_iteration(open_stores(config), run_id="a", iteration=1, clock=lambda: 1000)
        run_iteration(config, "a", 1)
        stages.settle_node(open_stores(config), node="node-0")
        visited = set(Result(config).visited())
        shutil.rmtree(crawl_dir / "1000")
        if not has_note:
            SettledNotes(open_stores(config).crawl, "node-0").delete()
        named = start_iteration(open_stores(config), run_id="b", iteration=1, clock=lambda: 1000)
        assert named.folder == ("1001" if has_note else "1000")
        if not has_note:
            with pytest.raises(
                OutputConflictError, match="move the folder 1000 away, and run this task again"
            ):
                run_iteration(config, "b", 1)
            shutil.rmtree(crawl_dir / "1000")
        for number in (1, 2):
            run_iteration(config, "b", number)
        truth = serving.truth(options=TruthOptions(rounds=3))
    assert visited | set(Result(config).visited()) == set(truth.visits)


def test_an_import_in_the_second_of_a_deleted_folder_is_taken_in(tmp_path: Path) -> None:
    """Folders are named ahead of the clock where rounds are short: the newest one's name is free again once it goes."""
    config = make_config(tmp_path, nodes=1, fetch={"host_delay_s": 0.0})
    with Serving(WEB) as serving:
        stages.inject(open_stores(config), run_id="a", seeds=serving.seeds[0])
        start_iteration(open_stores(config), run_id="a", iteration=1, clock=lambda: 1000)
        run_iteration(config, "a", 1)
        stages.settle_node(open_stores(config), node="node-0")
        shutil.rmtree(Result(config).crawl_dir / "1000")
        archive = str(write(tmp_path / "x.warc.gz", pages_archive(range(1))))
        report = import_archives(open_stores(config), [archive], clock=lambda: 1000)
        assert report.folder == "1001"
        assert stages.settle_node(open_stores(config), node="node-0")["seen"] > 0
