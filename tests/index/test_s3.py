"""In an object store an index is made of, and asked by, verified copies on this machine."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from crawl_lib.curate import drop_pages
from crawl_lib.index import local_folder, update_index
from crawl_lib.repair import sweep
from crawl_lib.search import IndexReader, IndexVersions, Sites, every_page
from crawl_lib.storage import LocalStorage
from crawl_lib.stores import Stores
from tests.e2e.moved import copy_objects
from tests.index.made import NOW, Made, a
from tests.index.test_searched import CAPTURES
from tests.s3 import s3_server
from tests.stores import stores_on


def pages_of(stores: Stores, query: str) -> list[str]:
    index = IndexReader(IndexVersions(stores), background=None).current()
    return [url for _, url in every_page(index, query, Sites({}))]


@pytest.mark.slow
def test_an_index_in_a_bucket_is_searched_by_verified_copies(tmp_path: Path) -> None:
    made = Made.below(tmp_path, urls={"scope": "any"})
    made.crawl(*CAPTURES)
    search = replace(made.config.search, directory=str(tmp_path / "search"))
    copies = tmp_path / "search" / made.config.crawl.name
    with s3_server() as server:
        copy_objects(LocalStorage.open(Path(made.config.dfs_primary)), server, "index")
        stores = stores_on(server.store("index"), replace(made.config, search=search))
        first = update_index(stores, now=NOW)
        assert pages_of(stores, "walrus tusks") == [a("plain")]
        [damaged] = local_folder(stores, first).glob("*.store")
        damaged.write_bytes(bytes(damaged.stat().st_size))
        drop_pages(stores, [a("plain")])
        second = update_index(stores, now=NOW)
        assert pages_of(stores, "walrus tusks") == []
        assert [folder.name for folder in copies.iterdir()] == [str(second.number)]
        digests = {part["name"]: part["sha256"] for part in second.manifest["parts"]}
        files = {name: (local_folder(stores, second) / name).read_bytes() for name in digests}
        assert {name: sha256(data).hexdigest() for name, data in files.items()} == digests
        assert sweep(stores).deleted == []
