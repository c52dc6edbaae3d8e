"""What sorts and joins the tables of export and linker: DuckDB on one machine, Spark on many.

How data flows: a stage opens an engine (`open_engine`), tells it which Parquet files of the store are which table
(`tables`, `table`, `values`), and reads the answer of a query as batches in the order of its `order by` (`stream`). A
query is a file of `sql/`; both engines run the same text. The stage writes what it reads, so what an export holds does
not depend on the engine, byte for byte: neither who sorted it nor into how many parts it was cut is seen in a stream.

* `duck`: DuckDB in this process. Files of a remote store are read where they lie (`remote`); sorting spills to scratch.
* `spark`: Spark. It reads `spark.dfs_url`, or copies in scratch, sorts by ranges in many tasks, and leaves sorted parts
  in a hidden folder of the export, or in scratch; the stream reads them one after the other.

What holds after a crash: nothing of an engine is needed later. Scratch is emptied, and a hidden folder is deleted, by
the next run of the stage.
"""

from crawl_lib.engine.base import Engine, Room, in_batches, sql_text
from crawl_lib.engine.opening import open_engine

__all__ = [
    "Engine",
    "Room",
    "in_batches",
    "open_engine",
    "sql_text",
]
