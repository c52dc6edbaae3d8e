"""A Java program that knows only the format's description reads every file (`java/ReadExport.java`)."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from crawl_lib.config import Config
from crawl_lib.export import export_pages
from crawl_lib.graph import finalize_export, link_export
from crawl_lib.storage import Storage
from tests.export.crawls import Capture, CrawlMaker, key
from tests.stores import stores_on

SOURCE = Path(__file__).parent / "java" / "ReadExport.java"


def test_java_reads_every_file(
    storage: Storage, config: Config, crawl: CrawlMaker, tmp_path: Path
) -> None:
    javac, java = shutil.which("javac"), shutil.which("java")
    if javac is None or java is None:
        pytest.skip("javac or java is not installed (Debian: default-jdk-headless)")
    chance = random.Random(7)
    urls = [f"http://h.example/{number}" for number in range(60)]
    bodies = {url: chance.randbytes(chance.randrange(9000)) for url in urls}
    links = {url: chance.sample(urls, chance.randrange(12)) for url in urls}
    crawl.segment("1", "node-a", [Capture(url, bodies[url], links=links[url]) for url in urls])
    export_pages(stores_on(storage, config), name="x", segments=crawl.segments)
    link_export(stores_on(storage, config), name="x")
    finalize_export(stores_on(storage, config), name="x")
    subprocess.run([javac, "-d", str(tmp_path), str(SOURCE)], check=True, capture_output=True)
    folder = str(Path(config.dfs_primary) / "export" / "x")
    found = subprocess.run(
        [java, "-cp", str(tmp_path), "ReadExport", folder], capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
    order = sorted(urls, key=key)
    rank = {url: node_id for node_id, url in enumerate(order)}
    arcs = {(rank[url], rank[link]) for url in urls for link in links[url] if url != link}
    lines = found.stdout.splitlines()
    assert lines[:60] == [f"key {node_id} {key(url).hex()}" for node_id, url in enumerate(order)]
    pages = [line.split() for line in lines[60:120]]
    assert [(int(page[3]), int(page[4])) for page in pages] == [
        (len(bodies[u]), sum(bodies[u])) for u in order
    ]
    for node_id, line in enumerate(lines[120:]):
        ins = sorted(source for source, target in arcs if target == node_id)
        outs = sorted(target for source, target in arcs if source == node_id)
        assert line == " ".join(map(str, ["node", node_id, *ins, "/", *outs]))
    assert len(lines) == 180
