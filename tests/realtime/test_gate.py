"""A fetcher on a machine of its own: who may speak to it, what it is told, and how its parts come home."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.errors import ConfigError
from crawl_lib.realtime.certificates import SCHEDULER, Identity, make_certificates
from crawl_lib.realtime.protocol import (
    ALL_PARTS,
    PROTOCOL_VERSION,
    Clock,
    ClosedPart,
    Done,
    Fetch,
    Grant,
    Hello,
    Parting,
    Refused,
    Setup,
    Stop,
)
from crawl_lib.realtime.remote import setup_of
from crawl_lib.urls import key_of
from tests.e2e.crawl import make_config
from tests.realtime.remote import NAME, Talk, children, remote
from tests.web.hostile import HostileWeb


def setup(directory: Path, **sections: Any) -> Setup:
    config = make_config(directory, nodes=1, urls={"scope": "any"}, **sections)
    return setup_of(config, "0" * 64, NAME)


def wanted(url: str, number: int = 1) -> Fetch:
    return Fetch(id=number, url=url, key=key_of(url).hex())


def test_a_url_is_fetched_over_tls_while_the_grant_lasts(tmp_path: Path) -> None:
    with HostileWeb() as web, remote(tmp_path) as there, there.connect() as connection:
        talk = Talk(connection)
        talk.send(setup(tmp_path))
        clock = talk.hear(Clock)
        talk.send(wanted(web.url("/ok")))
        assert talk.hear(Refused).rule == "not_granted"
        talk.send(
            Grant(parts=(ALL_PARTS,), until_ms=clock.now_ms + 60_000), wanted(web.url("/ok"), 2)
        )
        assert talk.hear(Done).hop.status == 200
        talk.send(Grant(parts=(ALL_PARTS,), until_ms=clock.now_ms), wanted(web.url("/ok?2"), 3))
        assert talk.hear(Refused).rule == "not_granted"
        talk.send(Stop())
        assert talk.hear(ClosedPart).pages == 1
        assert talk.hear(Done) is None
    assert "/ok?2" not in web.paths()


def test_urls_of_a_grant_that_ended_are_refused_unsent(tmp_path: Path) -> None:
    with HostileWeb() as web, remote(tmp_path) as there, there.connect() as connection:
        talk = Talk(connection)
        talk.send(
            setup(
                tmp_path,
                fetch={"host_delay_s": 30.0, "allow_networks": ["127.0.0.0/8"], "robots": "ignore"},
            )
        )
        clock = talk.hear(Clock)
        talk.send(Grant(parts=(ALL_PARTS,), until_ms=clock.now_ms + 60_000), wanted(web.url("/ok")))
        talk.send(Grant(parts=((3, 3),), until_ms=clock.now_ms + 60_000))
        assert talk.hear(Done, Refused).rule == "not_granted"
    assert not web.paths()


def test_a_smaller_grant_is_heard_once_no_request_is_outside_of_it(tmp_path: Path) -> None:
    released = threading.Event()
    with HostileWeb() as web, remote(tmp_path) as there, there.connect() as connection:
        web.on("/late", lambda talk: released.wait(30) and talk.reply())
        talk = Talk(connection)
        talk.send(setup(tmp_path))
        until_ms = talk.hear(Clock).now_ms + 60_000
        talk.send(Grant(parts=(ALL_PARTS,), until_ms=until_ms, unowned=(ALL_PARTS,), number=1))
        talk.send(wanted(web.url("/late")))
        while talk.hear(Clock).heard != 1 or "/late" not in web.paths():
            pass
        talk.send(Grant(parts=(), until_ms=until_ms, number=2))
        while (heard := talk.hear(Clock).heard) == 1:
            pass
        assert heard == 0
        released.set()
        assert talk.hear(Done).hop.status == 200
        while (heard := talk.hear(Clock).heard) == 0:
            pass
        assert heard == 2


@pytest.mark.parametrize("name", ["live-2", NAME])
def test_a_fetchers_certificate_makes_no_scheduler(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    heard = b""
    with remote(tmp_path) as there, there.connect(name) as connection, contextlib.suppress(OSError):
        connection.sendall(Hello(version=PROTOCOL_VERSION).to_line())
        heard = connection.recv(1)
    assert heard == b""
    assert "unsuitable certificate purpose" in caplog.text


def test_a_stranger_and_a_fetcher_of_another_name_are_refused(tmp_path: Path) -> None:
    with remote(tmp_path) as there:
        with pytest.raises(ssl.SSLCertVerificationError):
            there.connect(server="live-2")
        make_certificates(tmp_path / "other", [NAME])
        there.home = tmp_path / "other"
        with pytest.raises(ssl.SSLCertVerificationError):
            there.connect()


def test_another_version_and_a_wrong_config_are_told(tmp_path: Path) -> None:
    with remote(tmp_path) as there:
        with there.connect() as connection:
            talk = Talk(connection, version=PROTOCOL_VERSION + 1)
            assert f"speaks version {PROTOCOL_VERSION + 1}" in talk.hear(Parting).reason
            assert talk.reader.hello == Hello(version=PROTOCOL_VERSION, name=NAME)
        with there.connect() as connection:
            talk = Talk(connection)
            config = setup(tmp_path).config
            config["fetch"]["host_delay_s"] = -1
            talk.send(Setup(config=config, digest="0" * 64))
            assert "fetch.host_delay_s" in talk.hear(Parting).reason
        with there.connect() as connection:
            talk = Talk(connection)
            talk.send(setup(tmp_path, watermarks={"min_free_local_bytes": 1 << 60}))
            assert "min_free_local_bytes" in talk.hear(Parting).reason


def test_one_scheduler_at_a_time_has_the_fetcher(tmp_path: Path) -> None:
    with remote(tmp_path) as there, there.connect() as first, there.connect() as second:
        talk, other = Talk(first), Talk(second)
        talk.send(setup(tmp_path))
        talk.hear(Clock)
        talk.send(Grant(parts=()))
        other.send(setup(tmp_path))
        assert "has this fetcher" in other.hear(Parting).reason
        for _ in range(20):  # clocks come twice a second: the first one says nothing meanwhile
            with there.connect() as connection:
                late = Talk(connection)
                late.send(setup(tmp_path))
                if isinstance(late.hear(Clock, Parting), Clock):
                    break
            talk.hear(Clock)
        assert "took over" in talk.hear(Parting).reason


def test_the_death_of_a_fetcher_is_told_and_the_next_line_has_a_new_one(tmp_path: Path) -> None:
    with remote(tmp_path) as there:
        with there.connect() as connection:
            talk = Talk(connection)
            talk.send(setup(tmp_path))
            talk.hear(Clock)
            (fetcher,) = children(there)
            os.kill(fetcher, signal.SIGKILL)
            assert talk.hear(Parting).is_death
        with there.connect() as connection:  # at once: the first line is no obstacle
            talk = Talk(connection)
            talk.send(setup(tmp_path))
            assert isinstance(talk.hear(Clock, Parting), Clock)


def test_a_renewed_certificate_counts_without_a_restart(tmp_path: Path) -> None:
    with remote(tmp_path) as there, there.connect() as before:
        assert [one.is_new for one in there.renew(datetime.now(UTC))] == [False, True, True, True]
        with there.connect() as after:
            assert before.getpeercert(True) != after.getpeercert(True)
        (there.away / f"{NAME}.pem").write_bytes(b"half of a copy")
        there.connect().close()


def test_certificates_are_made_once_and_not_readable_by_others(tmp_path: Path) -> None:
    first = make_certificates(tmp_path, [NAME])
    assert [one.path.name for one in first] == ["ca.pem", "scheduler.pem", f"{NAME}.pem"]
    assert [one.is_new for one in make_certificates(tmp_path, [NAME])] == [False] * 3
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    (tmp_path / f"{NAME}.pem").write_text("nonsense")
    assert [one.is_new for one in make_certificates(tmp_path, [NAME])] == [False, False, True]
    with pytest.raises(ConfigError, match="delete all files"):
        make_certificates(tmp_path, [NAME], now=lambda: datetime.now(UTC) + timedelta(days=3600))
    (tmp_path / "ca.key").write_text("nonsense")
    with pytest.raises(ConfigError, match=r"ca\.key"):
        make_certificates(tmp_path, [NAME])
    with pytest.raises(ConfigError, match="cannot be used"):
        Identity(tmp_path / "nowhere", SCHEDULER).context()


def test_the_fetcher_hears_of_no_key_server_and_no_folder(tmp_path: Path) -> None:
    config = make_config(tmp_path, nodes=1, urls={"scope": "any"})
    told = json.dumps(setup(tmp_path).config)
    for secret in (
        *config.key_storage.servers,
        config.dfs_primary,
        config.queue.local_dir,
        str(tmp_path),
    ):
        assert secret not in told
    assert set(setup(tmp_path).config) < set(config.to_mapping())
