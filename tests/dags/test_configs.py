"""The configs of an Airflow: found by name on a worker, and shown by that of this machine as links by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from krake_airflow.configs import config_files, config_named, link_configs, read_configs
from krake_airflow.run import _seeds_for_form

from crawl_lib.config import load_config
from crawl_lib.errors import ConfigError, InputError
from tests.dags.crawls import small_config


def made(directory: Path, name: str) -> Path:
    directory.mkdir(parents=True)
    return small_config(directory, crawl={"name": name})[1]


def test_a_config_is_shown_under_its_crawls_name_until_it_is_gone(tmp_path: Path) -> None:
    files = [
        made(tmp_path / folder, name) for folder, name in (("a", "one"), ("b", "two"), ("c", "one"))
    ]
    home = tmp_path / "home"
    for file in files[:2]:
        link_configs(home, file)
    assert config_files(home / "configs") == files[:2], (
        "as they are, so that their relative paths hold"
    )
    link_configs(home, files[2])
    assert config_files(home / "configs") == files[1:], "the one that came last"
    files[1].unlink()
    assert config_files(link_configs(home, files[2])) == [files[2]]


def test_of_a_folder_each_config_is_shown_also_a_bad_one(tmp_path: Path) -> None:
    for name in ("one", "two"):
        made(tmp_path / "crawls" / name, name)
    (tmp_path / "crawls" / "bad.yml").write_text("servres: []")
    good, bad = read_configs(link_configs(tmp_path / "home", tmp_path / "crawls"))
    assert sorted(config.crawl.name for config in good) == ["one", "two"]
    assert [(one.dag_id, len(one.lines)) for one in bad] == [("bad_config_error", 3)]


@pytest.mark.parametrize("name", ["one", "two"])
def test_a_worker_finds_a_config_by_name_whatever_its_file_is_called(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, inside in (("two", "one"), ("one", "two")):
        made(tmp_path / "crawls" / folder, inside)
    (tmp_path / "crawls" / "one.yml").write_text("crawl: {name: one}")
    monkeypatch.setenv("KRAKE_CONFIG_PATH", str(tmp_path / "crawls"))
    assert config_named(name).crawl.name == name


def test_a_worker_with_the_config_of_another_crawl_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = made(tmp_path / "a", "one")
    monkeypatch.setenv("KRAKE_CONFIG_PATH", str(file))
    with pytest.raises(ConfigError) as refused:
        config_named("two")
    assert "no config of the crawl 'two'" in str(refused.value)
    assert f"{file}: is the config of the crawl 'one'" in str(refused.value)


def test_seeds_of_files_are_sent_as_text_unless_the_form_may_name_them(tmp_path: Path) -> None:
    config = load_config(made(tmp_path / "a", "one"))
    below, outside = Path(config.inject.directory), tmp_path / "outside"
    for folder in (below, outside):
        folder.mkdir(parents=True)
    (below / "list").write_text("http://a/\n")
    (outside / "1").write_text("http://a/\n")
    (outside / "2").write_text("http://b/\tk=v\n")
    for same in (str(below / "list"), "http://a/\nhttp://b/", ""):
        assert _seeds_for_form(same, config) == same
    assert _seeds_for_form(str(outside), config).split("\n") == [
        "http://a/",
        "",
        "http://b/\tk=v",
        "",
    ]
    (outside / "3").write_text("x" * (1 << 20))
    with pytest.raises(InputError, match=f"put it into {below}"):
        _seeds_for_form(str(outside), config)
