"""The HDFS back end without HDFS: addresses, errors, certificates. The contract runs on a real one in tests/cluster."""

from __future__ import annotations

import datetime
import socket
import ssl
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from http.cookiejar import DefaultCookiePolicy
from http.server import HTTPServer
from threading import Event, Thread, Timer

import pytest
import requests
import urllib3

from crawl_lib.config import Config
from crawl_lib.config.model import DfsConfig
from crawl_lib.errors import (
    ConfigError,
    PathNotFoundError,
    StoppedError,
    StorageAccessError,
    StorageError,
    TargetExistsError,
)
from crawl_lib.storage import open_storage
from crawl_lib.storage.access import parse_address
from crawl_lib.storage.filestore import COPY_BYTES
from crawl_lib.storage.hdfs import HdfsStorage
from crawl_lib.storage.hdfs_files import FileBody, HdfsWriter
from crawl_lib.storage.problems import FOREIGN, FULL, NONE, PATIENCE, RefusedError, RequestProblem
from crawl_lib.storage.session import TicketError, open_session
from crawl_lib.storage.webhdfs import Datanodes, WebHdfs
from tests.serving import Answering, running

ADDRESS = "http://nn1:9870;http://nn2:9870/data/krake"


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def clock(self) -> float:
        return self.now_s


def webhdfs(time: Time, wait_s: float = 60.0) -> WebHdfs:
    return WebHdfs(
        parse_address(ADDRESS), DfsConfig(wait_s=wait_s), sleep=time.sleep, clock=time.clock
    )


@pytest.mark.parametrize(
    ("text", "namenodes", "root"),
    [
        ("http://nn:9870", ("http://nn:9870",), ""),
        ("http://nn:9870/", ("http://nn:9870",), ""),
        (ADDRESS, ("http://nn1:9870", "http://nn2:9870"), "/data/krake"),
        ("https://a/x;https://b/x/", ("https://a", "https://b"), "/x"),
    ],
)
def test_addresses(text, namenodes, root):
    assert parse_address(text) == (namenodes, root)


@pytest.mark.parametrize(
    "text",
    [
        "http://a/x;http://b/y",
        "http://a/x;http://b",
        "http://a;ftp://b",
        "http://a?x=1",
        "http:///x",
        "http://a/../b",
        "http://a:port",
        "http://a:0",
        "http://[::1:9870",
    ],
)
def test_wrong_addresses(text):
    with pytest.raises(ConfigError, match="dfs_primary: "):
        open_storage(Config(servers=("a",), dfs_primary=text))


@pytest.mark.parametrize("rest", ["nn:9870", "nn?x", "[nn", "nn:port", "nn/x;http://nn2/y"])
def test_a_password_in_the_address_is_refused_and_not_shown(rest):
    with pytest.raises(ConfigError) as caught:
        parse_address(f"http://krake:secret@{rest}")
    assert "secret" not in str(caught.value)


def test_every_remote_exception_becomes_a_storage_error_and_waits_as_the_table_says():
    for name, patience in PATIENCE.items():
        time = Time()
        store = webhdfs(time)

        def fail(name=name):
            raise RefusedError(RequestProblem(name, "words"))

        with pytest.raises(StorageError, match="/data/krake/d/f: cannot be read: "):
            store.persist("cannot be read", "d/f", fail)
        assert (time.now_s == 0) == (patience == NONE), name
        assert (time.now_s >= 60) == (patience == FULL), name


@pytest.mark.parametrize(
    ("exception", "error"),
    [
        ("FileNotFoundException", PathNotFoundError),
        ("FileAlreadyExistsException", TargetExistsError),
    ],
)
def test_remote_exceptions_with_an_error_of_their_own(exception, error):
    def fail():
        raise RefusedError(RequestProblem(exception, "words"))

    with pytest.raises(error):
        webhdfs(Time()).persist("cannot be read", "f", fail)


def _all_of(base: type[BaseException]) -> list[type[BaseException]]:
    return [base, *(found for child in base.__subclasses__() for found in _all_of(child))]


def test_all_exceptions_of_the_libraries_below_are_translated():
    libraries = [*_all_of(requests.RequestException), *_all_of(urllib3.exceptions.HTTPError)]
    assert len(libraries) > 40
    for kind in [*libraries, socket.gaierror, ConnectionResetError, TimeoutError, ssl.SSLError]:
        assert issubclass(kind, FOREIGN), kind


def test_what_works_again_within_the_wait_is_no_error():
    time, tries = Time(), []

    def attempt() -> str:
        tries.append(1)
        if time.now_s < 50:
            raise RefusedError(
                RequestProblem(
                    "StandbyException", "Operation category READ is not supported in state standby"
                )
            )
        return "done"

    assert webhdfs(time).persist("cannot be read", "f", attempt) == "done"
    assert 10 < len(tries) < 60


def standby() -> str:
    raise RefusedError(
        RequestProblem(
            "StandbyException", "Operation category READ is not supported in state standby"
        )
    )


def test_a_stop_ends_the_waiting():
    """Without it this would wait for an hour."""
    stop = Event()
    store = WebHdfs(parse_address(ADDRESS), DfsConfig(wait_s=3600.0), stop=stop)
    timer = Timer(0.3, stop.set)
    timer.start()
    with pytest.raises(
        StoppedError, match=r"nn1.*stopped as asked, while waiting for StandbyException.*again"
    ):
        store.persist("cannot be read", "f", standby)
    timer.join()


def test_after_a_stop_what_succeeds_is_done_and_what_fails_is_not_waited_for():
    """So that what was begun can still be cleared away."""
    time, stop = Time(), Event()
    stop.set()
    store = WebHdfs(
        parse_address(ADDRESS), DfsConfig(), stop=stop, sleep=time.sleep, clock=time.clock
    )
    assert store.persist("cannot be deleted", "f", lambda: "done") == "done"
    with pytest.raises(StoppedError):
        store.persist("cannot be read", "f", standby)
    assert time.now_s == 0


def test_a_stop_ends_a_body_that_is_being_sent(tmp_path):
    (tmp_path / "f").write_bytes(b"1" * 5_000_000)
    stop = Event()
    store = WebHdfs(parse_address(ADDRESS), DfsConfig(), stop=stop)
    pieces = iter(FileBody(tmp_path / "f", 5_000_000, store.go_on))
    assert next(pieces)
    stop.set()
    with pytest.raises(StoppedError):
        next(pieces)
    assert not issubclass(StoppedError, (*FOREIGN, StorageError))


class _Plain(Answering):
    """A server that is no namenode."""

    def do_GET(self) -> None:
        self.answer(404, b"<html>")


@pytest.fixture
def plain():
    with answering(_Plain) as server:
        yield server


def test_a_server_that_is_no_namenode_is_named(plain):
    address = f"http://127.0.0.1:{plain.server_port}"
    with pytest.raises(
        StorageError, match=f"{address}/krake: cannot be looked at: 127.0.0.1:{plain.server_port}: "
    ):
        HdfsStorage.open(f"{address}/krake", DfsConfig(wait_s=0.0))


@pytest.fixture
def certificate(tmp_path):
    """A key and a self-signed certificate for 127.0.0.1."""
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=127.0.0.1",
    ]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def test_certificates_are_checked(plain, certificate):
    """A certificate no one trusts is refused at once; with dfs.ca_file the request is sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    plain.socket = context.wrap_socket(plain.socket, server_side=True)
    plain.handle_error = lambda request, address: None
    address = f"https://127.0.0.1:{plain.server_port}"
    begun = datetime.datetime.now(tz=datetime.UTC)
    with pytest.raises(
        StorageAccessError,
        match=rf"127.0.0.1:{plain.server_port}: certificate: .*; dfs.ca_file names",
    ):
        HdfsStorage.open(address, DfsConfig())
    assert (datetime.datetime.now(tz=datetime.UTC) - begun).total_seconds() < 10
    with pytest.raises(StorageError, match=r"404|<html>"):
        HdfsStorage.open(address, DfsConfig(ca_file=str(certificate / "cert.pem"), wait_s=0.0))


def test_our_certificate_is_shown_to_servers_that_ask_for_it(plain, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(certificate / "cert.pem")
    plain.socket = context.wrap_socket(plain.socket, server_side=True)
    plain.handle_error = lambda request, address: None
    address, ca_file = f"https://127.0.0.1:{plain.server_port}", str(certificate / "cert.pem")
    with pytest.raises(StorageError) as caught:
        HdfsStorage.open(address, DfsConfig(ca_file=ca_file, wait_s=0.0))
    assert "HTTP status" not in str(caught.value)
    (certificate / "both.pem").write_bytes(
        (certificate / "cert.pem").read_bytes() + (certificate / "key.pem").read_bytes()
    )
    for ours in (
        {"cert_file": ca_file, "key_file": str(certificate / "key.pem")},
        {"cert_file": str(certificate / "both.pem")},
    ):
        with pytest.raises(StorageError, match=r"404|<html>"):
            HdfsStorage.open(address, DfsConfig(ca_file=ca_file, wait_s=0.0, **ours))


@pytest.mark.parametrize("name", ["ca_file", "cert_file", "key_file"])
def test_a_certificate_file_that_is_missing_is_named(name, tmp_path):
    with pytest.raises(ConfigError, match=rf"dfs\.{name}: .*nothing\.pem: is not there"):
        open_session(DfsConfig(**{name: str(tmp_path / "nothing.pem")}))


def test_a_key_without_its_certificate_is_refused(tmp_path):
    (tmp_path / "key.pem").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"dfs\.key_file"):
        open_session(DfsConfig(key_file=str(tmp_path / "key.pem")))


def test_a_silent_server_is_given_up_after_its_time_limit():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(StorageError, match="no answer within its time limit"):
            HdfsStorage.open(address, DfsConfig(timeout_s=0.2, wait_s=0.0))


def test_the_session_takes_nothing_from_the_environment(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:1")
    session = open_session(DfsConfig(user="anna"))
    assert session.merge_environment_settings("http://nn", {}, None, None, None)["proxies"] == {}
    assert session.verify is True
    assert session.params == {"user.name": "anna"}


def test_kerberos_without_its_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(
        ConfigError, match=r"dfs.security: kerberos needs the extra: .*krake\[kerberos\]"
    ):
        open_session(DfsConfig(security="kerberos"))


def test_no_ticket_is_told_at_once_and_a_ticket_that_was_good_once_is_waited_for():
    """It may be renewed late."""

    def fail():
        raise TicketError("Kerberos for HTTP@nn1: Ticket expired")

    for was_let_in in (False, True):
        time = Time()
        store = webhdfs(time)
        store.let_in = was_let_in
        with pytest.raises(
            StorageAccessError, match=r"/f: cannot be read: .*Ticket expired; get a ticket by kinit"
        ):
            store.persist("cannot be read", "f", fail)
        assert (time.now_s >= 60) == was_let_in


@pytest.mark.parametrize("body", [None, b"body"])
def test_the_token_in_a_datanode_s_address_is_never_told(body):
    """An address of a secured datanode holds what lets its holder in, and errors end in logs."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = (
            f"http://127.0.0.1:{closed.getsockname()[1]}/webhdfs/v1/f?op=OPEN&delegation=SECRET"
        )
    store = webhdfs(Time(), wait_s=0.0)
    with pytest.raises(StorageError, match="Connection refused") as caught:
        store.persist("cannot be read", "f", lambda: Datanodes(store).exchange(address, body))
    assert "SECRET" not in "".join(traceback.format_exception(caught.value))


def answering(handler: type[Answering]) -> AbstractContextManager[HTTPServer]:
    """A server of our own."""
    return running(HTTPServer(("127.0.0.1", 0), handler))


def answer_of(status: int, body: bytes = b"", **headers: str) -> type[Answering]:
    """A server that says one thing only."""

    class Handler(_Plain):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.answer(status, body, headers)

        do_PUT = do_GET

    return Handler


def test_a_namenode_that_redirects_is_told_at_once():
    """As one that moved to HTTPS does, with a proxy before it; followed, a request would be one without its body."""
    with answering(
        answer_of(307, Location="https://nn.example:9871/webhdfs/v1/?delegation=SECRET")
    ) as server:
        with pytest.raises(
            StorageAccessError, match=r":\d+: sends us to https://nn.example:9871: .*dfs_primary"
        ) as told:
            HdfsStorage.open(f"http://127.0.0.1:{server.server_port}", DfsConfig(wait_s=3600.0))
        assert "SECRET" not in "".join(traceback.format_exception(told.value))


@pytest.mark.parametrize("body", [None, b"body"])
def test_a_datanode_that_redirects_has_neither_given_nor_taken_the_file(body):
    """An answer of that kind has no body: a file that is read would be empty, and one that is sent nowhere."""
    with answering(answer_of(307, Location="https://dn.example:9865/")) as server:
        address = f"http://127.0.0.1:{server.server_port}/webhdfs/v1/f"
        with pytest.raises(RefusedError, match=r"sends us to https://dn\.example:9865"):
            Datanodes(webhdfs(Time())).exchange(address, body)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"FileStatuses": {}}', b"null", b""])
def test_an_answer_that_is_none_of_webhdfs_is_an_error_of_the_store(body):
    told = r"127\.0\.0\.1:\d+/: cannot be looked at: no WebHDFS answer"
    with answering(answer_of(200, body)) as server, pytest.raises(StorageError, match=told):
        HdfsStorage.open(f"http://127.0.0.1:{server.server_port}", DfsConfig(wait_s=0.0))


@pytest.mark.parametrize(("status", "waits"), [(502, True), (503, True), (504, True), (500, False)])
def test_a_gateway_without_its_server_is_waited_for(status, waits):
    time = Time()
    with answering(answer_of(status)) as server:
        address = parse_address(f"http://127.0.0.1:{server.server_port}")
        store = WebHdfs(address, DfsConfig(wait_s=60.0), sleep=time.sleep, clock=time.clock)
        with pytest.raises(StorageError, match=f"HTTP status {status}"):
            store.call("cannot be looked at", "GETFILESTATUS", "f")
    assert (time.now_s >= 60) == waits


def test_a_gateway_that_is_down_is_no_reason_to_wait_where_another_works():
    status = b'{"FileStatus": {"type": "DIRECTORY", "length": 0, "pathSuffix": ""}}'
    with answering(answer_of(503)) as down, answering(answer_of(200, status)) as up:
        address = f"http://127.0.0.1:{down.server_port};http://127.0.0.1:{up.server_port}"
        assert HdfsStorage.open(address, DfsConfig(wait_s=0.0)).stat("").is_dir


def test_a_standby_is_passed_over_and_asked_last_from_then_on():
    refusal = b'{"RemoteException": {"exception": "StandbyException", "message": "READ is not supported"}}'
    status = b'{"FileStatus": {"type": "DIRECTORY", "length": 0, "pathSuffix": ""}}'
    with (
        answering(answer_of(403, refusal)) as standby_,
        answering(answer_of(200, status)) as active,
    ):
        urls = [f"http://127.0.0.1:{server.server_port}" for server in (standby_, active)]
        storage = HdfsStorage.open(";".join(urls), DfsConfig(wait_s=0.0))
        assert storage._hdfs.namenodes == (urls[1], urls[0])
    with pytest.raises(
        StorageError, match=f"{urls[0][7:]}: .*; {urls[1][7:]}: |{urls[1][7:]}: .*; {urls[0][7:]}: "
    ):
        storage.stat("f")  # both are gone: each namenode's reason is told


def test_below_a_file_is_nothing_and_no_missing_folder():
    refusal = b'{"RemoteException": {"exception": "ParentNotDirectoryException", "message": "/f (is not a directory)"}}'
    with answering(answer_of(403, refusal)) as server:
        storage = HdfsStorage.open(
            f"http://127.0.0.1:{server.server_port}", DfsConfig(wait_s=0.0), make=False
        )
        assert storage.stat("f/x") is None
        with pytest.raises(StorageError, match="regular file") as caught:
            storage.list("f/x")
    assert not isinstance(caught.value, PathNotFoundError)


def hang_up(sockets: socket.socket, after: int) -> None:
    """Take a connection, read so many bytes of its handshake, and end it."""
    with suppress(OSError):
        while True:
            connection, _ = sockets.accept()
            with connection:
                connection.recv(after)


@pytest.mark.parametrize("after", [1, 100_000])
def test_a_tls_handshake_that_is_cut_is_a_server_that_died(after):
    """No certificate was seen yet, let alone refused: so it is waited for."""
    time = Time()
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = Thread(target=hang_up, args=(server, after))
        thread.start()
        address = parse_address(f"https://127.0.0.1:{server.getsockname()[1]}")
        store = WebHdfs(address, DfsConfig(wait_s=2.0), sleep=time.sleep, clock=time.clock)
        with pytest.raises(
            StorageError, match=r"asked again for 2 s; look at the server"
        ) as caught:
            store.call("cannot be looked at", "GETFILESTATUS", "f")
        server.shutdown(socket.SHUT_RDWR)
    thread.join()
    assert not isinstance(caught.value, StorageAccessError)
    assert time.now_s >= 2


def test_a_server_without_tls_is_told_at_once(plain):
    plain.handle_error = lambda request, address: None
    with pytest.raises(
        StorageAccessError, match=r"127.0.0.1:\d+: TLS: .*; look at scheme and port in dfs_primary"
    ):
        HdfsStorage.open(f"https://127.0.0.1:{plain.server_port}", DfsConfig(wait_s=3600.0))


def test_the_token_in_a_namenode_s_address_is_never_told():
    """It is in the address of each file that is opened; a namenode that restarts is an error in every log."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    store = WebHdfs(parse_address(address), DfsConfig(wait_s=0.0))
    store._token = {"delegation": "SECRET"}
    datanodes = Datanodes(store)
    with pytest.raises(StorageError, match="Connection refused") as caught:
        store.persist("cannot be read", "f", lambda: datanodes.location("OPEN", "f"))
    assert "SECRET" not in "".join(traceback.format_exception(caught.value))


def test_a_token_is_replaced_while_it_is_good_for_long_yet(monkeypatch):
    """A stream that begins with one needs it to its end; without security there is none to be replaced."""
    time, made = Time(), []
    store = webhdfs(time)
    monkeypatch.setattr(store, "ask", lambda *_: (made.append(1), {"urlString": str(len(made))})[1])
    store._token = None
    for hours, expected in ((0, "1"), (5, "1"), (2, "2"), (1, "2"), (30, "3")):
        time.sleep(hours * 3600)
        assert store.token() == {"delegation": expected}
    plain = webhdfs(time)
    time.sleep(1e9)
    assert plain.token() == {}


def test_a_token_that_could_not_be_replaced_stays_old(monkeypatch):
    """Else a namenode that is away for a moment gives it six hours more, and a stream outlives it."""
    time = Time()
    store = webhdfs(time)
    store._token = {"delegation": "old"}
    time.sleep(7 * 3600)
    monkeypatch.setattr(store, "ask", lambda *_: (_ for _ in ()).throw(ConnectionError))
    with pytest.raises(ConnectionError):
        store.token()
    monkeypatch.setattr(store, "ask", lambda *_: {"urlString": "new"})
    assert store.token() == {"delegation": "new"}


@pytest.mark.parametrize(
    ("kind", "waits", "says"),
    [
        ("kdc", True, "look at the server"),
        ("clock", False, "set the clocks"),
        ("ticket", False, "by kinit"),
    ],
)
def test_what_a_failure_of_kerberos_asks_for(kind, waits, says):
    time = Time()

    def fail():
        raise TicketError("Kerberos for HTTP@nn1: words", kind=kind)

    with pytest.raises(StorageError, match=rf"Kerberos for HTTP@nn1: words; .*{says}"):
        webhdfs(time).persist("cannot be read", "f", fail)
    assert (time.now_s >= 60) == waits


def test_cookies_are_read_while_another_thread_gets_some():
    """A fail-over in the middle of several streams: the other namenode's cookie joins those that are being read."""
    cookies = open_session(DfsConfig()).cookies
    cookies.set_policy(DefaultCookiePolicy())
    cookies.set("hadoop.auth", "1", domain="nn1")
    reading = iter(cookies)
    cookies.set("hadoop.auth", "2", domain="nn2")
    assert [cookie.domain for cookie in reading] == ["nn1"]
    assert len(list(cookies)) == 2


def test_a_stream_whose_thread_fails_is_not_taken_for_sent(monkeypatch):
    """Whatever ends the thread, the writer hears of it: neither waits for ever nor thinks that the file is there."""
    store = webhdfs(Time())
    deleted = []

    def fail(*_: object, **params: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(store, "ask", fail)
    with pytest.raises(StorageError, match=r"f: cannot be written: ZeroDivisionError: planted"):
        HdfsWriter(store, "f", deleted.append).close()
    writer = HdfsWriter(store, "f", deleted.append)
    with pytest.raises(StorageError, match="planted"):
        writer.write(bytes(COPY_BYTES)) and [writer.write(bytes(COPY_BYTES)) for _ in range(100)]
    assert deleted == []  # nothing was begun


@pytest.mark.parametrize("asks", ["at once", "in the middle", "at the end"])
def test_a_stream_whose_thread_ends_without_a_word_is_not_taken_for_sent(monkeypatch, asks):
    store = webhdfs(Time())
    deleted = []

    def end(*_: object, **params: object) -> None:
        raise SystemExit

    def send(method: str, location: str, *, data: Iterator[bytes], **_: object) -> None:
        next(data, None)
        if asks == "at the end":
            list(data)
        raise SystemExit

    monkeypatch.setattr(
        store, "ask", end if asks == "at once" else lambda *_, **params: "http://dn.example/f"
    )
    monkeypatch.setattr(store, "exchange", send)
    writer = HdfsWriter(store, "f", deleted.append)
    with pytest.raises(StorageError, match="f: cannot be written: SystemExit"):
        [
            writer.write(bytes(COPY_BYTES)) for _ in range(100 if asks == "in the middle" else 1)
        ] and writer.close()
    with suppress(StorageError):
        writer.close()
    assert deleted == ([] if asks == "at once" else ["f"])


def test_a_local_file_that_becomes_shorter_while_it_is_sent(tmp_path):
    (tmp_path / "f").write_bytes(b"12")
    with pytest.raises(StorageError, match="f: became shorter"):
        list(FileBody(tmp_path / "f", 3, lambda: None))
    assert b"".join(FileBody(tmp_path / "f", 2, lambda: None)) == b"12"
    assert not issubclass(StorageError, FOREIGN)


def test_a_local_store_does_not_load_the_http_client(tmp_path):
    code = (
        "import sys; from crawl_lib.config import Config; from crawl_lib.storage import open_storage\n"
        f"open_storage(Config(servers=('a',), dfs_primary={str(tmp_path / 'd')!r}))\n"
        "assert 'requests' not in sys.modules and 'hdfs' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
