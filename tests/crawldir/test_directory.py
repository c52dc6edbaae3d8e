"""Small files of the crawl directory that are damaged are one clear error that leads to `krake fsck`."""

from pathlib import Path
from unittest.mock import patch

import pytest

from crawl_lib.crawldir import SettledNotes
from crawl_lib.crawldir.directory import CrawlDirectory
from crawl_lib.dfsfiles import write_json_bytes
from crawl_lib.errors import DamagedFileError
from crawl_lib.sealed import SEALED_VERSION, unsealed
from crawl_lib.storage import LocalStorage


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"counts": {}, "outlinks": {}}',
        '{"counts": [], "outlinks": {}, "scope_added": []}',
    ],
)
def test_a_damaged_manifest_is_named(content: str, tmp_path: Path) -> None:
    path = tmp_path / "crawl" / "17" / "node-a" / "manifest.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(DamagedFileError, match=r"crawl/17/node-a/manifest.json: .*`krake fsck`"):
        CrawlDirectory(LocalStorage(tmp_path), "crawl").segment("17", "node-a").manifest()


def test_whether_a_node_had_a_queue_is_not_asked_of_all_folders(tmp_path: Path) -> None:
    """The newest with a segment of it says so; of each node elsewhere each of 1,000 folders was listed."""
    for folder in range(100, 150):
        (tmp_path / "crawl" / str(folder) / "node-a").mkdir(parents=True)
    crawl = CrawlDirectory(LocalStorage(tmp_path), "crawl")
    with patch.object(crawl.storage, "list", wraps=crawl.storage.list) as listed:
        assert SettledNotes(crawl, "node-a").urls_of_lost_queue() == 0
    assert listed.call_count <= 2
    assert SettledNotes(crawl, "node-b").urls_of_lost_queue() is None


def test_no_bit_of_a_sealed_file_can_be_another_unnoticed() -> None:
    """Also not one of its version, of the name of its version, or of its digest."""
    value = {
        "format_version": SEALED_VERSION,
        "run_id": "r",
        "counts": {"taken": 17},
        "nodes": ["a", "ä"],
    }
    whole = write_json_bytes(value)
    assert unsealed(whole) == value
    for byte in range(len(whole)):
        for bit in range(8):
            data = whole[:byte] + bytes([whole[byte] ^ (1 << bit)]) + whole[byte + 1 :]
            try:
                found = unsealed(data)
            except (ValueError, KeyError, TypeError):
                continue
            assert found == value, (byte, bit)
