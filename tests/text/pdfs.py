"""Small PDFs, made by hand: ISO 32000-1, 7."""

from __future__ import annotations

import zlib


def pdf(
    *texts: str, title: str = "", pages_said: int | None = None, encrypted: bool = False
) -> bytes:
    """A file with a page for each text. `pages_said`: how many pages it says that it has."""
    return _file(
        [_stream(f"BT /F1 12 Tf 20 100 Td ({text}) Tj ET".encode()) for text in texts],
        title,
        pages_said,
        encrypted,
    )


def pdf_bomb(size: int) -> bytes:
    """A file with one page, whose content is text of so many bytes once it is decompressed."""
    packer, line = zlib.compressobj(9), b"BT /F1 12 Tf 20 100 Td (octopus) Tj ET\n" * 10_000
    packed = b"".join(packer.compress(line) for _ in range(size // len(line))) + packer.flush()
    return _file(
        [b"<</Length %d/Filter/FlateDecode>>stream\n%s\nendstream" % (len(packed), packed)],
        "",
        None,
        False,
    )


def _stream(content: bytes) -> bytes:
    return b"<</Length %d>>stream\n%s\nendstream" % (len(content), content)


def _file(contents: list[bytes], title: str, pages_said: int | None, encrypted: bool) -> bytes:
    first = 4
    kids = " ".join(f"{first + 2 * number} 0 R" for number in range(len(contents)))
    count = len(contents) if pages_said is None else pages_said
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Kids[{kids}]/Count {count}/MediaBox[0 0 600 200]>>".encode(),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    for number, content in enumerate(contents):
        place = first + 2 * number + 1
        objects.append(
            f"<</Type/Page/Parent 2 0 R/Contents {place} 0 R/Resources<</Font<</F1 3 0 R>>>>>>".encode()
        )
        objects.append(content)
    objects.append(f"<</Title({title})>>".encode())
    lock = (
        f"/Encrypt<</Filter/Standard/V 1/R 2/O({'a' * 32})/U({'b' * 32})/P -4>>/ID[(a)(b)]"
        if encrypted
        else ""
    )
    body = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, text in enumerate(objects, 1):
        offsets.append(len(body))
        body += b"%d 0 obj" % number + text + b"endobj\n"
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    end = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer<</Size {len(objects) + 1}/Root 1 0 R"
    body += f"{end}/Info {len(objects)} 0 R{lock}>>\nstartxref\n{len(body)}\n%%EOF\n".encode()
    return bytes(body)
