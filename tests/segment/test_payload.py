"""The payload of an answer, by whose digest a visit is a revisit: the body without its transfer coding."""

from __future__ import annotations

import gzip
import time
from base64 import b32encode
from hashlib import sha1
from pathlib import Path

import pytest
from fastwarc.warc import ArchiveIterator as FastIterator

from crawl_lib.records import Earlier, Fetched
from crawl_lib.segment.encoder import RecordEncoder
from crawl_lib.segment.payload import payload_of
from crawl_lib.segment.revisit import revisited
from tests.segment.helpers import CHUNKED, TIME, answered, check_with_warcio, fill, taken, writer

URL = "http://a.example/0"
PAGE = b"<title>Same</title><p>The same words at each visit, sent in other pieces."
EARLIER = Earlier("7/node-a", "x.warc.gz", 9, TIME - 9, sha1(PAGE).hexdigest())


def chunks(data: bytes, size: int = 7, extension: bytes = b"", trailer: bytes = b"") -> bytes:
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    framed = b"".join(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces)
    return framed + b"0%b\r\n%b\r\n" % (extension, trailer)


def head(*codings: str, more: str = "") -> bytes:
    lines = "".join(f"Transfer-Encoding: {coding}\r\n" for coding in codings)
    return f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{lines}{more}\r\n".encode()


def visit(body: bytes, *codings: str, more: str = "", truncated: str | None = None) -> Fetched:
    return answered(URL, body, head(*codings, more=more), truncated=truncated)


WHOLE = {
    "plain": visit(PAGE),
    "chunks": visit(chunks(PAGE), "chunked"),
    "other chunks": visit(chunks(PAGE, 30), "Chunked"),
    "extensions": visit(chunks(PAGE, extension=b';a="b"'), "chunked"),
    "trailers": visit(chunks(PAGE, trailer=b"Expires: 0\r\n"), "chunked"),
    "bytes behind the last chunk": visit(chunks(PAGE) + b"more", "chunked"),
    "chunked twice": visit(chunks(chunks(PAGE)), "chunked", "chunked"),
    "named twice": visit(chunks(PAGE), "chunked, chunked"),
    "named and not applied": visit(PAGE, "chunked"),
    "a coding below": visit(chunks(gzip.compress(PAGE, mtime=0)), "gzip, chunked"),
    "unknown and identity": visit(chunks(PAGE), "identity", "strange", "chunked"),
}
NOT_WHOLE = {
    "no last chunk": visit(chunks(PAGE)[:-5], "chunked"),
    "a broken chunk behind all": visit(chunks(PAGE)[:-5] + b"zz\r\n", "chunked"),
}
OTHERS = {
    "a broken chunk": visit(chunks(PAGE).replace(b"\r\n7\r\n", b"\r\nzz\r\n", 1), "chunked"),
    "cut off": visit(chunks(PAGE)[:-20], "chunked", truncated="length"),
    "a content coding": visit(
        chunks(gzip.compress(PAGE, mtime=0)), "chunked", more="Content-Encoding: gzip\r\n"
    ),
}


@pytest.mark.parametrize(
    "fetched", [*WHOLE.values(), *NOT_WHOLE.values()], ids=[*WHOLE, *NOT_WHOLE]
)
def test_the_payload_is_the_body_without_its_transfer_coding(fetched: Fetched) -> None:
    assert payload_of(fetched).sha1 == sha1(PAGE).digest()
    assert (
        RecordEncoder().group(fetched, taken(0)).digest
        == f"sha1:{b32encode(sha1(PAGE).digest()).decode()}"
    )


@pytest.mark.parametrize("fetched", WHOLE.values(), ids=WHOLE)
def test_a_page_that_did_not_change_is_a_revisit_in_whatever_chunks(fetched: Fetched) -> None:
    assert revisited(taken(0, URL, earlier=EARLIER.to_text()), fetched) == EARLIER


@pytest.mark.parametrize(
    "fetched", [*NOT_WHOLE.values(), *OTHERS.values()], ids=[*NOT_WHOLE, *OTHERS]
)
def test_what_was_broken_or_cut_is_kept_whole(fetched: Fetched) -> None:
    assert revisited(taken(0, URL, earlier=EARLIER.to_text()), fetched) is None


def test_a_content_coding_is_part_of_the_payload() -> None:
    assert (
        payload_of(OTHERS["a content coding"]).sha1 == sha1(gzip.compress(PAGE, mtime=0)).digest()
    )


def test_the_digest_outlives_the_body() -> None:
    fetched = visit(chunks(PAGE), "chunked")
    expected = payload_of(fetched)
    assert payload_of(fetched.without_body()) == expected._replace(data=None)


def test_warcio_counts_the_transfer_coding_in_and_fastwarc_verifies_the_block(
    tmp_path: Path,
) -> None:
    """The note in docs/formats.md: `warcio check` names the payload digest of chunked answers, and nothing else."""
    out = writer(tmp_path)
    items = [visit(PAGE), visit(chunks(PAGE), "chunked"), answered(URL, chunks(PAGE), CHUNKED)]
    fill(out, [(taken(number, URL), fetched) for number, fetched in enumerate(items)])
    out.close()
    [path] = tmp_path.glob("*.warc.gz")
    assert check_with_warcio([path]) == 2
    with path.open("rb") as file:
        assert all(record.verify_block_digest() for record in FastIterator(file, parse_http=False))


def test_a_bomb_below_the_chunks_is_undone_within_bounds() -> None:
    fetched = visit(gzip.compress(bytes(80 << 20)), "gzip")
    assert not payload_of(fetched).is_whole


def test_tiny_chunks_cost_time_linear_in_the_body() -> None:
    def seconds(size: int) -> float:
        taken_s = []
        for _ in range(5):
            fetched = visit(chunks(bytes(size), 1), "chunked")
            start = time.process_time()
            payload_of(fetched)
            taken_s.append(time.process_time() - start)
        return min(taken_s)

    assert seconds(40_000) < 2.6 * seconds(20_000)
