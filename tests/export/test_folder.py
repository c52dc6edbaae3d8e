"""Two attempts at one export that overlap: the file that appears is whole, whichever is faster."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from crawl_lib.errors import OutputConflictError, StorageError
from crawl_lib.export import Inputs, SegmentInput, list_exports
from crawl_lib.export.folder import ExportFolder
from crawl_lib.export.tables import CONTENT
from crawl_lib.storage import LocalStorage
from tests.e2e.crawl import make_config
from tests.stores import stores_on


@pytest.fixture
def folders(tmp_path: Path) -> list[ExportFolder]:
    config = make_config(tmp_path, nodes=1)
    (tmp_path / "dfs").mkdir()
    return [ExportFolder(stores_on(LocalStorage(tmp_path / "dfs"), config), "x") for _ in range(2)]


def test_an_attempt_never_reveals_what_another_one_has_half_written(
    folders: list[ExportFolder],
) -> None:
    """The first is slow to end, on a machine that was given up, while the second has begun."""
    first, second = folders
    with ExitStack() as late:
        late.enter_context(first.writing(CONTENT)).write(b"whole")
        with second.writing(CONTENT) as file:
            file.write(b"who")
            file.flush()
            with pytest.raises(StorageError):
                late.close()
            assert not second.has(CONTENT)
            file.write(b"le")
    assert second.storage.read_bytes(second.file(CONTENT)) == b"whole"
    assert [entry.name for entry in second.storage.list(second.path)] == [CONTENT]


def test_what_a_killed_attempt_left_is_deleted(folders: list[ExportFolder]) -> None:
    folder, _ = folders
    left, of_another_file = folder.file(f".{CONTENT}.0"), folder.file(f".{CONTENT}-index.0")
    folder.storage.write_bytes(left, b"x")
    folder.storage.write_bytes(of_another_file, b"x")
    with folder.writing(CONTENT) as file:
        file.write(b"whole")
    assert not folder.storage.exists(left)
    assert folder.storage.exists(of_another_file)


def test_of_two_attempts_that_begin_with_other_segments_the_slower_one_gives_up(
    folders: list[ExportFolder],
) -> None:
    """One saw the segment of a late node, the other one did not: what they make is not mixed."""
    first, second = folders
    few = Inputs((SegmentInput("1", "a", "crawl/1/a", "0"),), None, 1)
    more = Inputs((*few.segments, SegmentInput("1", "b", "crawl/1/b", "0")), None, 1)
    first.claim(few)
    with pytest.raises(OutputConflictError, match="without crawl/1/b; run it again"):
        second.claim(more)
    first.claim(few)


def test_a_folder_whose_name_no_export_can_have_is_none(folders: list[ExportFolder]) -> None:
    """`krake fsck` ended at it with an error of its name."""
    folder, _ = folders
    for name in ("x", "my own", ".hidden"):
        folder.storage.make_dirs(f"export/{name}")
    assert list_exports(folder.stores) == ["x"]
