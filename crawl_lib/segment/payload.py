"""The payload of an answer, by whose digest a visit is a revisit: the body without its transfer coding.

Servers cut the same page into other chunks at each visit. Content codings are part of the payload.
Source: https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/#warc-payload-digest
"""

from hashlib import sha1

from crawl_lib.records import Fetched, Payload

MAX_CODINGS = 5
MAX_UNDONE_BYTES = 32 << 20
"""How much longer a payload may be than its body. Chunks make it shorter; Krake asks for no other transfer coding."""


def payload_of(fetched: Fetched) -> Payload:
    """Return the digest of an answer's payload.

    `fetched` keeps it, also without its body. A damaged coding leaves what could be decoded. A coding that was named
    but not applied leaves the body as it is.
    """
    if fetched.payload is None:
        data, is_whole = fetched.body, True
        if b"transfer-encoding" in fetched.head.lower():
            data, is_whole = _without_transfer_coding(fetched)
        fetched.payload = Payload(sha1(data, usedforsecurity=False).digest(), is_whole, data)
    return fetched.payload


def _without_transfer_coding(fetched: Fetched) -> tuple[bytes, bool]:
    """Return the payload, and whether it is whole."""
    from crawl_lib.parse import Headers, decode_content, parse_head  # noqa: PLC0415 - few answers need it

    name = "transfer-encoding"
    values = ",".join(parse_head(fetched.head).all(name)).split(",")
    data, is_whole = fetched.body, True
    for coding in values[: -MAX_CODINGS - 1 : -1]:
        limit = len(fetched.body) + MAX_UNDONE_BYTES
        content = decode_content(Headers(0, ((name, coding),)), data, max_bytes=limit)
        if content.data != data:
            data, is_whole = content.data, is_whole and not (content.error or content.truncated)
    return data, is_whole
