"""A machine whose version or config is not that with which an iteration was begun refuses it, and says what differs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.errors import ConfigError
from crawl_lib.rounds import agreement, start_iteration
from crawl_lib.stores import open_stores
from crawl_lib.version import code_digest


def with_options(config: Config, **sections: dict[str, Any]) -> Config:
    """The config of another machine."""
    changed = {
        name: dataclasses.replace(getattr(config, name), **options)
        for name, options in sections.items()
    }
    return dataclasses.replace(config, **changed)


def start(config: Config) -> None:
    start_iteration(open_stores(config), run_id="r", iteration=1)


def inject_again(config: Config) -> None:
    """As a cleared `inject` does: then it finds the iteration of its run."""
    stages.inject(open_stores(config), run_id="r", seeds="")


def crawl_dir(config: Config) -> Path:
    return Path(config.dfs_primary) / config.crawl.directory


def crawl(config: Config, node: str = "node-a") -> dict[str, Any]:
    return stages.crawl_node(open_stores(config), run_id="r", iteration=1, node=node)


def test_local_options_may_differ(config: Config, tmp_path: Path) -> None:
    start(config)
    other = with_options(
        config,
        queue={"local_dir": str(tmp_path / "elsewhere")},
        scratch={"directory": str(tmp_path / "scratch-too")},
        dfs={"timeout_s": 1.0},
        fetch={"processes": 2, "proxy": None},
    )
    assert crawl(other)["taken"] == 0


def test_an_option_that_differs_is_named_with_what_to_do(config: Config) -> None:
    start(config)
    other = with_options(config, fetch={"host_delay_s": 7.0}, urls={"max_depth": 3})
    with pytest.raises(
        ConfigError, match=r"fetch.host_delay_s is 7.0 here and 0.0 there, urls.max_depth is 3"
    ) as caught:
        crawl(other)
    assert "clear the task inject with its downstream" in str(caught.value)
    assert list(crawl_dir(config).rglob("node-a")) == []
    assert not Path(config.queue.local_dir).exists()


def test_another_version_is_named(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    start(config)
    monkeypatch.setattr(agreement, "VERSION", "9.9.9")
    with pytest.raises(
        ConfigError, match=r"this machine has Krake 9.9.9, and the iteration was begun with \d"
    ):
        crawl(config)


def test_other_code_of_the_same_version_is_refused(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(config)
    monkeypatch.setattr(agreement, "code_digest", lambda: "f" * 64)
    with pytest.raises(
        ConfigError,
        match=r"files of Krake .* digest ffffffffffff\) are not those that the iteration was begun with",
    ):
        crawl(config)
    inject_again(config)
    assert crawl(config)["taken"] == 0


def test_the_digest_of_the_code_tells_every_change(tmp_path: Path) -> None:
    """Of a source's content, name or place; not of what Python leaves next to it."""
    package, sql = tmp_path / "crawl_lib", tmp_path / "sql" / "keys"
    (package / "inner").mkdir(parents=True)
    sql.mkdir(parents=True)
    (package / "inner" / "a.py").write_text("1")
    (sql / "b.sql").write_text("2")
    code_digest.cache_clear()
    seen = [code_digest(package)]
    (package / "a.pyc").write_text("3")
    changes = [
        lambda: None,
        lambda: (sql / "b.sql").write_text("22"),
        lambda: (package / "inner" / "a.py").rename(package / "a.py"),
        (package / "empty.py").touch,
    ]
    for change in changes:
        change()
        code_digest.cache_clear()
        seen.append(code_digest(package))
    assert seen[0] == seen[1]
    assert len(set(seen)) == len(changes)
    sql.parent.rename(package / "sql")  # as an installed wheel has it
    code_digest.cache_clear()
    assert code_digest(package) == seen[-1]


def test_a_change_that_is_meant_holds_for_all_once_inject_ran_again(config: Config) -> None:
    start(config)
    assert crawl(config, "node-a")["taken"] == 0
    changed = with_options(config, fetch={"host_delay_s": 7.0})
    with pytest.raises(ConfigError, match="host_delay_s"):
        crawl(changed, "node-b")
    inject_again(changed)
    inject_again(changed)
    assert crawl(changed, "node-b")["taken"] == 0
    assert [path.name for path in crawl_dir(config).glob("*/agreed-*")] == ["agreed-1.json"]


def test_after_the_change_it_is_the_old_config_that_is_refused(config: Config) -> None:
    start(config)
    inject_again(with_options(config, fetch={"host_delay_s": 7.0}))
    with pytest.raises(ConfigError, match=r"host_delay_s is 0.0 here and 7.0 there"):
        crawl(config)


def test_nodes_and_routing_of_an_iteration_cannot_change(config: Config) -> None:
    start(config)
    for other in (
        dataclasses.replace(config, servers=("node-a", "node-b", "node-c")),
        with_options(config, frontier={"routing": "local"}),
    ):
        with pytest.raises(ConfigError, match="keeps them"):
            inject_again(other)


def test_a_segment_that_stands_asks_for_nothing(config: Config) -> None:
    """A cleared task whose work is done says so, whatever has changed since."""
    start(config)
    done = crawl(config)
    assert crawl(with_options(config, fetch={"host_delay_s": 7.0})) == done


def test_settle_of_the_run_is_refused_and_one_by_hand_is_not(config: Config) -> None:
    start(config)
    for node in config.servers:
        crawl(config, node)
    stages.commit_iteration(open_stores(config), run_id="r", iteration=1)
    other = with_options(config, urls={"max_depth": 3})
    with pytest.raises(ConfigError, match=r"urls.max_depth"):
        stages.settle_node(open_stores(other), node="node-a", run_id="r")
    assert stages.settle_node(open_stores(other), node="node-a", run_id="another")["queue"] == 0
    assert stages.settle_node(open_stores(other), node="node-a")["queue"] == 0
