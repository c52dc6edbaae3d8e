"""The manifest of seeds or a list: each part has its type, or the error names the file and the part."""

from __future__ import annotations

from typing import Any

import pytest

from crawl_lib.crawldir import InboxManifest
from crawl_lib.errors import DamagedFileError

SAID: dict[str, Any] = {"accepted": 2, "outlinks": {"node-0": {"count": 2}}}


def test_nodes_and_files_may_be_missing() -> None:
    manifest = InboxManifest.from_mapping(SAID, "here")
    assert (manifest.accepted, manifest.nodes, manifest.files) == (2, (), {})
    assert (manifest.count_of("node-0"), manifest.count_of("node-1")) == (2, 0)


@pytest.mark.parametrize("name", ["accepted", "outlinks", "nodes", "files"])
@pytest.mark.parametrize("value", [None, "x", 1.5])
def test_a_part_of_another_type_is_damage_that_names_it(name: str, value: object) -> None:
    with pytest.raises(DamagedFileError, match=f"^here: has no usable '{name}'"):
        InboxManifest.from_mapping({**SAID, name: value}, "here")
