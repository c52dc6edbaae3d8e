"""A version of the index grows from the one before, through kills, damage and a second update; a purge is complete."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import tantivy

from crawl_lib import scratch, stages
from crawl_lib.curate import drop_pages
from crawl_lib.dfsfiles import write_json_bytes
from crawl_lib.durable import KILL_VARIABLE
from crawl_lib.errors import DamagedFileError, NoRoomError, StoppedError, StorageError
from crawl_lib.index import (
    INDEX,
    INDEX_OUTPUT,
    Fields,
    IndexedPage,
    delete_other_copies,
    local_folder,
    made_ms_of,
    update,
    update_index,
)
from crawl_lib.index.files import change_files, tantivy_errors
from crawl_lib.index.look import InIndex
from crawl_lib.linkdb import update_outlinks
from crawl_lib.repair import fsck
from crawl_lib.scratch import held, scratch_base
from crawl_lib.sealed import MANIFEST_FILE
from crawl_lib.search import IndexReader, IndexVersions, OpenIndex, Sites, stored_page
from crawl_lib.search import answer as answer_to
from crawl_lib.storage import Storage
from crawl_lib.stores import Stores
from crawl_lib.versions import Version, Versions
from tests.export.crawls import key
from tests.export.test_remote import Elsewhere
from tests.forked import run_forked
from tests.harms import flip, shorten
from tests.index.made import NOW, Made, a, answer, linking, page
from tests.stores import stores_on

LONGEST_S = 60.0
WORDS = [f"word{number}" for number in range(20)]
"""One for each page."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A crawl of 20 pages with an index, and a segment that changes, deletes and adds one page each."""
    made = Made.below(tmp_path_factory.mktemp("index") / "crawl")
    made.crawl(*(page(a(word), f"{word} text") for word in WORDS))
    made.update()
    made.crawl(
        page(a(WORDS[0]), "changed text", time=2000.0),
        answer(a(WORDS[1]), "gone", 404, time=2000.0),
        linking(a("new"), "added text", {a(WORDS[2]): "anchor"}),
    )
    stages.make_output(made.stores, output="text")
    return made


@pytest.fixture
def made(whole: Made, tmp_path: Path) -> Made:
    """A copy of it, with texts."""
    return whole.copied(tmp_path / "crawl")


def hashes(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file by name."""
    return {file.name: sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


def versions_of(made: Made) -> Versions:
    return Versions(made.stores, INDEX)


def require_grown(made: Made, version: Version) -> None:
    """The pages are those that are there now, and each is found by its words of today."""
    assert made.urls(version) == {a(word) for word in WORDS if word != WORDS[1]} | {a("new")}
    assert made.find(version, "changed") == {a(WORDS[0])}
    assert made.find(version, WORDS[0]) == made.find(version, WORDS[1]) == set()
    assert made.find(version, "anchor", "anchors_en") == {a(WORDS[2])}
    assert made.find(version, WORDS[3]) == {a(WORDS[3])}


def test_only_what_changed_is_written_and_the_version_before_stays_as_it_was(made: Made) -> None:
    before = hashes(made.folder(versions_of(made).read(1)))
    version = made.update()
    manifest = version.manifest
    assert [manifest[name] for name in ("pages", "added", "removed", "deleted", "is_anew")] == [
        20,
        3,
        3,
        3,
        False,
    ]
    require_grown(made, version)
    assert hashes(made.folder(versions_of(made).read(1))) == before
    assert made.update() == version, "nothing is new"
    shared = [file for file in made.folder(version).iterdir() if file.stat().st_nlink == 2]
    assert {file.suffix for file in shared} >= {".term", ".store", ".idx", ".pos"}


def test_all_is_made_anew_where_a_fifth_would_be_deleted_or_settings_changed(made: Made) -> None:
    made.crawl(*(answer(a(word), "gone", 404, time=3000.0) for word in WORDS[2:4]))
    version = made.update()
    assert (version.manifest["is_anew"], version.manifest["deleted"]) == (True, 0)
    made.configure(languages=("en", "de"))
    again = made.update()
    assert (again.number, again.manifest["is_anew"]) == (version.number + 1, True)
    assert made.urls(again) == made.urls(version)


def test_new_ranks_rewrite_the_table_of_pages_only(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = made.update()
    monkeypatch.setattr("crawl_lib.index.boosts.NONE", "other ranks")
    after = made.update()
    assert (after.number, after.manifest["added"], after.manifest["removed"]) == (
        before.number + 1,
        0,
        0,
    )
    require_grown(made, after)


STEPS = ("index.linked", "index.committed", "versions.written", "versions.renamed")


def killed_update(made: Made, step: str, *options: str) -> None:
    os.environ[KILL_VARIABLE] = step
    made.update(**dict.fromkeys(options, True))


@pytest.mark.parametrize(
    ("step", "options"),
    [
        *((step, ()) for step in STEPS),
        *((step, ("purge",)) for step in ("versions.renamed", "index.purged")),
    ],
)
def test_a_killed_update_changes_no_version_and_the_next_one_ends_well(
    made: Made, step: str, options: tuple[str, ...]
) -> None:
    before = hashes(made.folder(versions_of(made).read(1)))
    update_outlinks(made.stores, now=NOW)  # which has versions of its own
    assert run_forked(killed_update, made, step, *options) == -9
    if step != "index.purged":
        assert hashes(made.folder(versions_of(made).read(1))) == before
    version = made.update()
    require_grown(made, version)
    assert bool(options) is (versions_of(made).numbers() == [version.number]), (
        "any update ends a purge"
    )
    left = {entry.name for entry in made.stores.storage.list(versions_of(made).folder)}
    assert left == {str(version.number)} if options else left == {"1", "2"}
    assert not list((made.root / "scratch").glob("work-*"))


def test_of_two_updates_at_once_the_second_waits_and_finds_the_version(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are changed once. The first update goes on when the second one was seen to wait."""
    waits, changed, found = Event(), list[str](), list[Version]()

    def waiting(*arguments: Any) -> Any:
        waits.set()
        return scratch_base(*arguments)

    def changing(stores: Stores, *arguments: Any) -> int:
        changed.append("once")
        monkeypatch.setattr(scratch, "scratch_base", waiting)
        second.start()
        assert waits.wait(LONGEST_S)
        return change_files(stores, *arguments)

    second = Thread(target=lambda: found.append(made.update()))
    monkeypatch.setattr(update, "change_files", changing)
    found.append(made.update())
    second.join()
    assert ([version.number for version in found], changed) == ([2, 2], ["once"])
    require_grown(made, found[0])


def test_an_update_deletes_no_hidden_folder_of_another_machine(made: Made) -> None:
    """That machine may be at work there, whatever the number."""
    other = made.on_another_machine()
    assert run_forked(killed_update, other, "index.linked") == -9
    hidden = {entry.name for entry in made.stores.storage.list(versions_of(made).folder)} - {"1"}
    version = made.update()
    left = {entry.name for entry in made.stores.storage.list(versions_of(made).folder)}
    assert left == {"1", str(version.number), *hidden}
    for name in ("1", "damaged-1-1", f".{version.number}-0.tmp"):
        (other.root / "s2" / "index-krake" / name).touch()  # notes are of hidden folders alone
    other.update()
    assert {entry.name for entry in made.stores.storage.list(versions_of(made).folder)} == {
        "1",
        str(version.number),
    }


def test_each_version_was_made_later_than_the_one_before(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also within a second, and where a clock goes back: OpenSearch keeps the page with the later time."""
    times = [made_ms_of(versions_of(made).read(1))]
    for number, now in enumerate((NOW, NOW + timedelta(milliseconds=7), NOW - timedelta(days=1))):
        monkeypatch.setattr("crawl_lib.index.boosts.NONE", f"ranks {number}")
        times.append(made_ms_of(update_index(made.stores, now=now)))
    first = int(NOW.timestamp()) * 1000
    assert times == [first, first + 1, first + 7, first + 8]


def test_a_second_update_on_another_machine_ends_well_too(made: Made) -> None:
    """No lock of this machine tells that one to wait."""
    other, found = made.on_another_machine(), list[Version]()
    threads = [Thread(target=lambda one=one: found.append(one.update())) for one in (made, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [version.number for version in found] == [2, 2]
    require_grown(made, found[0])


@pytest.mark.parametrize(
    ("step", "is_purge"),
    [("_digest_of", False), ("change_files", True), ("change_files", False), ("count_files", True)],
)
def test_while_another_machine_purges_an_update_ends_well_with_its_version(
    made: Made, monkeypatch: pytest.MonkeyPatch, step: str, is_purge: bool
) -> None:
    """The purge deletes the hidden folders of its number, since they may have words of dropped pages."""
    other, found, before = made.on_another_machine(), list[Version](), getattr(update, step)

    def meanwhile(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(update, step, before)
        found.append(other.update(purge=True))
        return before(*arguments, **options)

    monkeypatch.setattr(update, step, meanwhile)
    version = made.update(purge=is_purge)
    require_grown(made, version)
    assert version == found[0]
    assert versions_of(made).numbers() == [version.number]


def test_an_update_that_waits_stops_as_asked(made: Made) -> None:
    with scratch_base(made.config, "index-krake"):
        stop = Event()
        stop.set()
        with pytest.raises(StoppedError):
            update_index(replace(made.stores, stop=stop), now=NOW)


@pytest.mark.parametrize(
    "error", [pa.ArrowInvalid("rows"), ValueError("a value"), DamagedFileError("a text")]
)
def test_what_goes_wrong_while_pages_are_read_is_not_called_a_fault_of_the_index(
    made: Made, error: Exception
) -> None:
    def pages() -> Iterator[IndexedPage]:
        raise error
        yield

    folder = made.root / "new"
    folder.mkdir()
    with pytest.raises(type(error), match=f"^{error}$"):
        change_files(made.stores, Fields(("en",)), folder, [], pages())


def test_nobody_deletes_what_another_machine_is_making_after_a_purge(made: Made) -> None:
    version = made.update(purge=True)
    folder = made.folder(version).parent
    (folder / f".{version.number + 1}-{'0' * 32}").mkdir()
    (folder / f".{version.number}-{'0' * 32}").mkdir()
    assert made.update() == version
    assert {file.name for file in folder.iterdir()} == {
        str(version.number),
        f".{version.number + 1}-{'0' * 32}",
    }


def test_a_damaged_file_is_found_and_never_taken_over(made: Made) -> None:
    [file] = made.folder(versions_of(made).read(1)).glob("*.store")
    flip(file)
    assert [one.name for one in INDEX_OUTPUT.check(made.stores, full=True)] == ["index_damaged"]
    assert "index_damaged" in {one.name for one in fsck(made.stores).findings}
    version = made.update()
    assert version.manifest["is_anew"]
    require_grown(made, version)
    shorten(file, 0.99)
    assert versions_of(made).newest() == version


def test_a_purge_leaves_no_word_of_a_dropped_page_in_any_file(made: Made) -> None:
    """Words in files are compressed, so Tantivy's own reader looks: term dictionaries and stored documents."""
    made.update()
    drop_pages(made.stores, [a(WORDS[5])])
    places = {place.path for place in drop_pages(made.stores, [a(WORDS[5])]).places}
    assert {"crawl/index/1", "crawl/index/2"} <= places
    version = made.update()
    assert made.index(version).searcher().doc_freq("text", WORDS[5]) == 1, (
        "a deleted document keeps its words"
    )
    assert "crawl/index/3" in {
        place.path for place in drop_pages(made.stores, [a(WORDS[5])]).places
    }
    version = made.update(purge=True)
    searcher = made.index(version).searcher()
    for word in (WORDS[5], WORDS[1]):
        assert searcher.doc_freq("text", word) == searcher.doc_freq("words_en", word) == 0
    assert not [
        place for place in drop_pages(made.stores, [a(WORDS[5])]).places if "index" in place.path
    ]
    assert versions_of(made).numbers() == [version.number]


def test_why_says_whether_a_page_is_in_it(made: Made) -> None:
    made.update()
    assert made.why(a(WORDS[0])) == InIndex(version=2, indexed=True)
    found = made.why(a(WORDS[1]))
    assert found is not None
    assert (found.indexed, found.reason) == (False, None)


def elsewhere(made: Made) -> tuple[Stores, Storage]:
    storage = Elsewhere(made.stores.storage)
    search = replace(made.config.search, directory=str(made.root / "search"))
    return stores_on(storage, replace(made.config, search=search)), storage


def test_with_a_store_elsewhere_updates_use_and_keep_verified_copies(made: Made) -> None:
    stores, _ = elsewhere(made)
    version = update_index(stores, now=NOW)
    require_grown(made, version)
    copies = made.root / "search" / "krake"
    assert [file.name for file in copies.iterdir()] == ["2"], "the copy of the version before went"
    names = {part["name"]: part["sha256"] for part in version.manifest["parts"]}
    assert hashes(copies / "2") == names
    assert local_folder(stores, version) == copies / "2"


@pytest.mark.parametrize("damage", [flip, lambda file: shorten(file, 0.99)])
def test_a_damaged_copy_is_made_again_and_gets_into_no_version(
    made: Made, damage: Callable[[Path], None]
) -> None:
    stores, _ = elsewhere(made)
    update_outlinks(stores, now=NOW)
    [file] = local_folder(stores, versions_of(made).read(1)).glob("*.store")
    damage(file)
    version = update_index(stores, now=NOW)
    assert not version.manifest["is_anew"]
    require_grown(made, version)
    assert INDEX_OUTPUT.check(stores, full=True) == []


def test_a_copy_that_differs_ends_the_version_and_goes(made: Made) -> None:
    stores, _ = elsewhere(made)
    source, [file] = (
        IndexVersions(stores),
        local_folder(stores, versions_of(made).read(1)).glob("*.store"),
    )
    source.verify(1)
    flip(file)
    assert source.open(1).number == 1, "its sizes are those that were written"
    with pytest.raises(DamagedFileError, match="differs from the written file"):
        source.verify(1)
    assert source.open(1).number == 1
    source.verify(1)


def killed_elsewhere(made: Made, step: str) -> None:
    os.environ[KILL_VARIABLE] = step
    update_index(elsewhere(made)[0], now=NOW)


@pytest.mark.parametrize(
    "step", ["index.copied", "index.copied:2", "index.uploaded", "versions.renamed"]
)
def test_an_update_killed_with_a_store_elsewhere_leaves_nothing_after_the_next_one(
    made: Made, step: str
) -> None:
    """The first copy is of the version before, the second one of the new version."""
    before = hashes(made.folder(versions_of(made).read(1)))
    update_outlinks(made.stores, now=NOW)  # which has versions of its own
    assert run_forked(killed_elsewhere, made, step) == -9
    assert hashes(made.folder(versions_of(made).read(1))) == before
    stores, _ = elsewhere(made)
    version = update_index(stores, now=NOW)
    require_grown(made, version)
    copies = made.root / "search" / "krake"
    assert {file.name for file in copies.iterdir()} <= {"2"}, "nothing is left of the killed update"
    assert local_folder(stores, version) == copies / "2"
    assert {entry.name for entry in stores.storage.list(versions_of(made).folder)} == {"1", "2"}


def test_a_folder_that_another_process_finishes_meanwhile_is_no_leftover(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the listing and the look at its folder the other process renames the folder."""
    copies = made.root / "search" / "krake"
    unfinished, finished = copies / ".2-0", copies / "2"
    unfinished.mkdir(parents=True)

    def renamed(path: Path) -> AbstractContextManager[None]:
        unfinished.rename(finished)
        return held(path)

    monkeypatch.setattr("crawl_lib.index.copies.held", renamed)
    delete_other_copies(elsewhere(made)[0], 2)
    assert list(copies.iterdir()) == [finished]


def answering(made: Made) -> OpenIndex:
    """The version that answers."""
    return IndexReader(IndexVersions(made.stores), background=None).current()


def test_an_open_version_answers_while_its_files_are_deleted(made: Made) -> None:
    queries = [f"{WORDS[3]} text", f'"{WORDS[4]} text"', "wor*", f"similar:{a(WORDS[6])}"]
    index, other = answering(made), answering(made)
    expected = [answer_to(other, query, Sites({})) for query in queries]
    folder = made.folder(versions_of(made).read(1))
    version = made.update(purge=True)
    assert (version.number, folder.exists()) == (2, False)
    assert [answer_to(index, query, Sites({})) for query in queries] == expected
    assert all(one.results for one in expected)
    found = stored_page(index, key(a(WORDS[1])), Sites({}))
    assert found is not None
    assert found.place is not None
    assert (found.text, found.place.segment) == (f"{WORDS[1]} text", "1/node-0")


@pytest.mark.parametrize("is_anew", [False, True])
def test_a_disk_that_refuses_is_named_and_the_last_whole_version_answers(
    made: Made, monkeypatch: pytest.MonkeyPatch, is_anew: bool
) -> None:
    """The system refuses files that are larger than the settings of the index."""
    made.crawl(
        page(a("large"), " ".join(sha256(bytes([number])).hexdigest() for number in range(250)))
    )
    stages.make_output(made.stores, output="text")
    update_outlinks(made.stores, now=NOW)
    largest = max(
        file.stat().st_size for file in made.folder(versions_of(made).read(1)).glob("meta.json")
    )
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def refused(*arguments: Any) -> int:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest + 2000, limits[1]))
        try:
            return change_files(*arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    with monkeypatch.context() as patched:
        patched.setattr("crawl_lib.index.update.change_files", refused)
        with pytest.raises(StorageError, match=r"(?i)cannot be written: .*file too large"):
            made.update(purge=is_anew)
    assert [entry.name for entry in made.stores.storage.list(versions_of(made).folder)] == ["1"]
    assert answering(made).number == 1
    assert made.find(made.update(purge=is_anew), "text") >= {a(WORDS[2]), a(WORDS[3])}


@pytest.mark.parametrize(
    ("words", "free_bytes"),
    [
        ("Internal error: 'No space left on device (os error 28)'", 1 << 40),
        (
            "An error occurred in a thread: 'An index writer was killed.. A worker thread encountered an error'",
            4096,
        ),
    ],
)
def test_a_full_disk_says_so_whatever_tantivy_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, free_bytes: int
) -> None:
    """Both were seen on a disk of 60 KB."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free_bytes))
    with pytest.raises(NoRoomError, match="make room"), tantivy_errors(tmp_path):
        raise ValueError(words)


def in_another_format(made: Made, version: Version) -> None:
    """Say in Tantivy's files that they have a format of the future; sizes and digests are right."""
    folder, parts = made.folder(version), version.manifest["parts"]
    for file in folder.iterdir():
        data = file.read_bytes()
        changed = data.replace(b'"index_format_version":7', b'"index_format_version":9')
        if changed != data:
            file.unlink()  # the version before may have the same file
            file.write_bytes(changed)
    for part in parts:
        part["sha256"] = sha256((folder / part["name"]).read_bytes()).hexdigest()
    data = write_json_bytes(
        {name: value for name, value in version.manifest.items() if name != "sha256"}
    )
    (folder / MANIFEST_FILE).write_bytes(data)


def test_where_files_are_of_another_tantivy_an_older_version_answers(
    made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    version = made.update()
    in_another_format(made, version)
    assert versions_of(made).newest() is not None, "its files are what was written"
    assert answering(made).number == 1
    assert f"version {version.number} of the index does not answer" in caplog.text
    in_another_format(made, versions_of(made).read(1))
    with pytest.raises(DamagedFileError, match="`krake index update` makes a new version"):
        answering(made)


def test_another_tantivy_makes_all_anew(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    version = made.update()
    in_another_format(made, version)
    monkeypatch.setattr("crawl_lib.index.fields.version", lambda _: "0.99.0")
    again = made.update()
    assert (again.number, again.manifest["is_anew"]) == (version.number + 1, True)
    require_grown(made, again)
    assert answering(made).number == again.number


def test_an_index_with_other_fields_does_not_answer(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query would name fields that it lacks."""

    def with_more(fields: Fields) -> tantivy.Schema:
        return tantivy.SchemaBuilder().add_text_field("more").build()

    monkeypatch.setattr(Fields, "_schema", with_more)
    with pytest.raises(
        DamagedFileError, match=r"with other fields.*`krake index update` makes a new version"
    ):
        answering(made)
