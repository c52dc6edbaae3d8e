"""`krake init`: a config whose paths are its own, made without a question unless there is a terminal."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from crawl_lib.config import Config, load_config
from crawl_lib.realtime.service import require_realtime
from demo import Serving
from tests.cli.conftest import Done, Krake, run_in_process

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    return lambda *words: run_in_process(capsys, [str(word) for word in words])


def paths(config: Config) -> list[str]:
    own = [
        config.dfs_primary,
        config.inject.directory,
        config.queue.local_dir,
        config.scratch.directory,
    ]
    return [*own, *config.key_storage.servers]


def test_two_crawls_and_the_default_share_nothing(run: Callable[..., Done], tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert run("init", tmp_path / name).code == 0
    configs = [load_config(tmp_path / name / f"{name}.yml") for name in ("one", "two")]
    configs.append(load_config(ROOT / "config" / "krake-config.yml"))
    assert [config.crawl.name for config in configs] == ["one", "two", "krake"]
    found = [path for config in configs for path in paths(config)]
    assert len(set(found)) == len(found)
    assert all(Path(path).is_relative_to(tmp_path / "one") for path in paths(configs[0]))


def test_a_config_for_real_time_can_be_served(run: Callable[..., Done], tmp_path: Path) -> None:
    done = run("init", tmp_path / "live", "--realtime")
    assert "serve realtime" in done.out
    config = load_config(tmp_path / "live" / "live.yml")
    require_realtime(config)
    assert (config.fetch.connections, config.fetch.ip_delay_s) == (500, 0)
    assert config.realtime.policies_by_name["preview"].image == "probe"
    assert Path(config.realtime.tokens).is_relative_to(tmp_path / "live")
    krake = Krake(tmp_path, lambda words: run(*words))
    krake.file = tmp_path / "live" / "live.yml"
    assert krake.ok("realtime", "tokens", "--add", "chat").out.strip()
    text = krake.file.read_text()
    examples = re.findall(r"#   - (\{kind.*\})", text)
    assert len(examples) == 2
    krake.file.write_text(text.replace("hosts: []", f"hosts: [{', '.join(examples)}]"))
    assert load_config(krake.file).fetch.hosts[1].connections == 4


def test_what_is_made_crawls_at_once(
    run: Callable[..., Done], tmp_path: Path, serving: Serving
) -> None:
    run("init", tmp_path / "mine")
    krake = Krake(tmp_path, lambda words: run(*words))
    krake.file = tmp_path / "mine" / "mine.yml"
    text = krake.file.read_text()
    assert "contact: null\n" in text
    no_delays = "host_delay_s: 0\n  ip_delay_s: 0\n  allow_networks: [127.0.0.0/8]\n"
    krake.file.write_text(text.replace("contact: null\n", f"contact: null\n  {no_delays}"))
    assert "fetch.contact is not set" in krake.ok("config").err
    krake.ok("inject", "\n".join(serving.seeds))
    krake.ok("crawl", "--iterations", "2")
    assert krake.status()["totals"]["fetched"] > 2


@pytest.mark.parametrize(
    ("typed", "contact"),
    [("https://a.example/bot?x='1'\n", "https://a.example/bot?x='1'"), ("\n", None)],
)
def test_on_a_terminal_the_contact_is_asked(
    typed: str,
    contact: str | None,
    run: Callable[..., Done],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master, slave = os.openpty()
    try:
        with os.fdopen(slave, closefd=False) as terminal:
            monkeypatch.setattr(sys, "stdin", terminal)
            os.write(master, typed.encode())
            done = run("init", tmp_path / "mine")
    finally:
        os.close(master)
        os.close(slave)
    assert "can reach you (empty: later): " in done.err
    assert load_config(tmp_path / "mine" / "mine.yml").fetch.contact == contact


def test_a_contact_that_reaches_nobody_is_refused(
    run: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crawl_lib.cli.beginning._contact", lambda arguments: "me")
    done = run("init", tmp_path / "mine")
    assert done.code == 1
    assert "fetch.contact: 'me' is neither a mail address" in done.err
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize("is_checkout", [True, False])
def test_the_next_command_is_one_that_is_there(
    is_checkout: bool, run: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crawl_lib.cli.beginning.in_checkout", lambda: is_checkout)
    out = run("init", tmp_path / "news").out
    assert ("make crawl CONFIG=" in out) is is_checkout
    trigger = 'airflow dags unpause news_crawl && airflow dags trigger news_crawl --conf \'{"seeds": "https://..."}\''
    assert (trigger in out) is not is_checkout


def test_elsewhere_nothing_is_asked(run: Callable[..., Done], tmp_path: Path) -> None:
    done = run("init", tmp_path / "mine")
    assert done.err == ""
    assert load_config(tmp_path / "mine" / "mine.yml").fetch.contact is None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("mine", "mine.yml: is there already"),
        ("two words", "'two words' does not match"),
        ("file/in", "cannot be made"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_changed(
    name: str, says: str, run: Callable[..., Done], tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "mine.yml").write_text("mine")
    (tmp_path / "file").write_text("")
    done = run("init", tmp_path / name)
    assert done.code == 1
    assert says in done.err
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "mine", "mine.yml"]
    assert (tmp_path / "mine" / "mine.yml").read_text() == "mine"
