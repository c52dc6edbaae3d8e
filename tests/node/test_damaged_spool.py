"""A spool whose files are damaged stops its node's task, and the message says what brings it on again."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawl_lib import stages
from crawl_lib.errors import DamagedFileError
from crawl_lib.stores import open_stores
from demo import Serving, SynthWeb
from tests.e2e.crawl import make_config
from tests.node.test_kill_at_every_step import run_pass

WEB = SynthWeb(seed=5, sites=1, pages_per_site=8, specials=False)


@pytest.mark.parametrize("step", ["segment.part.closed:1", "take.leftover:1"])
def test_the_message_names_the_repair(step: str, serving: Serving, tmp_path: Path) -> None:
    """Before fetching goes on, and after it."""
    config = make_config(tmp_path, nodes=1, fetch={"host_delay_s": 0.0})
    assert run_pass(config, serving.seeds[0], step)
    [positions] = (Path(config.queue.local_dir) / "node-0" / "spool").glob("*.positions")
    positions.write_bytes(b"no positions")
    with pytest.raises(DamagedFileError, match=r"\.positions: .*; run `krake fsck --repair`$"):
        stages.crawl_node(open_stores(config), run_id="run", iteration=1, node="node-0")
