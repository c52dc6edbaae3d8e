"""What leads to a port that browsers refuse is counted as `port`: a seed, a link, a redirect, a queue's line."""

from pathlib import Path

import pytest

from crawl_lib.errors import InputError
from crawl_lib.stages import inject
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
        web.on("/moved", lambda talk: talk.reply("302 Found", b"Location: http://127.0.0.1:22/\r\n", b""))
        with pytest.raises(InputError, match="port: .http"):
            inject(config, run_id="bad", seeds="http://127.0.0.1:110/")
        result = run_crawl(config, [web.url("/links"), web.url("/moved"), "http://b.test:1/"], 2, process=False)
        paths = web.paths()
    assert sorted(paths) == ["/links", "/moved", "/robots.txt"]
    assert result.outcomes() == {web.url("/links"): "ok", web.url("/moved"): "redirect"}
    assert sum(manifest["counts"]["rejections"].get("port", 0) for manifest in result.manifests()) == 4
    assert {row["rule"] for row in result.rows("links", ["rule"])} == {"port"}
