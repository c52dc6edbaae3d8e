"""The MySQL key server against a real MariaDB: the contract, lost connections, refusals."""

import shutil
import socket
import subprocess
import threading
from contextlib import suppress

import pymysql
import pytest
from pymysql.constants import ER

from crawl_lib.errors import (
    ConfigError,
    KeyAccessError,
    KeyServerDownError,
    KeyServerReadOnlyError,
    KeyTablesError,
)
from crawl_lib.keys import ShardedKeyStore, check
from crawl_lib.keys.mysql import MySqlKeyServer, parse_server
from crawl_lib.keys.mysql_errors import ADVICE, LOST, translate
from crawl_lib.keys.server import SQL_DIRECTORY, SlotWish
from crawl_lib.states import KeyState
from tests.contracts.keystore import KeyStoreContract, make_keys
from tests.contracts.mariadb import PASSWORD


class TestContract(KeyStoreContract):
    @pytest.fixture
    def new_server(self, mariadb):
        return mariadb.key_server

    @pytest.fixture
    def again(self, mariadb):
        return lambda server: mariadb.key_server(server._database)

    @pytest.fixture
    def raw(self, mariadb):
        return lambda server: mariadb.run("SELECT hash, keyinfo FROM kraakekeys", server._database)

    @pytest.fixture
    def drop_note_table(self, mariadb):
        return lambda server: mariadb.run("DROP TABLE IF EXISTS krakenote", server._database)

    @pytest.fixture
    def drop_slot_table(self, mariadb):
        return lambda server: mariadb.run("DROP TABLE IF EXISTS kraakeslots", server._database)


class Proxy:
    """Passes bytes between a client and a server, and cuts the line where `cut` says so.

    `cut`: "" (never), "before:<text>" (a command with that text is not passed on), "after:<text>" (the command is
    passed on and answered, but the answer is lost). It cuts once.
    """

    def __init__(self, port):
        self.target = port
        self.cut = ""
        self.connections = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.threads = [threading.Thread(target=self._accept)]
        self.threads[0].start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=(client,))
            self.threads.append(thread)
            thread.start()

    def _serve(self, client):
        lost = threading.Event()
        with client, socket.create_connection(("127.0.0.1", self.target)) as server:
            back = threading.Thread(
                target=self._pump, args=(server, client, lambda data: lost.is_set())
            )
            back.start()
            self._pump(client, server, lambda data: self._is_cut_off(data, lost))
            back.join(20)

    def _is_cut_off(self, data, lost):
        when, _, text = self.cut.partition(":")
        if not text or text.encode() not in data:
            return False
        self.cut = ""
        if when == "after":
            lost.set()
        return when == "before"

    def _pump(self, source, target, stops_at):
        with suppress(OSError):
            while (data := source.recv(1 << 20)) and not stops_at(data):
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join(10)


@pytest.fixture
def proxy(mariadb):
    proxy = Proxy(mariadb.port)
    yield proxy
    proxy.close()


@pytest.fixture
def server(mariadb):
    server = mariadb.key_server()
    server.create()
    yield server
    server.close()


@pytest.fixture
def through(proxy, server):
    """The same database as `server`, through the proxy."""
    through = MySqlKeyServer(
        f"127.0.0.1:{proxy.port}",
        database=server._database,
        user="krake",
        password=PASSWORD,
        timeout_s=10,
    )
    yield through
    through.close()


KEYS = sorted(make_keys(50))


def test_marking_keys_that_stand_is_one_statement(mariadb, server):
    """A key server may be far away: each round trip counts."""
    server.insert(KEYS, KeyState.QUEUED)
    names = ("Com_update", "Com_insert", "Com_begin", "Com_commit")
    before = mariadb.status(*names)
    server.set_state(KEYS, KeyState.CRAWLED)
    assert [now - then for now, then in zip(mariadb.status(*names), before, strict=True)] == [
        1,
        0,
        0,
        0,
    ]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("SELECT", lambda server: server.known(KEYS)),
        ("SELECT", lambda server: server.states(KEYS)),
        ("INSERT", lambda server: server.insert(KEYS, KeyState.QUEUED)),
        ("INSERT", lambda server: server.insert(KEYS, KeyState.GONE)),
        ("UPDATE", lambda server: server.set_state(KEYS, KeyState.CRAWLED)),
        ("INSERT", lambda server: server.set_state(KEYS, KeyState.CRAWLED)),
        ("DELETE", lambda server: server.delete(KEYS)),
    ],
)
def test_a_statement_that_may_be_repeated_survives_a_lost_connection(
    server, through, proxy, when, text, request_
):
    server.insert(KEYS[:20], KeyState.QUEUED)
    through.known(KEYS[:1])
    request_(server)
    expected = server.states(KEYS)
    proxy.cut = f"{when}:{text}"
    request_(through)
    assert proxy.cut == ""
    assert proxy.connections == 2
    assert server.states(KEYS) == expected


def test_one_connection_serves_all_requests(through, proxy):
    for _ in range(5):
        through.insert(KEYS, KeyState.QUEUED)
        through.claim(KEYS)
        through.known(KEYS)
    assert proxy.connections == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_claim_whose_commit_is_lost_is_unsure_and_not_sent_again(server, through, proxy, when):
    server.insert(KEYS[:20], KeyState.QUEUED)
    through.known(KEYS[:1])
    proxy.cut = f"{when}:COMMIT"
    answer = through.claim(KEYS)
    assert proxy.cut == ""
    assert (answer.ours, answer.theirs, answer.unsure) == (set(), set(KEYS[:20]), set(KEYS[20:]))
    committed = server.known(KEYS)
    assert committed == (set(KEYS) if when == "after" else set(KEYS[:20]))


@pytest.mark.parametrize("text", ["BEGIN", "SELECT GROUP_CONCAT", "INSERT"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_claim_that_is_lost_before_its_commit_is_begun_again(server, through, proxy, when, text):
    server.insert(KEYS[:20], KeyState.QUEUED)
    through.known(KEYS[:1])
    proxy.cut = f"{when}:{text}"
    answer = through.claim(KEYS)
    assert proxy.cut == ""
    assert (answer.ours, answer.theirs, answer.unsure) == (set(KEYS[20:]), set(KEYS[:20]), set())
    assert server.known(KEYS) == set(KEYS)


def test_a_claim_whose_commit_is_lost_is_inserted_on_the_other_replicas(
    mariadb, server, through, proxy
):
    other = mariadb.key_server()
    other.create()
    store = ShardedKeyStore([through, other], 2)
    key = min(KEYS)
    through.known([key])  # connected: the isolation level's name has the word COMMIT in it
    proxy.cut = "after:COMMIT"
    answer = store.claim([key])
    assert answer.unsure == {key}
    assert answer.unreached == set()
    assert other.known([key]) == {key}
    assert check(store).ok
    store.close()


def test_a_claim_whose_commit_has_a_malformed_answer_is_unsure_and_not_sent_again(
    server, monkeypatch
):
    """What PyMySQL raises for a packet that ends too early; the server has done it."""
    commit, sent = pymysql.connections.Connection.commit, []

    def answered_badly(connection):
        commit(connection)
        sent.append(connection)
        raise IndexError("index out of range")

    monkeypatch.setattr(pymysql.connections.Connection, "commit", answered_badly)
    assert server.claim(KEYS).unsure == set(KEYS)
    assert len(sent) == 1
    assert server.known(KEYS) == set(KEYS)


def test_a_row_of_another_writer_that_is_not_committed_yet_is_waited_for(mariadb, server):
    """The claim sees neither key nor error at first; the other's commit makes the key theirs, exactly once."""
    other = pymysql.connect(unix_socket=str(mariadb.socket), user="root", database=server._database)
    try:
        other.begin()
        other.query(f"INSERT INTO kraakekeys VALUES ('{KEYS[3].hex()}', 1)")
        answers = []
        thread = threading.Thread(target=lambda: answers.append(server.claim(KEYS)))
        thread.start()
        waiting = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
        while not mariadb.run(waiting)[0][0]:
            # InnoDB renews this table only when no one has asked for it for 0.1 s.
            thread.join(0.15)
            assert thread.is_alive()
        other.commit()
        thread.join(200)
    finally:
        other.close()
    assert answers[0].theirs == {KEYS[3]}
    assert answers[0].ours == set(KEYS) - {KEYS[3]}


def test_a_killed_session_is_replaced(mariadb, server):
    server.known(KEYS)
    [[number]] = mariadb.run(
        f"SELECT id FROM information_schema.processlist WHERE db = '{server._database}'"
    )
    mariadb.run(f"KILL {number}")
    assert server.insert(KEYS, KeyState.QUEUED) is None
    assert server.known(KEYS) == set(KEYS)


def test_a_stopped_server_is_down():
    with socket.socket() as deaf:
        deaf.bind(
            ("127.0.0.1", 0)
        )  # bound, so that no one else takes the port, and refusing as no one listens
        server = MySqlKeyServer(
            f"127.0.0.1:{deaf.getsockname()[1]}", database="krake", user="krake"
        )
        for request in (server.known, server.claim, server.delete):
            with pytest.raises(
                KeyServerDownError, match=r"127\.0\.0\.1:\d+.*does not answer.*start it"
            ):
                request(KEYS)
        store = ShardedKeyStore([server])
        assert store.unknown(KEYS).undecided == set(KEYS)
        [counts] = store.counts()
        assert not counts.up


def test_a_server_that_hangs_is_down_after_the_time_limit():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = MySqlKeyServer(
            f"127.0.0.1:{silent.getsockname()[1]}", database="krake", user="krake", timeout_s=0.2
        )
        with pytest.raises(KeyServerDownError, match="does not answer"):
            server.known(KEYS)


def refused(request, kind):
    """The message of an error for the operator; another replica must not hide it."""
    with pytest.raises(kind) as caught:
        request()
    assert not isinstance(caught.value, KeyServerDownError)
    assert PASSWORD not in str(caught.value)
    assert "127.0.0.1:" in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("password", ["wrong-s3cret", "", None])
def test_a_wrong_password_names_what_to_check_and_not_itself(mariadb, password):
    server = mariadb.key_server(password=password)
    message = refused(lambda: server.known(KEYS), KeyAccessError)
    assert "KRAKE_KEY_STORAGE_PASSWORD" in message
    assert "wrong-s3cret" not in message + repr(server)


def test_no_repr_holds_the_password(mariadb):
    server = mariadb.key_server()
    assert PASSWORD not in repr(server) + repr(ShardedKeyStore([server]))


def test_an_unknown_database_says_what_to_run(mariadb):
    server = mariadb.key_server()
    assert "krake keys create" in refused(lambda: server.known(KEYS), KeyTablesError)
    assert server.exists() is False
    server.create()
    assert server.exists() is True
    server.close()


def test_a_database_that_may_not_be_created_says_what_an_administrator_runs(mariadb):
    server = mariadb.key_server("other_database")
    message = refused(server.create, KeyTablesError)
    assert "CREATE DATABASE other_database" in message
    assert "GRANT ALL ON other_database.*" in message


def test_a_missing_table_says_what_to_run(mariadb, server):
    mariadb.run("DROP TABLE kraakekeys", server._database)
    for request in (server.known, server.states, server.claim, server.delete):
        with pytest.raises(KeyTablesError, match="run `krake keys create`"):
            request(KEYS)


def test_a_read_only_server_says_so(mariadb, server):
    server.known(KEYS)
    mariadb.run("SET GLOBAL read_only = 1")
    try:
        for request in (lambda: server.insert(KEYS, KeyState.QUEUED), lambda: server.claim(KEYS)):
            assert "read-only" in refused(request, KeyServerReadOnlyError)
    finally:
        mariadb.run("SET GLOBAL read_only = 0")
    assert server.claim(KEYS).ours == set(KEYS), "a refused claim has added nothing"


def test_a_user_without_the_right_says_what_an_administrator_runs(mariadb, server):
    mariadb.run("CREATE OR REPLACE USER reader@'127.0.0.1' IDENTIFIED BY 'r'")
    mariadb.run(f"GRANT SELECT ON {server._database}.* TO reader@'127.0.0.1'")
    reader = mariadb.key_server(server._database, user="reader", password="r")
    assert reader.known(KEYS) == set()
    assert (reader.states(KEYS), reader.counts()) == ({}, {}), (
        "enough for who looks alone (docs/page.md)"
    )
    for request in (
        lambda: reader.insert(KEYS, KeyState.QUEUED),
        lambda: reader.turns([SlotWish(bytes(20), 1000)]),
        reader.make_slots,
        reader.require_rights,
    ):
        assert "GRANT ALL" in refused(request, KeyAccessError)
    assert reader.has_slots()
    reader.close()


def test_rights_are_looked_at_without_a_change(mariadb, server):
    server.insert(KEYS, KeyState.QUEUED)
    before = server.states(KEYS)
    server.require_rights()
    assert server.states(KEYS) == before
    assert server.counts() == {KeyState.QUEUED: len(KEYS)}


def test_the_sql_files_run_by_hand_in_the_client(mariadb):
    """What the operator types is what Krake runs: create, counts, prefixes, drop, through the mysql client."""
    client = shutil.which("mariadb") or shutil.which("mysql")
    if client is None:
        pytest.skip("no mysql client (Debian package mariadb-client)")
    database = mariadb.new_database()
    mariadb.run(f"CREATE DATABASE {database}")

    def by_hand(name):
        command = [
            client,
            "--no-defaults",
            f"--socket={mariadb.socket}",
            "--user=root",
            "--batch",
            database,
        ]
        with (SQL_DIRECTORY / name).open() as script:
            return subprocess.run(
                command, stdin=script, check=True, capture_output=True, text=True
            ).stdout

    by_hand("create.sql")
    server = mariadb.key_server(database)
    server.insert(KEYS, KeyState.QUEUED)
    assert by_hand("counts.sql").splitlines()[1] == "1\t50"
    assert len(by_hand("prefixes.sql").splitlines()) == 1 + len({key[0] for key in KEYS})
    by_hand("drop.sql")
    assert server.exists() is False
    server.close()


def test_the_table_is_as_the_format_says(mariadb, server):
    columns = mariadb.run(
        "SELECT column_name, column_type, collation_name, column_key FROM information_schema.columns"
        f" WHERE table_schema = '{server._database}' AND table_name = 'kraakekeys' ORDER BY ordinal_position"
    )
    assert columns == [
        ("hash", "char(40)", "ascii_bin", "PRI"),
        ("keyinfo", "tinyint(4)", None, ""),
    ]
    engines = mariadb.run(
        f"SELECT engine FROM information_schema.tables WHERE table_schema = '{server._database}'"
    )
    assert set(engines) == {("InnoDB",)}


def test_every_error_of_the_server_is_translated():
    """One line that names the server; "down" means exactly the codes in LOST; advice or the server's own words."""
    codes = {value for name, value in vars(ER).items() if name.isupper()} | LOST | set(ADVICE)
    assert not LOST & set(ADVICE)
    for code in codes:
        error = translate(
            "db:3306", "krake", "krake", pymysql.err.OperationalError(code, "some\ntext")
        )
        assert str(error).startswith("db:3306: ")
        assert "{" not in str(error)
        assert isinstance(error, KeyServerDownError) == (code in LOST)
        if code not in ADVICE:
            assert "some text" in str(error)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("db", ("db", 3306)),
        ("db.example.org:3307", ("db.example.org", 3307)),
        ("10.0.0.1:1", ("10.0.0.1", 1)),
        ("[::1]", ("::1", 3306)),
        ("[::1]:3308", ("::1", 3308)),
    ],
)
def test_server_names(name, expected):
    assert parse_server(name) == expected


@pytest.mark.parametrize(
    "name", ["", ":3306", "db:port", "db:0", "db:65536", "db:-1", "::1", "[::1]x", "[::1", "db:"]
)
def test_names_that_are_no_servers_are_refused(name):
    with pytest.raises(ConfigError, match=r"key_storage\.servers"):
        parse_server(name)
