"""An archive of `wget -p`: the captures that it took to show a page are requisites of the crawl."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from crawl_lib import stages
from crawl_lib.curate import import_archives
from crawl_lib.stores import open_stores
from tests.e2e.crawl import Result, check_warcs, make_config
from tests.e2e.shown import HOPS, running_pages

WGET = (
    "wget",
    "--quiet",
    "--recursive",
    "--level=1",
    "--page-requisites",
    "--no-parent",
    "--tries=1",
)


@pytest.mark.skipif(shutil.which("wget") is None, reason="wget is not there")
def test_requisites_of_wget_stay_requisites(tmp_path: Path) -> None:
    with running_pages() as site:
        seed = f"http://127.0.0.1:{site.server_address[1]}/"
        archive = tmp_path / "wget"
        command = [
            *WGET,
            f"--warc-file={archive}",
            f"--directory-prefix={tmp_path / 'files'}",
            seed,
        ]
        subprocess.run(command, check=False, timeout=60)  # 8: a page of the site is missing
    (tmp_path / "crawl").mkdir()
    config = make_config(tmp_path / "crawl", nodes=1, parse={"requisites": "all"})
    stages.inject(open_stores(config), run_id="run", seeds="http://other.example/")
    import_archives(open_stores(config), [f"{archive}.warc.gz"])
    result = Result(config)
    hops = {
        f"/{row['url'].removeprefix(seed)}": row["hop"]
        for row in result.rows("pages", ["url", "hop"])
    }
    assert {path: hop == "E" for path, hop in hops.items()} == {
        path: HOPS[path] == "E" for path in hops
    }
    assert hops.keys() >= {"/", "/page", "/s.css", "/i2.png", "/lone.css", "/moved", "/moved-to"}
    check_warcs(result)
