"""`krake index cdxj`: the indexes of all segments as one CDXJ file, by which pywb and others replay the crawl.

The segments are read one after another. Their lines get the urlkey of today, since older segments may have others, and
the path of the WARC file from the crawl directory; they are sorted by runs on the disk, so that neither memory nor open
files grow with the crawl. Pages that were dropped are left out.

The file is derived: it may be deleted and made again, and takes the place of one that is there. What changes segments
by hand (`krake segment`) or deletes folders makes it old.
"""

import json
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from crawl_lib.crawldir import SegmentRef
from crawl_lib.durable import fsync_file, reached, rename_durable
from crawl_lib.errors import ConfigError, DamagedFileError, InputError, PathNotFoundError, os_errors
from crawl_lib.repair import finish_all_swaps, repairs_locked
from crawl_lib.scratch import scratch_folder
from crawl_lib.segment import INDEX_NAME, RunWriter, SegmentReader, merge_many, surt
from crawl_lib.stores import Stores
from crawl_lib.urls import key_of

RUN_LINES = 50_000
PROGRESS_LINES = 10_000


@dataclass
class IndexReport:
    """Content of the index. `file`: where it is; `dropped`: captures of dropped pages, which it does not hold."""

    file: str
    segments: int = 0
    captures: int = 0
    dropped: int = 0


def merge_indexes(stores: Stores, output: Path | None = None) -> IndexReport:
    """Write one index of all committed segments.

    `output`: a file of this machine; None: in the crawl directory. Repairs that were stopped half-way are carried out
    first: a segment may be nowhere until then. Raises ConfigError if that directory is not on this machine, InputError
    without a segment or where a file that is no index is there, DamagedFileError or PathNotFoundError naming the
    segment's index, StorageError, LockedError while another process of this machine repairs segments or makes an index.
    """
    path = output or stores.storage.local_path(stores.crawl.at(INDEX_NAME))
    if path is None:
        raise ConfigError(
            f"the crawl directory is on {stores.storage.name}: name a file of this machine with --output"
        )
    _require_index(path)
    report = IndexReport(str(path))
    with repairs_locked(stores), scratch_folder(stores.config, "repair-index") as room:
        finish_all_swaps(stores)
        runs = RunWriter(room / "run", RUN_LINES)
        for segment in stores.crawl.segments():
            report.segments += 1
            for line in _lines(stores, segment, report):
                runs.add(line)
        if not report.segments:
            raise InputError(
                f"{stores.crawl.path}: there is no segment yet; `krake crawl` makes some"
            )
        runs.flush()
        _write(stores, path, merge_many(runs.paths, room), report)
    return report


def _require_index(path: Path) -> None:
    """Refuse to replace a file other than an index.

    The name may be a slip.
    """
    first = b""
    with os_errors(path, "cannot be read"), suppress(FileNotFoundError), path.open("rb") as file:
        first = file.readline(1 << 16)
    if first and b" {" not in first:
        raise InputError(
            f"{path}: is there already, and is no index: choose another name, or delete it"
        )


def _lines(stores: Stores, segment: SegmentRef, report: IndexReport) -> Iterator[str]:
    """Yield a segment's lines for the crawl's index.

    They have the key of today, and a path from the crawl directory.
    """
    where = f"{segment.path}/{INDEX_NAME}"
    reader = SegmentReader(stores.storage, segment.path)
    if reader.lacks(INDEX_NAME):
        return
    dropped = reader.dropped
    try:
        file = stores.storage.open_read(where)
    except PathNotFoundError as error:
        raise PathNotFoundError(f"{where}: is gone; run `krake fsck --repair`") from error
    with file:
        for number, line in enumerate(file, 1):
            if number % PROGRESS_LINES == 1:
                stores.report(**asdict(report))
            try:
                _, stamp, text = line.decode().split(" ", 2)
                value = json.loads(text)
                value["filename"] = f"{segment}/{value['filename']}"
                urlkey, is_dropped = surt(value["url"]), key_of(value["url"]) in dropped
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise DamagedFileError(
                    f"{where}: line {number} cannot be read: {error!r}; run `krake fsck --repair`"
                ) from error
            report.dropped += is_dropped
            report.captures += not is_dropped
            if not is_dropped:
                yield f"{urlkey} {stamp} {json.dumps(value)}"


def _write(stores: Stores, path: Path, lines: Iterator[bytes], report: IndexReport) -> None:
    """Write the lines next to the file, then replace it."""
    temporary = path.with_name(
        f".{path.name}.{uuid.uuid4().hex}"
    )  # which `krake sweep` finds after a kill
    with os_errors(path, "cannot be written"):
        try:
            with temporary.open("wb") as file:
                for number, line in enumerate(lines):
                    file.write(line)
                    if number % PROGRESS_LINES == 0:
                        stores.report(**asdict(report))
                fsync_file(file)
            reached("curate.index.written")
            rename_durable(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
