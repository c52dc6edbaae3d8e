"""Octets that are not ASCII in a Location: a crawl asks for them as they came, and so does `krake check`."""

from __future__ import annotations

from pathlib import Path

from crawl_lib.ask.check import check_url
from crawl_lib.stores import open_stores
from tests.e2e.crawl import make_config, run_crawl
from tests.web.hostile import HostileWeb

CASES = {
    "utf8": (b"/caf\xc3\xa9/\xd8\xa7", "/caf%C3%A9/%D8%A7"),
    "query": (b"/s?q=caf\xc3\xa9", "/s?q=caf%C3%A9"),
    "latin1": (b"/caf\xe9", "/caf%E9"),
    "last": (b"/voil\xc3\xa0", "/voil%C3%A0"),
}


def test_redirects_lead_to_the_octets_that_came(tmp_path: Path) -> None:
    config = make_config(tmp_path, nodes=1, urls={"scope": "any"}, fetch={"host_delay_s": 0.0})
    with HostileWeb() as web:
        for name, (octets, _) in CASES.items():
            location = b"Location: " + octets + b"\r\n"
            web.on(
                f"/{name}", lambda talk, location=location: talk.reply("302 Found", location, b"")
            )
        host = b"Location: http://b\xc3\xbccher.invalid/\r\n"
        web.on("/host", lambda talk: talk.reply("302 Found", host, b""))
        for _, path in CASES.values():
            web.on(path, lambda talk: talk.reply())
        result = run_crawl(
            config, [web.url(f"/{name}") for name in (*CASES, "host")], 2, process=False
        )
        checked = {
            name: check_url(open_stores(config), web.url(f"/{name}"))["fetch"]["location"]
            for name in CASES
        }
    wanted = {web.url(f"/{name}"): web.url(path) for name, (_, path) in CASES.items()}
    rows = result.rows("pages", ["url", "redirect_url"])
    found = {row["url"]: row["redirect_url"] for row in rows if row["redirect_url"]}
    assert found == wanted | {web.url("/host"): "http://xn--bcher-kva.invalid/"}
    assert {result.outcomes()[target] for target in wanted.values()} == {"ok"}
    assert checked == {name: path for name, (_, path) in CASES.items()}
