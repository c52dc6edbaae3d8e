"""The content file and its offsets: WARC files are read once in file order, and sorted by NodeID on the local disk.

Pages are compressed as they come and appended to bucket files in the scratch directory, one for each range of NodeIDs;
then the buckets are written out one after the other, so that each of them fits in the system's page cache. Kept in
memory: 12 bytes a page (size and place), the buffers (an eighth of `scratch.memory_bytes`), and the pages in flight.
"""

import mmap
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import deflate
import numpy as np
import numpy.typing as npt

from crawl_lib.config import ScratchConfig
from crawl_lib.durable import reached
from crawl_lib.errors import ConfigError, DamagedFileError, NoRoomError, os_errors
from crawl_lib.export.choice import Inputs
from crawl_lib.export.folder import ExportFolder
from crawl_lib.export.tables import CONTENT, PAGES
from crawl_lib.segment import Member, WantedRecord
from crawl_lib.stopping import Progress
from crawl_lib.warc import read_one, split_head

MAX_SIZE = (1 << 31) - 1
MAX_BUCKETS = 256
AGAIN = "move it away and run `krake export` again"
CHUNK_BYTES = 1 << 18
CHUNK_PAGES = 64
WRITE_BYTES = 1 << 20
OFFSET_ROW = np.dtype([("node_id", ">i4"), ("offset", ">i8")])
"""A row of the offset file: int32 NodeID, int64 byte offset of the page's first size field; big-endian."""
Sizes = npt.NDArray[np.int32]


def content_of(member: Member, max_bytes: int) -> bytes:
    """Return a page's content, decoded if possible.

    Transfer and content codings of the response's body are undone, else the bytes stay.

    `max_bytes`: content beyond is cut. Where a coding is damaged, what could be decoded. Raises DamagedFileError naming
    file and offset where the member is not a whole response record.
    """
    from crawl_lib.parse import decode_content, parse_head  # noqa: PLC0415 - linker and finalizer read no page

    wanted = member.wanted
    try:
        record = read_one(member.data, wanted.offset, wanted.path)
    except DamagedFileError as error:
        raise wanted.damaged(str(error).removeprefix(f"{wanted.path}: ")) from error
    if record.type != "response":
        raise wanted.damaged(
            f"byte {wanted.offset}: a {record.type or 'nameless'} record, not a response"
        )
    head, body = split_head(record.block)
    return decode_content(parse_head(head), body, max_bytes=max_bytes).data


class Buckets:
    """Compressed pages on the local disk, sorted by ranges of NodeIDs.

    `total_bytes`: a guess of what will come. `limits.max_bytes`: of all that is in `folder`, sorting engines included.
    """

    def __init__(self, folder: Path, pages: int, total_bytes: int, limits: ScratchConfig) -> None:
        self._folder, self._max_bytes = folder, limits.max_bytes
        self._count = max(1, min(MAX_BUCKETS, -(-total_bytes * 2 // limits.memory_bytes)))
        self._pages = pages
        self._paths = [folder / f"bucket-{number}" for number in range(self._count)]
        self._pending: list[list[bytes]] = [[] for _ in self._paths]
        self._ends = [0] * self._count
        self._waiting = 0
        self._limit = limits.memory_bytes // 8
        self.sizes = np.full(pages, -1, dtype=np.int32)
        self._places = np.zeros(pages, dtype=np.int64)

    def add(self, node_id: int, data: bytes) -> None:
        """Keep a page's compressed content."""
        bucket = node_id * self._count // self._pages
        self.sizes[node_id] = len(data)
        self._places[node_id] = self._ends[bucket]
        self._ends[bucket] += len(data)
        self._pending[bucket].append(data)
        self._waiting += len(data)
        if self._waiting >= self._limit:
            self.flush()

    def flush(self) -> None:
        """Write what waits to the bucket files. Raises StorageError, NoRoomError beyond `limits.max_bytes`."""
        if self._max_bytes is not None and self._waiting + self._written_bytes() > self._max_bytes:
            raise NoRoomError(
                f"{self._folder}: the export needs more than scratch.max_bytes ({self._max_bytes}); give it more, and"
                " run the stage again"
            )
        for path, parts in zip(self._paths, self._pending, strict=True):
            if parts:
                with os_errors(path, "cannot be written"), path.open("ab") as file:
                    file.write(b"".join(parts))
                parts.clear()
        self._waiting = 0

    def _written_bytes(self) -> int:
        return sum(path.stat().st_size for path in self._folder.rglob("*") if path.is_file())

    def in_order(self) -> Iterator[bytes]:
        """Yield all compressed pages by NodeID.

        Each bucket file is deleted after its use.
        """
        first = 0
        for number, path in enumerate(self._paths):
            last = -(-(number + 1) * self._pages // self._count)  # the next bucket's first NodeID
            if last > first:
                sizes, places = self.sizes[first:last].tolist(), self._places[first:last].tolist()
                with (
                    path.open("rb") as file,
                    mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view,
                ):
                    for size, place in zip(sizes, places, strict=True):
                        yield view[place : place + size]
            path.unlink(missing_ok=True)
            first = last


def write_content(
    folder: ExportFolder,
    buckets: Buckets,
    wanted: Iterable[WantedRecord],
    inputs: Inputs,
    progress: Progress,
) -> Sizes | None:
    """Write an export's `content`; return the pages' sizes.

    None: another attempt was faster.

    `wanted`: every page once, in order of file and offset. By another compressor, pages have other sizes: so the
    offsets are made of these sizes, or of the file that is there. Raises StorageError, DamagedFileError naming WARC
    file and offset, ConfigError where a page cannot have a size of 32 bits, StoppedError from `progress`.
    """
    for node_id, data in _compressed(Member.read_all(folder.storage, wanted), inputs):
        buckets.add(node_id, data)
        progress.add(1)
    buckets.flush()
    reached("export.buckets.written")
    if (buckets.sizes < 0).any():
        raise DamagedFileError(
            f"{folder.file(PAGES)}: does not name every NodeID once; move {folder.path} away and run the export again"
        )
    with folder.writing(CONTENT) as file:
        _write_pages(file, buckets.in_order(), progress)
    return buckets.sizes if CONTENT in folder.written else None


def content_sizes(folder: ExportFolder, pages: int, progress: Progress) -> Sizes:
    """Return the sizes of the pages in the existing content file.

    Raises DamagedFileError for another number of pages.
    """
    sizes = np.zeros(pages, dtype=np.int32)
    content = folder.file(CONTENT)
    with folder.storage.open_seekable(content) as file:
        for node_id in range(pages):
            sizes[node_id] = size = int.from_bytes(file.read(4), "big", signed=True)
            if size < 0:
                raise DamagedFileError(f"{content}: page {node_id} has a size of {size}; {AGAIN}")
            file.seek(size + 4, os.SEEK_CUR)
            if node_id % CHUNK_PAGES == 0:
                progress.add(0)
        if file.tell() != folder.sizes()[CONTENT]:
            raise DamagedFileError(f"{content}: does not end with page {pages - 1}; {AGAIN}")
    return sizes


def write_offsets(file: BinaryIO, sizes: Sizes, progress: Progress) -> None:
    """Write `offsets` of pages of these sizes."""
    block, start = 1 << 20, 0
    for first in range(0, len(sizes), block):
        part = sizes[first : first + block].astype(np.int64) + 8
        rows = np.empty(len(part), dtype=OFFSET_ROW)
        rows["node_id"] = np.arange(first, first + len(part))
        ends = np.cumsum(part) + start
        rows["offset"] = ends - part
        start = int(ends[-1])
        file.write(rows.tobytes())
        progress.add(0)


def _write_pages(file: BinaryIO, pages: Iterable[bytes], progress: Progress) -> None:
    parts: list[bytes] = []
    waiting = 0
    for data in pages:
        size = len(data).to_bytes(4, "big", signed=True)
        parts += (size, data, size)
        waiting += len(data) + 8
        if waiting >= WRITE_BYTES:
            file.write(b"".join(parts))
            parts.clear()
            waiting = 0
            progress.add(0)
    file.write(b"".join(parts))


def _compressed(members: Iterable[Member], inputs: Inputs) -> Iterator[tuple[int, bytes]]:
    """Yield the content of records, compressed by all cores.

    The records' order stays.
    """
    threads = os.cpu_count() or 1
    flying: deque[Future[list[tuple[int, bytes]]]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for chunk in _chunks(members):
            flying.append(pool.submit(_compress, chunk, inputs))
            if len(flying) > 2 * threads:
                yield from flying.popleft().result()
        for future in flying:
            yield from future.result()


def _chunks(members: Iterable[Member]) -> Iterator[list[Member]]:
    chunk: list[Member] = []
    size = 0
    for member in members:
        chunk.append(member)
        size += len(member.data)
        if size >= CHUNK_BYTES or len(chunk) >= CHUNK_PAGES:
            yield chunk
            chunk, size = [], 0
    yield chunk


def _compress(chunk: list[Member], inputs: Inputs) -> list[tuple[int, bytes]]:
    pages = []
    for member in chunk:
        data = bytes(
            deflate.zlib_compress(content_of(member, inputs.max_content_bytes), inputs.level)
        )
        if len(data) > MAX_SIZE:
            raise ConfigError(
                f"export.max_content_bytes: {member.wanted.path}: offset {member.wanted.offset}: the compressed page"
                f" has {len(data)} bytes, and the content file holds {MAX_SIZE} at most; set a smaller limit"
            )
        pages.append((member.wanted.node_id, data))
    return pages
