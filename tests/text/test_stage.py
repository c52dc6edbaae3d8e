"""The text stage: one table a segment, whatever its pages are, and whatever was killed."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha1
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crawl_lib.config import Config
from crawl_lib.config.model import CommonCrawlConfig, TextConfig
from crawl_lib.crawldir import SegmentRef
from crawl_lib.durable import KILL_VARIABLE
from crawl_lib.errors import DamagedFileError, StoppedError
from crawl_lib.repair import fsck, sweep
from crawl_lib.rounds.crawlname import CrawlName
from crawl_lib.segment import PAGES_SCHEMA, DroppedLists
from crawl_lib.storage import open_storage
from crawl_lib.stores import Stores
from crawl_lib.text import (
    TEXT_SCHEMA,
    TextReport,
    count_words,
    extract_text,
    stage,
    text_profile,
    text_table,
)
from crawl_lib.text.child import message, read_message
from crawl_lib.walls import NONE_TEXT, clean_environment, landlock_abi
from tests.export.crawls import Capture, CrawlMaker, key
from tests.forked import run_forked
from tests.stores import stores_on
from tests.text.pdfs import pdf, pdf_bomb

FOLDER = "1700000000"
WORDS = """An octopus is a soft animal with eight arms that lives in the sea. Its arms carry suckers, with which it
grips prey and feels the ground. Most species live alone and hide during the day in dens, which they close with stones
and shells. At night they hunt for crabs, mussels and small fish. Their brains are larger than those of other animals
without a spine, and they learn quickly: in experiments they opened jars with lids, remembered ways through mazes and
told one keeper from another. A female guards her eggs for many weeks, eats nothing in that time, and then dies. """
PAGE = f"<html><body><nav><a href=/>Start</a> <a href=/2>Next</a></nav><main><h1>Octopus</h1><p>{WORDS}</main>"
KILLER = "<div>" * 30_000 + "x"
PLAIN_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=iso-8859-1\r\n\r\n"


@pytest.fixture
def text_config(config: Config) -> Config:
    """One process, with a second for a page."""
    crawldb = replace(config.crawldb, signature="text")
    return replace(
        config, crawldb=crawldb, text=TextConfig(processes=1, cpu_s=1, memory_bytes=128 << 20)
    )


@pytest.fixture
def stores(text_config: Config) -> Stores:
    return stores_on(open_storage(text_config), text_config)


@pytest.fixture
def make(text_config: Config) -> Callable[..., SegmentRef]:
    """Makes a segment; a page's `digest` is that of its body, as in a crawl."""
    maker = CrawlMaker(Path(text_config.dfs_primary))

    def made(*captures: Capture, node: str = "node-a") -> SegmentRef:
        place = maker.segment(FOLDER, node, captures)
        table = pq.read_table(place / "pages.parquet").to_pylist()
        for row, capture in zip(table, captures, strict=True):
            row["digest"] = sha1(capture.body).digest()
        pq.write_table(pa.Table.from_pylist(table, PAGES_SCHEMA), place / "pages.parquet")
        storage = open_storage(text_config)
        return stores_on(storage, text_config).crawl.segment(FOLDER, node)

    return made


def rows(stores: Stores, segment: SegmentRef) -> dict[bytes, dict[str, Any]]:
    with stores.storage.open_seekable(text_table(stores, segment)) as file:
        table = pq.read_table(file)
    assert table.schema == TEXT_SCHEMA
    return {row["key"]: row for row in table.to_pylist()}


def files(stores: Stores, segment: SegmentRef) -> list[str]:
    folder = Path(stores.config.dfs_primary) / "text" / segment.folder / segment.node
    return sorted(path.name for path in folder.iterdir())


def test_a_page_has_its_main_text_language_words_and_profile(
    stores: Stores, make: Callable[..., SegmentRef]
) -> None:
    segment = make(Capture("http://a.example/", PAGE.encode()))
    assert extract_text(stores, [segment]) == TextReport(segments=1, pages=1)
    [row] = rows(stores, segment).values()
    assert row["text"].split() == ["Octopus", *(WORDS).split()]
    assert row["language"] == "en"
    assert dict(row["terms"]) == count_words(row["text"])
    assert row["signature"] == text_profile(dict(row["terms"]))
    assert row["error"] is None
    assert row["time"].timestamp() == 1000


def test_a_change_around_the_main_text_leaves_the_signature(
    stores: Stores, make: Callable[..., SegmentRef]
) -> None:
    before = make(Capture("http://a.example/", PAGE.encode()))
    after = make(
        Capture("http://a.example/", PAGE.replace("Start", "Today: 24 November").encode()),
        node="node-b",
    )
    extract_text(stores, [before, after])
    [one], [other] = rows(stores, before).values(), rows(stores, after).values()
    assert one["signature"] == other["signature"]


def test_pages_without_words_have_the_digest_of_their_content(
    stores: Stores, make: Callable[..., SegmentRef]
) -> None:
    segment = make(Capture("http://a.example/", b"<p>ok</p>"), Capture("http://a.example/2", b""))
    extract_text(stores, [segment])
    found = {row["signature"] for row in rows(stores, segment).values()}
    assert found == {sha1(b"<p>ok</p>").digest(), sha1().digest()}


def test_what_is_no_page_has_no_row_and_plain_text_has_one(
    stores: Stores, make: Callable[..., SegmentRef]
) -> None:
    plain = Capture(
        "http://a.example/3",
        "Größe der Straße".encode("latin-1"),
        mime="text/plain",
        head=PLAIN_HEAD,
    )
    segment = make(Capture("http://a.example/", b"GIF89a", mime="image/gif"), plain)
    assert extract_text(stores, [segment]).pages == 1
    assert rows(stores, segment)[key(plain.url)]["text"] == "Größe der Straße"


def test_a_page_that_kills_its_process_is_counted_and_the_others_are_read(
    stores: Stores, make: Callable[..., SegmentRef]
) -> None:
    pages = [Capture(f"http://a.example/{number}", PAGE.encode()) for number in range(3)]
    segment = make(pages[0], Capture("http://a.example/killer", KILLER.encode()), *pages[1:])
    assert extract_text(stores, [segment]) == TextReport(segments=1, pages=4, killed=1)
    found = rows(stores, segment)
    row = found.pop(key("http://a.example/killer"))
    assert (row["text"], row["language"], row["terms"]) == (None, None, None)
    assert row["error"] == stage.KILLED
    assert row["signature"] == sha1(KILLER.encode()).digest()
    assert all(row["text"] and not row["error"] for row in found.values())


def test_a_page_that_takes_too_much_memory_is_counted(
    text_config: Config, make: Callable[..., SegmentRef]
) -> None:
    config = replace(text_config, text=replace(text_config.text, cpu_s=60, memory_bytes=64 << 20))
    stores = stores_on(open_storage(config), config)
    segment = make(Capture("http://a.example/", b"<p>x" * 2_000_000))
    assert extract_text(stores, [segment]).killed == 1


def test_a_revisit_has_no_row_since_its_body_is_elsewhere(
    stores: Stores, make: Callable[..., SegmentRef]
) -> None:
    segment = make(
        Capture("http://a.example/", PAGE.encode()), Capture("http://a.example/2", PAGE.encode())
    )
    path = Path(stores.config.dfs_primary) / segment.path / "pages.parquet"
    table = pq.read_table(path).to_pylist()
    table[1]["refers_to"] = {"segment": "1600000000/node-a", "file": "x.warc.gz", "offset": 1}
    pq.write_table(pa.Table.from_pylist(table, PAGES_SCHEMA), path)
    extract_text(stores, [segment])
    assert set(rows(stores, segment)) == {key("http://a.example/")}


def test_a_long_text_is_cut(text_config: Config, make: Callable[..., SegmentRef]) -> None:
    config = replace(text_config, text=replace(text_config.text, max_chars=20))
    stores = stores_on(open_storage(config), config)
    segment = make(Capture("http://a.example/", PAGE.encode()))
    extract_text(stores, [segment])
    [row] = rows(stores, segment).values()
    assert len(row["text"]) == 20


def test_many_processes_give_the_same_bytes_in_the_order_of_the_records(
    text_config: Config, make: Callable[..., SegmentRef]
) -> None:
    pages = [
        Capture(f"http://a.example/{n}", PAGE.replace("eight", str(n)).encode(), file=n % 3)
        for n in range(40)
    ]
    segment, found = make(*pages), []
    for processes in (1, 3):
        config = replace(text_config, text=replace(text_config.text, processes=processes))
        stores = stores_on(open_storage(config), config)
        extract_text(stores, [segment])
        table = text_table(stores, segment)
        found.append(stores.storage.read_bytes(table))
        stores.storage.delete(table)
    assert found[0] == found[1]
    assert len(found[0]) > 1000


def test_run_again_it_keeps_what_is_there(
    stores: Stores, make: Callable[..., SegmentRef], monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = make(Capture("http://a.example/", PAGE.encode()))
    extract_text(stores, [segment])
    monkeypatch.setattr(stage, "Child", None)  # none is begun
    assert extract_text(stores, [segment]) == TextReport(kept=1)


def test_a_segment_that_changes_has_another_table_and_the_older_one_goes(
    stores: Stores, make: Callable[..., SegmentRef]
) -> None:
    segment = make(
        Capture("http://a.example/", PAGE.encode()), Capture("http://a.example/2", PAGE.encode())
    )
    extract_text(stores, [segment])
    before = files(stores, segment)
    DroppedLists(stores.storage, segment.path).write([key("http://a.example/2")])
    assert extract_text(stores, [segment]) == TextReport(segments=1, pages=1)
    assert set(rows(stores, segment)) == {key("http://a.example/")}
    assert len(files(stores, segment)) == 1
    assert files(stores, segment) != before


def test_another_extractor_makes_another_table(
    stores: Stores, make: Callable[..., SegmentRef], monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = make(Capture("http://a.example/", PAGE.encode()))
    before = text_table(stores, segment)
    monkeypatch.setattr(stage, "version", lambda name: "9.9.9")
    assert text_table(stores, segment) != before


def test_an_empty_segment_has_an_empty_table(
    stores: Stores, make: Callable[..., SegmentRef]
) -> None:
    segment = make()
    extract_text(stores, [segment])
    assert rows(stores, segment) == {}


def test_of_two_attempts_at_once_the_second_takes_what_the_first_has_made(
    stores: Stores, make: Callable[..., SegmentRef], monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = make(Capture("http://a.example/", PAGE.encode()))

    def overtake(step: str) -> None:
        monkeypatch.undo()
        assert extract_text(stores, [segment]).segments == 1

    monkeypatch.setattr(stage, "reached", overtake)
    extract_text(stores, [segment])
    assert len(files(stores, segment)) == 1
    assert len(rows(stores, segment)) == 1


def test_a_damaged_table_is_named_with_what_to_do(
    stores: Stores, make: Callable[..., SegmentRef]
) -> None:
    segment = make(Capture("http://a.example/", PAGE.encode()))
    extract_text(stores, [segment])
    table = text_table(stores, segment)
    place = Path(stores.config.dfs_primary) / table
    place.write_bytes(place.read_bytes()[:-20])
    with pytest.raises(
        DamagedFileError, match=f"^{table}: cannot be read .*; move it away, and run this again"
    ):
        extract_text(stores, [segment])
    [finding] = [one for one in fsck(stores).findings if one.room == "text"]
    assert (finding.name, finding.where) == ("text_damaged", table)
    place.rename(place.with_name("away"))
    assert extract_text(stores, [segment]).pages == 1
    assert [one for one in fsck(stores).findings if one.room == "text"] == []


def test_a_damaged_record_is_an_error_that_names_the_file(
    stores: Stores, make: Callable[..., SegmentRef]
) -> None:
    segment = make(Capture("http://a.example/", PAGE.encode()))
    [warc] = (Path(stores.config.dfs_primary) / segment.path).glob("*.warc.gz")
    warc.write_bytes(warc.read_bytes()[:-40])
    with pytest.raises(DamagedFileError, match=r"node-a-00000\.warc\.gz: .*krake fsck --repair"):
        extract_text(stores, [segment])


def test_it_stops_as_asked_and_leaves_no_table(
    text_config: Config, make: Callable[..., SegmentRef]
) -> None:
    stop = Event()
    stores = stores_on(
        open_storage(text_config), text_config, stop=stop, on_progress=lambda counts: stop.set()
    )
    segment = make(Capture("http://a.example/", KILLER.encode()))
    with pytest.raises(StoppedError):
        extract_text(stores, [segment])
    assert not stores.storage.exists("text")


def _extract(config: Config, step: str) -> None:
    os.environ[KILL_VARIABLE] = step
    stores = stores_on(open_storage(config), config)
    extract_text(stores, stores.crawl.segments())


@pytest.mark.parametrize(
    "step", ["text.written:1", "text.written:2", "text.renamed:1", "text.older_deleted:1"]
)
def test_killed_at_each_step_it_goes_on_and_leaves_nothing(
    step: str, text_config: Config, stores: Stores, make: Callable[..., SegmentRef]
) -> None:
    segments = [
        make(Capture(f"http://{node}.example/", PAGE.encode()), node=node)
        for node in ("node-a", "node-b")
    ]
    old = "text/1700000000/node-a/text-of-an-older-version.parquet"
    stores.storage.write_bytes(old, b"old")
    assert run_forked(_extract, text_config, step) == -signal.SIGKILL
    extract_text(stores, segments)
    for segment in segments:
        assert len(rows(stores, segment)) == 1
        assert len(files(stores, segment)) == 1
    assert list(Path(text_config.scratch.directory).glob("text-*")) == []


def test_sweep_deletes_what_is_never_read_again_and_nothing_else(
    stores: Stores, make: Callable[..., SegmentRef]
) -> None:
    segment = make(Capture("http://a.example/", PAGE.encode()))
    extract_text(stores, [segment])
    [table] = files(stores, segment)
    hidden = f"text/{FOLDER}/node-a/.{table}.{'0' * 32}"
    stores.storage.write_bytes(hidden, b"")
    stores.storage.write_bytes("text/1600000000/node-a/text-x.parquet", b"")
    make(Capture("http://b.example/", PAGE.encode()), node="node-b")
    in_use = f"text/{FOLDER}/node-b/.text-x.parquet.{'0' * 32}"
    stores.storage.write_bytes(in_use, b"")
    assert sweep(stores).deleted == ["text/1600000000/node-a", hidden]
    assert not stores.storage.exists(hidden)
    assert not stores.storage.exists("text/1600000000/node-a")
    assert stores.storage.exists(in_use)
    assert files(stores, segment) == [table]


def test_sweep_leaves_texts_alone_that_may_be_of_another_crawl(config: Config) -> None:
    stores = stores_on(open_storage(config), config)
    stores.storage.write_bytes("text/1600000000/node-a/text-x.parquet", b"")
    assert sweep(stores).deleted == []


TRIED = """
import os, sys
from pathlib import Path
from crawl_lib.text import child, extract

def seen(call):
    try:
        call()
    except OSError as error:
        return type(error).__name__
    return "done"

def tell(*arguments, **options):
    found = {{
        "environment": sorted(set(os.environ) & {{"KRAKE_KEY_STORAGE_PASSWORD", "AIRFLOW_SECRET"}}),
        "config": seen(lambda: Path({config!r}).read_bytes()),
        "password": seen(lambda: Path("/etc/shadow").read_bytes()),
        "environment of the task": seen(lambda: Path(f"/proc/{{os.getppid()}}/environ").read_bytes()),
        "write": seen(lambda: Path({config!r}).with_name("new").write_bytes(b"x")),
    }}
    return found

extract.page_text = tell
sys.argv[1] = str(os.getppid())
child.main()
"""


@pytest.mark.skipif(not landlock_abi(), reason=NONE_TEXT)
def test_a_child_has_no_secret_and_opens_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that puts its own questions in the place of the extractor, begun as a child is."""
    monkeypatch.setenv("KRAKE_KEY_STORAGE_PASSWORD", "secret")
    monkeypatch.setenv("AIRFLOW_SECRET", "secret")
    config = tmp_path / "config.yml"
    config.write_text("x")
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-c",
            TRIED.format(config=str(config)),
            "0",
            str(256 << 20),
            "10",
            "1000",
            "1000",
        ],
        input=message(b"hx"),
        capture_output=True,
        cwd="/",
        env=clean_environment(os.environ),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(read_message(io.BytesIO(done.stdout)) or b"")
    assert found == {
        "environment": [],
        "config": "PermissionError",
        "password": "PermissionError",
        "environment of the task": "PermissionError",
        "write": "PermissionError",
    }


def test_a_child_loads_no_packages_that_it_does_not_use() -> None:
    """Arrow would load numpy, which costs each child more than all else."""
    code = """
import os, sys
from crawl_lib.text import child
sys.argv[1] = str(os.getppid())
child.main()
loaded = {name.split(".")[0] for name, module in sys.modules.items() if module is not None}
assert "resiliparse" in loaded
assert not loaded & {"numpy", "pandas", "duckdb"}, loaded
"""
    command = [sys.executable, "-P", "-c", code, "0", str(256 << 20), "10", "1000", "1000"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_folder_of_texts_is_one_crawl_s_own(stores: Stores, config: Config) -> None:
    CrawlName(stores_on(stores.storage, config)).note()
    assert not stores.storage.exists("text")
    CrawlName(stores).note()
    other = replace(stores.config, crawl=replace(config.crawl, name="other", directory="other"))
    other = replace(
        other, export=replace(config.export, directory="exports"), queue=replace(config.queue)
    )
    [problem] = [
        one
        for one in CrawlName(stores_on(stores.storage, other)).others()
        if one.startswith("text.")
    ]
    assert "text is of the crawl 'krake', and crawl.name is 'other'" in problem


def only_row(stores: Stores, segment: SegmentRef) -> dict[str, Any]:
    extract_text(stores, [segment])
    [row] = rows(stores, segment).values()
    return row


def test_headings_robots_and_the_date_of_publication_are_columns(
    stores: Stores, make: Callable[..., SegmentRef]
) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nX-Robots-Tag: krake: nosnippet\r\n\r\n"
    page = PAGE.replace(
        "<body>",
        """<meta name=robots content="noindex, unavailable_after: 2030-01-01"><body>
        <meta property="article:published_time" content="2019-03-05T10:00:00+01:00">""",
    )
    row = only_row(stores, make(Capture("http://a.example/", page.encode(), head=head)))
    assert row["headings"] == "Octopus"
    assert row["robots"] == {
        "noindex": True,
        "noarchive": False,
        "nosnippet": True,
        "unavailable_after": datetime(2030, 1, 1, tzinfo=UTC),
    }
    assert row["published"] == datetime(2019, 3, 5, 9, tzinfo=UTC)
    assert row["shown"] is None


def test_all_that_is_shown_is_kept_where_it_is_asked_for(
    text_config: Config, stores: Stores, make: Callable[..., SegmentRef]
) -> None:
    config = replace(text_config, commoncrawl=CommonCrawlConfig(wet_text="all"))
    asked = stores_on(open_storage(config), config)
    segment = make(Capture("http://a.example/", PAGE.encode()))
    row = only_row(asked, segment)
    assert row["shown"].split() == ["Start", "Next", "Octopus", *WORDS.split()]
    assert row["text"].split() == ["Octopus", *WORDS.split()]
    assert text_table(asked, segment) != text_table(stores, segment)


def test_another_name_of_our_own_has_another_table(
    text_config: Config, stores: Stores, make: Callable[..., SegmentRef]
) -> None:
    """A page may forbid things to a crawler of one name only."""
    config = replace(text_config, fetch=replace(text_config.fetch, user_agent="other"))
    segment = make(Capture("http://a.example/", PAGE.encode()))
    assert text_table(stores_on(open_storage(config), config), segment) != text_table(
        stores, segment
    )


def test_an_accent_is_part_of_its_letter(stores: Stores, make: Callable[..., SegmentRef]) -> None:
    apart = Capture("http://a.example/", "<p>un cafe\u0301 noir".encode())
    whole = Capture("http://a.example/2", "<p>un caf\u00e9 noir".encode())
    segment = make(apart, whole)
    extract_text(stores, [segment])
    one, other = rows(stores, segment).values()
    assert one["text"] == other["text"] == "un caf\u00e9 noir"
    assert dict(one["terms"]) == {"un": 1, "caf\u00e9": 1, "noir": 1}
    assert one["signature"] == other["signature"]


def test_long_words_are_in_the_profile_and_not_among_the_terms(
    stores: Stores, make: Callable[..., SegmentRef]
) -> None:
    short, long, longer = "a" * 64, "b" * 65, "\u00e4" * 33
    segment = make(Capture("http://a.example/", f"<p>{short} {long} {longer} {longer}".encode()))
    report = extract_text(stores, [segment])
    [row] = rows(stores, segment).values()
    assert dict(row["terms"]) == {short: 1}
    assert (row["long_words"], report.long_words) == (2, 2)
    assert row["signature"] == text_profile({short: 1, long: 1, longer: 2})


def test_a_pdf_is_read(stores: Stores, make: Callable[..., SegmentRef]) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/pdf\r\nX-Robots-Tag: noindex\r\nContent-Language: de\r\n\r\n"
    body = pdf("Ein Krake hat acht Arme", "Zweite Seite", title="Kraken")
    row = only_row(
        stores, make(Capture("http://a.example/k", body, mime="application/pdf", head=head))
    )
    assert row["text"] == "Ein Krake hat acht Arme\nZweite Seite"
    assert (row["headings"], row["language"], row["robots"]["noindex"]) == ("Kraken", "de", True)
    assert row["signature"] == text_profile(dict(row["terms"]))


def test_pdfs_that_are_no_pdfs_or_bombs_are_counted(
    stores: Stores, make: Callable[..., SegmentRef]
) -> None:
    bodies = [
        b"%PDF-1.4\njunk",
        pdf(encrypted=True),
        pdf("Octopus", pages_said=2_000_000_000),
        pdf_bomb(40 << 20),
    ]
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/pdf\r\n\r\n"
    captures = [
        Capture(f"http://a.example/{number}", body, mime="application/pdf", head=head)
        for number, body in enumerate(bodies)
    ]
    segment = make(*captures)
    report = extract_text(stores, [segment])
    found = [rows(stores, segment)[key(one.url)] for one in captures]
    assert found[0]["error"].startswith("no text: the PDF cannot be read: ")
    assert found[1]["error"].startswith("no text: the PDF cannot be read: ")
    assert (found[0]["text"], found[0]["terms"], found[0]["signature"]) == (
        None,
        None,
        sha1(bodies[0]).digest(),
    )
    assert (report.pages, report.unreadable) == (4, 2)
    assert found[2]["text"] == "Octopus"
    assert (found[3]["error"], report.killed) == (stage.KILLED, 1)


@pytest.mark.parametrize("page", ["<p>Octopus", f"<title>{'Octopus ' * 1250}</title><p>Octopus"])
def test_a_page_of_one_word_has_one(
    page: str, stores: Stores, make: Callable[..., SegmentRef]
) -> None:
    row = only_row(stores, make(Capture("http://a.example/", page.encode())))
    assert (row["text"], dict(row["terms"]), row["language"]) == ("Octopus", {"octopus": 1}, None)


def test_a_page_of_a_megabyte_is_read_whole(
    text_config: Config, make: Callable[..., SegmentRef]
) -> None:
    config = replace(text_config, text=TextConfig(processes=1))
    stores = stores_on(open_storage(config), config)
    page = f"<h1>Octopus</h1>{f'<p>{WORDS}' * 1700}"
    row = only_row(stores, make(Capture("http://a.example/", page.encode())))
    assert dict(row["terms"])["octopus"] == 1701
    assert row["language"] == "en"
