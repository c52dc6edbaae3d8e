"""Small files of the crawl directory that are damaged are one clear error that leads to `krake fsck`."""

from pathlib import Path

import pytest

from crawl_lib.crawldir.directory import CrawlDirectory
from crawl_lib.errors import DamagedFileError
from crawl_lib.storage import LocalStorage


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}", '{"counts": {}, "outlinks": {}}', '{"counts": [], "outlinks": {}, "scope_added": []}'],
)
def test_a_damaged_manifest_is_named(content: str, tmp_path: Path) -> None:
    path = tmp_path / "crawl" / "17" / "node-a" / "manifest.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(DamagedFileError, match=r"crawl/17/node-a/manifest.json: .*`krake fsck`"):
        CrawlDirectory(LocalStorage(tmp_path), "crawl").segment("17", "node-a").manifest()
