"""Pages whose words are equal: how they count, when a text is full, and what is not fetched then."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from hashlib import sha1
from pathlib import Path

import pytest

from benchmarks.crawl import TREES
from crawl_lib.config import Config, TrapsConfig
from crawl_lib.fetch import HostStore
from crawl_lib.parse import parse_head, words_of
from crawl_lib.records import Fetched, QueuedUrl, TakenUrl
from crawl_lib.states import Outcome
from crawl_lib.worker.reading import Reader
from crawl_lib.worker.texts import Texts
from tests.urls.test_traps import OTHERS

MOST = 10


@pytest.fixture
def store(tmp_path: Path) -> Iterator[HostStore]:
    with HostStore(tmp_path) as hosts:
        yield hosts


def taken(
    number: int, host: str = "a.test", via: TakenUrl | None = None, **fields: object
) -> TakenUrl:
    queued = QueuedUrl(
        **{"url": f"http://{host}/{number}", "via": via and via.key, "depth": 1, **fields}
    )  # type: ignore[arg-type]
    return TakenUrl(number, sha1(queued.url.encode()).digest(), queued)


def note(texts: Texts, pages: Iterable[TakenUrl], words: int | None = 7) -> None:
    for page in pages:
        texts.note(page, Fetched(page.queued.url, 1000.0 + page.position, Outcome.OK), words)
    texts.count()


def refused(texts: Texts, items: Iterable[TakenUrl]) -> list[int]:
    return [one.position for one in items if texts.objection(one)]


PAGES = [taken(number) for number in range(MOST)]


def test_links_are_refused_once_so_many_pages_have_the_text(store: HostStore) -> None:
    texts = Texts(store, MOST)
    note(texts, PAGES[:-1])
    assert not any(map(texts.is_full, PAGES))
    note(texts, [taken(100)], words=8)
    assert not texts.is_full(taken(100))
    note(texts, PAGES[-1:])
    assert texts.is_full(PAGES[-1])
    note(texts, [taken(101), taken(102)])
    assert texts.is_full(taken(101))
    assert not texts.is_full(taken(100))


def test_what_was_found_on_such_pages_is_not_fetched_and_all_else_is(store: HostStore) -> None:
    texts, good = Texts(store, MOST), taken(50)
    note(texts, PAGES[:-1])
    note(texts, [good], words=8)
    items = [
        taken(200, via=PAGES[0]),
        taken(201, "b.test", via=PAGES[1]),
        taken(202, via=good),
        taken(203, via=taken(99)),  # nothing is known of that page
        taken(204, depth=0),
        taken(205, via=PAGES[0], list_name="retry-1"),
    ]
    texts.know(items)
    assert refused(texts, items) == []
    note(texts, PAGES[-1:])
    assert refused(texts, items) == [200, 201], "during the run that fills the text"
    later = Texts(store, MOST)
    later.know(items)
    assert refused(later, items) == [200, 201], "and in those after it"
    assert "traps.max_equal" in later.objection(items[0])


def test_a_page_counts_once_for_a_text_however_often_it_is_handled(store: HostStore) -> None:
    for _ in range(3):  # rounds, or attempts of one
        texts = Texts(store, MOST)
        note(texts, PAGES[:-1])
        texts.save()
    assert not texts.is_full(PAGES[0])
    note(texts, PAGES[-1:])
    assert texts.is_full(PAGES[-1])


def test_a_text_that_comes_once_a_round_is_full_too(store: HostStore) -> None:
    for page in PAGES:
        texts = Texts(store, MOST)
        note(texts, [page])
        assert not texts.is_full(page)
        texts.save()
    later = Texts(store, MOST)
    note(later, [taken(99)])
    assert later.is_full(taken(99))


def test_processes_of_a_node_count_together(store: HostStore, tmp_path: Path) -> None:
    with HostStore(tmp_path) as other:
        texts, others = Texts(store, MOST), Texts(other, MOST)
        note(texts, PAGES[::2])
        note(others, PAGES[1::2])
        assert others.is_full(PAGES[-1])
        note(texts, [taken(60)])
        assert texts.is_full(taken(60))


def test_a_host_counts_with_its_domain_and_a_private_suffix_is_none(store: HostStore) -> None:
    texts = Texts(store, MOST)
    note(texts, [taken(number, f"n{number}.farm.example.com") for number in range(MOST)])
    note(texts, [taken(100 + number, f"n{number}.github.io") for number in range(MOST)], words=8)
    assert texts.is_full(taken(MOST - 1, f"n{MOST - 1}.farm.example.com")) is False, (
        "of an earlier count"
    )
    note(texts, [taken(50, "www.example.com"), taken(51, "n1.github.io"), taken(52, "example.org")])
    assert [
        texts.is_full(taken(*one)) for one in ((50, "www.example.com"), (51, "n1.github.io"))
    ] == [True, False]
    assert not texts.is_full(taken(52, "example.org"))


def test_with_a_crawldb_the_store_says_where_a_url_was_found(store: HostStore) -> None:
    texts, good = Texts(store, MOST, keeps_finders=True), taken(50)
    items = [
        taken(200, list_name="1-1"),
        taken(201, list_name="1-1"),
        taken(202, list_name="1-1", earlier="{}"),
    ]
    for finder, item in (
        (PAGES[0], items[0]),
        (good, items[1]),
        (PAGES[1], items[1]),
        (PAGES[0], items[2]),
    ):
        texts.found(finder, item.key, "a.test")
    note(texts, [*PAGES, taken(77)])
    note(texts, [good], words=8)
    texts.save()
    later = Texts(store, MOST, keeps_finders=True)
    later.know(items)
    assert refused(later, items) == [200], (
        "the first page counts; a page that was captured is visited again"
    )


def test_the_rule_can_be_turned_off_and_without_a_store_nothing_counts(store: HostStore) -> None:
    for texts in (Texts(store, None), Texts()):
        note(texts, PAGES)
        texts.know([taken(200, via=PAGES[0])])
        assert not texts.counts
        assert not texts.is_full(PAGES[-1])
        assert not texts.objection(taken(200, via=PAGES[0]))


def test_a_site_of_other_texts_only_is_remembered_in_part_and_what_is_full_stays(
    store: HostStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crawl_lib.fetch.pagetables._KEPT_TEXTS", 50)
    texts = Texts(store, MOST)
    note(texts, PAGES)
    for number in range(100, 300):
        note(texts, [taken(number)], words=number)
        if number % 20 == 0:
            texts.save()
    texts.save()
    with closing(sqlite3.connect(store.path)) as base:
        assert base.execute("SELECT count(*) FROM texts").fetchone() == (50,)
    note(texts, [taken(300)])
    assert texts.is_full(taken(300))


def test_what_is_forgotten_counts_from_0(store: HostStore) -> None:
    note(Texts(store, MOST), PAGES)
    store.pages.forget_texts(["b.test"])
    assert Texts(store, MOST)._full
    store.pages.forget_texts(["a.test"])
    texts, found = Texts(store, MOST), [taken(200, via=PAGES[0])]
    note(texts, PAGES[:-1])
    texts.know(found)
    assert not texts.is_full(PAGES[0])
    assert refused(texts, found) == []


@pytest.mark.parametrize(
    ("outcome", "mime", "body", "has_text"),
    [
        (Outcome.OK, "text/html", b"<p>lamps</p>", True),
        (Outcome.OK, "text/html", b"<img src='x'>", True),
        (Outcome.GONE, "text/html", b"<p>lamps</p>", True),
        (Outcome.SERVER_ERROR, "text/html", b"<p>lamps</p>", True),
        (Outcome.GONE, "text/html", b"<hr>", False),
        (Outcome.GONE, "text/plain", b"lamps", False),
        (
            Outcome.OK,
            "application/xml",
            b"<urlset><url><loc>http://a.test/</loc></url></urlset>",
            False,
        ),
        (Outcome.REDIRECT, "text/html", b"<p>lamps</p>", False),
    ],
)
def test_pages_and_errors_have_a_text(
    outcome: Outcome, mime: str, body: bytes, has_text: bool
) -> None:
    reader = Reader(Config(("node",), "dfs"))
    headers = parse_head(f"HTTP/1.1 200 OK\r\nContent-Type: {mime}\r\n\r\n".encode())
    fetched = Fetched("http://a.test/", 1.0, outcome, body=body)
    content = reader.content(headers, fetched)
    reading = reader.facts(headers, fetched, content)
    if reader.is_page(headers, outcome, reading.mime, content.data):
        reading = reading._replace(page=reader.page(headers, fetched.url, content, reading.mime))
    words = reader.words(headers, outcome, content, reading)
    assert (words is not None) == has_text
    if b"lamps" in body and has_text:
        assert words == words_of(b"lamps", None), "an error has the text that a page has"


@pytest.mark.parametrize(
    ("package", "tree", "_"), [*TREES, *OTHERS], ids=lambda value: str(value)[:20]
)
def test_no_text_of_real_documentation_is_full(package: str, tree: Path, _: str) -> None:
    counts = Counter(words_of(file.read_bytes(), None) for file in tree.rglob("*.html"))
    if not counts:
        pytest.skip(f"Debian's {package} is not installed")
    most = TrapsConfig().max_equal
    assert most is not None
    assert 10 * max(counts.values()) <= most


def test_requisites_count_for_no_text_and_are_fetched_whatever_page_needs_them(
    store: HostStore,
) -> None:
    texts = Texts(store, MOST)
    note(texts, [taken(number, requisite=1) for number in range(2 * MOST)])
    assert not texts.is_full(PAGES[0])
    note(texts, PAGES)
    found = [taken(200, via=PAGES[0]), taken(201, via=PAGES[0], requisite=1)]
    texts.know(found)
    assert refused(texts, found) == [200]
