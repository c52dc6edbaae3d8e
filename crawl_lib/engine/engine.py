"""The interface of an engine, and the code that both engines share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, wait
from dataclasses import field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crawl_lib.dataclass import dataclass
from crawl_lib.engine.numbers import column_of, values_of
from crawl_lib.errors import os_errors
from crawl_lib.stopping import Work
from crawl_lib.storage import Storage
from crawl_lib.version import sql_directory

SQL_DIRECTORY = sql_directory()
ROWS, LOOK_S = 1 << 16, 0.5
"""How often a query that runs is asked for its progress, and the stage whether it is to stop."""
Result = TypeVar("Result")


@dataclass(frozen=True)
class Workplace:
    """The place of an engine's work.

    `storage`: paths of tables are paths of it. `scratch`: a folder of this machine's disk that only this stage uses.
    `hidden`: a folder of `storage` for what many machines leave for each other; the caller deletes it.
    `memory_bytes`: what sorting may use before it goes to the disk. `work`: once it is to stop, queries are ended.
    `max_bytes`: most room in `scratch` that sorting may take, None for all there is; Spark does not know it.
    """

    storage: Storage
    scratch: Path
    hidden: str
    memory_bytes: int
    work: Work = field(default_factory=Work)
    max_bytes: int | None = None


class Engine(ABC):
    """Runs the queries of `sql/`, each named by its file: `export/chosen`.

    * Both engines give the same rows in the same order: a query whose order counts orders by columns that no two rows
      share. Binary columns compare by unsigned bytes, texts by the bytes of their UTF-8.
    * Tables keep their types; but binary columns of a fixed size may come back as binary of any size, and a null may
      be where the schema forbids it: the caller casts it when it writes a table.
    * A name of `table`, `values` or `view` may be given again; then views that use it are made again too.
    * A query reads tables behind `from` and `join` alone, and none of `sql/` begins with `with`.
    * Every method raises only StorageError and its children; soon after `Workplace.work` is to stop, StoppedError. A
      table's file that is damaged, and a view that is wrong, may be noticed by the first query that reads them.
    * One object serves one stage and one thread.
    """

    @abstractmethod
    def tables(self, name: str, paths: Sequence[str | None], schema: pa.Schema) -> None:
        """Define one table of Parquet files, with the column `segment`.

        `segment`: the file's place in `paths`.

        `paths`: None for a table without rows that has no file. Columns of `schema` that a file lacks (it is older) are
        null there.
        """

    @abstractmethod
    def table(self, name: str, path: str) -> None:
        """Define a table of one Parquet file."""

    @abstractmethod
    def local_table(self, name: str, path: Path) -> None:
        """Define a table of a local Parquet file.

        The file stays until `close`.
        """

    @abstractmethod
    def values(self, name: str, rows: pa.Table) -> None:
        """Define a small table of given rows."""

    def view(self, name: str, query: str) -> None:
        """Define a view of a query, for other queries."""
        self.define(name, sql_text(query))

    @abstractmethod
    def define(self, name: str, text: str) -> None:
        """Define a view from SQL text with configured expressions."""

    @abstractmethod
    def column(self, query: str) -> list[Any]:
        """Return the first column of a small answer."""

    @abstractmethod
    def stream(self, query: str, rows: int, stage: str = "") -> Iterator[pa.RecordBatch]:
        """Yield a query's ordered answer in batches of `rows`.

        Only the last batch has fewer. Progress of `stage` is reported in percent until the first batch comes: as long
        as sorting takes.
        """

    def rows(self, query: str, stage: str = "") -> Iterator[dict[str, Any]]:
        """Yield the rows of a query's answer in order."""
        for batch in self.stream(query, ROWS, stage):
            yield from batch.to_pylist()

    @abstractmethod
    def keep(self, name: str, query: str, stage: str = "", *, more: bool = False) -> None:
        """Keep a query's unordered answer as a table.

        `more`: behind the rows that the table has.
        """

    @abstractmethod
    def shares(self, size_bytes: int) -> list[str]:
        """Return conditions that divide the keys into shares.

        `key`: a column of 20 evenly spread bytes; shares are in its order. Work that would need `size_bytes` of memory
        for all keys at once is done for each share; what is kept from then on is divided so.
        """

    @abstractmethod
    def interrupt(self) -> None:
        """Make another thread's query fail at once.

        Only `close` may follow.
        """

    @abstractmethod
    def close(self) -> None:
        """Give back memory and disk."""

    def value(self, query: str) -> int:
        """Return the one number of a query's answer."""
        [number] = self.column(query)
        return int(number)


def sql_text(name: str) -> str:
    """Return the query in a file of `sql/`.

    Such as `export/chosen`. Raises StorageError if the installation has lost it.
    """
    path = SQL_DIRECTORY / f"{name}.sql"
    with os_errors(path, "cannot be read"):
        return path.read_text(encoding="utf-8")


def in_batches(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of exactly `rows`.

    Only the last may have fewer, and none is empty.
    """
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += len(batch)
        while count >= rows:
            table = pa.Table.from_batches(waiting)
            yield table.slice(0, rows).combine_chunks().to_batches()[0]
            waiting = table.slice(rows).to_batches()
            count -= rows
    if count:
        yield pa.Table.from_batches(waiting).combine_chunks().to_batches()[0]


def first_of_each(
    batches: Iterable[pa.RecordBatch], names: Sequence[str], most: int
) -> Iterator[pa.RecordBatch]:
    """Yield the first rows of each run of equal values.

    `most` rows of a run; `names`: the columns. A run may span batches. Sorted rows are distinct so at next to no cost;
    a `distinct` in a query takes a third of its time.
    """
    last, before = None, 0  # rows of the run that the batch goes on with
    for batch in filter(len, batches):
        begins, values = np.zeros(len(batch), bool), [batch.column(name) for name in names]
        begins[0] = [value[0] for value in values] != last
        for value in values:
            begins[1:] |= values_of(pc.not_equal(value[1:], value[:-1]))
        numbers, last = np.arange(len(batch)), [value[-1] for value in values]
        starts = np.maximum.accumulate(np.where(begins, numbers, -before))
        before = len(batch) - int(starts[-1])
        yield batch.filter(column_of(numbers - starts < most))


def patiently(
    thread: Executor,
    ask: Callable[[], Result],
    work: Work,
    interrupt: Callable[[], None],
    *,
    stage: str = "",
    percent: Callable[[], int] = int,
) -> Result:
    """Ask in another thread, and stay responsive meanwhile.

    Every `LOOK_S` seconds this thread looks whether to stop, and reports the percentage of `stage`, if it has a name.
    Python hears signals between two of its own instructions: a main thread that is deep in a query for an hour would
    not hear SIGTERM or a time limit. `interrupt` ends the query, once this thread is to stop or an exception comes to
    it; it is called until the query has ended. Raises StoppedError.
    """
    future = thread.submit(ask)
    try:
        while not wait([future], LOOK_S).done:
            work.go_on()
            if stage:
                work.report(stage=stage, done=percent(), total=100, unit="percent")
        return future.result()
    finally:
        while not future.done():
            interrupt()
            wait([future], LOOK_S)
