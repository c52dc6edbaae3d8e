"""`krake fsck` of exports: a file that its stages would write otherwise is found, also if it is well-formed."""

import json
from pathlib import Path

import pytest

from crawl_lib.config import Config
from crawl_lib.export import export_pages
from crawl_lib.graph import check_export, finalize_export, link_export
from crawl_lib.storage import Storage
from tests.export.crawls import Capture, CrawlMaker
from tests.stores import stores_on

URLS = [f"http://h.example/{number}" for number in range(9)]


@pytest.fixture
def folder(storage: Storage, config: Config, crawl: CrawlMaker) -> Path:
    crawl.segment("1", "node-a", [Capture(url, url.encode(), links=URLS[:: n + 1]) for n, url in enumerate(URLS)])
    export_pages(stores_on(storage, config), name="x", segments=crawl.segments)
    link_export(stores_on(storage, config), name="x")
    finalize_export(stores_on(storage, config), name="x")
    assert check_export(stores_on(storage, config), "x") == []
    return Path(config.dfs_primary) / "export" / "x"


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("urlmapping", "mapping_damaged"),
        ("offsets", "offsets_damaged"),
        ("webgraph-index", "graph_damaged"),
        ("webgraph", "graph_damaged"),
    ],
)
def test_every_byte_of_a_file_that_the_others_make_is_compared(
    file: str, name: str, folder: Path, storage: Storage, config: Config
) -> None:
    whole = (folder / file).read_bytes()
    for at in range(0, len(whole), 7):
        (folder / file).write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        [finding] = check_export(stores_on(storage, config), "x")
        assert (finding.name, finding.where) == (name, f"export/x/{file}")
        assert finding.problem.startswith(f"byte {at} is not what the other files of the export make it")
    for size in (whole + b"\0", whole[:-1]):
        (folder / file).write_bytes(size)
        [finding] = check_export(stores_on(storage, config), "x", full=False)
        assert (finding.name, finding.where) == (name, f"export/x/{file}")


def test_a_damaged_table_takes_no_whole_file_with_it(folder: Path, storage: Storage, config: Config) -> None:
    """Nor is what is not there yet said to be of so many bytes."""
    arcs = (folder / "arcs-out.parquet").read_bytes()
    (folder / "arcs-out.parquet").write_bytes(arcs[:-4] + b"none")
    [finding] = check_export(stores_on(storage, config), "x", full=False)
    assert (finding.name, finding.where) == ("export_table_damaged", "export/x/arcs-out.parquet")
    for name in ("arcs-out.parquet", "arcs-in.parquet", "webgraph", "webgraph-index"):
        (folder / name).unlink()
    (folder / "offsets").write_bytes(bytes(5))
    [finding] = check_export(stores_on(storage, config), "x", full=False)
    assert finding.problem == "has 5 bytes, and 9 pages need 108"


def test_inputs_with_another_byte_in_them_end_no_check(folder: Path, storage: Storage, config: Config) -> None:
    """They are found by the digest, which older versions did not write."""
    inputs = (folder / "inputs").read_text().replace('"folder": "1"', '"folder": "q"')
    (folder / "inputs").write_text(inputs)
    assert [finding.name for finding in check_export(stores_on(storage, config), "x")] == ["inputs_damaged"]
    old = json.loads(inputs)
    del old["sha1"]
    (folder / "inputs").write_text(json.dumps(old))
    assert check_export(stores_on(storage, config), "x") == []
