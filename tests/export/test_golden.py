"""The exported files, byte for byte, written by hand from design.md section 4."""

from __future__ import annotations

import struct
import zlib
from dataclasses import asdict
from pathlib import Path

from crawl_lib.config import Config
from crawl_lib.export import export_pages
from crawl_lib.graph import finalize_export, link_export
from crawl_lib.storage import Storage
from tests.export.crawls import Capture, CrawlMaker, key
from tests.stores import stores_on

# `printf http://a.example/ | sha1sum`, and so on: their order is c, b, a below.
A, B, C = "http://a.example/", "http://b.example/", "http://c.example/"


def adler_stream(data: bytes, compressed: bytes) -> None:
    """That `compressed` is a zlib stream of `data` by RFC 1950: header, raw deflate, Adler-32 in big-endian."""
    cmf, flg = compressed[:2]
    assert (cmf & 0x0F, (cmf * 256 + flg) % 31) == (8, 0)
    assert zlib.decompressobj(-15).decompress(compressed[2:-4]) == data
    low, high = 1, 0
    for byte in data:
        low = (low + byte) % 65521
        high = (high + low) % 65521
    assert compressed[-4:] == struct.pack(">HH", high, low)


def make(crawl: CrawlMaker) -> dict[str, bytes]:
    bodies = {A: b"<p>page a</p>" * 20, B: b"", C: b"\x00\xff not text"}
    crawl.segment(
        "1700000000",
        "node-a",
        [
            Capture(A, bodies[A], links=[B, C, B, A, "http://d.example/"]),
            Capture(B, bodies[B], links=[A]),
            Capture("http://d.example/", b"gone", status=404, links=[A]),
        ],
    )
    crawl.segment("1700000000", "node-b", [Capture(C, bodies[C])])
    return bodies


def test_every_file_has_the_bytes_of_the_format(
    storage: Storage, config: Config, crawl: CrawlMaker
) -> None:
    bodies = make(crawl)
    report = export_pages(stores_on(storage, config), name="x", segments=crawl.segments)
    assert link_export(stores_on(storage, config), name="x").arcs == 3
    assert asdict(finalize_export(stores_on(storage, config), name="x")) == {
        "name": "x",
        "nodes": 3,
        "arcs": 3,
        "complete_already": False,
    }
    folder = Path(config.dfs_primary) / "export" / "x"
    order = sorted(bodies, key=key)
    assert (folder / "urlmapping").read_bytes() == b"\x00\x00\x00\x03" + b"".join(
        sorted(map(key, bodies))
    )

    content = (folder / "content").read_bytes()
    at, offsets = 0, b""
    for node_id, url in enumerate(order):
        offsets += node_id.to_bytes(4, "big") + at.to_bytes(8, "big")
        size = int.from_bytes(content[at : at + 4], "big")
        adler_stream(bodies[url], content[at + 4 : at + 4 + size])
        assert content[at + 4 + size : at + 8 + size] == content[at : at + 4]
        at += size + 8
    assert at == len(content) == report.bytes
    assert (folder / "offsets").read_bytes() == offsets

    a, b, c = (order.index(url) for url in (A, B, C))
    ins = {a: [b], b: [a], c: [a]}
    outs = {a: sorted([b, c]), b: [a], c: []}
    words = [3]
    for node_id in range(3):
        words += [
            len(ins[node_id]) + len(outs[node_id]),
            len(ins[node_id]),
            *ins[node_id],
            *outs[node_id],
        ]
    assert (folder / "webgraph").read_bytes() == b"".join(
        word.to_bytes(4, "big", signed=True) for word in words
    )


def fixed_huffman(symbols: list[tuple[int, int]]) -> bytes:
    """A final deflate block with fixed codes (RFC 1951, 3.2.6): symbols as (value, bits), codes from their high bit."""
    bits = "1" + "10" + "".join(f"{value:0{width}b}" for value, width in symbols)
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[at : at + 8][::-1], 2) for at in range(0, len(bits), 8))


def test_a_known_stream_of_the_compressor(
    storage: Storage, config: Config, crawl: CrawlMaker
) -> None:
    """Level and compressor are fixed: the content file of one page of 70 `a` is these bytes."""
    crawl.segment("1", "node-a", [Capture(A, b"a" * 70)])
    export_pages(stores_on(storage, config), name="x", segments=crawl.segments)
    letter_a = (0x30 + ord("a"), 8)
    from_67_bytes, one_more, one_back, end = (277 - 256, 7), (0b1000, 4), (0, 5), (0, 7)
    # 78 01: CMF and FLG. Adler-32 of 70 `a` is 1 + 97 * 70, and the sum of 1 + 97 n for n from 1 to 70.
    stream = b"\x78\x01" + fixed_huffman(
        [letter_a, letter_a, from_67_bytes, one_more, one_back, end]
    )
    stream += struct.pack(">HH", (70 + 97 * 2485) % 65521, 1 + 97 * 70)
    size = len(stream).to_bytes(4, "big")
    assert (Path(config.dfs_primary) / "export/x/content").read_bytes() == size + stream + size


def test_no_crawled_page_gives_empty_files(
    storage: Storage, config: Config, crawl: CrawlMaker
) -> None:
    crawl.segment("1", "node-a", [Capture(A, b"x", status=404, links=[B]), Capture(B, status=None)])
    check_empty(storage, config, crawl)


def test_no_row_at_all_gives_empty_files(
    storage: Storage, config: Config, crawl: CrawlMaker
) -> None:
    crawl.segment("1", "node-a", [])
    check_empty(storage, config, crawl)


def test_no_segment_gives_empty_files(storage: Storage, config: Config, crawl: CrawlMaker) -> None:
    check_empty(storage, config, crawl)


def check_empty(storage: Storage, config: Config, crawl: CrawlMaker) -> None:
    assert export_pages(stores_on(storage, config), name="x", segments=crawl.segments).pages == 0
    assert link_export(stores_on(storage, config), name="x").arcs == 0
    assert finalize_export(stores_on(storage, config), name="x").nodes == 0
    folder = Path(config.dfs_primary) / "export" / "x"
    found = {
        name: (folder / name).read_bytes()
        for name in ("urlmapping", "content", "offsets", "webgraph")
    }
    assert found == {"urlmapping": bytes(4), "content": b"", "offsets": b"", "webgraph": bytes(4)}
