"""Archives as other programs write them, put together by hand."""

from __future__ import annotations

import gzip
import uuid
from base64 import b32encode
from collections.abc import Sequence
from hashlib import sha1
from pathlib import Path

DATE = "2019-03-06T04:03:53Z"
HTML = (
    "<html><head><title>T {0}</title></head><body>"
    "<a href='/next-{0}'>n</a><a href='http://far.example/'>f</a>{1}</body>"
)
HTTP = "application/http; msgtype="


def page(number: int) -> tuple[str, bytes]:
    """URL and content; the content does not compress well, so that a file of a few pages has room for damage."""
    filling = sha1(str(number).encode()).hexdigest() * (1 + number % 3)
    return f"http://old.example/{number}", HTML.format(number, filling).encode()


def record(kind: str, url: str, block: bytes, version: str = "1.0", **headers: str) -> bytes:
    """One record, not compressed. `headers`: fields by name with `_` for `-`."""
    fields = {
        "WARC-Type": kind,
        "WARC-Record-ID": f"<urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, kind + url)}>",
        "WARC-Date": DATE,
        "WARC-Target-URI": url,
        "WARC-Block-Digest": f"sha1:{b32encode(sha1(block).digest()).decode()}",
        "Content-Type": "application/octet-stream",
    }
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value)
    return (
        f"WARC/{version}\r\n{head}Content-Length: {len(block)}\r\n\r\n".encode()
        + block
        + b"\r\n\r\n"
    )


def record_id(kind: str, url: str) -> str:
    return f"<urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, kind + url)}>"


def answer(
    url: str, body: bytes, status: str = "200 OK", mime: str = "text/html", **more: str
) -> bytes:
    block = f"HTTP/1.1 {status}\r\nContent-Type: {mime}\r\n\r\n".encode() + body
    return record("response", url, block, **({"Content_Type": f"{HTTP}response"} | more))


def question(url: str, method: str = "GET", **more: str) -> bytes:
    block = f"{method} / HTTP/1.1\r\nHost: old.example\r\n\r\n".encode()
    return record("request", url, block, **({"Content_Type": f"{HTTP}request"} | more))


def archive(records: Sequence[bytes], *, compressed: bool = True) -> bytes:
    return b"".join(gzip.compress(one) if compressed else one for one in records)


def pages_archive(
    numbers: Sequence[int],
    *,
    compressed: bool = True,
    request_first: bool = False,
    version: str = "1.0",
) -> bytes:
    """A warcinfo record, and request and response of each page."""
    records = [record("warcinfo", "", b"software: somebody's\r\n", version, WARC_Target_URI="")]
    for number in numbers:
        url, body = page(number)
        response = answer(url, body, version=version)
        request = question(url, version=version, WARC_Concurrent_To=record_id("response", url))
        records += [request, response] if request_first else [response, request]
    return archive(records, compressed=compressed)


def odd_archive() -> bytes:
    """One of everything that is no page of ours."""
    url, body = page(1)
    post = "http://old.example/post"
    return archive(
        [
            answer(url, body),
            answer(f"{url}#same", body),
            answer("ftp://old.example/x", b"x"),
            question(post, "POST"),
            answer(post, b"posted"),
            answer("http://old.example/robots.txt", b"User-agent: *\n", mime="text/plain"),
            record("response", "dns:old.example", b"192.0.2.1", Content_Type="text/dns"),
            record("revisit", url, b""),
            *(
                record(kind, f"{url}?{kind}", b"x")
                for kind in ("resource", "conversion", "metadata")
            ),
            answer(
                "http://old.example/bad",
                b"came",
                WARC_Block_Digest="sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ",
            ),
            answer("http://old.example/moved", b"", status="302 Found"),
            answer("http://old.example/gone", b"", status="404 Not Found"),
            answer("http://old.example/undated", b"", WARC_Date="yesterday"),
            record("response", "http://old.example/text", b"no answer of a server"),
        ]
    )


def arc_archive(numbers: Sequence[int]) -> bytes:
    """ARC 1.0."""
    head = b"1 0 somebody\nURL IP-address Archive-date Content-type Archive-length\n"
    data = b"filedesc://x.arc 0.0.0.0 20190306040353 text/plain %d\n%b\n" % (len(head), head)
    for number in numbers:
        url, body = page(number)
        block = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + body
        data += b"%b 192.0.2.1 20190306040353 text/html %d\n%b\n" % (
            url.encode(),
            len(block),
            block,
        )
    return data


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def whole_gzip(data: bytes) -> bytes:
    """All records in one gzip member."""
    return gzip.compress(data)
