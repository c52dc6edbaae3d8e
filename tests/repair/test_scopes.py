"""Scopes by their digests: shared by iterations, made again where damaged, swept where none will need them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.crawldir import Starts
from crawl_lib.repair import sweep
from crawl_lib.repair.fsck import fsck, repair_crawl
from crawl_lib.rounds import start_iteration
from crawl_lib.stores import Stores, open_stores
from tests.scopes import scope_of, shared_scopes

HOSTS = ("a.test", "b.test", "c.test")


@pytest.fixture
def grown(config: Config) -> Stores:
    """Six iterations. A host came before the first, the third and the fifth of them."""
    stores = open_stores(config)
    for host in HOSTS:
        stages.inject(stores, run_id=f"seeds of {host}", seeds=f"http://{host}/")
        for turn in ("first", "second"):
            start_iteration(stores, run_id=f"{turn} of {host}", iteration=1)
    return stores


def begin(stores: Stores) -> None:
    """Begin an iteration in another process, which remembers no folder."""
    start_iteration(open_stores(stores.config), run_id="next", iteration=1)


def directory(stores: Stores) -> Path:
    return Path(stores.config.dfs_primary) / stores.config.crawl.directory


def folders(stores: Stores) -> list[Path]:
    return sorted(directory(stores).glob("[0-9]*"))


def scopes(stores: Stores) -> list[list[str]]:
    """The hosts in scope of each iteration."""
    return [
        sorted(stores.crawl.scopes.read(stores.crawl.folder(path.name).iteration()))
        for path in folders(stores)
    ]


SCOPES = [["a.test"]] * 2 + [["a.test", "b.test"]] * 2 + [["a.test", "b.test", "c.test"]] * 2


def problems(stores: Stores) -> list[str]:
    return [one.name for one in fsck(stores).findings if one.name != "leftover"]


def test_iterations_of_one_scope_share_its_file(grown: Stores) -> None:
    assert scopes(grown) == SCOPES
    assert len(shared_scopes(directory(grown))) == 3
    assert problems(grown) == []


@pytest.mark.parametrize("data", [None, b"", b"b.test\n", b"\xff\xfe"])
@pytest.mark.parametrize("number", [0, 3, 5])
def test_a_damaged_scope_is_one_finding_and_is_made_again(
    grown: Stores, number: int, data: bytes | None
) -> None:
    path = scope_of(folders(grown)[number])
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)
    assert problems(grown) == ["scope_damaged"]
    repair_crawl(grown)
    assert problems(grown) == []
    assert scopes(grown) == SCOPES


@pytest.mark.parametrize("number", range(6))
def test_a_lost_iteration_gets_a_scope_that_the_crawl_has(grown: Stores, number: int) -> None:
    """All hosts of its own, and none that came later than the next iteration."""
    (folders(grown)[number] / "iteration.json").unlink()
    repair_crawl(grown)
    assert problems(grown) == []
    after = scopes(grown)
    assert after[:number] + after[number + 1 :] == SCOPES[:number] + SCOPES[number + 1 :]
    assert set(SCOPES[number]) <= set(after[number]) <= set(SCOPES[min(number + 1, 5)])
    begin(grown)
    assert scopes(grown)[-1] == SCOPES[-1]


def test_all_iterations_and_a_scope_are_lost(grown: Stores) -> None:
    for folder in folders(grown):
        (folder / "iteration.json").write_bytes(b"{")
    repair_crawl(grown)
    assert problems(grown) == []
    assert scopes(grown)[-1] == SCOPES[-1]


def delete_first_four(stores: Stores) -> None:
    for folder in folders(stores)[:4]:
        shutil.rmtree(folder)


def delete_newest_two(stores: Stores) -> None:
    for folder in folders(stores)[-2:]:
        shutil.rmtree(folder)


def keep_all(_: Stores) -> None:
    pass


@pytest.mark.parametrize(
    ("delete", "left"), [(keep_all, 3), (delete_first_four, 1), (delete_newest_two, 3)]
)
def test_a_sweep_deletes_scopes_that_no_iteration_will_have(
    grown: Stores, delete: Callable[[Stores], None], left: int
) -> None:
    """The next start may name the scope of the newest folder again, after people deleted that."""
    delete(grown)
    sweep(grown)
    assert len(shared_scopes(directory(grown))) == left
    assert problems(grown) == []
    begin(grown)
    assert scopes(grown)[-1] == SCOPES[-1]
    assert len(shared_scopes(directory(grown))) == left


def test_a_sweep_keeps_every_scope_while_an_iteration_cannot_be_read(grown: Stores) -> None:
    delete_first_four(grown)
    (folders(grown)[0] / "iteration.json").write_bytes(b"{")
    sweep(grown)
    assert len(shared_scopes(directory(grown))) == 3


def test_a_sweep_keeps_the_scope_that_a_start_is_about_to_name(
    grown: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages.inject(grown, run_id="seeds of d.test", seeds="http://d.test/")
    give_name, swept = Starts.give_name, []

    def give_name_later(*given: Any) -> None:
        swept.append(sweep(open_stores(grown.config)).deleted)
        give_name(*given)

    monkeypatch.setattr(Starts, "give_name", give_name_later)
    begin(grown)
    assert swept == [[]]
    assert scopes(grown)[-1] == [*HOSTS, "d.test"]
    assert problems(grown) == []


def test_a_start_after_a_damaged_scope_nobody_has_names_the_repair(grown: Stores) -> None:
    """Nothing takes the file for the scope that its name promises."""
    newest = scope_of(folders(grown)[-1])
    delete_newest_two(grown)
    newest.write_bytes(b"a.test\n")
    begin(grown)
    assert (
        json.loads((folders(grown)[-1] / "iteration.json").read_bytes())["scope_sha256"]
        == newest.name
    )
    assert problems(grown) == ["scope_damaged"]
    repair_crawl(grown)
    assert scopes(grown)[-1] == SCOPES[-1]
