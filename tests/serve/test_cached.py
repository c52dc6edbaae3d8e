"""The cached view: what is shown of a capture, and which captures are not shown."""

from __future__ import annotations

import gzip
import re
import shutil
from dataclasses import replace
from pathlib import Path
from threading import Thread, current_thread
from typing import Any

import pytest

from crawl_lib.config.model import SiteConfig
from crawl_lib.errors import StorageError
from crawl_lib.segment import DroppedLists
from crawl_lib.serve import cached
from crawl_lib.serve.cached import SANDBOX
from crawl_lib.serve.views import render
from tests.export.crawls import Capture, member
from tests.export.crawls import key as key_of
from tests.index.made import HEAD, Made, a, page
from tests.serve.made import Client
from tests.text.pdfs import pdf

EVIL = "<base href=http://evil.example/><link\trel=preconnect href=//evil.example>"
BODY = "<body><main><p>a caf\u00e9 with tapirs</p></main></body></html>"
HTML = f"<!DOCTYPE html>\n<html><head><title>Caf\u00e9</title>{EVIL}{BODY}"
UNTIL = "<meta name=robots content='unavailable_after: {}'>"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    made = Made.below(tmp_path_factory.mktemp("cached"))
    body = HTML.encode("windows-1252")
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=windows-1252\r\nContent-Encoding: gzip\r\n\r\n"
    coded = Capture(
        a("coded"), gzip.compress(body, mtime=0), head=head.encode(), more={"title": "Caf\u00e9"}
    )
    files = Capture(
        a("file.pdf"),
        pdf("an octopus of paper"),
        head=HEAD.format("").encode(),
        mime="application/pdf",
    )
    made.crawl(
        coded,
        files,
        page(a("plain"), "a plain walrus"),
        page(a("shy"), "a shy geyser", header="X-Robots-Tag: noarchive\r\n"),
        page(a("past"), "old news", head=UNTIL.format("2020-01-01")),
        page("http://hidden.example/", "a secret newt"),
    )
    made.update()
    return made


def key(name: str) -> str:
    return key_of(name if "://" in name else a(name)).hex()


def said(client: Client, name: str) -> str:
    """The sentence of the 404 that both addresses of a copy answer."""
    answers = client.get_all([f"/cached/{key(name)}", f"/cached/{key(name)}/page"])
    assert [answer.status_code for answer in answers] == [404, 404], name
    [first, second] = [re.search("<h1>(.*?)</h1>", answer.text)[1] for answer in answers]
    assert first == second
    return str(first)


def test_a_copy_is_around_a_frame_and_says_when_it_was_captured(made: Made) -> None:
    answer = Client(made).get(f"/cached/{key('coded')}")
    assert (
        'captured on <time datetime="1970-01-01T00:16:40+00:00">1 Jan 1970 at 00:16 UTC</time>'
        in answer.text
    )
    assert "may be out of date" in answer.text
    assert f'<iframe src="/cached/{key("coded")}/page"' in answer.text
    assert 'sandbox="allow-popups allow-popups-to-escape-sandbox"' in answer.text


def test_the_frame_has_the_page_without_codings_and_may_do_nothing(made: Made) -> None:
    answer = Client(made).get(f"/cached/{key('coded')}/page")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == SANDBOX
    assert SANDBOX == (
        "sandbox allow-popups allow-popups-to-escape-sandbox; default-src 'none'; style-src 'unsafe-inline';"
        " img-src data:"
    )
    assert "a caf\u00e9 with tapirs" in answer.text
    base = '<base href="http://a.example/coded" target="_blank">'
    assert answer.text.startswith(f"<!DOCTYPE html>{base}\n<html>")
    assert "<link" not in answer.text


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"<!doctype html>",
        b" \n<!-- a --><!-- <!doctype html> --> <!DOCTYPE html SYSTEM 'x'>",
        b"<?xml version='1.0'?><!doctype html>",
        b"<!-- <!doctype html> -->",
        b"<!--" * 900,
        b"<!-- -->" * 400 + b"<!doctype html>",
        b"<!-- a --!><!---!> b --><!doctype html>",
    ],
)
def test_the_base_is_before_all_that_may_have_one_and_behind_a_doctype(start: bytes) -> None:
    found = cached._harmless(
        start + b"<base href=http://evil.example/>", 'http://a.example/?a&b="c"\''
    )
    before, _, behind = found.partition(
        b'<base href="http://a.example/?a&amp;b=&quot;c&quot;&#x27;" target="_blank">'
    )
    assert before + behind == start + b"<base href=http://evil.example/>"
    assert before == (start if start.lower().endswith((b"doctype html>", b"'x'>")) else b"")


@pytest.mark.parametrize("comment", [b"<!-->", b"<!--->", b"<!-- --!>", b"<!-- a --><!-->"])
def test_a_comment_that_ends_early_hides_nothing_from_us(comment: bytes) -> None:
    start = (
        comment
        + b"<base href=//evil.example><link rel=preconnect href=//evil.example> --><!doctype html>"
    )
    found = cached._harmless(start, "http://a.example/")
    assert found.startswith(b'<base href="http://a.example/" target="_blank">')
    assert b"<link" not in found


def test_an_element_that_connects_unasked_has_no_effect_in_any_spelling() -> None:
    start = b"<LINK rel=x><link/rel=x><link\nrel=x><link><links></link><lin k>"
    found = cached._harmless(start, "http://a.example/")
    assert found.endswith(b"<meta rel=x><meta/rel=x><meta\nrel=x><meta><links></meta><lin k>")
    found = cached._harmless(
        b"<IFRAME src=x>a</iFrame><frameset><frame/src=x></frameset>", "http://a.example/"
    )
    assert found.endswith(b"<x-frame src=x>a</x-frame><frameset><meta/src=x></frameset>")


def test_a_pdf_is_shown_as_its_text(made: Made) -> None:
    client = Client(made)
    answer = client.get(f"/cached/{key('file.pdf')}")
    assert "an octopus" in answer.text
    assert "<iframe" not in answer.text
    assert client.get(f"/cached/{key('file.pdf')}/page").status_code == 404


def test_a_thread_makes_the_page_of_a_text(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte of signs takes a second, in which no other request would be answered."""
    threads: list[Thread] = []

    def rendering(template: str, **values: Any) -> str:
        threads.append(current_thread())
        return render(template, **values)

    monkeypatch.setattr("crawl_lib.serve.app.render", rendering)
    assert "an octopus" in Client(made).get(f"/cached/{key('file.pdf')}").text
    assert len(threads) == 1
    assert threads[0] is not current_thread()


def test_a_long_page_is_cut_and_says_so(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached, "MOST_BYTES", 100)
    client = Client(made)
    assert "shown in part" in client.get(f"/cached/{key('coded')}").text
    assert len(client.get(f"/cached/{key('coded')}/page").content) < 200
    monkeypatch.setattr(cached, "MOST_CHARS", 5)
    text = client.get(f"/cached/{key('file.pdf')}").text
    assert "shown in part" in text
    assert ">an oc<" in text


def test_a_page_that_is_longer_in_utf_8_is_cut_there(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached, "MOST_BYTES", len(HTML))
    client = Client(made)
    assert "shown in part" in client.get(f"/cached/{key('coded')}").text
    assert not client.get(f"/cached/{key('coded')}/page").text.endswith("</html>")
    monkeypatch.setattr(cached, "MOST_BYTES", len(HTML.encode()))
    assert "shown in part" not in client.get(f"/cached/{key('coded')}").text
    assert client.get(f"/cached/{key('coded')}/page").text.endswith("</html>")


def test_pages_that_must_not_be_shown(made: Made) -> None:
    client = Client(made)
    assert "noarchive" in said(client, "shy")
    assert "no such page" in said(client, "past")
    assert "no such page" in said(client, "nowhere")
    for text in ("x", "0" * 39, "G" * 40, "%2e%2e"):
        assert client.get(f"/cached/{text}").status_code == 404
    assert client.get(f"/cached/{key('http://hidden.example/')}").status_code == 200
    search = replace(made.config.search, sites=(SiteConfig("hidden.example", 0.0),))
    hiding = Client(replace(made, config=replace(made.config, search=search)))
    assert "no such page" in said(hiding, "http://hidden.example/")


def test_a_dropped_page_is_not_shown_though_the_index_has_it(made: Made, tmp_path: Path) -> None:
    own = made.copied(tmp_path / "own")
    DroppedLists(own.stores.storage, "crawl/1/node-0").write([bytes.fromhex(key("plain"))])
    client = Client(own)
    assert "dropped" in said(client, "plain")
    assert client.get(f"/cached/{key('coded')}").status_code == 200


@pytest.mark.parametrize(
    "damage", ["other page", "no record", "shorter", "no file", "no segment", "request"]
)
def test_a_capture_that_has_moved(made: Made, tmp_path: Path, damage: str) -> None:
    own = made.copied(tmp_path / "own")
    [row] = [row for row in own.pages(own.update()) if row["key"].hex() == key("plain")]
    file = Path(own.config.dfs_primary) / "crawl/1/node-0" / row["warc_file"]
    data = bytearray(file.read_bytes())
    end = row["warc_offset"] + row["warc_length"]
    kind = "request" if damage == "request" else "response"
    record = member(
        a("plain") if damage == "request" else a("other"), b"HTTP/1.1 200 OK\r\n\r\n", kind
    )
    if damage == "no segment":
        shutil.rmtree(file.parent)
    elif damage == "no file":
        file.unlink()
    elif damage == "shorter":
        file.write_bytes(data[: row["warc_offset"] + 10])
    else:
        new = record if damage != "no record" else b"no gzip"
        data[row["warc_offset"] : end] = new.ljust(row["warc_length"], b"\0")
        file.write_bytes(data)
    assert "Update the index" in said(Client(own), "plain")


def test_a_store_that_is_away_is_503_without_its_name(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*arguments: object) -> None:
        raise StorageError("http://namenode.inner.example is away")

    monkeypatch.setattr(DroppedLists, "read", away)
    answer = Client(made).get(f"/cached/{key('plain')}")
    assert answer.status_code == 503
    assert "inner.example" not in answer.text
