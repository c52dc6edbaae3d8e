"""What a whole crawl refuses: ports that browsers refuse, and inner addresses, also behind redirects."""

import socket
from pathlib import Path

import pytest

from crawl_lib.errors import InputError
from crawl_lib.stages import inject
from crawl_lib.stores import open_stores
from tests.e2e.crawl import make_config, run_crawl
from tests.web.hostile import HostileWeb


def test_seeds_links_and_redirects_are_counted_and_never_asked(tmp_path: Path) -> None:
    config = make_config(tmp_path, nodes=1, urls={"scope": "any"}, fetch={"host_delay_s": 0.0})
    with HostileWeb() as web:
        web.on(
            "/links",
            lambda talk: talk.reply(
                body=b'<a href="http://a.test:25/">1</a><a href="//127.0.0.1:6667/x">2</a>'
                b'<a href="/moved">3</a><base href="https://[::1]:993/">'
            ),
        )
        web.on(
            "/moved",
            lambda talk: talk.reply("302 Found", b"Location: http://127.0.0.1:22/\r\n", b""),
        )
        with pytest.raises(InputError, match=": port"):
            inject(open_stores(config), run_id="bad", seeds="http://127.0.0.1:110/")
        result = run_crawl(
            config, [web.url("/links"), web.url("/moved"), "http://b.test:1/"], 2, process=False
        )
        paths = web.paths()
    assert sorted(paths) == ["/links", "/moved", "/robots.txt"]
    assert result.outcomes() == {web.url("/links"): "ok", web.url("/moved"): "redirect"}
    assert (
        sum(manifest["counts"]["rejections"].get("port", 0) for manifest in result.manifests()) == 4
    )
    assert {row["rule"] for row in result.rows("links", ["rule"])} == {"port"}


def test_redirects_to_refused_addresses_are_not_followed(tmp_path: Path) -> None:
    fetch = {"host_delay_s": 0.0, "allow_networks": ["127.0.0.1/32"]}
    config = make_config(tmp_path, nodes=1, urls={"scope": "any"}, fetch=fetch)
    with HostileWeb() as web, socket.create_server(("127.9.0.1", web.port)) as refused:
        targets = [f"http://127.9.0.1:{web.port}/{number}" for number in range(3)]
        spelled = ["127.9.1", "0x7f090001", "2131296257"]
        for number, host in enumerate(spelled):
            location = f"Location: http://{host}:{web.port}/{number}\r\n".encode()
            web.on(f"/{number}", lambda talk, location=location: talk.reply("307 X", location, b""))
        result = run_crawl(config, [web.url(f"/{number}") for number in range(3)], 2, process=False)
        refused.setblocking(False)
        with pytest.raises(BlockingIOError):
            refused.accept()
    assert {
        url: outcome for url, outcome in result.outcomes().items() if url in targets
    } == dict.fromkeys(targets, "address_refused")


def test_curl_writes_no_file_where_the_environment_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SSLKEYLOGFILE would take the keys of every connection, and curl has no option against it."""
    files = tmp_path / "files"
    files.mkdir()
    monkeypatch.setenv("SSLKEYLOGFILE", str(files / "keys"))
    monkeypatch.setenv("QLOGDIR", str(files))
    config = make_config(tmp_path, nodes=1, urls={"scope": "any"}, fetch={"host_delay_s": 0.0})
    with HostileWeb() as web:
        assert run_crawl(config, [web.url()], 1, process=False).outcomes() == {web.url(): "ok"}
    assert list(files.iterdir()) == []
