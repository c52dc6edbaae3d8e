"""The folder `hosts` of a node's directory: made, and no reason to wait."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from crawl_lib import stages
from crawl_lib.stores import open_stores
from demo import Serving, SynthWeb, TruthOptions
from tests.e2e.crawl import Result, make_config, run_iteration

WEB = SynthWeb(seed=5, sites=1, pages_per_site=8, specials=False)
HEADER_BYTES = 64


def entries(value: bytes) -> Callable[[Path], None]:
    """All entries of the turns become something else; the table is one still."""

    def change(folder: Path) -> None:
        data = (folder / "ip-turns").read_bytes()
        some = value * (len(data) // len(value) + 1)
        (folder / "ip-turns").write_bytes(data[:HEADER_BYTES] + some[: len(data) - HEADER_BYTES])

    return change


def turns(make: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda folder: (folder / "ip-turns").write_bytes(
        make((folder / "ip-turns").read_bytes())
    )  # type: ignore[return-value]


CHANGES: dict[str, Callable[[Path], None]] = {
    "no files": lambda folder: [path.unlink() for path in folder.iterdir()] and None,
    "turns of random bytes": turns(lambda data: random.Random(1).randbytes(len(data))),
    "entries of a far time": entries(struct.pack("<d", 1e12)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_next_iteration_fetches_all_whatever_happened_to_the_folder(
    change: str, tmp_path: Path
) -> None:
    """And waits for no turn: the whole test takes seconds, and a turn that is believed would take more."""
    config = make_config(tmp_path, nodes=1, batch={"time_limit_s": 30})
    folder = Path(config.queue.local_dir) / "node-0" / "hosts"
    with Serving(WEB) as serving:
        stages.inject(open_stores(config), run_id="run", seeds=serving.seeds[0])
        run_iteration(config, "run", 1)
        assert {path.name for path in folder.iterdir()} >= {"hosts.sqlite", "ip-turns"}
        CHANGES[change](folder)
        counts = run_iteration(config, "run", 2)
        truth, asked = (
            serving.truth(options=TruthOptions(rounds=2)),
            serving.log().counts(robots=True),
        )
    assert counts["deferred"] == 0
    assert set(Result(config).visited()) == set(truth.visits)
    assert {path.name for path in folder.iterdir()} >= {"hosts.sqlite", "ip-turns"}
    assert not list(folder.parent.glob("*hosts.sqlite*"))
    assert {times for url, times in asked.items() if "robots.txt" not in url} == {1}
    robots = sum(times for url, times in asked.items() if "robots.txt" in url)
    assert robots == (2 if change == "no files" else 1), "else what was known is still known"
