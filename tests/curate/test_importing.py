"""`krake import`: archives of any writer become a segment that every reader takes for one of the crawl."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.curate import importing
from crawl_lib.curate.importing import FileReport, ImportReport, import_archives
from crawl_lib.errors import InputError, KeyStoreError
from crawl_lib.repair.fsck import fsck
from crawl_lib.rounds.start import start_iteration
from crawl_lib.segment import SegmentReader
from crawl_lib.states import KeyState
from crawl_lib.stores import open_stores
from crawl_lib.urls import key_of
from tests.e2e.crawl import Result, check_cdxj, check_warcs, make_config
from tests.harms import files_of
from tests.repair.archives import (
    answer,
    arc_archive,
    archive,
    odd_archive,
    page,
    pages_archive,
    record,
    whole_gzip,
    write,
)
from tests.repair.crawled import export_all, rows, stores_of
from tests.scopes import scope_of

TESTDATA = Path(__file__).resolve().parents[2] / ".." / "shared" / "testdata" / "warc"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """A crawl with one seed, so that there is a scope."""
    (tmp_path / "crawl").mkdir()
    found = make_config(tmp_path / "crawl", nodes=2)
    stages.inject(open_stores(found), run_id="run", seeds="http://old.example/next-1")
    return found


def bring(config: Config, *paths: Path, dry_run: bool = False) -> ImportReport:
    return import_archives(stores_of(config), [str(path) for path in paths], dry_run=dry_run)


def only(report: ImportReport) -> FileReport:
    (file,) = report.files
    return file


def the_segment(config: Config) -> Path:
    (segment,) = Result(config).segments()
    return segment


def unusable(file: FileReport) -> bool:
    """Whether every record of an archive is counted as none of a page."""
    return file.records == sum(file.skipped.values())


def states(config: Config, *urls: str) -> list[KeyState | None]:
    with stores_of(config).keys() as keys:
        found = keys.states([key_of(url) for url in urls])
    return [found[key_of(url)] for url in urls]


ARCHIVES = {
    "warcio, a member a record": pages_archive(range(5)),
    "not compressed": pages_archive(range(5), compressed=False),
    "compressed as a whole": whole_gzip(pages_archive(range(5), compressed=False)),
    "request first": pages_archive(range(5), request_first=True),
    "WARC 1.1": pages_archive(range(5), version="1.1"),
    "ARC": arc_archive(range(5)),
    "ARC, compressed": whole_gzip(arc_archive(range(5))),
}


@pytest.mark.parametrize("kind", ARCHIVES)
def test_an_archive_of_any_writer_becomes_a_segment(
    kind: str, config: Config, tmp_path: Path
) -> None:
    report = bring(config, write(tmp_path / "x", ARCHIVES[kind]))
    assert (only(report).state, only(report).pages, only(report).rejected) == ("imported", 5, {})
    segment = the_segment(config)
    assert segment.parent.name == report.folder
    found = rows(segment)
    assert {row["url"] for row in found} == {page(number)[0] for number in range(5)}
    assert all(row["status"] == 200 and row["title"].startswith("T ") for row in found)
    assert {row["time"].isoformat() for row in found} == {"2019-03-06T04:03:53+00:00"}
    assert all(json.loads(row["metadata"])["imported_from"] == "x" for row in found)
    assert fsck(stores_of(config)).findings == []
    check_warcs(Result(config))
    check_cdxj(Result(config))
    assert export_all(config, "all")["pages"] == 5


def test_links_of_imported_pages_enter_the_crawl_by_its_filters(
    config: Config, tmp_path: Path
) -> None:
    """Those in the scope are handed on and queued; imported pages themselves are not fetched again."""
    report = bring(config, write(tmp_path / "x.warc.gz", pages_archive([1, 2])))
    links = {
        row["target_url"]: (row["followed"], row["rule"])
        for row in rows(the_segment(config), "links")
    }
    assert links["http://old.example/next-2"][0]
    assert links["http://far.example/"] == (False, "scope")
    assert set(states(config, page(1)[0], page(2)[0])) == {KeyState.CRAWLED}
    queued = 0
    for node in config.servers:
        queued += stages.settle_node(open_stores(config), node=node)["queue"]
    assert queued == 2  # the seed, which is also a link of page 1, and the link of page 2
    status = stages.status_of(config)["iterations"]
    assert [(entry["folder"], entry["complete"], entry["missing"]) for entry in status] == [
        (report.folder, True, [])
    ]


def test_octets_of_imported_heads_are_octets(config: Config, tmp_path: Path) -> None:
    """In an address of an archive, and in a Location of a record."""
    url = "http://old.example/caf"
    one = record(
        "response", f"{url}\u00e9", b"HTTP/1.1 302 Found\r\nLocation: /caf\xc3\xa9/\xe9\r\n\r\n"
    )
    two = record("response", f"{url}X", b"HTTP/1.1 200 OK\r\n\r\nx").replace(b"/cafX", b"/caf\xe9")
    report = only(bring(config, write(tmp_path / "x.warc.gz", archive([one, two]))))
    assert (report.pages, report.rejected) == (2, {})
    found = {row["url"]: row["redirect_url"] for row in rows(the_segment(config))}
    assert found == {f"{url}%C3%A9": f"{url}%C3%A9/%E9", f"{url}%E9": None}


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable"])
def test_an_imported_failure_that_passes_is_not_final(
    status: str, config: Config, tmp_path: Path
) -> None:
    """Its record is kept; the page has yet to be crawled, and may be imported from another archive."""
    config = replace(config, retry=replace(config.retry, max=2))
    url, body = page(1)
    bring(config, write(tmp_path / "x.warc.gz", archive([answer(url, b"busy", status)])))
    [row] = rows(the_segment(config))
    assert row["retry_at"] is not None
    assert states(config, url) == [None]
    assert fsck(stores_of(config)).findings == []
    assert (
        only(bring(config, write(tmp_path / "y.warc.gz", archive([answer(url, body)])))).pages == 1
    )
    assert states(config, url) == [KeyState.CRAWLED]


def test_a_crawl_goes_on_after_an_import(config: Config, tmp_path: Path) -> None:
    """`start` accepts the folder, and imported pages do not count against `crawl.max_pages`."""
    bring(config, write(tmp_path / "x.warc.gz", pages_archive(range(7))))
    stores = stores_of(config)
    begun = start_iteration(stores, run_id="run", iteration=1)
    assert begun.nodes == config.servers
    assert begun.taken_before == 0
    assert "old.example" in scope_of(Result(config).crawl_dir / begun.folder).read_text().split()


def test_what_is_no_page_is_counted_with_its_reason_and_place(
    config: Config, tmp_path: Path
) -> None:
    file = only(bring(config, write(tmp_path / "odd.warc.gz", odd_archive())))
    assert (file.pages, file.repeated, file.robots) == (3, 1, 1)
    assert file.skipped == {"revisit": 1, "resource": 1, "conversion": 1, "metadata": 1}
    assert file.rejected == {
        "url_scheme": 2,
        "not_get": 1,
        "block_digest": 1,
        "no_date": 1,
        "no_http_answer": 1,
    }
    assert all(line.startswith(f"{file.name}: byte ") for line in file.first)
    assert len(file.first) == 6
    assert states(config, "http://old.example/gone") == [KeyState.GONE]
    assert fsck(stores_of(config)).findings == []


def test_importing_again_changes_nothing(config: Config, tmp_path: Path) -> None:
    """The content decides, not the name; a file next to it is imported on its own."""
    path = write(tmp_path / "x.warc.gz", pages_archive(range(3)))
    bring(config, path)
    before = files_of(Path(config.dfs_primary))
    again = bring(config, path, write(tmp_path / "copy.warc.gz", path.read_bytes()))
    assert [file.state for file in again.files] == ["already_imported", "already_imported"]
    assert files_of(Path(config.dfs_primary)) == before
    more = bring(config, path, write(tmp_path / "y.warc.gz", pages_archive(range(2, 6))))
    assert [(file.state, file.pages, file.known) for file in more.files] == [
        ("already_imported", 0, 0),
        ("imported", 3, 1),
    ]
    assert len(Result(config).visited()) == 6
    assert not list(Path(config.scratch.directory).glob("import-*[!k]"))


def test_a_dry_run_tells_the_same_and_writes_nothing(config: Config, tmp_path: Path) -> None:
    path = write(tmp_path / "odd.warc.gz", odd_archive())
    before = files_of(Path(config.dfs_primary))
    dry = only(bring(config, path, dry_run=True))
    assert files_of(Path(config.dfs_primary)) == before
    done = only(bring(config, path))
    assert dry.state == "readable"
    for name in ("pages", "repeated", "robots", "skipped", "rejected", "first"):
        assert getattr(dry, name) == getattr(done, name)


@pytest.mark.parametrize(
    "others", [False, True], ids=["in another order", "and one of them came in meanwhile"]
)
def test_an_import_that_was_stopped_goes_on_with_what_it_had_read(
    others: bool, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the order of the archives on the command line: each page is imported once, and none is left out."""
    sets = (range(4), range(3, 8), range(7, 12))
    first, second, third = (
        write(tmp_path / f"{name}.warc.gz", pages_archive(numbers))
        for name, numbers in zip("abc", sets, strict=True)
    )
    for archives, read in (((first, second, third), 2), ((third, second, first), 1)):
        with monkeypatch.context() as patched:
            patched.setattr(importing, "reached", stops_at("curate.import.file", read))
            with pytest.raises(KeyboardInterrupt):
                bring(config, *archives)
        if read == 2 and others:
            bring(config, first)
    report = bring(config, second, first, third)
    assert sorted(row["url"] for path in Result(config).segments() for row in rows(path)) == sorted(
        page(number)[0] for number in range(12)
    )
    assert report.totals["pages"] == (8 if others else 12)
    assert fsck(stores_of(config)).findings == []


@pytest.mark.parametrize("data", [b"[{}]", b'{"files": 1}', b"{", None])
def test_what_says_how_far_an_import_was_may_be_damaged(
    data: bytes | None, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins again. None: one bit of a key."""
    archives = [
        write(tmp_path / f"{name}.warc.gz", pages_archive(range(3 * n, 3 * n + 3)))
        for n, name in enumerate("ab")
    ]
    with monkeypatch.context() as patched:
        patched.setattr(importing, "reached", stops_at("curate.import.file", 1))
        with pytest.raises(KeyboardInterrupt):
            bring(config, *archives)
    [note] = tmp_path.rglob("import.json")
    note.write_bytes(note.read_bytes().replace(b"sha256", b"sha276") if data is None else data)
    assert bring(config, *archives).totals["pages"] == 6
    assert fsck(stores_of(config)).findings == []


def stops_at(step: str, times: int) -> Callable[[str], None]:
    """In place of `reached`: ends the command at a step, as if it was killed there."""
    left = [times]

    def reached(name: str) -> None:
        left[0] -= name == step
        if not left[0]:
            raise KeyboardInterrupt

    return reached


def test_a_directory_is_searched_and_wrong_paths_are_named(config: Config, tmp_path: Path) -> None:
    folder = tmp_path / "archives" / "deep"
    folder.mkdir(parents=True)
    write(folder / "a.warc.gz", pages_archive([1]))
    write(folder / "notes.txt", b"no archive")
    assert only(bring(config, tmp_path / "archives", dry_run=True)).pages == 1
    with pytest.raises(InputError, match="no such file"):
        bring(config, tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no file in it"):
        bring(config, tmp_path / "empty")


@pytest.mark.parametrize(
    "data", [b"", b"\x00" * 5000, b"hello\n" * 100, b"\x1f\x8b\x08" + b"x" * 99, b"WARC/1.0\r\n"]
)
def test_what_is_no_archive_is_refused_and_leaves_nothing(
    data: bytes, config: Config, tmp_path: Path
) -> None:
    """The scope of the crawl may stay: the next start finds the scope by its digest."""
    before = files_of(Path(config.dfs_primary))
    report = bring(config, write(tmp_path / "x.warc.gz", data))
    assert only(report).state == "refused"
    assert sum(only(report).rejected.values()) >= 1
    left = files_of(Path(config.dfs_primary))
    assert {path: left[path] for path in left if not path.startswith("crawl/scope/")} == before
    assert stages.status_of(config)["iterations"] == []


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_damage_anywhere_costs_only_what_it_hits(
    seed: int, compressed: bool, config: Config, tmp_path: Path
) -> None:
    """A cut, a flipped bit or zeros: no crash, every other page is imported, and the damage is counted."""
    chance = random.Random(seed)
    data = bytearray(pages_archive(range(12), compressed=compressed))
    size = len(data)
    at = chance.randrange(size // 8, size - 700)
    if seed % 3 == 0:
        del data[at:]
    elif seed % 3 == 1:
        data[at] ^= 1 << chance.randrange(8)
    else:
        data[at : at + 600] = bytes(600)
    file = only(bring(config, write(tmp_path / "x.warc", bytes(data))))
    share = at / size if seed % 3 == 0 else 1
    assert file.pages >= int(12 * share) - 3
    if file.pages < 12:
        assert file.rejected or seed % 3 == 0
    assert fsck(stores_of(config)).findings == []


def test_without_an_answer_of_the_key_servers_nothing_is_imported(
    config: Config, tmp_path: Path
) -> None:
    """A page that is known to a server that is down must not come twice."""
    (server,) = config.key_storage.servers
    stages.settle_node(open_stores(config), node="node-0")
    Path(server).write_bytes(b"no database" * 1000)
    with pytest.raises(KeyStoreError):
        bring(config, write(tmp_path / "x.warc.gz", pages_archive(range(3))))
    assert Result(config).segments() == []


def test_third_party_archives_are_imported_or_refused_with_a_reason(config: Config) -> None:
    """The damaged and odd files of other projects: no crash, and each response is a page or counted."""
    if not TESTDATA.is_dir():
        pytest.skip(f"{TESTDATA} is not there: third-party test data lies next to the project")
    report = bring(config, *sorted(TESTDATA.iterdir()))
    by_name = {Path(file.name).name: file for file in report.files}
    assert len(by_name) == 12
    facts = {
        name: (file.state, file.pages, file.known + file.repeated, dict(file.rejected))
        for name, file in by_name.items()
    }
    assert facts["example-bad-non-chunked.warc.gz"] == ("imported", 1, 0, {})
    assert facts["example-iana.org-chunked.warc"] == ("imported", 1, 0, {})
    assert facts["example-trunc.warc"] == ("nothing", 0, 0, {"wrong_length": 1})
    assert facts["post-test.warc.gz"] == ("nothing", 0, 0, {"not_get": 3})
    assert facts["example-digest.warc"] == ("nothing", 0, 0, {})
    assert by_name["example-digest.warc"].skipped == {"request": 4}
    assert facts["example.warc"] == ("nothing", 0, 1, {})
    assert all((file.state == "imported") == bool(file.pages) for file in report.files)
    assert all(
        file.pages or file.rejected or file.repeated or unusable(file) for file in report.files
    )
    assert fsck(stores_of(config)).findings == []
    reader = SegmentReader(stores_of(config).storage, f"crawl/{report.folder}/import")
    assert sum(batch.num_rows for batch in reader.pages(["url"])) == sum(
        file.pages for file in report.files
    )
    export_all(config, "all")


def test_an_archive_without_a_page_may_be_stopped_too(config: Config, tmp_path: Path) -> None:
    """Of metadata alone, as others share them: each report is a point where the command may end."""
    lone = archive(
        [record("metadata", f"http://old.example/{number}", b"a: b\r\n") for number in range(3)]
    )
    told: list[dict[str, Any]] = []
    stores = open_stores(config, on_progress=lambda progress: told.append(dict(progress)))
    report = import_archives(stores, [str(write(tmp_path / "x.warc.gz", lone))], dry_run=True)
    assert only(report).skipped == {"metadata": 3}
    assert len([one for one in told if "importing" in one]) == 3
