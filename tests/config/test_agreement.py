"""Which options all machines share: all but those that are named with a reason."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from crawl_lib.config import Config
from crawl_lib.config.agreement import MAY_DIFFER, shared_options
from crawl_lib.rounds.agreement import differences


def test_every_name_in_the_list_is_an_option_or_a_section(config: Config) -> None:
    known = config.to_mapping()
    names = set(known) | {
        f"{section}.{key}"
        for section, part in known.items()
        if isinstance(part, dict)
        for key in part
    }
    assert set(MAY_DIFFER) <= names


def test_the_documented_file_names_exactly_these() -> None:
    text = (Path(__file__).resolve().parents[2] / "config" / "krake-config.yml").read_text()
    [said] = re.findall(r"one machine reads them: ([^.]*(?:\.\w[^.]*)*)\.\n", text)
    assert set(re.split(r"[,;\s#]+", said)) == set(MAY_DIFFER)


def test_what_decides_where_a_url_goes_and_what_is_kept_of_it_is_shared(config: Config) -> None:
    decisive = {
        "servers",
        "crawl.directory",
        "key_storage.servers",
        "key_storage.database",
        "key_storage.replication",
        "frontier.routing",
        "urls.scope",
        "urls.rules",
        "fetch.robots",
        "fetch.host_delay_s",
        "fetch.hosts",
        "fetch.adaptive_delay_factor",
        "fetch.user_agent",
        "parse.follow_nofollow",
        "segment.gzip_level",
    }
    assert decisive <= set(shared_options(config))


def test_neither_local_options_nor_passwords_are_shared(config: Config) -> None:
    fetch = dataclasses.replace(config.fetch, proxy="http://me:s3cret@proxy:3128")
    shared = shared_options(dataclasses.replace(config, fetch=fetch))
    assert "s3cret" not in repr(shared)
    assert not {
        name
        for name in shared
        if name.split(".")[0] in ("dfs", "queue", "scratch", "spark", "dfs_primary")
    }


def test_differences_are_named_with_both_values_and_the_order_of_key_servers_counts(
    config: Config,
) -> None:
    here = shared_options(config)
    there = {**here, "key_storage.servers": ["b", "a"], "fetch.robots": "ignore"}
    here |= {"key_storage.servers": ["a", "b"]}
    assert differences(here, there) == [
        "fetch.robots is 'obey' here and 'ignore' there",
        "key_storage.servers is ['a', 'b'] here and ['b', 'a'] there",
    ]
    assert differences(here, here) == []


def test_options_of_another_version_are_no_difference(config: Config) -> None:
    here = shared_options(config)
    assert differences(here, {**here, "fetch.of_tomorrow": 1}) == []
    assert differences({**here, "fetch.of_tomorrow": 1}, here) == []
