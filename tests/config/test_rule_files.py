"""Files of normalisers and filters: read with the config, the same on all machines, wherever they lie."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from crawl_lib.config import Config, from_mapping, load_config, shared_options
from crawl_lib.errors import ConfigError
from crawl_lib.rounds.agreement import differences

STEP = "{kind: prefix, file: rules/prefix.txt}"


def written(
    directory: Path, rules: str | bytes = "http://\n", urls: str = f"filters: {{default: [{STEP}]}}"
) -> Path:
    (directory / "rules").mkdir(parents=True)
    (directory / "rules/prefix.txt").write_bytes(
        rules if isinstance(rules, bytes) else rules.encode()
    )
    file = directory / "krake-config.yml"
    file.write_text(f"servers: [a]\ndfs_primary: dfs\nurls:\n  {urls}\n")
    return file


def test_a_file_is_read_relative_to_the_config_and_once(tmp_path: Path) -> None:
    """A fetching process, which may open no such file, gets what was read; the file may have changed since."""
    config = load_config(written(tmp_path / "x", "\ufeffhttp://a/\n"))
    [step] = config.urls.filters.default
    assert (step.kind, step.file, step.rules) == (
        "prefix",
        str(tmp_path / "x/rules/prefix.txt"),
        "http://a/\n",
    )
    (tmp_path / "x/rules/prefix.txt").unlink()
    assert from_mapping(json.loads(json.dumps(config.to_mapping())), Path("/")) == config


def test_machines_agree_by_name_and_content_of_files_wherever_they_lie(tmp_path: Path) -> None:
    one, same, other = (
        load_config(written(tmp_path / name, rules))
        for name, rules in (("a", "x\n"), ("b", "x\n"), ("c", "y\n"))
    )
    mine = shared_options(one)
    assert (
        differences(
            mine, {**shared_options(same), "key_storage.servers": mine["key_storage.servers"]}
        )
        == []
    )
    [said] = differences(
        mine, {**shared_options(other), "key_storage.servers": mine["key_storage.servers"]}
    )
    assert said.startswith("urls.filters.default is ['prefix prefix.txt ")
    assert str(tmp_path) not in repr(mine["urls.filters.default"])


@pytest.mark.parametrize(
    ("rules", "urls", "said"),
    [
        (
            b"\xff",
            f"filters: {{default: [{STEP}]}}",
            r"urls\.filters\.default\[0\]\.file: .*prefix\.txt: is not UTF-8$",
        ),
        (
            "",
            "normalizers: {fetch: [{kind: hosts, file: no.txt}]}",
            r"urls\.normalizers\.fetch\[0\]\.file: .*no\.txt: cann",
        ),
        (
            "",
            "filters: {default: [{kind: host}]}",
            r"urls\.filters\.default\[0\]\.kind: must be one of",
        ),
        (
            "",
            "filters: {parse: []}",
            r"urls\.filters\.parse: unknown option; the nearest option is urls\.filters\.part",
        ),
        (
            "",
            "normalizers: {partition: []}",
            r"urls\.normalizers\.partition: a URL's owner follows from its host alone",
        ),
        (
            "",
            f"filters: {{partition: [{STEP}]}}",
            r"urls\.filters\.partition: a URL's owner follows from its host",
        ),
        ("", "filters: {index: [], index: []}", r"urls\.filters\.index: is there twice"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, rules: str | bytes, urls: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_config(written(tmp_path, rules, urls))


def test_krake_config_names_file_and_line_and_prints_a_config_that_means_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from crawl_lib.cli import main  # noqa: PLC0415

    step = '{kind: regex, file: rules/prefix.txt}, {kind: prefix, rules: "http:"}'
    file = written(tmp_path, "+.\nskip\n", f"filters: {{default: [{step}]}}")
    assert main(["--config", str(file), "config"]) == 1
    printed = capsys.readouterr()
    assert (
        f"krake: {tmp_path}/rules/prefix.txt:2: 'skip' begins with none of + - > < #" in printed.err
    )
    again: Config = from_mapping(yaml.safe_load(printed.out), tmp_path)
    assert again == load_config(file)
    assert "skip" not in printed.out
