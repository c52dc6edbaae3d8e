"""Three real MariaDB servers, two replicas: set-up, maintenance a server at a time, and what it reads."""

import hashlib
import select
import shutil
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise

import pytest
import yaml

from crawl_lib import stages
from crawl_lib.cli import main
from crawl_lib.config import FetchConfig, load_config
from crawl_lib.errors import ConfigError, KeyServerDownError, KeyTablesError
from crawl_lib.keys import ShardedKeyStore, SharedTurns, check, interval, repair, slots
from crawl_lib.keys.intervals import replicas
from crawl_lib.keys.server import SQL_DIRECTORY
from crawl_lib.states import KeyState
from crawl_lib.stores import PASSWORD_VARIABLE, open_stores
from tests.contracts.keystore import make_keys
from tests.contracts.mariadb import PASSWORD

KEYS = sorted(make_keys(30_000))
SHARE = [sum(place in replicas(key, 3, 2) for key in KEYS) for place in range(3)]


@pytest.fixture
def database(three_mariadbs):
    """The name of a database that none of the servers has yet; they are running again at the end."""
    yield three_mariadbs[0].new_database()
    for server in three_mariadbs:
        if server.process.poll() is not None:
            server.start()


@pytest.fixture
def open_store(three_mariadbs, database):
    """Opens the three servers as one store, as another process would."""
    opened = []

    def open_():
        opened.append(
            ShardedKeyStore([server.key_server(database) for server in three_mariadbs], 2)
        )
        return opened[-1]

    yield open_
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store):
    store = open_store()
    store.create()
    return store


@pytest.fixture
def config_file(three_mariadbs, database, tmp_path, monkeypatch):
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    names = [server.server for server in three_mariadbs]
    keys = {"servers": names, "replication": 2, "database": database}
    path = tmp_path / "krake-config.yml"
    path.write_text(yaml.safe_dump({"servers": ["a"], "dfs_primary": "dfs", "key_storage": keys}))
    return path


def definition(server, database):
    """The key table of a database, as the server says it."""
    return server.run("SHOW CREATE TABLE kraakekeys", database)


def test_tables_by_krake_and_by_hand_are_the_same(three_mariadbs, database, config_file):
    assert main(["--config", str(config_file), "keys", "create"]) == 0
    client = shutil.which("mariadb") or shutil.which("mysql")
    if client is None:
        pytest.skip("no mysql client (Debian package mariadb-client)")
    by_hand = three_mariadbs[0].new_database()
    for server in three_mariadbs:
        server.run(f"CREATE DATABASE {by_hand}")
        with (SQL_DIRECTORY / "create.sql").open() as script:
            command = [client, "--no-defaults", f"--socket={server.socket}", "--user=root", by_hand]
            subprocess.run(command, stdin=script, check=True)
        assert definition(server, by_hand) == definition(server, database)
    assert main(["--config", str(config_file), "keys", "check"]) == 0
    text = config_file.read_text().replace(database, by_hand)
    config_file.write_text(text)
    assert main(["--config", str(config_file), "keys", "check"]) == 0


def test_the_parts_of_all_servers_are_the_whole(store):
    """Each part compares its own interval, on all its replicas, and counts its own server."""
    store.insert(KEYS)
    first, second, third = store.servers
    first.delete(KEYS[:3_000])
    second.set_state(KEYS[3_000:3_100], KeyState.GONE)
    second.delete([key for key in KEYS if interval(key, 3) == 1][:2_000])
    third.delete([key for key in KEYS if interval(key, 3) == 2][:1_000])
    whole = check(store)
    parts = [check(store, server.name) for server in store.servers]
    assert [part.servers for part in parts] == [[counts] for counts in whole.servers]
    assert [counts.total for counts in whole.servers] == [
        SHARE[0] - 3_000,
        SHARE[1] - 2_000,
        SHARE[2] - 1_000,
    ]
    assert [dict(part.missing) for part in parts] == [
        {first.name: 3_000},
        {second.name: 2_000},
        {third.name: 1_000},
    ]
    assert [dict(part.behind) for part in parts] == [{first.name: 100}, {}, {}]
    for name in ("missing", "behind", "misplaced"):
        assert sum((getattr(part, name) for part in parts), Counter()) == getattr(whole, name)
    for name in ("compared", "differing"):
        assert sum(getattr(part, name) for part in parts) == getattr(whole, name)


def test_a_server_that_starts_deletes_no_other_s_temporary_files(three_mariadbs):
    """MariaDB deletes what begins with #sql in its directory for temporary files."""
    directories = {server.run("SELECT @@tmpdir")[0][0] for server in three_mariadbs}
    assert directories == {str(server.directory) for server in three_mariadbs}


def test_parts_of_all_servers_at_the_same_time_twice_each_and_again(
    three_mariadbs, database, store, open_store
):
    """As tasks that Airflow started, thought dead and started again; a server without tables among them."""
    store.insert(KEYS)
    store.set_state(KEYS[::2], KeyState.CRAWLED)
    store.servers[0].delete([key for key in KEYS if interval(key, 3) == 2][:3_000])
    three_mariadbs[1].run("DROP TABLE kraakekeys", database)
    names = [server.name for server in store.servers] * 2
    with ThreadPoolExecutor(len(names)) as pool:
        reports = list(pool.map(lambda name: repair(open_store(), name), names))
    assert [report.failed for report in reports] == [{}] * 6
    assert sum(len(report.created) for report in reports) == 1
    assert check(store).ok
    assert [counts.total for counts in store.counts()] == SHARE
    assert store.states(KEYS) == {
        key: KeyState.QUEUED if number % 2 else KeyState.CRAWLED for number, key in enumerate(KEYS)
    }
    again = [repair(store, name) for name in names[:3]]
    assert all(report.ok and not report.missing and not report.behind for report in again)


def test_turns_of_two_nodes_and_a_server_that_stops_and_comes_back(
    three_mariadbs, database, store, monkeypatch
):
    """Spans of one address are a delay apart, whichever node has them; those of the other servers go on coming."""
    monkeypatch.setattr(slots, "RETRY_S", 0.2)
    fetch = FetchConfig(ip_delay_s=0.05)
    names = [f"ip 127.0.0.{number}" for number in range(12)]
    spans: dict[str, list[tuple[float, float]]] = {name: [] for name in names}

    def take_all(nodes, wanted):
        for node in nodes:
            for name in wanted:
                node.hear(0, {"ask": name, "turns": 3, "start_s": 0.1})
            left = set(wanted)
            while left:
                assert select.select([node], [], [], 60)[0], left
                for _, told in node.answers():
                    left.discard(told["turn"])
                    spans[told["turn"]].append((told["begins_s"], told["ends_s"]))

    with ExitStack() as stack:
        servers = [[server.key_server(database) for server in three_mariadbs] for _ in range(2)]
        nodes = [stack.enter_context(SharedTurns(one, fetch)) for one in servers]
        take_all(nodes * 2, names)
        stopped = [name for name in names if interval(hashlib.sha1(name.encode()).digest(), 3) == 1]
        three_mariadbs[1].stop()  # not killed: one of these tests would lose what it reserved last
        nodes[0].hear(0, {"ask": stopped[0], "turns": 3, "start_s": 0.1})
        take_all(nodes, [name for name in names if name not in stopped])
        three_mariadbs[1].start()
        take_all(nodes[::-1], stopped)
    for name in names:
        distinct = sorted(set(spans[name]))
        assert len(distinct) > 1
        assert min(after[0] - before[1] for before, after in pairwise(distinct)) >= 0.05


def test_a_server_s_part_fails_if_a_replica_of_its_interval_is_down(three_mariadbs, config_file):
    """The tasks of the other servers succeed; those that fail are done by running them again."""
    config = load_config(config_file)
    assert main(["--config", str(config_file), "keys", "create"]) == 0
    one, two, three = config.key_storage.servers
    three_mariadbs[1].kill()
    for server in (one, two):
        with pytest.raises(KeyServerDownError, match=two):
            stages.maintain_keys(open_stores(config), server=server)
    assert stages.maintain_keys(open_stores(config), server=three)["ok"]
    three_mariadbs[1].start()
    assert all(
        stages.maintain_keys(open_stores(config), server=server)["ok"]
        for server in (one, two, three)
    )


def test_a_server_that_is_not_in_the_config_is_refused(config_file):
    with pytest.raises(ConfigError, match=r"no key server 'elsewhere'; there are 127\.0\.0\.1"):
        stages.maintain_keys(open_stores(load_config(config_file)), server="elsewhere")


def test_without_any_tables_the_operator_has_to_create_them(config_file):
    config = load_config(config_file)
    with pytest.raises(KeyTablesError, match="krake keys create"):
        stages.maintain_keys(open_stores(config), server=config.key_storage.servers[0])


def test_only_prefixes_that_differ_are_read(three_mariadbs, store):
    """Counted by the servers themselves: a whole replica sends sums, one lost key costs the keys of its prefix."""
    store.insert(KEYS)
    compared = 256 + 2  # two prefixes are cut by the ends of intervals

    def sent(work):
        """Rows that each server sends while something is done; to look at the counters sends rows too."""
        before = [server.status("Rows_sent")[0] for server in three_mariadbs]
        result = work()
        return result, [
            server.status("Rows_sent")[0] - earlier
            for server, earlier in zip(three_mariadbs, before, strict=True)
        ]

    _, looks = sent(lambda: None)
    report, rows = sent(lambda: check(store))
    assert report.ok
    assert report.compared == compared
    assert all(row - look < compared + 20 for row, look in zip(rows, looks, strict=True)), (
        "a sum for each prefix, and no key"
    )
    key = next(key for key in KEYS if interval(key, 3) == 0)
    alike = sum(other[0] == key[0] for other in KEYS)
    store.servers[1].delete([key])
    report, more = sent(lambda: repair(store))
    assert (report.differing, dict(report.missing)) == (1, {store.servers[1].name: 1})
    assert more[0] - rows[0] <= alike + 20
    assert more[1] - rows[1] <= alike + 20
    assert more[2] - rows[2] <= 20, "it holds no replica of that interval's keys"
    assert alike < len(KEYS) / 100


def test_a_statement_of_maintenance_takes_a_prefix_at_most(three_mariadbs, store):
    """A large table is never read by one statement: it would outlast key_storage.timeout_s."""
    store.insert(KEYS)
    for request, ranges in ((lambda: check(store), 256), (store.counts, 16)):
        asked, read = three_mariadbs[0].status("Com_select", "Handler_read_next")
        request()
        asked_after, read_after = three_mariadbs[0].status("Com_select", "Handler_read_next")
        assert read_after - read >= SHARE[0] - 300, "everything is summed or counted"
        assert asked_after - asked >= ranges
