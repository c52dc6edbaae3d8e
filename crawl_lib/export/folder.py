"""The export directory: names of its files, and how a file of it becomes visible."""

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from crawl_lib.durable import reached
from crawl_lib.engine import Engine, Workplace, open_engine
from crawl_lib.errors import (
    InputError,
    OutputConflictError,
    PathNotFoundError,
    TargetExistsError,
)
from crawl_lib.export.choice import NAME_PATTERN, Inputs, SegmentInput
from crawl_lib.export.tables import ExportTable
from crawl_lib.scratch import scratch_folder
from crawl_lib.segment import SegmentReader
from crawl_lib.stopping import Progress
from crawl_lib.stores import Stores


class ExportFolder:
    """One export on the DFS. Its files appear whole, by rename, and are never changed again.

    A file is written as `.<name>.<attempt>` next to its place, and renamed when it is whole and durable. The next
    attempt deletes what an earlier one left, so one that still runs, on a machine that was given up, fails at its
    rename.
    `path`: below the storage's root. `written`: names of files that are there as this object wrote them.
    """

    INPUTS = "inputs"

    def __init__(self, stores: Stores, name: str) -> None:
        if not NAME_PATTERN.fullmatch(name):
            raise InputError(
                f"export name {name!r}: use letters, digits, '.', '_' and '-', a letter or digit first"
            )
        self.stores, self.storage, self.name = stores, stores.storage, name
        self.written: set[str] = set()
        self.path = f"{stores.config.export.directory.strip('/')}/{name}"

    def file(self, name: str) -> str:
        """Return the path of a file of the export."""
        return f"{self.path}/{name}"

    def sizes(self) -> dict[str, int]:
        """Return each file's size, hidden leftovers included."""
        if not self.storage.exists(self.path):
            return {}
        return {entry.name: entry.size_bytes for entry in self.storage.list(self.path)}

    def has(self, *names: str) -> bool:
        """Say whether all these files exist."""
        return self.sizes().keys() >= set(names)

    def read_inputs(self) -> Inputs:
        """Read the file `inputs`.

        Raises PathNotFoundError if there is no such export, DamagedFileError.
        """
        place = self.file(self.INPUTS)
        try:
            return Inputs.from_bytes(self.storage.read_bytes(place), place)
        except PathNotFoundError as error:
            raise PathNotFoundError(
                f"{self.path}: there is no such export (it has no {self.INPUTS}); {listed_exports(self.stores)}"
            ) from error

    def is_empty(self) -> bool:
        """Say whether there is no file except leftovers."""
        return all(name.startswith(".") for name in self.sizes())

    def begun(self, now: Inputs) -> tuple[Inputs, tuple[SegmentInput, ...]]:
        """Return the export's inputs, and later segments of `now`.

        Without an export, `now` and no segments. Raises OutputConflictError where the folder is an export of something
        else, or none.
        """
        if self.has(self.INPUTS):
            inputs = self.read_inputs()
            late = inputs.late(now)
            if late is None:
                raise OutputConflictError(
                    f"{self.path}: the export {self.name!r} exists already and was made of other segments or options"
                    f" (see {self.file(self.INPUTS)}), or before pages of them were dropped; choose another label, or"
                    " move that folder away"
                )
            return inputs, late
        if not self.is_empty():
            raise OutputConflictError(
                f"{self.path}: has files but no {self.INPUTS}, so it is not an export of Krake;"
                " choose another label, or move that folder away"
            )
        return now, ()

    def claim(self, inputs: Inputs) -> None:
        """Write `inputs`, the first file, unless it exists.

        Raises OutputConflictError if it differs. Nothing of `inputs` is late: an attempt on another machine may have
        been faster, with fewer segments.
        """
        if not self.has(self.INPUTS):
            with self.writing(self.INPUTS) as file:
                file.write(inputs.to_bytes())
        first, late = self.begun(inputs)
        if first.crawldb != inputs.crawldb:
            raise OutputConflictError(
                f"{self.path}: was begun by another attempt with another CrawlDb; run it again"
            )
        if late:
            raise OutputConflictError(
                f"{self.path}: was begun by another attempt without {late[0].path}; run it again"
            )

    def require(self, names: Sequence[str], command: str) -> None:
        """Check that files exist.

        Raises PathNotFoundError naming missing ones and the command that makes them.
        """
        sizes = self.sizes()
        for name in names:
            if name not in sizes:
                raise PathNotFoundError(
                    f"{self.file(name)}: is not there; run `{command}` for {self.name!r} first"
                )

    def engine(self, scratch: Path) -> AbstractContextManager[Engine]:
        """Return an engine for this export.

        It works in `scratch`, and in a hidden folder here.
        """
        hidden, limits = self.file(".engine"), self.stores.config.scratch
        room = Workplace(
            self.storage, scratch, hidden, limits.memory_bytes, self.stores, limits.max_bytes
        )
        return open_engine(self.stores.secrets.dfs.applied(self.stores.config), room)

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        """Give a file to write, and name it after success.

        Its hidden name belongs to this attempt alone. Its hidden name is of this attempt alone, after what others left
        is deleted: none renames what another writes.
        """
        for left in self.sizes():
            if left.startswith(f".{name}."):
                self.storage.delete(self.file(left))
        hidden = self.file(f".{name}.{uuid.uuid4().hex}")
        with self.storage.open_write(hidden) as file:
            yield file
        reached(f"export.{name}.written")
        try:
            self.storage.rename(hidden, self.file(name))
            self.written.add(name)
        except TargetExistsError:
            # Another attempt was faster. Equal inputs give equal content, so its file will do.
            self.storage.delete(hidden)
        reached(f"export.{name}.published")

    def changed_segments(self, inputs: Inputs) -> Iterator[tuple[SegmentInput, bool]]:
        """Yield the changed segments, and whether each is gone.

        The change is since the export was begun.
        """
        for segment in self.stores.until_stopped(inputs.segments):
            try:
                now = SegmentReader(self.storage, segment.path).digest
            except PathNotFoundError:
                yield segment, True
            else:
                if now != segment.manifest_sha256:
                    yield segment, False

    def check_segments(self, inputs: Inputs) -> None:
        """Check that no segment of an export has changed.

        Raises PathNotFoundError or OutputConflictError naming the segment, the export and what to do, and StoppedError.
        """
        for segment, is_gone in self.changed_segments(inputs):
            if is_gone:
                raise PathNotFoundError(
                    f"export {self.name!r} was begun with segment {segment.path}, which is gone;"
                    f" bring it back, or move {self.path} away and export what is left"
                )
            raise OutputConflictError(
                f"export {self.name!r} was begun with another state of segment {segment.path} (pages were dropped"
                f" since, or its manifest.json has changed); choose another label for a new export, or move"
                f" {self.path} away"
            )

    def table(self, name: str) -> ExportTable:
        """Return a table of the export."""
        return ExportTable(self.storage, self.file(name))

    def write_table(
        self,
        name: str,
        rows: Iterable[pa.Table],
        progress: Progress,
        *,
        schema: pa.Schema | None = None,
        dictionary: bool = True,
    ) -> None:
        """Write a table of the export.

        Each of `rows` becomes a row group. `schema`: the table's own with metadata. `dictionary`: as Parquet
        understands it. The file is begun when the first rows are there: a server would not wait for it while they are
        sorted.
        """
        schema = schema or ExportTable.SCHEMAS[name]
        waiting = iter(rows)
        first = list(islice(waiting, 1))
        with (
            self.writing(name) as file,
            pq.ParquetWriter(
                file,
                schema,
                compression="zstd",
                use_dictionary=dictionary,
                write_page_checksum=True,
            ) as writer,
        ):
            for table in chain(first, waiting):
                writer.write_table(table.cast(schema), row_group_size=max(1, len(table)))
                progress.add(len(table))
        progress.end()

    @contextmanager
    def local_files(self) -> Iterator[Callable[[str], Path]]:
        """Give a function from file names to local paths.

        The paths are good within the block. Files of a remote store are copied to a folder of this reader in the
        scratch directory, which is deleted at the end.
        """
        local = self.storage.local_path(self.path)
        if local is not None:
            yield local.joinpath
            return
        with scratch_folder(self.stores.config, f"read-{self.name}-{uuid.uuid4().hex}") as scratch:

            def copied(file: str) -> Path:
                self.storage.download(self.file(file), scratch / file)
                return scratch / file

            yield copied


def list_exports(stores: Stores) -> list[str]:
    """Return the names of the exports, sorted."""
    path = stores.config.export.directory.strip("/")
    if not stores.storage.exists(path):
        return []
    folders = [entry.name for entry in stores.storage.list(path) if entry.is_dir]
    return sorted(name for name in folders if NAME_PATTERN.fullmatch(name))


def listed_exports(stores: Stores) -> str:
    """Return the existing exports, for messages about a missing one."""
    names = list_exports(stores)
    return (
        f"there are {', '.join(names[-10:])} ({len(names)} in all)"
        if names
        else "run `krake export` first"
    )
