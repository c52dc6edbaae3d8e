"""Plug-ins of others: found by entry points, run in update, list and crawl; those that are wrong say what and where."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from crawl_lib.ask import dump_crawldb
from crawl_lib.config import Config
from crawl_lib.crawldb import newest_version, update
from crawl_lib.errors import ConfigError
from crawl_lib.records import metadata_with_list
from crawl_lib.scoring import Plugin, Scoring, chain, load_plugins, loading, note
from crawl_lib.storage import open_storage
from tests.crawldb.crawls import Crawl, Visit
from tests.crawldb.test_generate import config_of, lines_of, make
from tests.crawldb.test_update import DAY, NOW, A, B, T
from tests.scoring.wheel import give_wheel
from tests.stores import stores_on


def plugin(monkeypatch: pytest.MonkeyPatch, name: str = "mine", **moments: Any) -> None:
    """A plug-in of these moments, as if it were installed."""
    monkeypatch.setitem(loading.BUILT_IN, name, type("Mine", (Plugin,), {"name": name, **moments}))


def crawl_with(config: Config, *plugins: str) -> Crawl:
    config = replace(config, scoring=replace(config.scoring, plugins=plugins))
    return Crawl(stores_on(open_storage(config), config))


def refused(config: Config, *plugins: str) -> str:
    with pytest.raises(ConfigError) as error:
        Scoring.of(crawl_with(config, *plugins).stores.config)
    return str(error.value)


def test_what_is_wrong_is_said_before_a_stage_begins(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "none: is not installed (there are breadth, depth, linkrank, opic, pagerank)" in refused(
        config, "none"
    )
    for moments, problem in {
        (
            "update",
            "score + titel",
        ): 'mine, update: Binder Error: Referenced column "titel" not found',
        ("update", "score + "): "mine, update: Parser Error",
        (
            "sort_value",
            "sort_value * given",
        ): 'mine, sort_value: Binder Error: Referenced column "given"',
        ("initial", "random()"): "mine, initial: ValueError: random: reads clock or chance",
        ("initial", "epoch(current_date)"): "current_date: reads clock or chance",
        (
            "injected",
            lambda batch: batch.column("titel"),
        ): 'mine, injected: KeyError: \'Field "titel"',
        ("injected", lambda batch: 1): "mine, injected: ValueError: answers int",
        ("after_parsing", "1"): "mine, after_parsing: must be a function",
        ("columns", ("score",)): "mine: column 'score' is no name, or is there already",
    }.items():
        name, what = moments
        plugin(monkeypatch, **{name: staticmethod(what) if callable(what) else what})
        assert problem in refused(config, "mine")


def halved(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Half the score, for Python."""
    if "http://a.example/b" in batch.column("url").to_pylist():
        raise ZeroDivisionError("half of nothing")
    place = batch.schema.get_field_index("score")
    return batch.set_column(place, "score", pc.divide(batch.column("score"), 2.0))


def test_one_that_cannot_judge_a_url_names_it_and_the_old_version_stays(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl = crawl_with(config, "breadth", "mine")
    plugin(monkeypatch)
    crawl.seeds(f"{A}\tscore=0.5")
    update(crawl.stores, now=NOW)
    crawl.segment(T, [Visit(A, body="x", links=[B])])
    for initial, problem in {
        "sqrt(score - depth)": "ValueError: score is nan",
        "case when depth < 1 then score end": "ValueError: score is null",
        "score / (1 - depth)": "ValueError: score is inf",
        "score + 1e9": "ValueError: score is 1000000000.5",
        staticmethod(halved): "ZeroDivisionError: half of nothing",
    }.items():
        plugin(monkeypatch, initial=initial)
        with pytest.raises(ConfigError) as error:
            update(crawl.stores, now=NOW)
        assert f"scoring.plugins: mine, initial: {B}: {problem}" in str(error.value)
        assert newest_version(crawl.stores).number == 1
        assert not [
            path for path in (crawl.root / "crawldb").iterdir() if path.name.startswith(".")
        ]


def test_expressions_and_functions_follow_each_other(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin(monkeypatch, "one", injected="score + 1")
    plugin(monkeypatch, "two", injected=staticmethod(halved))
    plugin(monkeypatch, "three", injected="score + version + cast(now > 0 as integer)")
    for plugins, score in {
        ("one", "two", "three"): "5.00",
        ("two", "one", "three"): "5.50",
    }.items():
        crawl = crawl_with(replace(config, dfs_primary=f"{config.dfs_primary}-{score}"), *plugins)
        crawl.seeds(f"{A}\tscore=5")
        update(crawl.stores, now=NOW)
        assert crawl.rows()[A]["score"] == Decimal(score)


def test_a_chain_of_expressions_is_one_query_of_the_engine(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row passes through Python, as they do where one of the chain is a function."""

    class PassedError(Exception):
        pass

    def passed(*arguments: Any) -> None:
        raise PassedError

    monkeypatch.setattr(chain, "_passed", passed)
    plugin(monkeypatch, "one", injected="score + 1")
    plugin(monkeypatch, "two", injected="score * 2")
    plugin(monkeypatch, "half", injected=staticmethod(halved))
    crawl = crawl_with(config, "one", "two")
    crawl.seeds(f"{A}\tscore=5")
    update(crawl.stores, now=NOW)
    assert crawl.rows()[A]["score"] == 12
    crawl.seeds(f"{B}\tscore=5")
    with pytest.raises(PassedError):
        update(crawl_with(config, "one", "half").stores, now=NOW)


def test_what_is_noted_of_a_page_is_a_column_and_no_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ten lines of docs/scoring.md as a wheel: before and after parsing, update, sort value and boost."""
    give_wheel(tmp_path / "site", monkeypatch)
    config = config_of(
        tmp_path,
        scoring={"plugins": ["titled"]},
        schedule={"rules": [{"metadata": "a=b", "fixed_s": 9}]},
    )
    crawl = Crawl(stores_on(open_storage(config), config))
    crawl.seeds(f"{A}\ta=b")
    update(crawl.stores, now=NOW)
    made = make(config, now=T)
    [line] = lines_of(config, made.list)
    assert json.loads(line.metadata) == {"a": "b", "scoring": {"was_worth": 1.0}}
    plugins = load_plugins(config.scoring)
    known = note(plugins, "after_parsing", metadata_with_list(line), {"url": A, "title": "Title"})
    assert json.loads(known) == {
        "a": "b",
        "list": "1-1",
        "scoring": {"was_worth": 1.0, "titled": 1.0},
    }
    crawl.known_seeds.clear()
    crawl.segment(T + DAY, [Visit(A, body="x", links=[B], more={"metadata": known})])
    rows = crawl.rows(update(crawl.stores, now=NOW))
    assert (rows[A]["score"], rows[B]["score"]) == (3, 1)
    assert rows[A]["metadata"] == '{"a": "b"}'
    out = StringIO()
    dump_crawldb(crawl.stores, out, as_csv=False)
    assert {row["url"]: row["boost"] for row in map(json.loads, out.getvalue().splitlines())} == {
        A: 3.0,
        B: 1.0,
    }
