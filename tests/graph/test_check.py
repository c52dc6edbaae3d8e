"""`krake fsck` of exports: a file that its stages would write otherwise is found, also if it is well-formed."""

import dataclasses
from pathlib import Path

import pytest

from crawl_lib.config import Config
from crawl_lib.errors import NOT_ABOUT_FILES, ScratchError, StorageError
from crawl_lib.export import export_pages
from crawl_lib.graph import check_export, finalize_export, link_export
from crawl_lib.storage import Storage
from tests.export.crawls import Capture, CrawlMaker
from tests.export.test_remote import Elsewhere
from tests.stores import stores_on

URLS = [f"http://h.example/{number}" for number in range(9)]


@pytest.fixture
def folder(storage: Storage, config: Config, crawl: CrawlMaker) -> Path:
    crawl.segment(
        "1",
        "node-a",
        [Capture(url, url.encode(), links=URLS[:: n + 1]) for n, url in enumerate(URLS)],
    )
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
        assert finding.problem.startswith(
            f"byte {at} is not what the other files of the export make it"
        )
    for size in (whole + b"\0", whole[:-1]):
        (folder / file).write_bytes(size)
        [finding] = check_export(stores_on(storage, config), "x", full=False)
        assert (finding.name, finding.where) == (name, f"export/x/{file}")


def test_a_damaged_table_takes_no_whole_file_with_it(
    folder: Path, storage: Storage, config: Config
) -> None:
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


def test_inputs_with_another_byte_in_them_end_no_check(
    folder: Path, storage: Storage, config: Config
) -> None:
    """They are found by the digest."""
    inputs = (folder / "inputs").read_text().replace('"folder": "1"', '"folder": "q"')
    (folder / "inputs").write_text(inputs)
    assert [finding.name for finding in check_export(stores_on(storage, config), "x")] == [
        "inputs_damaged"
    ]


@pytest.mark.parametrize("blocked", ["the directory", "its parent", "its lock"])
def test_a_scratch_that_cannot_be_used_is_no_damage(
    blocked: str, folder: Path, storage: Storage, config: Config, tmp_path: Path
) -> None:
    """A good export was called damaged on a node whose file system is read-only."""
    scratch = tmp_path / "blocked" / "scratch"
    if blocked == "its lock":
        (scratch / "export.lock").mkdir(parents=True)
    else:
        file = scratch if blocked == "the directory" else scratch.parent
        file.parent.mkdir(exist_ok=True)
        file.touch()
    there = dataclasses.replace(
        config, scratch=dataclasses.replace(config.scratch, directory=str(scratch))
    )
    with pytest.raises(ScratchError, match=r"scratch\.directory cannot be used"):
        check_export(stores_on(Elsewhere(storage), there), "x")


def test_a_disk_that_refuses_a_copy_is_no_damage_of_what_is_copied(
    folder: Path, storage: Storage, tmp_path: Path
) -> None:
    with pytest.raises(ScratchError, match="cannot be written"):
        Elsewhere(storage).download("export/x/offsets", tmp_path / "missing" / "offsets")


@pytest.mark.parametrize("kind", NOT_ABOUT_FILES)
def test_what_this_machine_lacks_ends_a_check_of_an_export(
    kind: type[StorageError],
    folder: Path,
    storage: Storage,
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: object, **__: object) -> int:
        raise kind("this machine cannot look")

    monkeypatch.setattr("crawl_lib.graph.check.check_table", refused)
    with pytest.raises(kind, match="this machine cannot look"):
        check_export(stores_on(storage, config), "x")
