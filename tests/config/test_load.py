"""Config: complete, typed, frozen; every mistake is one line that names file, key and what to do."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from crawl_lib.config import Config, from_mapping, load_config
from crawl_lib.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
LEAST = {"servers": ["node-a"], "dfs_primary": "dfs"}


def read(**sections: Any) -> Config:
    return from_mapping({**LEAST, **sections}, Path("/base"), "crawl.yml")


def test_the_documented_file_names_every_option_with_its_default() -> None:
    """`config/krake-config.yml` is the documentation: an option that is missing there, or differs, is a defect."""
    written = yaml.safe_load((ROOT / "config/krake-config.yml").read_text())
    defaults = from_mapping(
        {"servers": written["servers"], "dfs_primary": written["dfs_primary"]}, ROOT / "config"
    )
    assert load_config(ROOT / "config/krake-config.yml") == defaults

    def names(mapping: dict[str, Any]) -> set[str]:
        return {
            f"{key}.{inner}"
            for key, value in mapping.items()
            if isinstance(value, dict)
            for inner in value
        }

    assert names(written) == names(defaults.to_mapping())


def test_the_documented_section_of_a_service_has_every_option_with_its_default() -> None:
    """The section is a comment, since a config with the section is one of a service."""
    text = (ROOT / "config/krake-config.yml").read_text()
    block = text[text.index("# realtime:") : text.index("\npush:")]
    written = yaml.safe_load(re.sub("^# ", "", block, flags=re.MULTILINE))["realtime"]
    defaults = from_mapping({**LEAST, "realtime": {}}, ROOT / "config").realtime
    assert from_mapping({**LEAST, "realtime": written}, ROOT / "config").realtime == defaults
    assert written.keys() == vars(defaults).keys()


@pytest.mark.parametrize("section", [{}, {"realtime": None}])
def test_a_config_without_the_section_has_no_service(section: dict[str, Any]) -> None:
    assert read(**section).realtime is None
    with pytest.raises(ConfigError, match="realtime: the config has no such section"):
        read(**section).require_realtime()


def test_the_demo_config_is_valid() -> None:
    assert load_config(ROOT / "config/demo.yml").fetch.allow_networks == ("127.0.0.0/8",)


def test_the_default_config_allows_no_inner_network() -> None:
    assert load_config(ROOT / "config/krake-config.yml").fetch.allow_networks == ()


NO_CONTACT = (
    "me",
    "jane at example.org",
    "example.org/bot",
    "@example.org",
    "me@",
    "https://",
    "ftp://a.example/",
    "a@b c",
)
CONTACTS = (
    "jane@example.org",
    "mailto:jane@localhost",
    "https://example.org/bot?a=b@c",
    "http://[::1]:8000",
    "https://example.org, jane@example.org",
)


@pytest.mark.parametrize("text", CONTACTS)
def test_mail_addresses_and_urls_are_contacts(text: str) -> None:
    assert read(fetch={"contact": text}).fetch.contact == text


def host(kind: str = "domain", value: str = "example.org", **more: Any) -> dict[str, Any]:
    return {"kind": kind, "value": value, **more}


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"fetc": {}}, r"crawl\.yml: fetc: unknown option; the nearest option is fetch$"),
        (
            {"fetch": {"host_delay": 1}},
            r"fetch\.host_delay: unknown option; the nearest option is fetch\.host_delay_s",
        ),
        (
            {"fetch": {"connections": "many"}},
            r"fetch\.connections: must be a whole number, not 'many'",
        ),
        ({"fetch": {"connections": True}}, r"fetch\.connections: must be a whole number, not True"),
        ({"fetch": {"verify_tls": 1}}, r"fetch\.verify_tls: must be true or false, not 1"),
        (
            {"fetch": {"connections": None}},
            r"fetch\.connections: must be a whole number, not nothing",
        ),
        ({"fetch": {"host_delay_s": -1}}, r"fetch\.host_delay_s: must be at least 0, not -1"),
        (
            {"fetch": {"host_delay_s": float("nan")}},
            r"fetch\.host_delay_s: must be a number of finite size, not nan",
        ),
        (
            {"batch": {"time_limit_s": float("inf")}},
            r"batch\.time_limit_s: must be a number of finite size, not inf",
        ),
        (
            {"fetch": {"user_agent": "my crawler"}},
            r"fetch\.user_agent: 'my crawler' must be the name alone, as robots",
        ),
        (
            {"fetch": {"user_agent": "krake/1.0"}},
            r"fetch\.user_agent: 'krake/1\.0' must be the name alone, .* fetch\.cont",
        ),
        ({"fetch": {"contact": "me\r\nX-Evil: 1"}}, r"fetch\.contact: .* does not match"),
        *(
            (
                {"fetch": {"contact": text}},
                r"fetch\.contact: .* is neither a mail address .* nor a URL",
            )
            for text in NO_CONTACT
        ),
        (
            {"fetch": {"allow_networks": ["127.0.0.300"]}},
            r"fetch\.allow_networks\[0\]: is not a network",
        ),
        (
            {"fetch": {"allow_networks": ["127.0.0.1/8"]}},
            r"\[0\]: '127\.0\.0\.1/8' has bits .*: write 127\.0\.0\.0/8$",
        ),
        (
            {"fetch": {"allow_networks": ["fd00::1/64"]}},
            r"\[0\]: 'fd00::1/64' has bits .*: write fd00::/64$",
        ),
        ({"fetch": {"hosts": {}}}, r"fetch\.hosts: must be a list, not \{\}"),
        (
            {"fetch": {"hosts": [{"kind": "domain"}]}},
            r"fetch\.hosts\[0\]\.value: is missing, and has no default",
        ),
        (
            {"fetch": {"hosts": [host("glob", "*.a")]}},
            r"fetch\.hosts\[0\]\.kind: must be one of regex, domain",
        ),
        (
            {"fetch": {"hosts": [host("regex", "(")]}},
            r"fetch\.hosts\[0\]\.value: '\(' is not a regular expression",
        ),
        (
            {"fetch": {"hosts": [host("domain", "*.a.b")]}},
            r"fetch\.hosts\[0\]\.value: '\*\.a\.b' is no host as URLs",
        ),
        (
            {"fetch": {"hosts": [host("domain", "A.b")]}},
            r"fetch\.hosts\[0\]\.value: 'A\.b' is no host as URLs",
        ),
        (
            {"fetch": {"hosts": [host("domain", "a:80")]}},
            r"fetch\.hosts\[0\]\.value: 'a:80' is no host as URLs",
        ),
        (
            {"fetch": {"hosts": [host(delay_s=-1)]}},
            r"fetch\.hosts\[0\]\.delay_s: must be at least 0, not -1",
        ),
        (
            {"fetch": {"hosts": [host(delay=1)]}},
            r"fetch\.hosts\[0\]\.delay: unknown option; .*\.delay_s",
        ),
        (
            {"fetch": {"hosts": [host(), host(connections=2)]}},
            r"hosts\[1\]\.connections: more than 1 needs a .*of 0",
        ),
        (
            {"fetch": {"host_delay_s": 0, "connections_per_host": 2, "hosts": [host(delay_s=1)]}},
            r"hosts\[0\]\.connections: more than 1 needs a fetch\.hosts\[0\]\.delay_s of 0",
        ),
        (
            {"fetch": {"connections_per_host": 2}},
            r"fetch\.connections_per_host: more than 1 needs a .* of 0",
        ),
        (
            {"fetch": {"adaptive_delay_factor": 2, "hosts": [host(delay_s=0, connections=2)]}},
            r"hosts\[0\]\.connections: more than 1 needs a fetch\.adaptive_delay_factor of null",
        ),
        (
            {"frontier": {"routing": "random"}},
            r"frontier\.routing: must be one of host, local, not 'random'",
        ),
        ({"servers": []}, r"servers: must name at least one"),
        ({"servers": ["a", "a"]}, r"servers: names 'a' twice"),
        ({"servers": ["../a"]}, r"servers\[0\]: '\.\./a' does not match"),
        (
            {"dfs_primary": "hdfs://nn:8020/krake"},
            r"dfs_primary: must be a directory, or http://NAMENODE.*'hdfs://nn:8020/",
        ),
        (
            {"key_storage": {"servers": ["mysql://db1"]}},
            r"key_storage\.servers\[0\]: must be a path, not 'mysql://db1'",
        ),
        ({"servers": "node-a"}, r"servers: must be a list, not 'node-a'"),
        ({"servers": ["a", "default"]}, r"servers: 'default' is the name of Airflow's queue"),
        (
            {"key_storage": {"replication": 2}},
            r"key_storage\.replication: 2 replicas need as many servers",
        ),
        (
            {"key_storage": {"servers": ["db1", "x/0.sqlite"]}},
            r"key_storage\.servers: .* cannot be mixed",
        ),
        (
            {"export": {"directory": "crawl"}},
            r"export\.directory: must differ from crawl\.directory",
        ),
        ({"text": {"directory": "crawl/"}}, r"text\.directory: must differ from crawl\.directory"),
        ({"text": {"directory": "export"}}, r"text\.directory: must differ from export\.directory"),
        (
            {"urls": {"rules": [{"action": "?", "kind": "regex", "value": "x"}]}},
            r"urls\.rules\[0\]\.action: must be one of",
        ),
        (
            {"urls": {"rules": [{"action": "+", "value": "x"}]}},
            r"rules\[0\]\.kind: is missing, and has no default",
        ),
        ({"crawl": []}, r"crawl: must be a mapping of options, not \[\]"),
        ({"fetch": {"hosts": [3]}}, r"fetch\.hosts\[0\]: must be a mapping of options, not 3"),
    ],
)
def test_a_mistake_is_one_line_with_file_and_key(sections: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read(**sections)
    assert str(caught.value).startswith("crawl.yml: ")
    assert "\n" not in str(caught.value)


def test_all_mistakes_of_a_file_are_named_at_once(tmp_path: Path) -> None:
    file = tmp_path / "crawl.yml"
    file.write_text("""
servers: [node-a, default, "../b"]
crawl: {schedule: every day, max_iterations: 0}
fetch:
  robots: obey
  robots: ignore
  hosts: [{kind: glob, value: a.b}, 3, {kind: domain, value: A.b}]
key_storage: {replication: 2, tls: on}
fetc: {}
""")
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert [line.removeprefix(f"{file}: ").partition(": ")[0] for line in caught.value.lines] == [
        "fetch.robots",
        "fetc",
        "servers[2]",
        "dfs_primary",
        "crawl.max_iterations",
        "key_storage.tls",
        "fetch.hosts[0].kind",
        "fetch.hosts[1]",
        "servers",
        "key_storage.replication",
        "crawl.schedule",
    ]


@pytest.mark.parametrize("schedule", ["every day", "0 3 * *", "", "60 3 * * *"])
def test_a_schedule_that_is_no_cron_expression_is_named(tmp_path: Path, schedule: str) -> None:
    """Airflow would take the DAG away, and say so at a place where few people look."""
    file = tmp_path / "crawl.yml"
    file.write_text(f"servers: [a]\ndfs_primary: dfs\ncrawl: {{schedule: {schedule!r}}}\n")
    with pytest.raises(
        ConfigError, match=re.escape(f"crawl.schedule: {schedule!r} is not a cron expression, such")
    ):
        load_config(file)
    file.write_text("servers: [a]\ndfs_primary: dfs\ncrawl: {schedule: '17 3 * * 1-5'}\n")
    assert load_config(file).crawl.schedule == "17 3 * * 1-5"


@pytest.mark.parametrize("schedule", ["0 0 31 2 *", "0 0 31 4,6,9,11 *"])
def test_a_schedule_that_never_comes_is_refused(tmp_path: Path, schedule: str) -> None:
    file = tmp_path / "crawl.yml"
    file.write_text(f"servers: [a]\ndfs_primary: dfs\ncrawl: {{schedule: {schedule!r}}}\n")
    with pytest.raises(
        ConfigError, match=re.escape(f"crawl.schedule: {schedule!r} names a day outside every year")
    ):
        load_config(file)
    file.write_text("servers: [a]\ndfs_primary: dfs\ncrawl: {schedule: '0 0 29 2 *'}\n")
    assert load_config(file).crawl.schedule == "0 0 29 2 *"


@pytest.mark.parametrize("schedule", ["0 3 * * * *", "* * * * * */15", "0 3 * * * 0 2030"])
def test_a_schedule_of_more_than_five_fields_is_refused(tmp_path: Path, schedule: str) -> None:
    """Airflow takes the sixth field for the second."""
    file = tmp_path / "crawl.yml"
    file.write_text(f"servers: [a]\ndfs_primary: dfs\ncrawl: {{schedule: {schedule!r}}}\n")
    with pytest.raises(
        ConfigError,
        match=re.escape(f"crawl.schedule: {schedule!r} has more than five fields; write"),
    ):
        load_config(file)
    file.write_text("servers: [a]\ndfs_primary: dfs\ncrawl: {schedule: '@daily'}\n")
    assert load_config(file).crawl.schedule == "@daily"


@pytest.mark.parametrize("missing", ["servers", "dfs_primary"])
def test_mandatory_options(missing: str) -> None:
    mapping = {key: value for key, value in LEAST.items() if key != missing}
    with pytest.raises(ConfigError, match=f"{missing}: is missing, and has no default"):
        from_mapping(mapping, Path("/"))


def test_relative_paths_are_relative_to_the_config_file() -> None:
    config = read(key_storage={"servers": ["../keys/0.sqlite"]}, queue={"local_dir": "/abs"})
    assert config.dfs_primary == "/base/dfs"
    assert config.key_storage.servers == ("/keys/0.sqlite",)
    assert config.queue.local_dir == "/abs"
    assert config.scratch.directory == "/data/scratch"


def test_addresses_are_not_taken_for_paths() -> None:
    config = from_mapping(
        {
            **LEAST,
            "dfs_primary": "http://nn1:9870;http://nn2:9870",
            "key_storage": {"servers": ["db1", "db2:3307"]},
        },
        Path("/base"),
    )
    assert config.dfs_primary == "http://nn1:9870;http://nn2:9870"
    assert config.key_storage.servers == ("db1", "db2:3307")


def test_mapping_and_config_round_trip() -> None:
    config = read(
        urls={"rules": [{"action": "-", "kind": "suffix", "value": ".zip"}]},
        export={"mime_types": ["text/*"]},
    )
    assert from_mapping(config.to_mapping(), Path("/elsewhere")) == config


@pytest.mark.parametrize(
    "value", ["a", "example.org", "xn--bcher-kva.example", "127.0.0.1", "[::1]", "a_b.test"]
)
def test_a_host_of_fetch_hosts_is_written_as_urls_have_it(value: str) -> None:
    config = read(
        fetch={
            "hosts": [
                host(value=value, delay_s=0, connections=4),
                host("regex", r"\.a$", delay_s=5),
            ]
        }
    )
    assert (config.fetch.hosts[0].delay_s, config.fetch.hosts[1].connections) == (0.0, None)
    assert from_mapping(config.to_mapping(), Path("/elsewhere")) == config


def test_config_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        read().fetch.host_delay_s = 0  # type: ignore[misc]


@pytest.mark.parametrize(
    "text", ["servers: [a", "\x00", "- 1\n- 2\n", "", "fetch: 2024-99-99\n", "[" * 5000]
)
def test_a_file_that_is_no_config_is_one_clear_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad.yml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(str(file))) as caught:
        load_config(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "fetch: {robots: obey}\nfetch:\n  contact: me\n",
            "fetch: is there twice, in lines 3 and 4",
        ),
        (
            "fetch:\n  robots: obey\n  robots: ignore\n",
            r"fetch\.robots: is there twice, in lines 4 and 5",
        ),
    ],
)
def test_what_stands_twice_is_refused(text: str, message: str, tmp_path: Path) -> None:
    """YAML takes the last one: a section that is added at the end would hide all of the first."""
    file = tmp_path / "crawl.yml"
    file.write_text(f"servers: [node-a]\ndfs_primary: dfs\n{text}")
    with pytest.raises(ConfigError, match=message):
        load_config(file)


def test_who_names_no_config_is_told_which_are_beside_it(tmp_path: Path) -> None:
    (tmp_path / "mine.yml").write_text("")
    (tmp_path / "other.yml").write_text("")
    with pytest.raises(
        ConfigError, match=r"mien\.yml: cannot be read \(there are mine\.yml, other\.yml\): No such"
    ):
        load_config(tmp_path / "mien.yml")


def test_a_missing_file_names_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRAKE_CONFIG_PATH", str(tmp_path / "none.yml"))
    with pytest.raises(
        ConfigError, match=r"none\.yml: no such config file \(KRAKE_CONFIG_PATH names"
    ):
        load_config()


def test_a_folder_of_configs_is_for_airflow_and_a_command_needs_one_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRAKE_CONFIG_PATH", str(tmp_path))
    for path in (None, tmp_path):
        with pytest.raises(
            ConfigError, match=r"is a folder; name a config of the folder \(krake --config FILE"
        ):
            load_config(path)


def test_a_section_is_compared_hashed_and_shown_by_its_values() -> None:
    config = read()
    one, same, other = config.export, read().export, dataclasses.replace(config.export, keep=7)
    assert (one == same, hash(one) == hash(same), other == one, one == config.inject) == (
        True,
        True,
        False,
        False,
    )
    assert (
        repr(other)
        == f"ExportConfig({', '.join(f'{name}={value!r}' for name, value in vars(other).items())})"
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        other.keep = 8  # type: ignore[misc]
