"""What a line of the CDXJ index says of a capture; its urlkey: `test_surt`."""

from __future__ import annotations

import pytest

from crawl_lib.segment.cdxj import declared_mime


@pytest.mark.parametrize(
    ("head", "mime"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Type: Text/HTML; charset=x\r\n\r\n", "text/html"),
        (b"HTTP/1.1 200 OK\r\nCONTENT-TYPE:a/b\r\n\r\n", "a/b"),
        (b"HTTP/1.1 200 OK\r\nContent-Type:\r\n\r\n", "unk"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "unk"),
    ],
)
def test_declared_mime(head, mime):
    assert declared_mime(head) == mime
