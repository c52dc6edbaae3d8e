"""Where the config is found: one order for commands, `make` and the DAGs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from krake_airflow import run, settings

from crawl_lib.config import ConfigPlace, load_config, short_path
from crawl_lib.errors import ConfigError

TEXT = "servers: [node-a]\ndfs_primary: dfs\n"
IN_ORDER = ["named.yml", "mine/mine.yml", "mine/crawls/one/one.yml", "mine/config/krake-config.yml"]
"""The places in their order; the working directory is `mine`."""


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A config at each place, of which KRAKE_CONFIG_PATH names the first."""
    found = [tmp_path / name for name in IN_ORDER]
    for place in found:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(TEXT)
    monkeypatch.setenv("KRAKE_CONFIG_PATH", str(found[0]))
    monkeypatch.chdir(tmp_path / "mine")
    return found


def leave_out(places: list[Path], count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in places[:count]:
        place.unlink()
    if count:
        monkeypatch.delenv("KRAKE_CONFIG_PATH")


@pytest.mark.parametrize("count", range(len(IN_ORDER)))
def test_the_first_place_that_has_a_config_wins_for_commands_make_and_dags(
    count: int, places: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_out(places, count, monkeypatch)
    assert ConfigPlace.find(os.environ) == places[count]
    assert settings.config_path(os.environ) == places[count]
    with_seeds = run.parser().parse_args(["--seeds", "http://a/"])
    assert run._config_path(with_seeds) == places[count]
    load_config()


@pytest.mark.parametrize("count", range(len(IN_ORDER)))
def test_make_crawl_without_seeds_is_the_demo_only_where_no_crawl_is(
    count: int, places: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_out(places, count, monkeypatch)
    is_last = count == len(IN_ORDER) - 1
    assert run._config_path(run.parser().parse_args([])) == (
        run.DEMO_CONFIG if is_last else places[count]
    )


def test_what_a_command_names_comes_first(places: list[Path]) -> None:
    assert load_config(places[3]) != load_config(places[0])


@pytest.mark.parametrize("second", ["crawls/two/two.yml", "crawls/two.yml"])
def test_of_several_crawls_none_is_chosen(
    second: str, places: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_out(places, 2, monkeypatch)
    other = tmp_path / "mine" / second
    other.parent.mkdir(exist_ok=True)
    other.write_text(TEXT)
    assert ConfigPlace.find(os.environ) == places[3]
    places[3].unlink()
    with pytest.raises(ConfigError) as refused:
        ConfigPlace.find(os.environ)
    assert "of several configs none is chosen: crawls/one/one.yml, " in str(refused.value)
    assert second in str(refused.value)


def test_a_variable_that_names_nothing_is_not_passed_over(places: list[Path]) -> None:
    places[0].unlink()
    with pytest.raises(
        ConfigError, match=r"named\.yml: no such config file \(KRAKE_CONFIG_PATH names it\)"
    ):
        load_config()


def test_an_empty_variable_names_nothing(
    places: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRAKE_CONFIG_PATH", "")
    assert ConfigPlace.find(os.environ) == places[1]


@pytest.mark.parametrize("name", ["mine.yml", "crawls", "config"])
def test_what_is_no_file_is_no_config(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    monkeypatch.delenv("KRAKE_CONFIG_PATH", raising=False)
    if name == "mine.yml":
        Path(name).mkdir()
    else:
        Path(name).write_text(TEXT)
    with pytest.raises(
        ConfigError,
        match=r"there is neither mine\.yml nor .* make a crawl \(krake init crawls/NAME\)",
    ):
        ConfigPlace.find(os.environ)


def test_dags_fall_back_on_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An Airflow may begin its processes anywhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KRAKE_CONFIG_PATH", raising=False)
    monkeypatch.setattr(settings, "PROJECT", tmp_path / "project")
    place = tmp_path / "project" / "config" / "krake-config.yml"
    place.parent.mkdir(parents=True)
    place.write_text(TEXT)
    assert settings.config_path(os.environ) == place


def test_a_working_directory_that_is_gone_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    monkeypatch.delenv("KRAKE_CONFIG_PATH", raising=False)
    (tmp_path / "gone").rmdir()
    with pytest.raises(ConfigError, match="the working directory cannot be read"):
        ConfigPlace.find(os.environ)


def test_a_path_is_relative_where_that_is_shorter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a")
    assert short_path(tmp_path / "a" / "b" / "b.yml") == "b/b.yml"
    assert short_path("b/../b.yml") == "b.yml"
    assert short_path(tmp_path / "c.yml") == "../c.yml"
    assert short_path("/etc/krake.yml") == "/etc/krake.yml"


def test_messages_of_a_found_config_name_it_as_the_user_sees_it(
    places: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_out(places, 1, monkeypatch)
    places[1].write_text("servres: []")
    with pytest.raises(ConfigError) as refused:
        load_config()
    assert str(refused.value).startswith("mine.yml: servres: unknown option")
