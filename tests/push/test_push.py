"""A push brings OpenSearch to the newest index: all pages or what differs, through kills and other pushes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.durable import KILL_VARIABLE
from crawl_lib.errors import ConfigError, InputError, OutputConflictError, StoppedError
from crawl_lib.index import INDEX, IndexedPage
from crawl_lib.push import PUSH_OUTPUT, push_index
from crawl_lib.push.push import PushReport
from crawl_lib.stores import Stores
from crawl_lib.versions import Version, Versions
from tests.forked import run_forked
from tests.node.test_stop_of_stages import AtLook
from tests.push.fake import FakeOpenSearch, Index, Request, fake_opensearch
from tests.push.made import NOW, seal_pages, stores_below
from tests.search.made import page

NUMBERS = range(12)
ALIAS = "krake"


def a(number: int, text: str = "", **more: Any) -> IndexedPage:
    """A page with a number."""
    return page(f"p{number}", text or f"text of {number}", title=f"Title {number}", **more)


FIRST = [a(number) for number in NUMBERS]
SECOND = [a(0, "changed"), *FIRST[2:], a(12)]
"""Page 0 is changed, 1 is gone, 12 is new."""
THIRD = [a(0, "changed"), a(1), a(2, "changed later"), *FIRST[3:]]
"""Page 1 is back, 2 is changed, 12 is gone."""
PAGES = (FIRST, SECOND, THIRD)


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A crawl with versions 1, 2 and 3 of its index."""
    root = tmp_path_factory.mktemp("sealed")
    for number, pages in enumerate(PAGES, 1):
        seal_pages(stores_below(root, None), pages, now=NOW + timedelta(hours=number))
    return root


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeOpenSearch]:
    """A server; pauses take no time."""
    monkeypatch.setattr("crawl_lib.push.cluster.sleep", lambda *_: None)
    with fake_opensearch() as fake:
        yield fake


@dataclass
class Pushing:
    """A crawl, and the server that it pushes to. `made`: how many versions were made, which are an hour apart."""

    root: Path
    server: FakeOpenSearch
    options: dict[str, Any] = field(default_factory=dict)
    made: int = 0

    @property
    def stores(self) -> Stores:
        return stores_below(self.root, self.server.url, **self.options)

    def seal(self, pages: list[IndexedPage], **facts: Any) -> Version:
        self.made += 1
        return seal_pages(self.stores, pages, **{"now": NOW + timedelta(hours=self.made), **facts})

    def folder(self, root: Path, number: int) -> Path:
        return root / "dfs" / "crawl" / INDEX.folder / str(number)

    def bring(self, sealed: Path, number: int) -> None:
        """Take over a version of another crawl, unless it is there."""
        if not self.folder(self.root, number).exists():
            shutil.copytree(self.folder(sealed, number), self.folder(self.root, number))

    def take_away(self, *numbers: int) -> None:
        for number in numbers:
            shutil.rmtree(self.folder(self.root, number), ignore_errors=True)

    def push(self) -> PushReport:
        return push_index(self.stores)

    def pushed(self, pages: list[IndexedPage], **facts: Any) -> PushReport:
        """Make a version and push it."""
        self.seal(pages, **facts)
        return self.push()

    def require(self, pages: list[IndexedPage]) -> None:
        """The alias leads to one index with these pages, nothing else is left, and its note is right."""
        documents = self.server.documents(ALIAS)
        assert {key: one.get("body_en") for key, one in documents.items()} == {
            one.key.hex(): one.text for one in pages
        }
        [name] = self.server.indexes
        assert self.server.indexes[name].aliases == {ALIAS}
        newest = Versions(self.stores, INDEX).newest()
        assert newest is not None
        assert self.note(name)["pushed"]["digest"] == newest.digest

    def note(self, name: str) -> dict[str, Any]:
        return dict(self.server.indexes[name].mapping["_meta"]["krake"])


@pytest.fixture
def pushing(tmp_path: Path, server: FakeOpenSearch) -> Pushing:
    return Pushing(tmp_path, server)


def actions(server: FakeOpenSearch) -> list[dict[str, Any]]:
    """The actions of all batches so far."""
    lines = [
        json.loads(line) for one in server.asked("POST", "/_bulk") for line in one.body.splitlines()
    ]
    return [line for line in lines if "index" in line or "delete" in line]


def test_the_first_push_sends_all_and_later_ones_what_differs(pushing: Pushing) -> None:
    found = pushing.pushed(FIRST)
    assert (found.sent, found.deleted, found.is_anew, found.pages) == (12, 0, True, 12)
    pushing.require(FIRST)
    pushing.server.requests.clear()
    assert pushing.push().sent == 0
    assert {one.method for one in pushing.server.requests if "_refresh" not in one.path} == {"GET"}
    pushing.seal(SECOND)
    found = pushing.push()
    assert (found.sent, found.deleted, found.is_anew, found.pages) == (2, 1, False, 12)
    pushing.require(SECOND)


def test_a_write_has_the_key_in_hex_and_the_time_of_the_version(pushing: Pushing) -> None:
    pushing.pushed(FIRST)
    pushing.pushed(SECOND)
    made_ms = int((NOW + timedelta(hours=2)).timestamp() * 1000)
    changed = {"_id": FIRST[0].key.hex(), "version": made_ms, "version_type": "external_gte"}
    gone = {**changed, "_id": FIRST[1].key.hex()}
    assert {"index": changed} in actions(pushing.server)
    assert {"delete": gone} in actions(pushing.server)


def test_a_document_has_what_the_mapping_names(pushing: Pushing) -> None:
    until = datetime(2027, 1, 1, tzinfo=UTC)
    one = page(
        "http://docs.example.org/a%20b/c",
        "Text 東京",
        title="Title",
        headings="Heading",
        anchors=("here", "here", "there"),
        language="de",
        published_us=5_000_000,
        captured_us=7_000_000,
        robots=("nosnippet",),
    )
    other = page("other", "text", language="fi")
    facts: dict[str, Any] = {
        "boosts": {one.url: 3.0},
        "near": {one.url: other.key},
        "until": {one.url: until},
    }
    pushing.pushed([one, other], **facts)
    found = pushing.server.documents(ALIAS)
    assert found[one.key.hex()] == {
        "key": one.key.hex(),
        "url": "http://docs.example.org/a%20b/c",
        "title": "Title",
        "host": "docs.example.org",
        "site": ["docs.example.org", "example.org"],
        "language": "de",
        "type": "text/html",
        "robots": ["nosnippet"],
        "captured": 7_000,
        "published": 5_000,
        "date": 5_000,
        "boost": pytest.approx(3.0, rel=0.02),
        "near": other.key.hex(),
        "unavailable_after": int(until.timestamp() * 1000),
        "title_de": "Title",
        "headings_de": "Heading",
        "anchors_de": ["here", "here", "there"],
        "path_de": "/a b/c",
        "body_de": "Text 東京",
        "text_cjk": ["東京"],
    }
    assert found[other.key.hex()]["near"] == other.key.hex()
    assert found[other.key.hex()]["body_other"] == "text"


def test_facts_next_to_the_index_travel_too_but_no_place_and_no_small_change_of_a_boost(
    pushing: Pushing,
) -> None:
    urls = [one.url for one in FIRST]
    pushing.pushed(FIRST)
    assert pushing.pushed(FIRST, boosts=dict.fromkeys(urls, 1.001)).sent == 0
    assert pushing.pushed(FIRST, boosts={urls[0]: 1.5}).sent == 1
    assert pushing.pushed(FIRST, boosts={urls[0]: 1.5}, near={urls[1]: FIRST[2].key}).sent == 1
    assert pushing.pushed(FIRST, boosts={urls[0]: 1.5}, until={urls[3]: NOW}).sent == 2
    pushing.require(FIRST)


def new_mapping(pushing: Pushing) -> None:
    file = pushing.root / "own.json"
    file.write_text(
        json.dumps({"settings": {"number_of_shards": 1}, "mappings": {"properties": {}}})
    )
    pushing.options["mapping"] = str(file)


def no_note(pushing: Pushing) -> None:
    [index] = pushing.server.indexes.values()
    del index.mapping["_meta"]


def older_versions_gone(pushing: Pushing) -> None:
    versions = Versions(pushing.stores, INDEX)
    for number in versions.numbers()[1:]:
        pushing.stores.storage.delete(versions.path(number))


def earlier_clock(pushing: Pushing) -> None:
    pushing.seal(SECOND, now=NOW - timedelta(days=1))


def other_languages(pushing: Pushing) -> None:
    pushing.seal(SECOND, languages=("en",))


def emptied_by_query(pushing: Pushing) -> None:
    [index] = pushing.server.indexes.values()
    index.documents.clear()


def emptied(pushing: Pushing) -> None:
    pushing.server.indexes.clear()


@pytest.mark.parametrize(
    "change",
    [
        new_mapping,
        no_note,
        older_versions_gone,
        earlier_clock,
        other_languages,
        emptied_by_query,
        emptied,
    ],
    ids=lambda change: str(change.__name__),
)
def test_a_new_index_is_filled_where_the_old_one_cannot_be_changed(
    change: Callable[[Pushing], None], pushing: Pushing
) -> None:
    pushing.pushed(FIRST)
    [before] = pushing.server.indexes
    pushing.seal(SECOND)
    change(pushing)
    found = pushing.push()
    assert (found.sent, found.is_anew) == (12, True)
    if change is no_note:  # an index without a note may be someone else's, and stays
        assert pushing.server.indexes.pop(before).aliases == set()
    pushing.require(SECOND)
    assert pushing.push().sent == 0


def test_an_index_that_lost_pages_of_the_newest_version_is_filled_again(pushing: Pushing) -> None:
    pushing.pushed(FIRST)
    emptied_by_query(pushing)
    assert pushing.push().sent == 12
    pushing.require(FIRST)


STEPS = (
    "push.created",
    "push.begun",
    "push.sent",
    "push.noted",
    "push.ended",
    "push.moved",
    "push.deleted",
)
STEPS_OF_A_NEW_INDEX = ("push.created", "push.moved", "push.deleted")


class KilledError(BaseException):
    """Ends a push where a kill would: nothing catches it, and a push keeps nothing on this machine."""


def killed_push(pushing: Pushing, step: str) -> bool:
    """Push until a step; say whether the push came to it."""

    def reached(name: str) -> None:
        if name == step:
            raise KilledError

    with pytest.MonkeyPatch.context() as patched:
        for module in ("push", "target"):
            patched.setattr(f"crawl_lib.push.{module}.reached", reached)
        try:
            pushing.push()
        except KilledError:
            return True
    return False


@pytest.mark.parametrize("step", STEPS)
def test_a_push_that_is_killed_ends_well_when_it_is_repeated(
    step: str, pushing: Pushing, sealed: Path
) -> None:
    """The first push of all, a push that changes an index, and a push with a new mapping."""
    for number, change in ((1, None), (2, None), (3, new_mapping)):
        pushing.bring(sealed, number)
        if change is not None:
            change(pushing)
        is_missing = (
            step == "push.deleted" if number == 1 else number == 2 and step in STEPS_OF_A_NEW_INDEX
        )
        assert killed_push(pushing, step) is not is_missing
        pushing.push()
        pushing.require(PAGES[number - 1])


@pytest.mark.parametrize("step", sorted(set(STEPS) - set(STEPS_OF_A_NEW_INDEX)))
def test_what_a_killed_push_left_is_undone_by_a_later_version(
    step: str, pushing: Pushing, sealed: Path
) -> None:
    pushing.bring(sealed, 1)
    pushing.push()
    pushing.bring(sealed, 2)
    assert killed_push(pushing, step)
    pushing.bring(sealed, 3)
    pushing.push()
    pushing.require(THIRD)


def really_killed(root: Path, url: str) -> None:
    os.environ[KILL_VARIABLE] = "push.begun"
    push_index(stores_below(root, url))


def test_a_process_that_is_killed_leaves_what_the_next_one_goes_on_with(pushing: Pushing) -> None:
    pushing.seal(FIRST)
    assert run_forked(really_killed, pushing.root, pushing.server.url) == -9
    assert pushing.push().sent == len(FIRST)
    pushing.require(FIRST)


@pytest.mark.parametrize(
    ("number", "later", "stride"), [(1, 3, 2), (2, 3, 1), (1, 1, 3), (2, 2, 3)], ids=str
)
def test_two_pushes_at_once_end_with_the_later_version(
    number: int, later: int, stride: int, pushing: Pushing, sealed: Path
) -> None:
    """Before a request of a push, for each request in turn, another push begins and ends."""
    for one in range(1, number + 1):
        pushing.bring(sealed, one)
        if one < number:
            pushing.push()
    before = deepcopy(pushing.server.indexes)
    place, is_reached = 1, True
    while is_reached:
        pushing.server.indexes = deepcopy(before)
        pushing.take_away(*range(number + 1, later + 1))
        is_reached = pushed_within(pushing, place, lambda: pushing.bring(sealed, later))
        pushing.push()
        pushing.require(PAGES[(later if is_reached else number) - 1])
        place += stride


def pushed_within(pushing: Pushing, place: int, meanwhile: Callable[[], object]) -> bool:
    """Push with another push before a request; False where there is no request of that number."""
    server, is_reached = pushing.server, False
    server.forget()

    def fault(request: Request) -> None:
        nonlocal is_reached
        if request.number == place:
            is_reached = True
            meanwhile()
            pushing.push()

    server.fault = fault
    pushing.push()
    server.forget()
    return is_reached


def test_without_an_index_or_an_address_nothing_is_asked(tmp_path: Path, pushing: Pushing) -> None:
    with pytest.raises(InputError, match="run `krake index update`"):
        pushing.push()
    with pytest.raises(ConfigError, match=r"push\.url: is missing"):
        push_index(stores_below(tmp_path / "other", None))
    assert pushing.server.requests == []


def test_an_index_with_the_name_of_the_alias_is_left_alone(pushing: Pushing) -> None:
    pushing.seal(FIRST)
    pushing.server.indexes[ALIAS] = Index({}, documents={"one": {}})
    with pytest.raises(OutputConflictError, match=r"krake: is an index.*push\.index"):
        pushing.push()
    assert list(pushing.server.indexes) == [ALIAS]


def test_the_pages_of_another_crawl_are_left_alone(pushing: Pushing) -> None:
    pushing.pushed(FIRST)
    [index] = pushing.server.indexes.values()
    index.mapping["_meta"]["krake"]["crawl"] = "other"
    with pytest.raises(
        OutputConflictError, match="has the pages of the crawl other: name another index"
    ):
        pushing.push()
    assert len(index.documents) == len(FIRST)


def test_a_push_can_be_stopped_anywhere_and_goes_on(pushing: Pushing) -> None:
    pushing.seal(FIRST)
    for looks in (0, 1, 2, 3, 5, 8, 13, 21, 34):
        with pytest.raises(StoppedError):
            push_index(replace(pushing.stores, stop=AtLook(looks)))
    pushing.push()
    pushing.require(FIRST)


def test_a_drop_names_opensearch_while_it_has_a_page(pushing: Pushing) -> None:
    keys: dict[bytes, list[str]] = {FIRST[1].key: [], b"\0" * 20: []}
    assert list(PUSH_OUTPUT.places_of(pushing.stores, keys)) == []
    pushing.pushed(FIRST)
    [place] = PUSH_OUTPUT.places_of(pushing.stores, keys)
    assert place.path == f"{pushing.server.url}/{ALIAS}"
    assert "`krake index push`" in place.until
    pushing.pushed(SECOND)
    assert list(PUSH_OUTPUT.places_of(pushing.stores, keys)) == []
    assert list(PUSH_OUTPUT.places_of(stores_below(pushing.root, None), keys)) == []
    pushing.server.fault = lambda request: (503, {})
    [place] = PUSH_OUTPUT.places_of(pushing.stores, keys)
    assert "cannot be asked" in place.until


def test_names_of_crawls_become_names_of_opensearch(tmp_path: Path, server: FakeOpenSearch) -> None:
    for crawl, alias in (("Docs.Example_2", "docs.example_2"), ("A" * 100, "a" * 100)):
        pushing = Pushing(tmp_path / crawl, server)
        stores = pushing.stores
        stores = replace(
            stores, config=replace(stores.config, crawl=replace(stores.config.crawl, name=crawl))
        )
        seal_pages(stores, FIRST)
        assert push_index(stores).alias == alias
        assert len(server.documents(alias)) == len(FIRST)
