"""The benchmark sees checkpoints where they are made: were they moved or renamed, it would say that none cost."""

from __future__ import annotations

from pathlib import Path

from benchmarks import checkpoints
from benchmarks.crawl import crawl_to_the_end, make_config
from demo import Serving, SynthWeb


def test_every_kind_of_checkpoint_of_a_crawl_is_written_down_with_its_time(tmp_path: Path) -> None:
    log = tmp_path / "log"
    config = make_config(tmp_path, segment={"sync_interval_s": 0.0}, crawl={"max_iterations": 2})
    with (
        Serving(SynthWeb(seed=1, sites=1, pages_per_site=3, specials=False)) as serving,
        checkpoints.watched(log),
    ):
        pages = crawl_to_the_end(config, serving.seeds)

    seen = {line.split()[0] for line in log.read_text().splitlines()}
    spent = checkpoints.spent(log)

    wrapped = {name for names in checkpoints.WRAPPED.values() for name in names}
    assert seen == wrapped | {"fsync"}
    assert spent.checkpoints > pages, "each record of a page, and robots.txt"
    assert spent.waited_s > 0
    assert spent.cpu_s > 0


def test_what_the_thread_of_the_disk_waits_for_does_not_hold_up_the_crawl(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("_Log._start_sync 0.5 0.25\nfsync 100 0.125\nHostStore.save_hosts 0.25 0.0625\n")
    assert checkpoints.spent(log) == checkpoints.Spent(checkpoints=1, waited_s=0.75, cpu_s=0.4375)
