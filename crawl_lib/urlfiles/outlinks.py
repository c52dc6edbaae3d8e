"""URLs as lines: of a queue's data and meta files, and of the file `outlinks` that carries URLs between nodes.

Outlink line: `url \\t via_hex \\t depth \\t redirects \\t flags \\t metadata` (UTF-8, `\\n`). Meta line of a data file:
`via_hex \\t depth \\t redirects \\t metadata`. `via_hex` is empty for seeds; `redirects` of a requisite has its steps
from the page too (`0E2`); `metadata` is a JSON object or empty;
`\\t retries \\t due` follow it where a failure passed, and then `\\t list_name` where a list asked for the URL, and
`\\t earlier` where the list knows a full capture of it; `flags` is empty, or `h` = handed on past the key check, by a
node that adopted a queue made by hand, or by a list.

A line that a list asked for may be of a page that was crawled: what drops such pages where a queue is read again lets
it pass (`is_listed`).

The file `outlinks` is a row of gzip members, one part per owner; the manifest holds where each part lies.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from hashlib import sha1
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from isal import isal_zlib
from isal.igzip_lib import IsalError

from crawl_lib.dataclass import dataclass
from crawl_lib.errors import DamagedFileError
from crawl_lib.records import QueuedUrl

Line = TypeVar("Line", bytes, tuple[bytes, bytes])
OUTLINKS_NAME = "outlinks"
HANDED_ON = "h"
HANDED_ON_MARK = b"\th\t"
"""The mark in a line whose flag says handed on, and in no other line: no other field can be `h`."""
REQUISITE_MARK = b"E"
"""The mark in the field `redirects` of a requisite, before its steps."""
BARE_META = b"\t0\t0\t"
BARE_META_TABS = BARE_META.count(b"\t")
"""A line with more has retries and a time, and perhaps a list."""
_LEVEL = 1
_GZIP_ERROR = cast(type[Exception], IsalError)
_BLOCK_BYTES = 1 << 18
_BLOCK_LINES = 2_000
_INFLATED_BYTES = 1 << 20
"""The number of bytes that are unpacked at once: lines that are much alike shrink to a hundredth."""
_FEW_LINES = 250
CHUNK_BYTES = 8 << 20
"""The bytes at which a chunk of lines ends: a page may have thousands of links of `urls.max_length_chars`."""


@dataclass(frozen=True, slots=True)
class OutlinkPart:
    """The place of one owner's part in `outlinks`: bytes `offset` to `offset + length`; `count` lines in it."""

    offset: int
    length: int
    count: int


def url_of_line(line: bytes) -> bytes:
    """Return the URL of an outlink line, or of a data line."""
    return line.partition(b"\t")[0]


def via_of_line(line: bytes) -> bytes:
    """Return the second field of an outlink line.

    It is the key of the page with the link, as hex digits.
    """
    return line.split(b"\t", 2)[1] if b"\t" in line else b""


def key_of_via(via: bytes) -> bytes:
    """Decode a key from hex digits.

    The result is empty for a seed, and for a malformed key.
    """
    with suppress(ValueError):
        return bytes.fromhex(via.decode("ascii"))
    return b""


def key_of_line(line: bytes) -> bytes:
    """Return the key of an outlink line's URL."""
    return sha1(url_of_line(line)).digest()


def some_lines(lines: Iterable[Line], count: int) -> Iterator[list[Line]]:
    """Divide lines into batches of `count`, or of `CHUNK_BYTES`.

    The smaller limit counts. Lines of data may come with their meta.
    """
    source = iter(lines)
    while batch := next_lines(source, count, CHUNK_BYTES):
        yield batch


def next_lines(source: Iterator[Line], count: int, most_bytes: int) -> list[Line]:
    """Return the next lines: `count`, or as `most_bytes` allows.

    There is at least one, unless the source has ended. The batch may exceed `most_bytes` by a few hundred lines.
    """
    batch: list[Line] = []
    while most_bytes > 0 and (some := list(islice(source, min(_FEW_LINES, count - len(batch))))):
        batch += some
        most_bytes -= bytes_of(some)
    return batch


def bytes_of(lines: Sequence[Line]) -> int:
    """Return how many bytes lines have."""
    return sum(len(line) if isinstance(line, bytes) else sum(map(len, line)) for line in lines)


def file_lines(path: Path, offset: int = 0) -> Iterator[bytes]:
    """Yield the lines of a local file, from a byte on.

    A missing file has none.
    """
    try:
        with path.open("rb") as file:
            file.seek(offset)
            for line in file:
                yield line.rstrip(b"\n")
    except FileNotFoundError:
        return


def encode_meta(queued: QueuedUrl) -> bytes:
    """Encode the meta line of a URL, without its newline."""
    via = queued.via.hex() if queued.via else ""
    return f"{via}\t{queued.depth}\t{queued.hops}\t{metadata_and_tries(queued)}".encode()


def metadata_and_tries(queued: QueuedUrl) -> str:
    """Encode the end of a line.

    The metadata is followed by two fields for a retry, and by three or four for a URL of a list.
    """
    earlier = f"\t{queued.earlier}" if queued.earlier else ""
    listed = f"\t{queued.list_name}{earlier}" if queued.list_name else ""
    again = f"\t{queued.retries}\t{queued.due}" if listed or queued.retries or queued.due else ""
    return queued.metadata + again + listed


def due_of(meta: bytes) -> int:
    """Return from when on a line may be taken.

    In POSIX seconds, from its line of meta; 0: any time.
    """
    fields = meta.split(b"\t", 6)
    return int(fields[5]) if len(fields) > 5 and fields[5].isdigit() else 0


def is_requisite(line: bytes, *, is_meta: bool = False) -> bool:
    """Return whether the URL of a line is a requisite.

    The line is an outlink line, or one of meta.
    """
    if REQUISITE_MARK not in line:  # most lines: keys are of lower case
        return False
    fields = line.split(b"\t", 4)
    return REQUISITE_MARK in fields[2 if is_meta else 3]


def is_listed(line: bytes, *, is_meta: bool = False) -> bool:
    """Return whether a list asked for the URL of a line.

    The line is an outlink line, or one of meta.
    """
    return line.count(b"\t") > (5 if is_meta else 7)


def decode_meta(url: bytes, meta: bytes, where: str) -> QueuedUrl:
    """Decode a URL from its lines of data and meta.

    `where`: the file that DamagedFileError names.
    """
    try:
        via, depth, hops, metadata, *again = meta.split(b"\t")
        redirects, mark, requisite = hops.partition(REQUISITE_MARK)
        via_key = bytes.fromhex(via.decode()) or None
        found = QueuedUrl(url.decode(), via_key, int(depth), int(redirects), metadata.decode())
        found = replace(found, requisite=int(requisite)) if mark else found
        found = _with_tries_and_list(found, again) if again else found
    except ValueError as error:
        raise DamagedFileError(f"{where}: not a line of meta: {meta[:200]!r}") from error
    if not found.url.isprintable():  # a canonical URL is
        raise DamagedFileError(f"{where}: {url[:200]!r} is not a URL; run `krake fsck --repair`")
    return found


def _with_tries_and_list(queued: QueuedUrl, fields: Sequence[bytes]) -> QueuedUrl:
    """Add the fields that follow the metadata.

    There are two, three or four.
    """
    retries, due, *listed = fields
    list_name, earlier = (*listed, b"", b"")[: max(2, len(listed))]
    return replace(
        queued,
        retries=int(retries),
        due=int(due),
        list_name=list_name.decode(),
        earlier=earlier.decode(),
    )


def encode_line(queued: QueuedUrl, flags: str = "") -> bytes:
    """Encode the outlink line of a URL, without its newline."""
    via = queued.via.hex() if queued.via else ""
    return f"{queued.url}\t{via}\t{queued.depth}\t{queued.hops}\t{flags}\t{metadata_and_tries(queued)}".encode()


def decode_line(line: bytes, where: str = "outlinks") -> tuple[QueuedUrl, str]:
    """Decode an outlink line as URL and flags.

    Raises DamagedFileError naming `where`.
    """
    url, meta, flags = split_line(line, where)
    return decode_meta(url, meta, where), flags.decode()


def split_line(line: bytes, where: str = "outlinks") -> tuple[bytes, bytes, bytes]:
    """Split an outlink line into data line, meta line and flags.

    They are bytes. Raises DamagedFileError naming `where`.
    """
    try:
        url, via, depth, redirects, flags, metadata = line.split(b"\t", 5)
    except ValueError as error:
        raise DamagedFileError(f"{where}: not a line of outlinks: {line[:200]!r}") from error
    return url, b"%b\t%b\t%b\t%b" % (via, depth, redirects, metadata), flags


def join_line(url: bytes, meta: bytes, flags: bytes = b"") -> bytes:
    """Join a data line and a meta line as an outlink line.

    Raises DamagedFileError.
    """
    try:
        via, depth, redirects, metadata = meta.split(b"\t", 3)
    except ValueError as error:
        problem = f"the meta line of {url[:200]!r} lacks fields: {meta[:200]!r}"
        raise DamagedFileError(f"{problem}; run `krake fsck --repair`") from error
    return b"\t".join((url, via, depth, redirects, flags, metadata))


class OutlinkWriter:
    """Writes `outlinks`: one call of `add_part` an owner, streamed; `parts` goes into the manifest.

    The same lines give the same bytes. The file is the caller's: he opens, syncs and closes it.
    """

    def __init__(self, file: BinaryIO) -> None:
        """`file`: open for writing, at its beginning."""
        self._file = file
        self._offset = 0
        self.parts: dict[str, OutlinkPart] = {}

    def add_part(self, owner: str, lines: Iterable[bytes]) -> OutlinkPart:
        """Write the part of a node.

        `lines`: outlink lines without their newlines, in the order of intake.
        """
        compressor = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, 16 + zlib.MAX_WBITS)
        length = count = 0
        for some in some_lines(lines, _BLOCK_LINES):
            count += len(some)
            length += self._file.write(compressor.compress(b"\n".join(some) + b"\n"))
        length += self._file.write(compressor.flush())
        part = self.parts[owner] = OutlinkPart(self._offset, length, count)
        self._offset += length
        return part

    def to_mapping(self) -> dict[str, dict[str, int]]:
        """Return the manifest's `outlinks`: offset, length, count by owner."""
        return {owner: asdict(part) for owner, part in self.parts.items()}


def read_outlinks(
    file: BinaryIO, where: str = "outlinks", count: int | None = None
) -> Iterator[bytes]:
    """Outlink lines, without newlines, of one part; closes the file.

    `file`: a stream of just that part's bytes. `count`: lines that the manifest promises. Raises DamagedFileError
    naming `where` if the part is torn or holds another number of lines.
    """
    seen = 0
    with file:
        for lines in _line_blocks(file, where):
            seen += len(lines)
            yield from lines
    if count is not None and seen != count:
        raise DamagedFileError(f"{where}: has {seen} lines, its manifest says {count}")


def _line_blocks(file: BinaryIO, where: str) -> Iterator[list[bytes]]:
    inflater: Any = isal_zlib.decompressobj(16 + zlib.MAX_WBITS)
    tail = b""
    begun = False
    try:
        while data := file.read(_BLOCK_BYTES):
            begun = True
            piece = data
            while data or len(piece) >= _INFLATED_BYTES:  # what is unpacked may still wait inside
                piece = inflater.decompress(data, _INFLATED_BYTES)
                *lines, tail = (tail + piece).split(b"\n")
                yield lines
                data = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
                if data and inflater.eof:
                    inflater = isal_zlib.decompressobj(16 + zlib.MAX_WBITS)
    except _GZIP_ERROR as error:
        raise DamagedFileError(f"{where}: not gzip: {error}") from error
    if tail or (begun and not inflater.eof):
        raise DamagedFileError(f"{where}: ends within a line")


def part_mapping(value: Any, where: str) -> OutlinkPart:
    """Make an `OutlinkPart` from a manifest's mapping.

    Raises DamagedFileError naming `where`.
    """
    try:
        return OutlinkPart(int(value["offset"]), int(value["length"]), int(value["count"]))
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedFileError(f"{where}: has no usable part of outlinks: {error}") from error


@dataclass(frozen=True)
class Source:
    """A source of URLs for this node: the part of one segment (or of injected seeds).

    `open` streams outlink lines (bytes without newline), always the same ones.
    `nodes`: among which its lines were divided; none: among those by which the queue was filled. `is_empty`: no line
    in it is for this node.
    """

    folder: str
    node: str
    open: Callable[[], Iterator[bytes]]
    nodes: tuple[str, ...] = ()
    is_empty: bool = False
