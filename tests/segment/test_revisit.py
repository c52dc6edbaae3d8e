"""When a visit counts as a revisit, and that a spool gives it back as it was."""

from __future__ import annotations

from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_lib.records import (
    Earlier,
    Fetched,
    QueuedUrl,
    TakenUrl,
    metadata_with_list,
    metadata_without_list,
)
from crawl_lib.repair.segments.glean import Gleaner
from crawl_lib.segment.encoder import RecordEncoder
from crawl_lib.segment.recover import Recovered, read_groups
from crawl_lib.segment.revisit import revisited
from crawl_lib.states import Outcome
from crawl_lib.stopping import Work
from tests.segment.helpers import HEAD, TIME, answered, fill, taken, writer

BODY = b"<p>hello"
URL = "http://a.example/0"
OWN = "<urn:uuid:01234567-89ab-4cde-8f01-23456789abcd>"
EARLIER = Earlier(
    "7/node-a", "krake-7-node-a-0-00000.warc.gz", 2048, TIME - 9, sha1(BODY).hexdigest(), '"x"'
)
NOT_MODIFIED = b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\n\r\n'


def asked(earlier: Earlier | None = EARLIER) -> TakenUrl:
    return taken(0, URL, list_name="7-1", earlier=earlier.to_text() if earlier else "")


def not_modified(**more: Any) -> Fetched:
    return answered(
        URL, b"", NOT_MODIFIED, **({"outcome": Outcome.NOT_MODIFIED, "status": 304} | more)
    )


@pytest.mark.parametrize(
    ("fetched", "is_revisit"),
    [
        (answered(URL, BODY), True),
        (answered(URL, BODY + b"!"), False),
        (answered(URL, BODY, truncated="length"), False),
        (answered(URL, BODY, outcome=Outcome.GONE, status=404), False),
        (answered(URL, BODY, outcome=Outcome.MIME_REFUSED), False),
        (answered(URL, BODY, b"HTTP/1.1 200 OK\r\nodd\n\r\n\r\n"), False),
        (not_modified(), True),
    ],
)
def test_a_revisit_is_a_304_or_the_same_payload(fetched: Fetched, is_revisit: bool) -> None:
    assert revisited(asked(), fetched) == (EARLIER if is_revisit else None)
    assert revisited(asked(None), fetched) is None


@given(
    body=st.binary(max_size=50),
    is_304=st.booleans(),
    file=st.text(min_size=1),
    time_us=st.integers(0, 4_000_000_000_000_000),
    etag=st.none() | st.text(min_size=1),
)
def test_a_spool_gives_a_revisit_back(
    tmp_path_factory: pytest.TempPathFactory,
    body: bytes,
    is_304: bool,
    file: str,
    time_us: int,
    etag: str | None,
) -> None:
    capture = Earlier("7/node-a", file, 2048, time_us / 1_000_000, sha1(body).hexdigest(), etag)
    fetched = not_modified() if is_304 else answered(URL, body)
    spool = tmp_path_factory.mktemp("spool")
    with writer(spool) as out:
        out.append(asked(capture), fetched)
        out.part.abandon()
        out._open = None
    [path] = spool.glob("*.warc.gz")
    [found] = [group for group in read_groups(path) if isinstance(group, Recovered)]
    assert found.taken == asked(capture)
    assert (found.fetched.revisits, found.fetched.outcome, found.fetched.truncated) == (
        capture,
        fetched.outcome,
        None,
    )
    assert (found.fetched.head, found.fetched.body) == (fetched.head, b"")


def test_a_revisit_that_has_lost_its_metadata_record_is_no_page(tmp_path: Path) -> None:
    """What it is a revisit of, only that record says; its URL is known, and fetched again."""
    fetched = answered(URL, BODY)
    fetched.revisits = EARLIER
    group = RecordEncoder(file_id=OWN).group(fetched, asked())
    path = tmp_path / "krake-1-node-a-0-00000.warc.gz"
    path.write_bytes(group.data[: group.main_offset + group.main_length])
    gleaner = Gleaner(Work())
    with path.open("rb") as file:
        gleaner.read(path.name, file)
    assert (gleaner.keys, gleaner.lone) == (set(), {})
    assert {queued.url for queued in gleaner.unfetched.values()} == {URL}


def test_a_fetch_that_no_list_asked_for_is_never_a_revisit(tmp_path: Path) -> None:
    out = writer(tmp_path)
    fill(out, [(taken(1, URL), answered(URL, BODY, HEAD))])
    out.close()
    [path] = tmp_path.glob("*.warc.gz")
    assert all(
        group.fetched.revisits is None
        for group in read_groups(path)
        if isinstance(group, Recovered)
    )


@pytest.mark.parametrize(
    "metadata", ["", '{"a": "b"}', '{"list": "mine"}', "no json", '["no object"]']
)
def test_a_lists_name_is_in_the_metadata_of_pages_and_out_of_it_again(metadata: str) -> None:
    written = metadata_with_list(QueuedUrl(URL, metadata=metadata, list_name="7-1"))
    assert written is not None
    assert '"list": "7-1"' in written
    assert metadata_with_list(QueuedUrl(URL, metadata=metadata)) == (metadata or None)
    if metadata in {"", '{"a": "b"}'}:
        assert metadata_without_list(written) == metadata
        assert metadata_without_list(metadata or None) == metadata
