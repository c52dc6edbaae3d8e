"""Encryption to MySQL servers, against a real MariaDB, and against servers that are after the password."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crawl_lib.errors import ConfigError, KeyAccessError, KeyServerDownError, KeyStoreError
from crawl_lib.keys import mysql_tls
from crawl_lib.keys.mysql import MySqlKeyServer
from crawl_lib.keys.mysql_tls import is_loopback
from tests.contracts.mariadb import FAST, PASSWORD, MariaDb, start_mariadb
from tests.keys.certificates import Authority
from tests.keys.fake_mysql import ASKS, OK, fake_server

MODES = ("verify", "require", "prefer", "off")
SECRET = "s3cret-of-the-keys"
GREETINGS = (
    b"",
    b"mysql_native_password",
    b"caching_sha2_password",
    b"sha256_password",
    b"mysql_clear_password",
)


@dataclass
class Encrypted:
    """A MariaDB whose certificate names 127.0.0.1, its authority, and one that is unknown."""

    server: MariaDb
    authority: Path
    stranger: Path

    def encryption(self, tls: str, ca_file: Path | None = None, host: str = "127.0.0.1") -> str:
        """The version of TLS of a new connection, "" without encryption."""
        keys = MySqlKeyServer(
            f"{host}:{self.server.port}",
            database="krake_tls",
            user="krake",
            password=PASSWORD,
            tls=tls,
            ca_file=str(ca_file) if ca_file else None,
        )
        try:
            keys.create(drop=True)
            rows = keys._rows("SHOW STATUS LIKE 'Ssl_version'")
            return str(rows[0][1].decode())
        finally:
            keys.close()


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encrypted]:
    directory = tmp_path_factory.mktemp("certificates")
    authority = Authority(directory, "authority")
    certificate, key = authority.server("127.0.0.1")
    options = (f"--ssl-cert={certificate}", f"--ssl-key={key}")
    with start_mariadb(*FAST, *options, pool_mb=32) as server:
        yield Encrypted(server, authority.file, Authority(directory, "stranger").file)


def test_each_mode_is_encrypted_as_it_says(encrypted: Encrypted) -> None:
    assert encrypted.encryption("verify", encrypted.authority).startswith("TLSv1.")
    assert encrypted.encryption("require").startswith("TLSv1.")
    assert encrypted.encryption("prefer").startswith("TLSv1.")
    assert encrypted.encryption("off") == ""


def test_verify_refuses_a_certificate_of_a_stranger_and_one_of_another_name(
    encrypted: Encrypted,
) -> None:
    for authority, host, problem in (
        (encrypted.stranger, "127.0.0.1", "certificate"),
        (None, "127.0.0.1", "certificate"),
        (encrypted.authority, "localhost", "Hostname mismatch"),
    ):
        with pytest.raises(
            KeyAccessError, match=rf"not trusted \(.*{problem}.*key_storage\.ca_file"
        ):
            encrypted.encryption("verify", authority, host)


@pytest.mark.parametrize("tls", ["verify", "require"])
def test_a_server_without_encryption_is_refused_where_it_is_asked_for(
    mariadb: MariaDb, tls: str
) -> None:
    with pytest.raises(KeyAccessError, match=r"offers no encryption.*key_storage\.tls"):
        mariadb.key_server(tls=tls).exists()


def test_a_ca_file_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for name in ("none", "empty"):
        server = MySqlKeyServer(
            "127.0.0.1:1",
            database="krake",
            user="krake",
            tls="verify",
            ca_file=str(tmp_path / name),
        )
        with pytest.raises(
            ConfigError, match=rf"key_storage\.ca_file: .*{name}: holds no certificates"
        ):
            server.exists()


def asked(
    server: str, tls: str, ca_file: Path | None = None, *, timeout_s: float = 10.0
) -> KeyStoreError | None:
    """What comes of a request to a server."""
    keys = MySqlKeyServer(
        server,
        database="krake",
        user="krake",
        password=SECRET,
        timeout_s=timeout_s,
        tls=tls,
        ca_file=str(ca_file or "") or None,
    )
    try:
        keys.exists()
    except KeyStoreError as error:
        return error
    finally:
        keys.close()
    return None


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the servers on loopback were on other machines."""
    monkeypatch.setattr(mysql_tls, "is_loopback", lambda address: False)


SCRIPTS: dict[str, tuple[bytes, Sequence[str]]] = {
    "clear": (b"mysql_native_password", ["clear"]),
    "clear at once": (b"mysql_clear_password", []),
    "dialog": (b"mysql_native_password", ["dialog"]),
    "old": (b"mysql_native_password", ["old"]),
    "sha256": (b"sha256_password", ["key"]),
    "sha256, switched to": (b"mysql_native_password", ["sha256", "key"]),
    "caching": (b"caching_sha2_password", ["full", "key"]),
    "caching, switched to": (b"mysql_native_password", ["caching", "full", "key"]),
}


@pytest.mark.parametrize("tls", ["prefer", "off"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_no_password_is_given_away_over_an_open_connection(
    name: str, tls: str, elsewhere: None
) -> None:
    greeting, script = SCRIPTS[name]
    with fake_server(greeting, [ASKS[word] for word in script]) as server:
        error = asked(server.name, tls)
        assert len(server.packets) > 0
        assert not server.knows(SECRET)
    if script:
        assert isinstance(error, KeyAccessError)
        assert "asks for" in str(error)
        assert "not encrypted" in str(error) or name == "old"
        assert SECRET not in str(error)


@pytest.mark.parametrize(
    "name", [name for name, (_, script) in SCRIPTS.items() if script and name != "old"]
)
def test_the_same_servers_get_it_on_loopback_so_they_would_have_got_it(name: str) -> None:
    greeting, script = SCRIPTS[name]
    with fake_server(greeting, [ASKS[word] for word in script]) as server:
        asked(server.name, "prefer")
        assert server.knows(SECRET)


@pytest.mark.parametrize("packet", [b"\xff", b"\xff\x00\x00"])
@pytest.mark.parametrize("when", ["login", "statement"])
def test_a_packet_that_ends_too_early_is_the_servers_trouble(packet: bytes, when: str) -> None:
    with fake_server(script=[packet] if when == "login" else [], answer=packet) as server:
        assert isinstance(asked(server.name, "prefer", timeout_s=0.2), KeyServerDownError)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    greeting=st.sampled_from(GREETINGS),
    script=st.lists(
        st.one_of(
            st.sampled_from(sorted(ASKS.values())), st.just(OK), st.binary(min_size=1, max_size=20)
        ),
        max_size=5,
    ),
    tls=st.sampled_from(["prefer", "off"]),
)
def test_no_drawn_dialogue_makes_a_client_give_it_away(
    greeting: bytes, script: list[bytes], tls: str, elsewhere: None
) -> None:
    with fake_server(greeting, script) as server:
        asked(server.name, tls, timeout_s=0.2)  # a client that waits for more has said all
        assert not server.knows(SECRET)


@pytest.mark.parametrize("tls", ["verify", "require"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_line_that_is_stripped_of_its_encryption_hears_nothing_of_the_login(
    name: str, tls: str
) -> None:
    """On loopback too: what was asked for is not given up."""
    greeting, script = SCRIPTS[name]
    with fake_server(greeting, [ASKS[word] for word in script]) as server:
        assert "offers no encryption" in str(asked(server.name, tls))
        assert server.packets == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_verify_says_nothing_to_a_server_of_another_authority(name: str, tmp_path: Path) -> None:
    """Neither the user's name nor the password, whatever the server asks for."""
    greeting, script = SCRIPTS[name]
    mine = Authority(tmp_path, "mine").file
    with fake_server(
        greeting, [ASKS[word] for word in script], Authority(tmp_path, "other").server("127.0.0.1")
    ) as server:
        assert "not trusted" in str(asked(server.name, "verify", mine))
        assert len(server.packets) == 1, "the request for TLS"
        assert b"krake" not in server.heard
        assert not server.knows(SECRET)


def test_a_server_gets_none_of_our_files(tmp_path: Path) -> None:
    """LOAD DATA LOCAL is the server's request, whatever it was asked."""
    (tmp_path / "file").write_text("what only we know")
    with fake_server(answer=b"\xfb" + bytes(tmp_path / "file")) as server:
        assert isinstance(asked(server.name, "prefer"), KeyStoreError)
        assert b"SET" in server.heard
        assert b"only we" not in server.heard


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("0.0.0.0", False),
    ],
)
def test_loopback_is_told_by_the_address_of_the_other_end(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected


def test_a_server_that_drips_has_the_time_of_the_whole_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each look at the clock finds a second more, so a client that gives each byte the whole time reads them all."""
    clock = count()
    monkeypatch.setattr(mysql_tls, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    with fake_server(drips=2_000_000) as server:
        keys = MySqlKeyServer(server.name, database="krake", user="krake", timeout_s=9.0)
        with pytest.raises(KeyServerDownError, match="no whole answer in 9 s"):
            keys.known([bytes(20)])
        keys.close()
    assert next(clock) < 200
