"""WARC/1.1 records: the bytes, other tools' opinion of them, and hostile input."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import uuid
from base64 import b32encode
from collections import Counter

import pytest
from fastwarc.warc import ArchiveIterator as FastIterator
from hypothesis import given
from hypothesis import strategies as st
from warcio.archiveiterator import ArchiveIterator
from warcio.recordbuilder import RecordBuilder
from warcio.warcwriter import WARCWriter

from crawl_lib.records import Fetched
from crawl_lib.segment.encoder import RecordEncoder, has_certain_end, metadata_fields, new_record_id
from crawl_lib.segment.recover import read_groups
from crawl_lib.states import Outcome
from crawl_lib.warc import (
    base32,
    escape_field,
    microseconds,
    microseconds_of,
    safe_uri,
    split_head,
    utc_text,
)
from crawl_lib.warc.text import unescape_field
from tests.segment.helpers import (
    INFO,
    REQUEST,
    TIME,
    answered,
    check_with_warcio,
    failed,
    fetches,
    fill,
    ids,
    robots,
    taken,
    writer,
)

DATE = "2026-11-18T11:06:40.123456Z"


@given(st.binary(min_size=20, max_size=20))
def test_digests_are_written_inbase32(digest: bytes) -> None:
    assert base32(digest) == b32encode(digest).decode()


def test_golden_bytes_of_a_metadata_record():
    """Written by hand from the WARC/1.1 specification and warcio's field order."""
    group = RecordEncoder(2, ids()).group(
        failed("http://a.example/x", error="a\nb", time=TIME),
        taken(7, "http://a.example/x", via=b"\1" * 20, depth=2),
    )
    block = (
        b"krake-kind: page\r\nkrake-position: 7\r\nvia: "
        + b"01" * 20
        + b"\r\ndepth: 2\r\nkrake-redirects: 0\r\n"
        b"krake-outcome: timeout\r\nkrake-attempts: 2\r\nfetchTimeMs: 0\r\nkrake-error: a\\nb\r\n"
    )
    digest = "sha1:" + b32encode(hashlib.sha1(block).digest()).decode()
    assert gzip.decompress(group.data) == (
        b"WARC/1.1\r\n"
        b"WARC-Type: metadata\r\n"
        b"WARC-Record-ID: <urn:uuid:00000000-0000-4000-8000-000000000000>\r\n"
        b"WARC-Target-URI: http://a.example/x\r\n"
        b"WARC-Date: " + DATE.encode() + b"\r\n"
        b"WARC-Payload-Digest: " + digest.encode() + b"\r\n"
        b"WARC-Block-Digest: " + digest.encode() + b"\r\n"
        b"Content-Type: application/warc-fields\r\n"
        b"Content-Length: " + str(len(block)).encode() + b"\r\n\r\n" + block + b"\r\n\r\n"
    )
    assert (group.digest, group.main_offset, group.main_length) == (None, 0, len(group.data))


def rewritten(record) -> bytes:
    """The record as warcio writes it from the same facts: its own digests, lengths and order."""
    ours = dict(record.rec_headers.headers)
    made = {"WARC-Payload-Digest", "WARC-Block-Digest", "Content-Type", "Content-Length"}
    if record.http_headers and record.http_headers.get_header("Transfer-Encoding"):
        made -= {"WARC-Payload-Digest"}  # warcio counts the transfer coding in
    given_fields = {name: value for name, value in ours.items() if name not in made}
    builder = RecordBuilder(warc_version="1.1")
    block = record.raw_stream.read()
    http = record.http_headers
    copy = builder.create_warc_record(
        ours.get("WARC-Target-URI", ""),
        record.rec_type,
        payload=io.BytesIO(block),
        length=len(block),
        http_headers=http,
        warc_headers_dict=given_fields,
    )
    out = io.BytesIO()
    WARCWriter(out, gzip=False, warc_version="1.1").write_record(copy)
    return out.getvalue()


def test_records_equal_warcios_byte_for_byte(tmp_path):
    out = writer(tmp_path)
    fill(out, fetches())
    out.append(None, robots())
    out.close()
    data = next(tmp_path.glob("*.warc.gz")).read_bytes()
    kinds = Counter()
    again = b""
    for record in ArchiveIterator(io.BytesIO(data)):
        kinds[record.rec_type] += 1
        again += rewritten(record)
    assert again == gzip.decompress(data)
    assert kinds == {"warcinfo": 1, "request": 6, "response": 6, "metadata": 8}


def test_warcinfo_says_whose_file_it_is(tmp_path):
    out = writer(tmp_path)
    fill(out, fetches())
    out.close()
    path = next(tmp_path.glob("*.warc.gz"))
    with path.open("rb") as file:
        record = next(iter(ArchiveIterator(file)))
        text = record.content_stream().read().decode()
    assert (
        record.rec_headers.get_header("WARC-Filename")
        == path.name
        == "krake-1-node-a-0-00000.warc.gz"
    )
    for line in (
        "software: krake/0.1.0",
        "krake-format-version: 1",
        f"krake-config-digest: {'c' * 64}",
    ):
        assert f"{line}\r\n" in text
    assert "http-header-user-agent: krake/0.1.0\r\n" in text
    assert "robots: obey\r\n" in text
    assert "hostname" not in text


def check_with_others(path) -> list[str]:
    """`warcio check` and FastWARC agree that all is well; returns the record types."""
    check_with_warcio([path])
    types = []
    with path.open("rb") as file:
        for record in FastIterator(file, parse_http=False):
            types.append(record.headers["WARC-Type"])
            assert record.verify_block_digest(), record.record_id
    with path.open("rb") as file:
        for record in FastIterator(file, parse_http=True):
            is_coded = "Transfer-Encoding" in (record.http_headers or {})
            if (
                "WARC-Payload-Digest" in record.headers
                and record.http_headers is not None
                and not is_coded
            ):
                assert record.verify_payload_digest(), record.record_id
    return types


def test_warcio_check_and_fastwarc_accept_every_record(tmp_path):
    out = writer(tmp_path)
    fill(out, fetches())
    out.append(None, robots())
    out.close()
    types = check_with_others(next(tmp_path.glob("*.warc.gz")))
    assert types[:4] == ["warcinfo", "request", "response", "metadata"]
    assert len(types) == 21


HOSTILE_HEADS = [
    b"HTTP/1.1 200 OK\r\nX: \xff\xfe\x00\x01\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n folded: a\r\n b\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: 1\r\n \r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\x0c\r\nX: 1\r\n\r\n",
    b"HTTP/1.1 200 OK\nX: 1\n\n",
    b"HTTP/1.1 200 \xe4\xf6\r\nno colon here\r\n: empty\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"HTTP/1.0 200\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: " + b"a" * 7_000 + b"\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nWARC-Type: warcinfo\r\nContent-Length: 0\r\n\r\n",
]


@pytest.mark.parametrize("head", HOSTILE_HEADS)
def test_hostile_heads_give_records_that_all_readers_accept_and_come_back_as_they_were(
    tmp_path, head
):
    body = b"\r\n\r\nWARC/1.1\r\n\x00\xff" * 3
    item = (taken(0), answered("http://a.example/0", body, head))
    out = writer(tmp_path)
    fill(out, [item])
    out.close()
    path = next(tmp_path.glob("*.warc.gz"))
    assert check_with_others(path) == ["warcinfo", "request", "response", "metadata"]
    found = [group for group in read_groups(path) if not isinstance(group, int)]
    assert [(group.taken, group.fetched) for group in found] == [item]


@given(
    head=st.binary(max_size=60).map(lambda noise: b"HTTP/1.1 200 OK\r\n" + noise + b"\r\n\r\n"),
    body=st.binary(max_size=200),
    error=st.text(max_size=40),
    metadata=st.text(max_size=40),
    truncated=st.sampled_from([None, "length", "time", "disconnect"]),
    moment_us=st.integers(0, 4_000_000_000_000_000),
    outcome=st.sampled_from(list(Outcome)),
)
def test_any_fetch_comes_back_as_it_was(
    tmp_path_factory, head, body, error, metadata, truncated, moment_us, outcome
):
    """Whatever a server sends: the log gives back what rows are made of."""
    path = tmp_path_factory.mktemp("any") / "x.warc.gz"
    time_s = moment_us / 1_000_000
    with_answer = answered(
        "http://a.example/0", body, head, truncated=truncated, outcome=outcome, time=time_s
    )
    plain = failed("http://a.example/0", error=error, time=time_s)
    item = taken(0, depth=1, metadata=metadata)
    encoder = RecordEncoder()
    path.write_bytes(
        b"".join(encoder.group(fetched, item).data for fetched in (with_answer, plain))
    )
    first, second = (group.fetched for group in read_groups(path))
    if first.head:
        assert first == with_answer
    assert second == plain
    assert microseconds(second.time) == moment_us


@pytest.mark.parametrize(
    "url",
    ["http://a.example/\r\nWARC-Type: x", "http://a.example/ \u00e4\U0001f600", "http://<x>/"],
)
def test_odd_urls_cannot_break_a_header(tmp_path, url):
    path = tmp_path / "x.warc.gz"
    item, fetched = taken(0, url), answered(url)
    path.write_bytes(RecordEncoder().group(fetched, item).data)
    with path.open("rb") as file:
        for record in ArchiveIterator(file):
            assert record.rec_headers.get_header("WARC-Target-URI").isascii()
            assert record.rec_headers.get_header("WARC-Type") in {"request", "response", "metadata"}
    assert [(group.taken, group.fetched) for group in read_groups(path)] == [(item, fetched)]


def test_canonical_urls_stay_as_they_are():
    url = "http://a.example:8080/~x/%C3%A4?b=c&d=[1]|{2}^`'\"\\"
    assert safe_uri(url) == url


def test_request_and_metadata_name_their_response():
    group = RecordEncoder(2, ids()).group(
        answered("http://a.example/"), taken(0, "http://a.example/")
    )
    records = list(ArchiveIterator(io.BytesIO(group.data)))
    response_id = records[1].rec_headers.get_header("WARC-Record-ID")
    assert [r.rec_headers.get_header("WARC-Concurrent-To") for r in records] == [
        response_id,
        None,
        response_id,
    ]
    assert [r.rec_headers.get_header("WARC-IP-Address") for r in records] == [
        "192.0.2.7",
        "192.0.2.7",
        None,
    ]
    main = gzip.decompress(group.data[group.main_offset : group.main_offset + group.main_length])
    assert b"WARC-Type: response\r\n" in main
    assert group.digest == records[1].rec_headers.get_header("WARC-Payload-Digest")


def test_payload_digest_covers_the_body_as_stored():
    """Content codings included: that is what checkers verify."""
    fetched = fetches()[4][1]
    group = RecordEncoder().group(fetched, taken(4))
    assert group.digest == "sha1:" + b32encode(hashlib.sha1(fetched.body).digest()).decode()


def test_cut_bodies_carry_their_mark():
    records = ArchiveIterator(io.BytesIO(RecordEncoder().group(fetches()[1][1], taken(1)).data))
    assert [r.rec_headers.get_header("WARC-Truncated") for r in records] == [None, "length", None]


def test_dates_carry_microseconds_and_come_back():
    assert utc_text(TIME) == DATE
    assert microseconds_of(DATE) == microseconds(TIME)
    assert utc_text(TIME + 1)[:19] == "2026-11-18T11:06:41"
    assert utc_text(0) == "1970-01-01T00:00:00.000000Z"


@pytest.mark.parametrize(
    ("date", "moment"),
    [
        ("2023", "2023-01-01T00:00:00"),
        ("2023-05", "2023-05-01T00:00:00"),
        ("2023-05-04", "2023-05-04T00:00:00"),
        ("2023-05-04T03:02Z", "2023-05-04T03:02:00"),
        ("2023-05-04T03:02:01Z", "2023-05-04T03:02:01"),
        ("2023-05-04T03:02:01.1Z", "2023-05-04T03:02:01.100000"),
        ("2023-05-04T03:02:01.123456789Z", "2023-05-04T03:02:01.123456"),
        ("2023-05-04T05:02:01+02:00", "2023-05-04T03:02:01"),
        ("2023-05-03T23:32:01.5-03:30", "2023-05-04T03:02:01.500000"),
    ],
)
def test_dates_are_those_of_warc_1_1(date, moment):
    assert microseconds_of(date) == microseconds_of(f"{moment}+00:00")


@pytest.mark.parametrize(
    "date",
    [
        "",
        "x",
        "23",
        "2023-13",
        "2023-02-30",
        "2023-5",
        "2023-05-04T03:02:01",
        "2023-05-04T25:00Z",
        "0000",
    ],
)
def test_what_is_no_date_is_named(date):
    with pytest.raises(ValueError, match=r".+"):
        microseconds_of(date)


@given(st.text())
def test_fields_stay_on_one_line_and_come_back(text):
    assert not set("\r\n") & set(escape_field(text))
    assert unescape_field(escape_field(text)) == text


def test_record_ids_are_uuids_of_version_4():
    found = {new_record_id() for _ in range(100)}
    assert len(found) == 100
    assert {uuid.UUID(text[10:-1]).version for text in found} == {4}
    assert {uuid.UUID(text[10:-1]).variant for text in found} == {uuid.RFC_4122}


def test_a_forked_process_has_record_ids_of_its_own():
    new_record_id()  # some are drawn ahead
    receiver, sender = os.pipe()
    child = os.fork()
    if not child:
        os.write(sender, new_record_id().encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(receiver, 100).decode() not in {new_record_id() for _ in range(200)}
    os.close(receiver)
    os.close(sender)


@pytest.mark.parametrize(
    ("block", "head"),
    [
        (b"H\r\nA: b\r\n\r\nbody\n\n", b"H\r\nA: b\r\n\r\n"),
        (b"H\nA: b\n\nbody\r\n\r\n", b"H\nA: b\n\n"),
        (b"H\r\nA: b", b"H\r\nA: b"),
        (b"\r\n\r\n", b"\r\n\r\n"),
        (b"", b""),
    ],
)
def test_head_ends_at_the_first_empty_line(block, head):
    assert split_head(block) == (head, block[len(head) :])


def test_only_heads_on_whose_end_readers_agree_get_a_payload_digest():
    assert has_certain_end(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n")
    for head in (
        HOSTILE_HEADS[1],
        HOSTILE_HEADS[2],
        HOSTILE_HEADS[3],
        HOSTILE_HEADS[4],
        b"HTTP/1.1 200 OK\r\n",
        b"",
    ):
        assert not has_certain_end(head)


def test_a_request_that_was_not_sent_makes_no_record():
    fetched = Fetched("http://a.example/", TIME, Outcome.DNS_FAILED)
    records = list(ArchiveIterator(io.BytesIO(RecordEncoder().group(fetched, taken(0)).data)))
    assert [record.rec_type for record in records] == ["metadata"]
    assert REQUEST not in records[0].content_stream().read()
    assert INFO.robots_policy == "obey"


@pytest.mark.parametrize(
    "line",
    [
        "krake-position: -1",
        f"krake-position: {1 << 60}",
        "krake-status: 99999",
        "depth: -2",
        f"fetchTimeMs: {1 << 40}",
    ],
)
def test_a_group_with_numbers_that_no_table_holds_is_none(line, tmp_path):
    """A server may send what passes for a record, where the real one is damaged: it must end no repair."""
    encoder, (name, _, _) = RecordEncoder(), line.partition(":")
    block = metadata_fields(answered("http://a.example/"), taken(0), "http://a.example/")
    metadata = re.sub(f"(?m)^{name}: [0-9]+", line, block)
    assert metadata != block
    lines = f"WARC-Target-URI: http://a.example/\r\nWARC-Date: {DATE}\r\n"
    (tmp_path / "w").write_bytes(
        encoder._record("metadata", "<urn:uuid:1>", lines, "warc-fields", metadata.encode())
    )
    assert list(read_groups(tmp_path / "w")) == []
