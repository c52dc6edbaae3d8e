"""What goes over the wire: the request head as recorded, TLS, the proxy, and nothing that was not asked for."""

import asyncio
import socket
import subprocess
import threading
from dataclasses import replace

import pytest

from crawl_lib.fetch.classify import last_block, mime_allowed
from crawl_lib.fetch.hosts import Job, Site
from crawl_lib.fetch.transport import Transport
from crawl_lib.states import Outcome
from crawl_lib.urls import authority_of
from crawl_lib.version import VERSION
from tests.fetch.driver import CONFIG, run
from tests.web.hostile import OK_BODY, HostileWeb


def ends(config, *requests):
    """What requests (URL, address) of a bare transport ended in, one after the other."""

    async def main():
        loop = asyncio.get_running_loop()
        failures = []
        transport = Transport(config, failures.append)
        found = []
        for url, address in requests:
            future = loop.create_future()
            job = Job(url, Site(authority_of(url)), None)
            transport.start(
                job, address, lambda fetched, _, future=future: future.set_result(fetched)
            )
            found.append(await asyncio.wait_for(future, 10))
        transport.close()
        assert not failures
        return found

    return asyncio.run(main())


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/a/../b/./c?x=1&y=%20%C3%A4#",
        "/ok?",
        "//x//y",
        "/%zz%",
        "/{a}|b[]?'\"\\^`",
        "/a;b,c=@:!$&*()+~",
    ],
)
def test_the_recorded_request_is_what_the_server_read(tmp_path, path):
    with HostileWeb() as web:
        url = web.url(path.partition("#")[0], host="Name.test".lower())
        fetched = run(tmp_path, [url])[url]
        assert [seen.head for seen in web.requests] == [fetched.request]
    assert fetched.request.startswith(
        b"GET " + url[url.index("/", 8) :].encode() + b" HTTP/1.1\r\nHost: name.test:"
    )
    assert b"\r\nUser-Agent: krake/%s\r\n" % VERSION.encode() in fetched.request
    assert b"\r\nAccept-Encoding: gzip, deflate\r\n" in fetched.request


def test_the_contact_stands_in_the_user_agent(tmp_path):
    config = replace(CONFIG, user_agent="my-bot", contact="https://me.test/bot")
    with HostileWeb() as web:
        fetched = run(tmp_path, [web.url()], config)[web.url()]
    assert (
        b"\r\nUser-Agent: my-bot/%s (+https://me.test/bot)\r\n" % VERSION.encode()
        in fetched.request
    )
    assert (fetched.ip, fetched.attempts) == ("127.0.0.1", 1)


def test_proxy_variables_of_the_environment_are_ignored(tmp_path, monkeypatch):
    with HostileWeb() as web, HostileWeb() as proxy:
        for name in ("http_proxy", "https_proxy", "all_proxy", "ALL_PROXY", "HTTP_PROXY"):
            monkeypatch.setenv(name, proxy.url("/"))
        assert run(tmp_path, [web.url()]).outcomes() == ["ok"]
        assert (web.connections, proxy.connections) == (1, 0)


def test_a_configured_proxy_gets_the_whole_url_and_looks_names_up(tmp_path):
    with HostileWeb() as proxy:
        proxy.on("http://far.test/x", lambda talk: talk.reply())
        config = replace(CONFIG, proxy=proxy.url(""), allow_networks=())
        found = run(tmp_path, ["http://far.test/x", "http://10.0.0.1/"], config)
        assert [seen.head for seen in proxy.requests] == [found["http://far.test/x"].request]
    assert found["http://far.test/x"].request.startswith(
        b"GET http://far.test/x HTTP/1.1\r\nHost: far.test\r\n"
    )
    assert found["http://10.0.0.1/"].outcome is Outcome.ADDRESS_REFUSED


def test_the_filter_stands_where_the_socket_is_opened():
    """Also for an address that the loop let through."""
    with HostileWeb() as web:
        (end,) = ends(replace(CONFIG, allow_networks=()), (web.url(), "127.0.0.1"))
        assert web.connections == 0
    assert (end.outcome, end.request) == (Outcome.ADDRESS_REFUSED, b"")
    assert "127.0.0.1" in end.error


@pytest.mark.parametrize("scheme", ["socks5", "socks5h", "SOCKS5", "socks4", "socks4a"])
def test_a_socks_proxy_is_given_the_name(scheme):
    """Names are the proxy's to look up, in whatever spelling it is given."""
    heard = []

    def serve():
        with listener.accept()[0] as talk:
            talk.settimeout(5)
            heard.append(talk.recv(1000))
            if heard[0][0] == 5:
                talk.sendall(b"\5\0")
                heard.append(talk.recv(1000))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        config = replace(CONFIG, proxy=f"{scheme}://127.0.0.1:{listener.getsockname()[1]}")
        (end,) = ends(config, ("http://localhost:81/", None))
        thread.join(5)
    assert b"localhost" in heard[-1]
    assert not end.request


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "name.test"])
def test_curl_looks_no_name_up(host):
    """Without a proxy it gets an address for each request, or none is made."""
    with HostileWeb() as web:
        (end,) = ends(CONFIG, (web.url(host=host), None))
        assert (end.request, end.outcome, web.connections) == (b"", Outcome.PROTOCOL_ERROR, 0)
        assert "curl refuses" in end.error


def test_a_kept_connection_belongs_to_its_address():
    """The same name at another address gets a connection of its own."""
    with HostileWeb() as web:
        url = web.url(host="name.test")
        first, again = ends(CONFIG, (url, "127.0.0.1"), (url, "127.0.0.1"))
        assert (first.body, again.body, web.connections) == (OK_BODY, OK_BODY, 1)
        _, refused = ends(CONFIG, (url, "127.0.0.1"), (url, "127.0.0.77"))
        assert (refused.outcome, refused.error[-8:]) == (Outcome.CONNECT_FAILED, "(curl 7)")


@pytest.fixture
def certificate(tmp_path):
    path = tmp_path / "cert.pem"
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=tls.test",
         "-addext", "subjectAltName=DNS:tls.test", "-keyout", tmp_path / "key.pem", "-out", tmp_path / "only.pem"],
        capture_output=True,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    path.write_bytes((tmp_path / "key.pem").read_bytes() + (tmp_path / "only.pem").read_bytes())
    return path


def test_tls_is_verified(tmp_path, certificate, monkeypatch):
    with HostileWeb(certificate=certificate) as web:
        good, bad = web.url(host="tls.test"), web.url(host="other.test")
        untrusted = run(tmp_path, [good])[good]
        assert (untrusted.outcome, untrusted.head) == (Outcome.TLS_FAILED, b"")
        assert untrusted.error
        assert run(tmp_path, [good], replace(CONFIG, verify_tls=False)).outcomes() == ["ok"]
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        found = run(tmp_path, [good, bad])
        assert found[good].outcome is Outcome.OK
        assert found[bad].outcome is Outcome.TLS_FAILED
        assert [seen.head for seen in web.requests if "tls.test" in seen.host][-1] == found[
            good
        ].request


def test_no_tls_at_all_is_a_tls_failure(tmp_path):
    with HostileWeb() as web:
        url = web.url().replace("http:", "https:")
        assert run(tmp_path, [url])[url].outcome is Outcome.TLS_FAILED


def test_no_cookie_is_sent_back(tmp_path):
    with HostileWeb() as web:
        web.on("/set", lambda talk: talk.reply(headers=b"Set-Cookie: a=b; Path=/\r\n"))
        run(tmp_path, [web.url("/set"), web.url()])
        assert b"ookie" not in web.requests[1].head


@pytest.mark.parametrize(("lines", "block"), [
    ([b"HTTP/1.1 200 OK\r\n", b"\r\n"], b"HTTP/1.1 200 OK\r\n\r\n"),
    ([b"HTTP/1.1 100 C\r\n", b"\r\n", b"HTTP/1.1 200 OK\r\n", b"A:b\r\n", b"\r\n"], b"HTTP/1.1 200 OK\r\nA:b\r\n\r\n"),
    ([b"HTTP/1.1 200 OK\n", b"\n", b"Trailer: x\n"], b"HTTP/1.1 200 OK\n\n"),
    ([b"HTTP/1.1 200 OK\r\n", b"HTTP/fake: x\r\n", b"\r\n", b"T: x\r\n"], b"HTTP/1.1 200 OK\r\nHTTP/fake: x\r\n\r\n"),
    ([b"HTTP/1.1 200 OK\r\n", b"A: b\r\n"], b"HTTP/1.1 200 OK\r\nA: b\r\n"),
])  # fmt: skip
def test_the_last_block_of_header_lines(lines, block):
    assert last_block(lines) == block


@pytest.mark.parametrize(
    ("mime", "allowed"),
    [
        ("text/html", True),
        ("text/css", True),
        ("image/png", True),
        (None, True),
        ("image/gif", False),
    ],
)
def test_types_are_named_whole_or_by_their_first_half(mime, allowed):
    assert mime_allowed(mime, frozenset({"text/*", "image/png"})) is allowed
