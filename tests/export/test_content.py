"""Content and offsets belong together, whichever attempt, with whichever compressor, wrote each of them."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import deflate
import pytest

from crawl_lib.config import Config
from crawl_lib.errors import DamagedFileError
from crawl_lib.export import ContentReader, export_pages
from crawl_lib.export import content as content_module
from crawl_lib.export.choice import LEVEL
from crawl_lib.sealed import sealed_json
from crawl_lib.storage import Storage
from tests.export.crawls import Capture, CrawlMaker
from tests.stores import stores_on

BODIES = [f"<p>{number}</p>".encode() * 50 for number in range(200)]


@pytest.fixture
def export(storage: Storage, config: Config, crawl: CrawlMaker) -> Callable[[], Path]:
    """Runs the export, and gives its folder."""
    crawl.segment(
        "1", "node", [Capture(f"http://h.example/{n}", body) for n, body in enumerate(BODIES)]
    )

    def run() -> Path:
        export_pages(stores_on(storage, config), name="x", segments=crawl.segments)
        return Path(config.dfs_primary) / "export" / "x"

    return run


@pytest.fixture
def another_compressor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages get other bytes."""
    other = SimpleNamespace(zlib_compress=lambda data, _: zlib.compress(data, 9))
    monkeypatch.setattr(content_module, "deflate", other)


def pages(folder: Path) -> list[bytes]:
    with ContentReader(folder / "content", folder / "offsets") as reader:
        assert list(reader) == [reader.content(number) for number in range(len(reader))]
        return sorted(reader)


@pytest.mark.usefixtures("another_compressor")
def test_offsets_are_of_the_content_that_stands(
    export: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one attempt was killed between the two, and where one was faster."""
    with monkeypatch.context() as here:
        here.setattr(content_module, "deflate", deflate)
        folder = export()
    content, offsets = ((folder / name).read_bytes() for name in ("content", "offsets"))
    (folder / "offsets").unlink()
    export()
    assert (folder / "offsets").read_bytes() == offsets

    for name in ("content", "offsets"):
        (folder / name).unlink()
    write = content_module._write_pages

    def slowly(file: BinaryIO, *given: Any) -> None:
        write(file, *given)
        (folder / "content").write_bytes(content)

    monkeypatch.setattr(content_module, "_write_pages", slowly)
    export()
    assert (folder / "content").read_bytes() == content
    assert (folder / "offsets").read_bytes() == offsets
    assert pages(folder) == sorted(BODIES)


def test_offsets_of_a_content_file_that_is_gone_are_made_anew(
    export: Callable[[], Path], request: pytest.FixtureRequest
) -> None:
    folder = export()
    (folder / "content").unlink()
    request.getfixturevalue("another_compressor")
    export()
    assert pages(folder) == sorted(BODIES)


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data + b"\0", lambda data: b"\xff" + data[1:]]
)
def test_no_offsets_are_made_of_a_damaged_content_file(
    export: Callable[[], Path], damage: Callable[[bytes], bytes]
) -> None:
    folder = export()
    (folder / "offsets").unlink()
    (folder / "content").write_bytes(damage((folder / "content").read_bytes()))
    with pytest.raises(DamagedFileError, match=r"content: .*krake export"):
        export()
    assert not (folder / "offsets").exists()


@pytest.mark.parametrize("missing", [(), ("content", "offsets")])
def test_an_export_that_another_compressor_began_goes_on(
    export: Callable[[], Path], missing: tuple[str, ...]
) -> None:
    folder = export()
    inputs = json.loads((folder / "inputs").read_text())
    inputs["options"].update(compressor="isa-l", level=2)
    del inputs["sha1"]
    (folder / "inputs").write_bytes(sealed_json(inputs))
    for name in missing:
        (folder / name).unlink()
    export()
    assert pages(folder) == sorted(BODIES)


def test_equal_pages_have_equal_bytes_in_every_export() -> None:
    """Level and compressor are part of the format: another version of libdeflate that packs otherwise is seen here."""
    digest = hashlib.sha256()
    for body in [
        b"",
        b"x",
        b"abc" * 9999,
        *BODIES,
        bytes(i * i * 7919 >> 8 & 255 for i in range(70_000)),
    ]:
        packed = deflate.zlib_compress(body, LEVEL)
        assert zlib.decompress(packed) == body
        digest.update(packed)
    assert digest.hexdigest() == "fece9034487a4022e5e9e4dee8902aa6827575db6b26a225c67088ca0f7df718"
