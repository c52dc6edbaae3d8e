"""Engines that sort and join the tables of export and linker: DuckDB on one machine, Spark on many.

How data flows: a stage opens an engine (`open_engine`), defines tables by Parquet files of the store, and reads the
answer of a query as batches in the order of its `order by` (`stream`). A query is a file of `sql/`; both engines run
the same text, so an export has the same bytes with either.

* `duck`: DuckDB in this process. Files of a remote store are read in place (`remote`); sorting spills to scratch.
* `numbers`: numbers for keys and names on this machine, which join links with pages without a query.
* `spark`: Spark reads `spark.dfs_url`, or copies in scratch, sorts by ranges in many tasks, and leaves sorted parts in
  a hidden folder of the export, or in scratch; the stream reads the parts one after the other.

After a crash no data of an engine is needed: the next run of the stage empties scratch and deletes hidden folders.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from crawl_lib.config import Config
from crawl_lib.engine.java import require_engine
from crawl_lib.errors import StoppedError
from crawl_lib.lazy import loads_later

if TYPE_CHECKING:
    from crawl_lib.engine.engine import Engine, Workplace, first_of_each, in_batches, sql_text
    from crawl_lib.engine.numbers import (
        KEY_BYTES,
        Ints,
        KeyNumbers,
        Keys,
        column_of,
        count_sorted,
        hosts_of,
        keys_of,
        numbered,
        numbered_names,
        values_of,
    )
else:
    # Arrow takes a tenth of a second, and the question whether an engine could work (`require_engine`) needs no Arrow.
    __getattr__ = loads_later(
        __name__,
        {
            "engine": ("Engine", "Workplace", "first_of_each", "in_batches", "sql_text"),
            "numbers": (
                "KEY_BYTES",
                "Ints",
                "KeyNumbers",
                "Keys",
                "column_of",
                "count_sorted",
                "hosts_of",
                "keys_of",
                "numbered",
                "numbered_names",
                "values_of",
            ),
        },
    )


@contextmanager
def open_engine(config: Config, room: "Workplace") -> Iterator["Engine"]:
    """Open the engine named by `batch.engine`, for a block.

    Raises ConfigError if Spark cannot run here (its extra or Java is missing, or Spark could not read the store),
    StorageError.
    """
    room.storage.delete(room.hidden)
    if config.batch.engine == "spark":
        engine = _open_spark(config, room)
    else:
        from crawl_lib.engine.duck import open_duck  # noqa: PLC0415 - an eighth of what a task of the crawl imports

        engine = open_duck(room)
    try:
        yield engine
    except BaseException as error:
        # Airflow's time limit and Ctrl-C are no Exception: as after a stop, running queries are not waited for.
        if isinstance(error, StoppedError) or not isinstance(error, Exception):
            engine.interrupt()
        raise
    finally:
        engine.close()


def _open_spark(config: Config, room: "Workplace") -> "Engine":
    require_engine(config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of PySpark about pandas, which is not used
        from crawl_lib.engine.spark import open_spark  # noqa: PLC0415 - an extra, which others need not have
    return open_spark(config, room)
