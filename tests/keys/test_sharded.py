"""From the config to a store, and the report's two forms."""

import json

import pytest

from crawl_lib.config import KeyStorageConfig, from_mapping
from crawl_lib.errors import ConfigError
from crawl_lib.keys import check, open_key_store, own_server, repair
from crawl_lib.keys.mysql import MySqlKeyServer
from crawl_lib.keys.sqlite import SqliteKeyServer
from tests.contracts.keystore import make_keys


def test_files_are_sqlite_servers_in_the_order_of_the_config(tmp_path):
    names = tuple(str(tmp_path / f"{number}.sqlite") for number in (2, 0, 1))
    with open_key_store(KeyStorageConfig(servers=names, replication=2)) as store:
        assert [type(server) for server in store.servers] == [SqliteKeyServer] * 3
        assert [server.name for server in store.servers] == list(names)
        assert store.replication == 2


def test_other_names_are_mysql_servers_and_nothing_is_connected_to():
    store = open_key_store(KeyStorageConfig(servers=("db1.invalid", "db2.invalid:3307")), "s3cret")
    assert [type(server) for server in store.servers] == [MySqlKeyServer] * 2
    assert "s3cret" not in repr(store.servers)
    store.close()


def test_more_replicas_than_servers_are_refused():
    with pytest.raises(ConfigError, match="replication"):
        open_key_store(KeyStorageConfig(servers=("db",), replication=2))


def test_a_report_is_json_and_text(tmp_path):
    names = tuple(str(tmp_path / f"{number}.sqlite") for number in range(2))
    with open_key_store(KeyStorageConfig(servers=names, replication=2)) as store:
        store.create()
        store.insert(make_keys(30))
        store.servers[0].delete(sorted(make_keys(30))[:4])
        found = check(store)
        assert json.loads(json.dumps(found.missing)) == {names[0]: 4}
        assert found.to_text().splitlines() == [
            f"{names[0]}: 26 keys (26 queued, 0 crawled, 0 gone)",
            f"{names[1]}: 30 keys (30 queued, 0 crawled, 0 gone)",
            f"replicas: 2; prefixes compared: 256, differing: {found.differing}",
            f"{names[0]}: 4 keys missing",
            "replicas differ: run `krake fsck --repair`",
        ]
        assert repair(store).to_text().endswith("all replicas are whole")


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        (["b.example", "a"], [1, 0]),  # by name
        (["a:3307", "x", "b.example:3306"], [0, 2]),
        (["db1", "db2"], [0, 1]),  # by place, where there are as many
        (["db1", "db2", "db3"], [0, 0]),
        (["[::1]:3306"], [0, 0]),
    ],
)
def test_a_node_s_own_server_is_the_one_of_its_name_else_of_its_place(servers, expected, tmp_path):
    mapping = {
        "servers": ["a", "b.example"],
        "dfs_primary": "dfs",
        "key_storage": {"servers": servers},
    }
    config = from_mapping(mapping, base=tmp_path)
    assert [own_server(config, node) for node in config.servers] == expected
    assert own_server(config, "retired") == 0
