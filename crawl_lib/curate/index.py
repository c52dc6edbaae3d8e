"""`krake index cdxj`: the indexes of all segments as one CDXJ file, for replay of the crawl by pywb and others.

The segments are read one after another. Their lines get the present urlkey, since older segments may have others, and
the path of the WARC file from the crawl directory. Runs on the disk are sorted, so neither memory nor open files grow
with the crawl. Dropped pages are left out.

The file is derived: it may be deleted and made again, and replaces an existing file. Changes of segments by hand
(`krake segment`) and deletions of folders make the file out of date.
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
from crawl_lib.segment import Manifest, RunWriter, SegmentReader, surt
from crawl_lib.stores import Stores
from crawl_lib.urls import key_of

RUN_LINES = 50_000
PROGRESS_LINES = 10_000


@dataclass
class IndexReport:
    """The content of the index. `file`: its path; `dropped`: captures of dropped pages, which are left out."""

    file: str
    segments: int = 0
    captures: int = 0
    dropped: int = 0


def merge_indexes(stores: Stores, output: Path | None = None) -> IndexReport:
    """Write one index of all committed segments.

    `output`: a file of this machine; None: in the crawl directory. Half-done repairs are carried out first: until then
    a segment may have no visible place. Raises ConfigError if the crawl directory is not on this machine, InputError
    without a segment or for an existing file that is no index, DamagedFileError or PathNotFoundError naming the
    segment's index, StorageError, LockedError while another process of this machine repairs segments or makes an index.
    """
    path = output or stores.storage.local_path(stores.crawl.at(Manifest.INDEX_NAME))
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
        _write(stores, path, runs.merged(room), report)
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

    They have the present key, and a path from the crawl directory.
    """
    where = f"{segment.path}/{Manifest.INDEX_NAME}"
    reader = SegmentReader(stores.storage, segment.path)
    if reader.lacks(Manifest.INDEX_NAME):
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
    )  # `krake sweep` finds this name after a kill
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
